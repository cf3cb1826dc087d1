"""PPO for language-model agents: Verco's losses, an optimizer each for actor and critic, a stop on KL."""

from __future__ import annotations

import copy
import functools
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import tree
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core import ALL_MODULES
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME, WEIGHTS_SEQ_NO
from ray.rllib.utils.typing import ModuleID, ParamDict, TensorType

from rllib_llm_comm.core.phases import UPDATE, log_cost, phase
from rllib_llm_comm.rl.gae_connector import SemiMarkovGAE
from rllib_llm_comm.rl.kl_stop import KLStop, approximate_kl
from rllib_llm_comm.rl.losses import explained_variance, policy_loss, value_loss
from rllib_llm_comm.rl.minibatches import WholeEpochs, WholeEpochsMixin
from rllib_llm_comm.rl.optimizers import adamw, annealed
from rllib_llm_comm.verco import message_credit
from rllib_llm_comm.verco.message_kl_coeff import adapted_kl_coeff, first_kl_coeff
from rllib_llm_comm.verco.module import UTTERANCE_ENTROPY, UTTERANCE_KL, UTTERANCE_LOG_PROBS
from rllib_llm_comm.verco.utterance_policy import UTTERANCE_LOGP, spoken

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

ACTOR = "actor"
SPEAKER = "speaker"
CRITIC = "critic"
_RATES = {ACTOR: "lr", SPEAKER: "message_lr", CRITIC: "critic_lr"}
_RIGID = 1e-3
_DECISIONS = "decisions"


class _ActorTerms(NamedTuple):
    """Of rows: log-ratios of action and message together, ratios of actions, and means of objective and entropy."""

    log_ratio: torch.Tensor
    action_ratio: torch.Tensor
    surrogate: torch.Tensor
    entropy: torch.Tensor


