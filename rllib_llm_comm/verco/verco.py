"""Verco: PPO for language-model agents that talk before they act (arXiv 2404.17780): settings, loss, algorithm."""

from __future__ import annotations

import copy
import functools
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import torch
import tree
from pettingzoo.env_registry import registration
from pydantic import Field, model_validator
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule, MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.annotations import override
from ray.rllib.utils.typing import ModuleID, ParamDict
from typing_extensions import Self

from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.core.phases import UPDATE, phase
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.language.adapters import ACTION, MESSAGE
from rllib_llm_comm.rl.connectors import AddObservationsInOrder
from rllib_llm_comm.rl.multi_agent_ppo import (
    ACTOR,
    CRITIC,
    ActorTerms,
    Minibatch,
    MultiAgentPPOConfig,
    MultiAgentPPOLearner,
    PPOTraining,
)
from rllib_llm_comm.rl.past_policies import KeepsPastPolicies, PastSettings
from rllib_llm_comm.rl.rllib_adapter import StartAlike, playable_id
from rllib_llm_comm.rl.strict_config import (
    PER_AGENT,
    AgentPoliciesMixin,
    Schedule,
    agents_apart,
)
from rllib_llm_comm.rl.train_batch import SemiMarkovGAE, WholeEpochs
from rllib_llm_comm.verco.advantages import (
    EPISODE,
    GAE,
    MESSAGE_ADVANTAGES,
    PROMPT,
    SPEAKER,
    AddGroupAdvantages,
    MessageCredit,
)
from rllib_llm_comm.verco.encoding import MESSAGE_LOGP
from rllib_llm_comm.verco.language_network import spoken
from rllib_llm_comm.verco.message_protocol import require_possible
from rllib_llm_comm.verco.module import (
    MESSAGE_ENTROPY,
    MESSAGE_KL,
    MESSAGE_LOG_PROBS,
    AdapterCheckpointMixin,
    AddTeacherMessages,
    LanguageModelConfigMixin,
    LLMCommModule,
    LLMCommMultiModule,
    MessageExchange,
)
from rllib_llm_comm.verco.settings import (
    OTHER_FACT,
    SHUFFLED,
    SWAPPED,
    LanguageModelSettings,
    MessageCheckpointSettings,
)
from rllib_llm_comm.verco.teachers.base import portable_teacher

logger = logging.getLogger(__name__)


# ---- settings ---------------------------------------------------------------------------------------------------


_COMPLETE = "complete_episodes"
_NO_FLOOR = (0.0, 0.02)