class MultiAgentPPOLearner(WholeEpochsMixin, PPOTorchLearner):
    """Trains the action adapter and the critic of `LLMCommModule`s.

    Minimises -L_clip + `vf_loss_coeff` * L_V - `entropy_coeff` * H (Verco Eq. 4-6, with the signs that make
    it a minimisation). Action adapter, message adapter and critic share no trained weight, so each has its own
    AdamW and its gradients are clipped apart. When the approximate KL of a minibatch exceeds `kl_target`, the
    adapters stay as they are for the rest of this update and are not even computed; the critic goes on (`KLStop`).

    Where the message adapter is trained, what was said is part of the action (docs/algorithms/verco.md): with
    the credit `"speaker"` the ratio is that of both together; otherwise the message has a clipped surrogate objective
    of its own, with advantages of `MessageCredit`. Its loss has two terms more, the exact entropy of its tokens and its
    KL divergence from the reference.

    All that changes on the way (`lr`, `critic_lr`, `entropy_coeff`, `kl_target`, `anneal`, `critic_warmup`) counts
    decisions: the rows of the updates so far.

    Settings read from the config, beside PPO's: `critic_lr`, `message_lr`, `value_clip_mode`, `kl_target`, `anneal`,
    `critic_warmup`, `advantage_floor`, `message_credit`, `message_entropy_coeff`, `message_kl_coeff`,
    `message_kl_target`.
    """

    @override(PPOTorchLearner)
    def build(self) -> None:
        """Builds as PPO does and puts the semi-Markov GAE in place of RLlib's."""
        self._kl_stop = KLStop()
        self._checked_entropy = False
        self._decisions = self._begun = 0
        self._minibatches: dict[ModuleID, int] = defaultdict(int)
        self._policy_steps: dict[ModuleID, int] = defaultdict(int)
        self._message_kls: dict[ModuleID, list[float]] = defaultdict(list)
        super().build()
        pipeline = self._learner_connector
        if pipeline is not None and self.config.add_default_connectors_to_learner_pipeline:
            pipeline.remove("GeneralAdvantageEstimation")
            credit = getattr(self.config, "message_credit", message_credit.SPEAKER)
            apart = bool(getattr(self.config, "train_messages", False)) and credit != message_credit.SPEAKER
            pipeline.append(self._advantage_piece(keep_raw=apart))
            if apart:
                pipeline.append(message_credit.MessageCredit(credit=credit, floor=self.config.advantage_floor))

    def _advantage_piece(self, keep_raw: bool = False) -> ConnectorV2:
        """The connector that computes advantages; with `keep_raw` also those that are not standardised."""
        config: Any = self.config
        return SemiMarkovGAE(
            gamma=config.gamma, lambda_=config.lambda_, keep_raw=keep_raw, floor=config.advantage_floor
        )

    @override(TorchLearner)
    def update(self, *args: Any, **kwargs: Any) -> Any:
        """As RLlib's; what it spends outside of other phases counts as the phase `update`."""
        with phase(UPDATE):
            return super().update(*args, **kwargs)

    @override(TorchLearner)
    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's, and the decisions so far."""
        return {**super().get_state(*args, **kwargs), _DECISIONS: self._decisions}

    @override(TorchLearner)
    def set_state(self, state: dict[str, Any]) -> None:
        """RLlib's, and the decisions so far."""
        super().set_state(state)
        self._decisions = state.get(_DECISIONS, self._decisions)

    @override(TorchLearner)
    def get_parameters(self, module: Any) -> list[torch.nn.Parameter]:
        """Only what is trained."""
        return [parameter for parameter in module.parameters() if parameter.requires_grad]

    @override(TorchLearner)
    def configure_optimizers_for_module(self, module_id: ModuleID, config: Any = None) -> None:
        """One AdamW for the action adapter, one for the critic, and one for the message adapter if it is trained."""
        module = self._module[module_id].unwrapped()
        for name, parameters, rate in (
            (ACTOR, module.actor_parameters(), config.lr),
            (SPEAKER, module.speaker_parameters(), getattr(config, "message_lr", None)),
            (CRITIC, module.critic_parameters(), config.critic_lr),
        ):
            if parameters:
                self.register_optimizer(
                    module_id=module_id,
                    optimizer_name=name,
                    optimizer=adamw(parameters, rate),
                    params=parameters,
                    # With a rate given here RLlib would set it again after every update.
                    lr_or_lr_schedule=None if config.anneal else rate,
                )

    @override(PPOTorchLearner)
    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Starts an update: no policy rests unless the critic learns alone, learning rates as annealed."""
        super().before_gradient_based_update(timesteps=timesteps)
        self._kl_stop.begin_update()
        self._begun = self._decisions
        for scheduler in self.entropy_coeff_schedulers_per_module.values():
            scheduler.update(timestep=self._begun)  # a restored run has its first value otherwise
        if self._decisions < self.config.critic_warmup:
            self._kl_stop.stop(self.module.keys())
        for counts in (self._minibatches, self._policy_steps, self._message_kls):
            counts.clear()  # type: ignore[attr-defined]
        for name, optimizer in self._named_optimizers.items():
            config = self.config.get_config_for_module(self._optimizer_name_to_module[name])
            rate = getattr(config, _RATES[name.rsplit("_", 1)[1]])
            if isinstance(rate, int | float):
                # Also without annealing: a restored optimizer brings the rate of the run that it comes from.
                self._set_optimizer_lr(optimizer, annealed(rate, self._decisions, config.anneal))

    @override(WholeEpochsMixin)
    def _create_iterator_if_necessary(self, **kwargs: Any) -> Any:
        iterator = super()._create_iterator_if_necessary(**kwargs)
        if isinstance(iterator, WholeEpochs):
            rows = torch.tensor(iterator.rows, dtype=torch.int64, device=self._device)
            self._decisions += int(self._sum_over_learners(rows))
            with phase(UPDATE, whole=True):
                self._recompute_log_probs(iterator)
        return iterator

    def _recompute_log_probs(self, iterator: WholeEpochs) -> None:
        """Puts the update's own log-probabilities in the place of the roll-out's where the two are rounded apart.

        Half precision rounds otherwise in a batch of another shape, and over a phrase that is as much as a step of PPO
        moves a ratio. So what the ratios are taken from is computed in the minibatches that the first epoch then has.
        Decisions of older weights keep theirs.
        """
        modules = {name: self.module[name].unwrapped() for name in self.module.keys()}  # noqa: SIM118
        if not any(getattr(module, "rounds_by_batch", False) for module in modules.values()):
            return
        apart: dict[ModuleID, list[torch.Tensor]] = defaultdict(list)
        for module_id, rows, part in iterator.first_epoch():
            module = modules[module_id]
            if not getattr(module, "rounds_by_batch", False):
                continue
            columns = iterator.columns(module_id)
            out = self._within_memory({module_id: part}, functools.partial(self._outputs, module_id, part))
            distribution = module.get_train_action_dist_cls().from_logits(out[Columns.ACTION_DIST_INPUTS].detach())
            old, new = part[Columns.ACTION_LOGP], distribution.logp(part[Columns.ACTIONS])
            newest = self._of_newest_weights(part)
            apart[module_id].append(((new - old)[newest].exp() - 1.0).abs())
            columns[Columns.ACTION_LOGP][rows[newest.to(rows.device)]] = new[newest]
            if UTTERANCE_LOG_PROBS in out:
                said = columns[Columns.OBS][UTTERANCE_LOGP]
                said[rows[newest.to(rows.device)], 0] = out[UTTERANCE_LOG_PROBS].detach()[newest].to(said)
        for module_id, parts in apart.items():
            self._log(module_id, roll_out_ratio_error=torch.cat(parts).mean())

    def _of_newest_weights(self, batch: Mapping[str, Any]) -> torch.Tensor:
        """True for decisions of the present weights; one that lasted from one roll-out into the next has older ones."""
        known = batch.get(WEIGHTS_SEQ_NO)
        if known is None:
            return torch.ones_like(batch[Columns.ACTION_LOGP], dtype=torch.bool)
        return known >= self._weights_seq_no - 1

    @override(TorchLearner)
    def _uncompiled_update(self, batch: dict[str, Any], **kwargs: Any) -> tuple[Any, Any, Any]:
        with phase(UPDATE, whole=True):
            return self._step(batch)

    def _step(self, batch: dict[str, Any]) -> tuple[Any, Any, Any]:
        self._compute_off_policyness(batch)
        # With several Learners DDP wants every trained weight in every loss, so there the actor is computed
        # anyway and its loss multiplied by 0.
        live = {m: rows for m, rows in batch.items() if not self._kl_stop.stopped(m) or self.config.num_learners > 1}

        def compute() -> tuple[Any, Any, ParamDict]:
            split = {module_id: parts for module_id, rows in live.items() if (parts := self._parts(module_id, rows))}
            whole = {module_id: rows for module_id, rows in live.items() if module_id not in split}
            outputs = dict(self.module.forward_train(whole)) if whole else {}
            of_parts: dict[ModuleID, ParamDict] = {}
            for module_id, parts in split.items():
                of_parts[module_id] = {}
                outputs[module_id] = self._outputs(module_id, live[module_id], parts, of_parts[module_id])
            outputs = {module_id: outputs.get(module_id, {}) for module_id in batch}
            losses = self.compute_losses(fwd_out=outputs, batch=batch)
            gradients = self.compute_gradients(losses)
            for module_id, own in of_parts.items():
                if not self._kl_stop.stopped(module_id):
                    gradients.update(own)
            return outputs, losses, gradients

        outputs, losses, gradients = self._within_memory(live, compute)
        self.apply_gradients(self.postprocess_gradients(gradients))
        return outputs, losses, {}

    def _parts(self, module_id: ModuleID, rows: Mapping[str, Any]) -> list[torch.Tensor]:
        """Row numbers of the parts of a minibatch whose gradients are added up; none where it is computed as a whole.

        With several Learners DDP wants one backward pass, and an actor's loss of somebody else's may be no mean over
        rows. There a module goes by parts itself, and computes each once more in the backward pass.
        """
        module = self.module[module_id].unwrapped()
        added = self.config.num_learners <= 1 and self._grad_scalers is None and hasattr(module, "micro_batches")
        if not added or any(getattr(type(self), name) is not here for name, here in _MEANS_OVER_ROWS.items()):
            return []
        parts: list[torch.Tensor] = module.micro_batches(rows[Columns.OBS])
        return parts if len(parts) > 1 else []

    def _outputs(
        self,
        module_id: ModuleID,
        rows: Mapping[str, Any],
        parts: list[torch.Tensor] | None = None,
        gradients: ParamDict | None = None,
    ) -> dict[str, torch.Tensor]:
        """A module's outputs for a minibatch, computed part by part; with `gradients` these are added up in there.

        Each part's loss is weighted by its share of the rows, and of the messages, over which the whole loss is a mean.
        """
        module = self.module[module_id].unwrapped()
        parts = self._parts(module_id, rows) if parts is None else parts
        if not parts:
            return dict(module.forward_train(dict(rows)))
        config, observations = self.config.get_config_for_module(module_id), rows[Columns.OBS]
        speaks = UTTERANCE_LOGP in observations
        said = spoken(observations) if speaks else torch.zeros(len(torch.cat(parts)))
        trained = [*module.actor_parameters(), *module.speaker_parameters()]
        found: list[dict[str, torch.Tensor]] = []
        shares = []
        for part in parts:
            own = tree.map_structure(lambda column, part=part: column[part.to(column.device)], dict(rows))
            out = module.forward_train(own)
            shares.append(float(said[part.to(said.device)].sum() / said.sum().clamp(min=1)))
            if gradients is not None:
                terms = self._actor_terms(config, module, own, out)
                loss = (terms.surrogate - self._entropy_coeff(module_id) * terms.entropy) * (len(part) / len(said))
                if speaks:
                    loss = loss + shares[-1] * self._message_loss(module_id, module, config, out)
                _add_gradients(gradients, trained, loss)
            found.append({name: value.detach() for name, value in out.items()})
        back = torch.argsort(torch.cat(parts))
        # What has no rows is a mean over messages.
        return {
            name: torch.cat([out[name] for out in found])[back.to(value.device)]
            if value.dim()
            else sum((share * out[name] for share, out in zip(shares, found, strict=True)), torch.zeros_like(value))
            for name, value in found[0].items()
        }

    def _within_memory(self, batch: Mapping[ModuleID, Any], compute: Callable[[], Result]) -> Result:
        """What a function computes of a batch, in smaller micro-batches if a GPU's memory does not hold it."""
        while True:
            counted = self._minibatches.copy(), self._policy_steps.copy(), copy.deepcopy(self._message_kls)
            try:
                return compute()
            except torch.cuda.OutOfMemoryError:
                self._minibatches, self._policy_steps, self._message_kls = counted
                if not self._halve_micro_batches(batch):
                    raise

    def _halve_micro_batches(self, batch: Mapping[ModuleID, Any]) -> bool:
        """Lets a step begin anew with smaller micro-batches; False if that cannot be."""
        torch.cuda.empty_cache()
        modules = {name: self.module[name].unwrapped() for name in batch} if self.config.num_learners <= 1 else {}
        halved = False
        for name, module in modules.items():
            tokens = module.halve_micro_batches(batch[name][Columns.OBS]) if hasattr(module, "core") else None
            if tokens is not None:
                logger.warning(
                    "The GPU's memory does not hold a minibatch of module %r; `micro_batch_tokens` is %d from here on.",
                    name, tokens,
                )  # fmt: skip
                halved = True
        return halved

    @override(TorchLearner)
    def compute_gradients(self, loss_per_module: dict[ModuleID, TensorType], **kwargs: Any) -> ParamDict:
        """As RLlib's, without the parameters that took no part (those of a stopped actor)."""
        gradients = super().compute_gradients(loss_per_module, **kwargs)
        for module_id in filter(self._kl_stop.stopped, self.module.keys() if self.config.num_learners > 1 else ()):
            module = self.module[module_id].unwrapped()
            # Their loss was multiplied by 0, but on a gradient of 0 an optimizer goes on by its momentum.
            for parameter in (*module.actor_parameters(), *module.speaker_parameters()):
                if parameter.grad is not None and not parameter.grad.any():
                    gradients[parameter] = parameter.grad = None
        return {ref: gradient for ref, gradient in gradients.items() if gradient is not None}

    @override(PPOTorchLearner)
    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Any, batch: dict[str, Any], fwd_out: dict[str, TensorType]
    ) -> TensorType:
        """Verco Eq. 6 of one minibatch."""
        module = self.module[module_id].unwrapped()
        loss = self._critic_loss(module_id, module, config, batch, fwd_out)
        if Columns.ACTION_DIST_INPUTS in fwd_out:
            loss = loss + self._actor_loss(module_id, module, config, batch, fwd_out)
        self._minibatches[module_id] += 1
        return loss

    def _critic_loss(
        self, module_id: ModuleID, module: Any, config: Any, batch: dict[str, Any], fwd_out: dict[str, TensorType]
    ) -> torch.Tensor:
        """The critic's part of Eq. 6."""
        outputs, targets = self._critic_terms(module_id, module, batch, fwd_out)
        critic_loss = value_loss(
            outputs,
            batch[Columns.VF_PREDS],
            targets,
            config.vf_clip_param,
            config.value_clip_mode,
            getattr(config, "huber_delta", None),
        )
        self._log(module_id, vf_loss=critic_loss, vf_explained_var=explained_variance(targets, outputs.detach()))
        weighted: torch.Tensor = config.vf_loss_coeff * critic_loss
        return weighted

    def _critic_terms(
        self, module_id: ModuleID, module: Any, batch: dict[str, Any], fwd_out: dict[str, TensorType]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs of the critic on a minibatch and their targets (B,), in the units that it learns.

        A module whose critic shares layers with the actor gives what they have in common as `EMBEDDINGS`.
        """
        values = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
        return values, batch[Postprocessing.VALUE_TARGETS]

    def _actor_terms(
        self, config: Any, module: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, torch.Tensor]
    ) -> _ActorTerms:
        """Ratios, surrogate objective and entropy of rows."""
        distribution = module.get_train_action_dist_cls().from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        log_ratio = distribution.logp(batch[Columns.ACTIONS]) - batch[Columns.ACTION_LOGP]
        action_ratio = log_ratio.exp()
        message_ratio = None
        if UTTERANCE_LOG_PROBS in fwd_out:  # what was said is part of the action
            of_message = fwd_out[UTTERANCE_LOG_PROBS] - batch[Columns.OBS][UTTERANCE_LOGP][:, 0]
            log_ratio = log_ratio + of_message
            message_ratio = of_message.exp()
        advantages = batch[Postprocessing.ADVANTAGES]
        if message_ratio is None or message_credit.MESSAGE_ADVANTAGES not in batch:
            surrogate = policy_loss(log_ratio.exp(), advantages, config.clip_param)
        else:
            credited = batch[message_credit.MESSAGE_ADVANTAGES]
            surrogate = policy_loss(action_ratio, advantages, config.clip_param)
            surrogate = surrogate + policy_loss(message_ratio, credited, config.clip_param)
        return _ActorTerms(log_ratio, action_ratio, surrogate, distribution.entropy().mean())

    def _actor_loss(
        self,
        module_id: ModuleID,
        module: Any,
        config: Any,
        batch: dict[str, Any],
        fwd_out: dict[str, TensorType],
    ) -> TensorType:
        log_ratio, action_ratio, surrogate, entropy = self._actor_terms(config, module, batch, fwd_out)
        terms = torch.zeros((), device=log_ratio.device)
        if UTTERANCE_LOG_PROBS in fwd_out:
            terms = self._message_terms(module_id, module, config, fwd_out)
        ratio = log_ratio.exp()
        kl = self._mean_over_learners(approximate_kl(log_ratio.detach()))
        self._log(
            module_id,
            policy_loss=surrogate,
            entropy=entropy,
            kl=kl,
            clip_fraction=((ratio - 1.0).abs() > config.clip_param).float().mean(),
        )
        if self._minibatches[module_id] == 0:
            self._log_first_ratio(module_id, module, action_ratio.detach(), batch)
            self._warn_if_rigid(float(entropy.detach()))
        weight = 1.0
        if self._kl_stop.check(module_id, float(kl), self._kl_target(config)):
            if self.config.num_learners <= 1:
                return torch.zeros((), device=ratio.device)
            weight = 0.0
        else:
            self._policy_steps[module_id] += 1
        return weight * (surrogate - self._entropy_coeff(module_id) * entropy + terms)

    def _entropy_coeff(self, module_id: ModuleID) -> float:
        return float(self.entropy_coeff_schedulers_per_module[module_id].get_current_value())

    def _kl_target(self, config: Any) -> float | None:
        if not isinstance(config.kl_target, list | tuple):
            return config.kl_target  # type: ignore[no-any-return]
        decisions, targets = zip(*config.kl_target, strict=True)
        return float(np.interp(self._begun, decisions, targets))

    def _message_terms(
        self, module_id: ModuleID, module: Any, config: Any, fwd_out: dict[str, TensorType]
    ) -> torch.Tensor:
        """As `_message_loss`; drift, entropy and its weight are noted."""
        entropy, drift = fwd_out[UTTERANCE_ENTROPY], fwd_out[UTTERANCE_KL]
        self._message_kls[module_id].append(float(self._mean_over_learners(drift.detach())))
        coefficient = self._message_kl_coeff(module, config)
        self._log(module_id, message_entropy=entropy, message_kl=drift, message_kl_coeff=coefficient)
        return self._message_loss(module_id, module, config, fwd_out)

    def _message_loss(
        self, module_id: ModuleID, module: Any, config: Any, fwd_out: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """Loss terms of messages beside the surrogate objective: drift, and the negated entropy."""
        openness = getattr(config, "message_entropy_coeff", None)
        if openness is None:
            openness = self._entropy_coeff(module_id)
        coefficient = self._message_kl_coeff(module, config)
        return coefficient * fwd_out[UTTERANCE_KL] - openness * fwd_out[UTTERANCE_ENTROPY]

    def _message_kl_coeff(self, module: Any, config: Any) -> float:
        adapted = module.message_kl_coeff if getattr(config, "message_kl_target", None) is not None else None
        return first_kl_coeff(config) if adapted is None else float(adapted)

    def _adapt_message_kl(self) -> None:
        for module_id, drifts in self._message_kls.items():
            config = self.config.get_config_for_module(module_id)
            target = getattr(config, "message_kl_target", None)
            if target is not None and drifts:
                module = self.module[module_id].unwrapped()
                before = self._message_kl_coeff(module, config)
                module.message_kl_coeff = adapted_kl_coeff(before, sum(drifts) / len(drifts), target)

    def _log_first_ratio(self, module_id: ModuleID, module: Any, ratio: torch.Tensor, batch: Mapping[str, Any]) -> None:
        # Before the first step the ratio must be 1. The exception is honest: an action that lasted from one
        # roll-out into the next was chosen by older weights. (So were the messages with which a roll-out begins, so
        # only the actions are looked at.)
        newest = self._of_newest_weights(batch)
        self._log(module_id, older_weights_share=1.0 - newest.float().mean())
        ratio = ratio[newest]
        if len(ratio):
            apart = (ratio - 1.0).abs()
            self._log(module_id, ratio_first_minibatch=apart.max())
            if not getattr(module, "rounds_by_batch", False):
                self._log(module_id, roll_out_ratio_error=apart.mean())

    def _warn_if_rigid(self, entropy: float) -> None:
        # The usual trap with a language model that has never read a game's phrases.
        if not self._checked_entropy and entropy < _RIGID:
            logger.warning(
                "The untrained policy takes the same action nearly always (entropy %.1e), so it will hardly learn: the "
                "language model finds one candidate far likelier than the others. `rllib calibrate FILE` finds a "
                "`temperature` and `score_normalization` that keep it open.",
                entropy,
            )
        self._checked_entropy = True

    def _mean_over_learners(self, value: torch.Tensor) -> torch.Tensor:
        # All Learners must stop together.
        return self._sum_over_learners(value) / max(1, self.config.num_learners)

    def _sum_over_learners(self, value: torch.Tensor) -> torch.Tensor:
        if self.config.num_learners > 1 and torch.distributed.is_initialized():
            value = value.clone()
            torch.distributed.all_reduce(value)
        return value

    @override(PPOTorchLearner)
    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Logs what the whole update did."""
        super().after_gradient_based_update(timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: self._decisions})
        self._adapt_message_kl()
        for module_id, count in self._minibatches.items():
            self._log(module_id, minibatches=count, policy_steps=self._policy_steps[module_id])
        log_cost(self.metrics, (ALL_MODULES,))

    def _log(self, module_id: ModuleID, **values: Any) -> None:
        detached = {k: v.detach() if isinstance(v, torch.Tensor) else v for k, v in values.items()}
        self.metrics.log_dict(detached, key=module_id, window=1)


# Of a Learner with others than these it is not known that its actor's loss is a mean over rows.
_MEANS_OVER_ROWS = {
    name: getattr(MultiAgentPPOLearner, name)
    for name in ("compute_loss_for_module", "_actor_loss", "_actor_terms", "_message_terms", "_message_loss")
}


def _add_gradients(gradients: ParamDict, parameters: list[torch.nn.Parameter], loss: torch.Tensor) -> None:
    """Adds the gradients of a loss to those by parameter; a parameter that has no part in it gets none."""
    if not (parameters and loss.requires_grad):
        return
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
        if gradient is not None:
            gradients[parameter] = gradients[parameter] + gradient if parameter in gradients else gradient