class VercoTraining(PastSettings, PPOTraining):
    """The optimisation. Settings of messages take effect with `train_messages`; Verco freezes them."""

    lr: Schedule = 2e-3
    """Learning rate of the action adapter, or a schedule. 2e-3 (ours, for the embedded model); TWOSOME with LLaMA-7B:
    5e-7."""
    advantage_floor: float = Field(0.02, ge=0)
    """Advantages are divided by their standard deviation, but by no less than this, in units of reward; groups have no
    use for it. 0.02 (ours)."""
    message_lr: float = Field(2e-4, gt=0)
    """Learning rate of the message adapter. 2e-4 (ours): a message is many tokens, so its probability changes faster
    than that of an action."""
    message_credit: Literal["speaker", "team", "listeners"] = "speaker"
    """The advantage that a message gets: `"speaker"` (the speaker's own, as part of its action), `"team"` (mean over
    all agents) or `"listeners"` (mean over those who heard it). All ours; where agents are paid apart, only the last
    two pay for helping."""
    message_entropy_coeff: float | None = Field(None, ge=0)
    """Weight of the entropy of messages; None (ours): that of `entropy_coeff`."""
    message_kl_coeff: float | None = Field(None, ge=0)
    """Weight of the KL divergence of messages from those that were learned from the teacher, in nats per message; the
    first weight where `message_kl_target` is set. None (ours): 0.1 for written messages, 0 for a menu, whose phrases
    stay what they are."""
    message_kl_target: float | None = Field(None, gt=0)
    """Divergence in nats per message towards which the weight is adapted after every update, as in Ziegler et al.
    (arXiv 1909.08593, section 2.2); None: a constant weight."""
    advantages: Literal["gae", "rloo", "grpo"] = "gae"
    """`"gae"` (Verco, TWOSOME): from a critic. `"rloo"` (arXiv 2402.14740): an episode's return minus the mean of the
    others in its group. `"grpo"` (arXiv 2402.03300): minus the group's mean, divided by its standard deviation. The
    last two have no critic and want `batch_mode` "complete_episodes" (docs/algorithms/group_baselines.md)."""
    group_size: int = Field(4, ge=1, le=LARGEST)
    """Games side by side that begin alike, at least 2 (with `group_by` "prompt" 1, which is different starts);
    `num_envs_per_env_runner` must be a multiple of it. RLOO: 2 and 4; GRPO: 64."""
    group_by: Literal["episode", "prompt"] = "episode"
    """`"episode"` (RLOO, GRPO): an agent's whole episodes of equal start. `"prompt"` (after the step groups of arXiv
    2505.10978): an agent's decisions behind equal prompts, by what followed."""
    normalize_by_std: bool = True
    """With "grpo", whether differences are divided by the group's standard deviation (GRPO); false is Dr. GRPO (arXiv
    2503.20783)."""
    normalize_by_length: bool = True
    """With "grpo", whether each episode counts alike, however many decisions it has (GRPO, per answer); false is Dr.
    GRPO: each decision counts alike."""

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        least = 1 if self.group_by == PROMPT else 2
        if self.group_size < least:
            raise UserError(
                f"`group_size` is {self.group_size} but must be a whole number of at least {least} with `group_by` "
                f"{self.group_by!r}."
            )
        if self.advantages != GAE and self.advantage_floor not in _NO_FLOOR:
            raise UserError(
                f"`advantage_floor` is {self.advantage_floor!r} with `advantages` {self.advantages!r}, which stay in "
                "units of reward or of their group; omit it."
            )
        return self


class VercoCommunication(MessageCheckpointSettings):
    """Settings of `.communication(...)`: the messages, and a teacher that may write them."""

    teacher: str | Mapping[str, Any] | None = None
    """For `messages="teacher"`: a teacher's registered name, or a dict with `name` and its arguments."""


class VercoLanguageModel(LanguageModelSettings):
    """Settings of `.language_model(...)`: the model, and the checkpoint from which its action adapter is loaded."""

    action_checkpoint: str | None = None
    """Checkpoint of `ActionSFT` (or of `Verco`), or a PEFT adapter folder, whose action adapter is loaded when the
    algorithm is built. None: a fresh adapter."""


# ---- the loss -----------------------------------------------------------------------------------------------------


Result = TypeVar("Result")
_KL_COEFF_OF_TEXT = 0.1  # default of `message_kl_coeff` for written messages (ours)
_KL_GAIN, _LARGEST_KL_ERROR = 0.1, 0.2  # of `adapted_kl_coeff`, as in arXiv 1909.08593
_LEAST_ENTROPY = 1e-2  # nats; a policy that begins below it samples one action nearly always


def initial_kl_coeff(config: Any) -> float:
    """The first weight of the KL divergence of messages: `message_kl_coeff` of a config, its default resolved."""
    if config.message_kl_coeff is None:
        return _KL_COEFF_OF_TEXT if config.messages == "student" else 0.0
    return float(config.message_kl_coeff)


def adapted_kl_coeff(coefficient: float, kl: float, target: float) -> float:
    """The next weight beta of a KL divergence that is held near a target (arXiv 1909.08593, section 2.2).

    With e the relative error (kl - target) / target, cut to [-0.2, 0.2], beta is multiplied by 1 + 0.1 e.

    Args:
        coefficient: The weight up to now, > 0.
        kl: The divergence measured with it.
        target: The divergence aimed at, > 0.
    """
    error = min(max(kl / target - 1.0, -_LARGEST_KL_ERROR), _LARGEST_KL_ERROR)
    return coefficient * (1.0 + _KL_GAIN * error)


class VercoLearner(MultiAgentPPOLearner):
    """Trains `LLMCommModule`s: their action adapter and critic and, with `train_messages`, their message adapter.

    A trained message is part of the decision (docs/algorithms/verco.md): with the credit `"speaker"` the ratio is that
    of message and action together; otherwise the message has a clipped surrogate objective of its own, with advantages
    of `MessageCredit`. The loss then has two terms more: the exact entropy of the message's tokens, and its KL
    divergence from the reference.

    With `advantages` "rloo" or "grpo" there is no critic and no value loss; advantages are those of
    `AddGroupAdvantages`.

    A minibatch with more tokens than `micro_batch_tokens` is computed in parts whose gradients are added up:
    `_in_parts` computes those of the actor, before the losses. Where the memory of a GPU does not hold it, the parts
    get smaller. In half precision ratios are taken from log-probabilities of the update itself.
    """

    mean_over_rows: ClassVar[bool] = False
    """True says of a subclass that its `actor_terms` and `actor_objective` are means over rows, too, so that gradients
    of parts add up. Else the module computes large minibatches in parts whose activations it computes twice."""
    rates: ClassVar[Mapping[str, str]] = {ACTOR: "lr", MESSAGE: "message_lr", CRITIC: "critic_lr"}

    @override(MultiAgentPPOLearner)
    def build(self) -> None:
        """Builds as PPO does."""
        self._checked_entropy = False
        self._message_kls: dict[ModuleID, list[float]] = defaultdict(list)
        self._rounding_errors: dict[ModuleID, torch.Tensor] = {}
        super().build()

    @override(MultiAgentPPOLearner)
    def advantage_pieces(self) -> Sequence[ConnectorV2]:
        """The estimator that `advantages` names, and that of messages where these have credit of their own."""
        config: Any = self.config
        apart = config.train_messages and config.message_credit != SPEAKER
        piece: ConnectorV2
        if config.advantages == GAE:
            piece = SemiMarkovGAE(
                gamma=config.gamma, lambda_=config.lambda_, floor=config.advantage_floor, keep_raw=apart
            )
        else:
            piece = AddGroupAdvantages(
                estimator=config.advantages,
                group_by=config.group_by,
                by_std=config.normalize_by_std,
                by_length=config.normalize_by_length,
                gamma=config.gamma,
                keep_raw=apart,
            )
        credit = MessageCredit(credit=config.message_credit, floor=config.advantage_floor)
        return [piece, credit] if apart else [piece]

    @override(MultiAgentPPOLearner)
    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Starts an update."""
        super().before_gradient_based_update(timesteps=timesteps)
        self._message_kls.clear()
        self._rounding_errors.clear()

    @override(MultiAgentPPOLearner)
    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Adapts the weight of the KL divergence of messages to `message_kl_target`."""
        super().after_gradient_based_update(timesteps=timesteps)
        for module_id, kls in self._message_kls.items():
            config: Any = self.config.get_config_for_module(module_id)
            if config.message_kl_target is not None and kls:
                module = self.module[module_id].unwrapped()
                before = self._message_kl_coeff(module, config)
                module.message_kl_coeff = adapted_kl_coeff(before, sum(kls) / len(kls), config.message_kl_target)

    # ---- terms ----------------------------------------------------------------------------------------------------

    @override(MultiAgentPPOLearner)
    def critic_loss(self, minibatch: Minibatch) -> torch.Tensor:
        """As PPO's; 0 where advantages come from groups, without a critic."""
        if minibatch.config.advantages == GAE:
            return super().critic_loss(minibatch)
        return torch.zeros((), device=minibatch.rows[Postprocessing.ADVANTAGES].device)

    @override(MultiAgentPPOLearner)
    def actor_terms(self, minibatch: Minibatch) -> ActorTerms:
        """As PPO's; what was said is part of the action, or has an advantage of its own."""
        acted, rows, out = super().actor_terms(minibatch), minibatch.rows, minibatch.out
        if MESSAGE_LOG_PROBS not in out:
            return acted
        of_message = out[MESSAGE_LOG_PROBS] - rows[Columns.OBS][MESSAGE_LOGP][:, 0]
        log_ratio = acted.log_ratio + of_message  # what was said is part of the action
        if MESSAGE_ADVANTAGES in rows:
            credited = self.surrogate(minibatch, of_message.exp(), rows[MESSAGE_ADVANTAGES])
            loss = acted.policy_loss - credited.mean()
        else:
            loss = -self.surrogate(minibatch, log_ratio.exp(), rows[Postprocessing.ADVANTAGES]).mean()
        return acted._replace(log_ratio=log_ratio, policy_loss=loss)

    @override(MultiAgentPPOLearner)
    def actor_objective(self, minibatch: Minibatch, terms: ActorTerms) -> torch.Tensor:
        """As PPO's; of messages their KL divergence from the reference is added, less their entropy bonus."""
        objective, config, out = super().actor_objective(minibatch, terms), minibatch.config, minibatch.out
        if MESSAGE_LOG_PROBS not in out:
            return objective
        entropy_coeff = config.message_entropy_coeff
        if entropy_coeff is None:
            entropy_coeff = self._entropy_coeff(minibatch.module_id)
        kl = self._message_kl_coeff(minibatch.module, config) * out[MESSAGE_KL]
        return objective + (kl - entropy_coeff * out[MESSAGE_ENTROPY])

    @override(MultiAgentPPOLearner)
    def _actor_loss(self, minibatch: Minibatch) -> torch.Tensor:
        module_id, out = minibatch.module_id, minibatch.out
        if MESSAGE_LOG_PROBS in out:
            entropy, kl = out[MESSAGE_ENTROPY], out[MESSAGE_KL]
            self._message_kls[module_id].append(float(self._mean_over_learners(kl.detach())))
            coefficient = self._message_kl_coeff(minibatch.module, minibatch.config)
            self.log_values(module_id, message_entropy=entropy, message_kl=kl, message_kl_coeff=coefficient)
        return super()._actor_loss(minibatch)

    def _message_kl_coeff(self, module: Any, config: Any) -> float:
        adapted = module.message_kl_coeff if config.message_kl_target is not None else None
        return initial_kl_coeff(config) if adapted is None else float(adapted)

    @override(MultiAgentPPOLearner)
    def _log_first_minibatch(self, module_id: ModuleID, terms: ActorTerms, batch: Mapping[str, Any]) -> None:
        super()._log_first_minibatch(module_id, terms, batch)
        if module_id in self._rounding_errors:  # its log-probabilities are no longer those of the roll-out
            self.log_values(module_id, roll_out_ratio_error=self._rounding_errors[module_id])
        # The usual trap with a language model that has never read a game's phrases.
        if not self._checked_entropy and terms.entropy < _LEAST_ENTROPY:
            logger.warning(
                "The untrained policy takes the same action nearly always (entropy %.1e), so it will hardly learn: the "
                "language model finds one candidate far likelier than the others. `rllib calibrate FILE` finds a "
                "`temperature` and `score_normalization` that keep it open.",
                float(terms.entropy.detach()),
            )
        self._checked_entropy = True

    # ---- half precision --------------------------------------------------------------------------------------------

    @override(MultiAgentPPOLearner)
    def _create_iterator_if_necessary(self, **kwargs: Any) -> Any:
        iterator = super()._create_iterator_if_necessary(**kwargs)
        if isinstance(iterator, WholeEpochs):
            with phase(UPDATE, whole=True):
                self._recompute_log_probs(iterator)
        return iterator

    def _recompute_log_probs(self, iterator: WholeEpochs) -> None:
        """Replaces the roll-out's log-probabilities by the update's own where rounding makes the two differ.

        In half precision a result depends on the shape of its batch, and over a phrase the difference is as large as
        what a step of PPO does to a ratio. So old log-probabilities are computed again, in the very minibatches of the
        first epoch. Decisions of older weights keep theirs.
        """
        modules = {name: self.module[name].unwrapped() for name in self.module.keys()}  # noqa: SIM118
        rounded = {
            name: module
            for name, module in modules.items()
            if isinstance(module, LLMCommModule) and module.rounds_by_batch
        }
        if not rounded:
            return
        apart: dict[ModuleID, list[torch.Tensor]] = defaultdict(list)
        for module_id, rows, part in iterator.first_epoch():
            if (module := rounded.get(module_id)) is None:
                continue
            columns = iterator.columns(module_id)
            out = self._within_memory({module_id: part}, functools.partial(self._outputs, module_id, part))
            distribution = module.get_train_action_dist_cls().from_logits(out[Columns.ACTION_DIST_INPUTS].detach())
            old, new = part[Columns.ACTION_LOGP], distribution.logp(part[Columns.ACTIONS])
            newest = self._of_newest_weights(part)
            apart[module_id].append(((new - old)[newest].exp() - 1.0).abs())
            columns[Columns.ACTION_LOGP][rows[newest.to(rows.device)]] = new[newest]
            if MESSAGE_LOG_PROBS in out:
                said = columns[Columns.OBS][MESSAGE_LOGP]
                said[rows[newest.to(rows.device)], 0] = out[MESSAGE_LOG_PROBS].detach()[newest].to(said)
        for module_id, parts in apart.items():
            self._rounding_errors[module_id] = torch.cat(parts).mean()
            self.log_values(module_id, roll_out_ratio_error=self._rounding_errors[module_id])

    # ---- micro-batches --------------------------------------------------------------------------------------------

    @override(MultiAgentPPOLearner)
    def _losses_and_gradients(
        self, batch: Mapping[ModuleID, Any], live: Mapping[ModuleID, Any]
    ) -> tuple[dict[ModuleID, Any], dict[ModuleID, Any], ParamDict]:
        def compute() -> tuple[dict[ModuleID, Any], dict[ModuleID, Any], ParamDict]:
            """Outputs and losses by module, and gradients by parameter; modules too large for one pass go in parts."""
            split = {module_id: parts for module_id, rows in live.items() if (parts := self._parts(module_id, rows))}
            whole = {module_id: rows for module_id, rows in live.items() if module_id not in split}
            outputs = dict(self.module.forward_train(whole)) if whole else {}
            of_parts: dict[ModuleID, ParamDict] = {}
            for module_id, parts in split.items():
                outputs[module_id], of_parts[module_id] = self._in_parts(module_id, live[module_id], parts)
            outputs = {module_id: outputs.get(module_id, {}) for module_id in batch}
            losses = self.compute_losses(fwd_out=outputs, batch=dict(batch))
            gradients = self.compute_gradients(losses)
            for module_id, own in of_parts.items():
                if module_id not in self.stopped:
                    gradients.update(own)
            return outputs, losses, gradients

        return self._within_memory(live, compute)

    def _parts(self, module_id: ModuleID, rows: Mapping[str, Any]) -> list[torch.Tensor]:
        """Row numbers of the parts of a minibatch whose gradients are added up; none where it is computed as a whole.

        DDP (several Learners) expects one backward pass, and the loss of a subclass may be no mean over rows. In both
        cases the module itself splits the minibatch and computes each part again in the backward pass.
        """
        module, classes = self.module[module_id].unwrapped(), type(self).__mro__
        overridden = {name for one in classes[: classes.index(VercoLearner)] for name in vars(one)}
        whole = overridden & {"compute_loss_for_module", "_actor_loss"}
        if not self.mean_over_rows:
            whole |= overridden & {"actor_terms", "actor_objective"}
        added = self.config.num_learners <= 1 and self._grad_scalers is None and isinstance(module, LLMCommModule)
        if whole or not added:
            return []
        parts: list[torch.Tensor] = module.network.micro_batches(rows[Columns.OBS])
        return parts if len(parts) > 1 else []

    def _outputs(self, module_id: ModuleID, rows: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """A module's outputs for a minibatch, computed in the parts in which its gradients are."""
        parts = self._parts(module_id, rows)
        if not parts:
            return dict(self.module[module_id].unwrapped().forward_train(dict(rows)))
        outputs = [_detached(one.out) for one in self._forward(module_id, rows, parts)]
        return _joined(outputs, parts, _message_shares(rows, parts))

    def _in_parts(
        self, module_id: ModuleID, rows: Mapping[str, Any], parts: list[torch.Tensor]
    ) -> tuple[dict[str, torch.Tensor], ParamDict]:
        """The same for given parts, and by parameter the gradients of the actor's objective, added up."""
        trained, message_shares = self._policy_parameters(module_id), _message_shares(rows, parts)
        outputs: list[dict[str, torch.Tensor]] = []
        gradients: ParamDict = {}
        for number, minibatch in enumerate(self._forward(module_id, rows, parts)):
            outputs.append(_detached(minibatch.out))
            # A part counts by its share of the rows; a mean over messages, which has no rows, by that of the messages.
            share = len(parts[number]) / sum(map(len, parts))
            scale = message_shares[number] / share
            out = {name: value if value.dim() else scale * value for name, value in minibatch.out.items()}
            minibatch = minibatch._replace(out=out)
            _add_gradients(gradients, trained, share * self.actor_objective(minibatch, self.actor_terms(minibatch)))
        return _joined(outputs, parts, message_shares), gradients

    def _forward(self, module_id: ModuleID, rows: Mapping[str, Any], parts: list[torch.Tensor]) -> Iterator[Minibatch]:
        module, config = self.module[module_id].unwrapped(), self.config.get_config_for_module(module_id)
        for part in parts:
            own = tree.map_structure(lambda column, part=part: column[part.to(column.device)], dict(rows))
            yield Minibatch(module_id, module, config, own, module.forward_train(own))

    def _within_memory(self, batch: Mapping[ModuleID, Any], compute: Callable[[], Result]) -> Result:
        """What a function computes; it is called again with smaller micro-batches while the GPU runs out of memory."""
        while True:
            counted = self._minibatches.copy(), self._policy_steps.copy(), copy.deepcopy(self._message_kls)
            try:
                return compute()
            except torch.cuda.OutOfMemoryError:
                self._minibatches, self._policy_steps, self._message_kls = counted
                if not self._halve_micro_batches(batch):
                    raise

    def _halve_micro_batches(self, batch: Mapping[ModuleID, Any]) -> bool:
        """Halves the micro-batches of all modules, so that the step can be tried again; False if none can be halved."""
        torch.cuda.empty_cache()
        modules = {name: self.module[name].unwrapped() for name in batch} if self.config.num_learners <= 1 else {}
        halved = False
        for name, module in modules.items():
            tokens = module.halve_micro_batches(batch[name][Columns.OBS]) if isinstance(module, LLMCommModule) else None
            if tokens is not None:
                logger.warning(
                    "The GPU's memory does not hold a minibatch of module %r; `micro_batch_tokens` is %d from here on.",
                    name, tokens,
                )  # fmt: skip
                halved = True
        return halved


def _detached(out: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.detach() for name, value in out.items()}


def _message_shares(rows: Mapping[str, Any], parts: list[torch.Tensor]) -> list[float]:
    """Each part's share of the messages of a minibatch; where these are not trained, of its rows."""
    observations = rows[Columns.OBS]
    said = spoken(observations) if MESSAGE_LOGP in observations else torch.ones(len(torch.cat(parts)))
    return [float(said[part.to(said.device)].sum() / said.sum().clamp(min=1)) for part in parts]


def _joined(
    outputs: list[dict[str, torch.Tensor]], parts: list[torch.Tensor], message_shares: list[float]
) -> dict[str, torch.Tensor]:
    """The outputs of a minibatch from those of its parts."""
    back = torch.argsort(torch.cat(parts))
    joined = {}
    for name, value in outputs[0].items():
        each = [out[name] for out in outputs]
        if value.dim():
            joined[name] = torch.cat(each)[back.to(value.device)]
        else:
            shared = (share * one for share, one in zip(message_shares, each, strict=True))
            joined[name] = sum(shared, torch.zeros_like(value))
    return joined


def _add_gradients(gradients: ParamDict, parameters: list[torch.nn.Parameter], loss: torch.Tensor) -> None:
    """Adds the gradients of a loss to those by parameter; a parameter that has no part in it gets none."""
    if not (parameters and loss.requires_grad):
        return
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
        if gradient is not None:
            gradients[parameter] = gradients[parameter] + gradient if parameter in gradients else gradient


# ---- the algorithm ----------------------------------------------------------------------------------------------


class VercoConfig(AgentPoliciesMixin, LanguageModelConfigMixin, MultiAgentPPOConfig):
    """Settings of `Verco`.

    All agents share one policy: a frozen language model with a message adapter, an action adapter and a
    critic; or, with `policies: per_agent`, each agent has adapters and a critic of its own on the one language model.
    Each agent first writes a message from its own observation (frozen message adapter), then scores
    its candidate actions behind its observation and the messages of the others. PPO trains the action adapter
    and the critic, and with `train_messages` the message adapter, too. With `advantages` "rloo" or "grpo" groups of
    episodes take the critic's place.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import VercoConfig

        algo = (
            VercoConfig()
            .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "A"})
            .communication(message_checkpoint="results/sft/checkpoint")
            .build_algo()
        )
        algo.train()
    """

    teacher: Any
    settings_models = {
        **MultiAgentPPOConfig.settings_models,
        "training": VercoTraining,
        "language_model": VercoLanguageModel,
        "communication": VercoCommunication,
    }

    @property
    def has_critic(self) -> bool:
        """True if advantages come from a critic."""
        return self.advantages == GAE

    @override(PPOConfig)
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The module with its `model_config`."""
        return RLModuleSpec(module_class=LLMCommModule, model_config=self.language_model_settings().to_dict())

    @override(AlgorithmConfig)
    def get_multi_rl_module_spec(self, **kwargs: Any) -> MultiRLModuleSpec:
        """RLlib's, whose modules act in one batch."""
        spec = super().get_multi_rl_module_spec(**kwargs)
        if spec.multi_rl_module_class is MultiRLModule:
            spec.multi_rl_module_class = LLMCommMultiModule
        return spec

    @override(MultiAgentPPOConfig)
    def get_default_learner_class(self) -> type[Learner] | str:
        """`VercoLearner`."""
        return VercoLearner

    @override(AlgorithmConfig)
    def build_env_to_module_connector(self, env: Any = None, spaces: Any = None, device: Any = None) -> ConnectorV2:
        """RLlib's pipeline with `MessageExchange` behind the user's own pieces."""
        pipeline = super().build_env_to_module_connector(env=env, spaces=spaces, device=device)
        following = "AddObservationsFromEpisodesToBatch"
        if not any(isinstance(piece, MessageExchange) for piece in pipeline.connectors):
            exchange = MessageExchange(
                language_model=self.language_model_settings().to_dict(),
                communication=self.communication_settings().to_dict(),
            )
            pipeline.insert_before(following, exchange)
        pipeline.insert_before(following, AddObservationsInOrder())
        return pipeline

    @override(LanguageModelConfigMixin)
    def trained_parts(self) -> dict[str, Any]:
        """The adapters that are trained, and the critic; there is none where groups take its place."""
        roles = (ACTION, MESSAGE) if self.train_messages else (ACTION,)
        critic = {} if self.has_critic else {"critic_hiddens": None}
        return {"trainable_roles": roles, "train_critic": self.has_critic, **critic}

    @override(PPOConfig)
    def validate(self) -> None:
        """Checks all settings; registers the environment with RLlib if PettingZoo knows it."""
        self.check_settings()
        self._validate_groups()
        self.language_model_settings()
        if self.teacher is not None:
            self.teacher = portable_teacher(self.teacher)
        if self.messages == "teacher":
            if self.teacher is None:
                raise UserError("`messages` is 'teacher' but `teacher` is not set; set it, for example to 'scripted'.")
            self.add_callback(AddTeacherMessages)
        if self.keep_policy_every and (self.policies == PER_AGENT or agents_apart(self)):
            raise UserError(
                f"`keep_policy_every` is {self.keep_policy_every} with `policies` {PER_AGENT!r}, but a past policy is "
                "one for all agents; omit one of the two."
            )
        if self.messages == SWAPPED:
            raise UserError(
                f"`messages` is {SWAPPED!r}, which is for playing trained agents; train with {OTHER_FACT!r}."
            )
        self._validate_messages()
        super().validate()

    def require_possible_messages(self) -> None:
        """Refuses messages about another fact in a game that tells at most one; makes the environment once.

        Likewise for the periodic evaluation (`evaluation_config`). Of environments that PettingZoo does not know it
        shows while they are played.
        """
        configs = [self, *([self.get_evaluation_config_object()] if self.evaluation_config else [])]
        for config in configs:
            env = playable_id(config.env)
            if config.messages == OTHER_FACT and env in registration.parallel_registry:
                made = make_env(str(env), **(config.env_config or {}))
                try:
                    require_possible(config.messages, made)
                finally:
                    made.close()

    def _validate_groups(self) -> None:
        if self.has_critic:
            return
        if self.critic_warmup:
            raise UserError(
                f"`critic_warmup` is {self.critic_warmup!r} with `advantages` {self.advantages!r}, which has no "
                "critic; omit it."
            )
        if self.batch_mode != _COMPLETE:
            raise UserError(
                f"`batch_mode` is {self.batch_mode!r} with `advantages` {self.advantages!r}, which has no critic to "
                f"judge episodes that are cut; set it to {_COMPLETE!r}."
            )
        if self.num_envs_per_env_runner % self.group_size:
            raise UserError(
                f"`num_envs_per_env_runner` is {self.num_envs_per_env_runner!r} but must be a multiple of `group_size` "
                f"{self.group_size!r}: games of a group stand side by side."
            )
        if self.num_learners > 1:
            raise UserError(
                f"`num_learners` is {self.num_learners!r} with `advantages` {self.advantages!r}, but several learners "
                "would tear the groups apart; set it to 0 or 1."
            )
        credit = self.message_credit
        if self.group_by == PROMPT and self.train_messages and credit != SPEAKER:
            raise UserError(
                f"`group_by` is {self.group_by!r} with `message_credit` {credit!r}, but decisions behind a prompt are "
                "compared with others that heard the same, so they tell nothing about the message; set `group_by` to "
                f"{EPISODE!r}."
            )
        self.add_callback(StartAlike)

    def _validate_messages(self) -> None:
        if self.message_credit != SPEAKER and not self.train_messages:
            raise UserError(
                f"`message_credit` is {self.message_credit!r}, but messages are not trained; set `train_messages` to "
                "true, or omit `message_credit`."
            )
        if self.message_credit != SPEAKER and self.pool is not None:
            raise UserError(
                f"`message_credit` is {self.message_credit!r} with `pool`, but the others' advantages are not "
                f"computed; use {SPEAKER!r}."
            )
        if self.message_kl_target is not None and not initial_kl_coeff(self) > 0:
            raise UserError(
                f"`message_kl_coeff` is {self.message_kl_coeff!r} with `message_kl_target` {self.message_kl_target!r}, "
                "but 0 stays 0 however it is adapted; set it to 0.1, for example."
            )


class Verco(KeepsPastPolicies, AdapterCheckpointMixin, PPO):
    """PPO over the action adapter and the critic of agents that exchange messages; settings: `VercoConfig`.

    A checkpoint also holds `policy/`: adapters in PEFT's format, the critic and a JSON file, from which
    `rllib_llm_comm.load_policy` makes a policy without Ray.
    """

    config_class = VercoConfig

    @override(PPO)
    def setup(self, config: AlgorithmConfig) -> None:
        """Builds runners and learners and loads the adapters of `action_checkpoint` and `message_checkpoint`."""
        config.require_possible_messages()
        super().setup(config)
        if self.config.action_checkpoint:
            self.load_adapter(self.config.action_checkpoint, ACTION)
        if self.config.message_checkpoint:
            self.load_adapter(self.config.message_checkpoint)
        elif self.config.messages in ("student", *SHUFFLED) and not self.config.train_messages:
            logger.warning(
                "`messages` is %r but `message_checkpoint` is not set: messages come from an untrained "
                "adapter unless a checkpoint of this algorithm is restored.",
                self.config.messages,
            )
        self.keep_initial()
