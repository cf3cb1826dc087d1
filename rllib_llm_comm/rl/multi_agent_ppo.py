"""PPO for many agents: settings, loss, config; decisions of several game steps, two optimizers, a stop on KL."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import tree
from gymnasium import spaces
from pydantic import Field, field_validator, model_validator
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.module_to_env import NormalizeAndClipActions
from ray.rllib.core import ALL_MODULES
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME, WEIGHTS_SEQ_NO
from ray.rllib.utils.spaces.space_utils import get_base_struct_from_space
from ray.rllib.utils.typing import ModuleID, ParamDict, TensorType
from typing_extensions import Self

from rllib_llm_comm.core.errors import LARGEST, UserError, shown
from rllib_llm_comm.core.phases import UPDATE, log_cost, phase
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.planning_settings import PlanningSettings
from rllib_llm_comm.rl.callbacks import EpisodeMetrics, PhaseSeconds, WarnOfEntropyCollapse
from rllib_llm_comm.rl.env_runner import LeanEnvRunner, with_own_connectors
from rllib_llm_comm.rl.partners_and_planning import PartnersConfigMixin, PartnersSettings, PlanningConfigMixin
from rllib_llm_comm.rl.rllib_adapter import ensure_registered
from rllib_llm_comm.rl.strict_config import Discount, Schedule, require_schedule, shared_policy
from rllib_llm_comm.rl.train_batch import SemiMarkovGAE, WholeEpochs, WholeEpochsMixin

_EPSILON = 1e-5
ACTOR = "actor"
CRITIC = "critic"
_DECISIONS = "decisions"
_Step = tuple[dict[ModuleID, Any], dict[ModuleID, Any], ParamDict]


# ---- settings -----------------------------------------------------------------------------------------------------


class PPOTraining(Discount):
    """The optimisation. Verco gives no number for any of it; TWOSOME's stand for comparison.

    Schedules are pairs [decisions, value], interpolated linearly. Decisions of all agents together count, as in
    `train_batch_size_per_learner` and in the stop rule `decisions`.
    """

    lr: Schedule = 5e-5
    """Learning rate of the actor (of a language model: its action adapter), or a schedule. TWOSOME with LLaMA-7B:
    5e-7."""
    critic_lr: Schedule = 1e-3
    """Learning rate of the critic, or a schedule. 1e-3 (ours); TWOSOME: 1e-5."""
    anneal: int | None = Field(None, ge=0, le=LARGEST)
    """Decisions over which both rates fall linearly to 0; None: constant rates. TWOSOME: the whole run."""
    critic_warmup: int = Field(0, ge=0, le=LARGEST)
    """Decisions at the start from which the critic learns alone; worth an iteration or two where the actor begins with
    cloned actions and the critic with nothing (ours)."""
    advantage_floor: float = Field(0.0, ge=0)
    """Advantages are divided by their standard deviation, but by no less than this, in units of reward. 0 (common
    practice), of language models 0.02 (ours). Where rewards are rare, a critic's errors are all that advantages hold
    until the first one comes; scaled up to unit variance they collapse the entropy of a policy that has learned
    nothing."""
    value_clip_mode: Literal["max", "min"] = "max"
    """`"max"` (TWOSOME, common PPO) or `"min"` (the paper's Eq. 5 to the letter)."""
    clip_param: float = Field(0.2, gt=0)
    """Largest deviation of the probability ratio from 1 (TWOSOME)."""
    vf_clip_param: float | None = Field(0.2, gt=0)
    """Largest change of a value from the old one that pays (TWOSOME); None: the plain squared error."""
    vf_loss_coeff: float = Field(0.5, ge=0)
    """Weight of the critic's loss (TWOSOME)."""
    entropy_coeff: Schedule = 0.01
    """Weight of the entropy bonus, or a schedule (TWOSOME)."""
    target_kl: Annotated[float, Field(gt=0)] | list[Any] | None = 0.05
    """Approximate KL of a minibatch beyond which the actor's update ends (early stopping), a schedule of it, or None.
    0.05 (ours); TWOSOME: 0.02. (RLlib's `kl_target` is another thing, and not taken: it adapts a weight of the KL.)"""
    lambda_: float = Field(0.95, ge=0, le=1)
    """GAE's lambda per decision (TWOSOME)."""
    grad_clip: float | None = Field(0.5, gt=0)
    """Largest global gradient norm, of actor and critic each (TWOSOME)."""
    num_epochs: int = Field(3, ge=1, le=LARGEST)
    """Passes over a batch. 3 (ours); TWOSOME: 1."""
    minibatch_size: int | None = Field(None, ge=1, le=LARGEST)
    """Decisions per gradient step; None (ours): the whole batch."""
    train_batch_size_per_learner: int = Field(1024, ge=1, le=LARGEST)
    """Decisions (of all agents together) per iteration. 1024 (ours); TWOSOME: 128."""

    @field_validator("target_kl")
    @classmethod
    def _of_positive_numbers(cls, value: Any) -> Any:
        if isinstance(value, list):
            require_schedule("target_kl", value, math.inf, "decision")
            if not all(target > 0 for _, target in value):
                raise UserError(f"`target_kl` is {shown(value)} but all its values must be larger than 0.")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.minibatch_size is not None and self.minibatch_size > self.train_batch_size_per_learner:
            raise UserError(
                f"`minibatch_size` is {self.minibatch_size} but must be at most `train_batch_size_per_learner`, which "
                f"is {self.train_batch_size_per_learner}; lower it, or set it to null for the whole batch."
            )
        if self.anneal and (isinstance(self.lr, list) or isinstance(self.critic_lr, list)):
            raise UserError("`anneal` is set but `lr` or `critic_lr` is a schedule already; use one of both.")
        if self.anneal and self.anneal < self.train_batch_size_per_learner:
            raise UserError(
                f"`anneal` is {self.anneal}, which is less than the decisions of one update "
                f"(`train_batch_size_per_learner` {self.train_batch_size_per_learner}); it counts decisions, not "
                "iterations: multiply by the decisions of an iteration."
            )
        return self


# ---- the loss -----------------------------------------------------------------------------------------------------


def clipped_surrogate(ratio: torch.Tensor, advantages: torch.Tensor, clip_param: float) -> torch.Tensor:
    """The clipped surrogate objective (B,) (Verco Eq. 4): to be maximised.

    Args:
        ratio: (B,) new over old probability of the action taken.
        advantages: (B,).
        clip_param: Largest deviation of the ratio from 1 that pays.
    """
    clipped = ratio.clamp(1.0 - clip_param, 1.0 + clip_param)
    return torch.min(ratio * advantages, clipped * advantages)


def value_loss(
    values: torch.Tensor,
    old_values: torch.Tensor,
    targets: torch.Tensor,
    clip_param: float | None,
    mode: str = "max",
    penalty: Callable[[torch.Tensor], torch.Tensor] = torch.square,
) -> torch.Tensor:
    """Squared error of the value or of its clipped change (Verco Eq. 5).

    Args:
        values: (B,) predictions.
        old_values: (B,) predictions of the roll-out's critic.
        targets: (B,) advantage + old value.
        clip_param: Largest change from the old value; `None` for the plain squared error.
        mode: `"max"`: the larger of both errors, which keeps the critic near the old one (TWOSOME, PPO
            practice). `"min"`: the smaller one, as the paper's text says.
        penalty: What errors (B,) count in place of their squares.

    Returns:
        Mean over the batch.
    """
    plain = penalty(values - targets)
    if clip_param is None:
        return plain.mean()
    near = old_values + (values - old_values).clamp(-clip_param, clip_param)
    clipped = penalty(near - targets)
    return (torch.max(plain, clipped) if mode == "max" else torch.min(plain, clipped)).mean()


def explained_variance(targets: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """1 - Var(targets - values) / Var(targets); 1 is perfect, 0 no better than a constant."""
    spread = targets.var(unbiased=False)
    return 1.0 - (targets - values).var(unbiased=False) / spread.clamp(min=1e-8)


def adamw(parameters: Iterable[torch.nn.Parameter], learning_rate: Any) -> torch.optim.AdamW:
    """AdamW without weight decay and with epsilon 1e-5 (TWOSOME; Verco is silent).

    Args:
        parameters: The trainable parameters.
        learning_rate: The first learning rate; of a schedule ([[step, rate], ...]) the first rate.
    """
    start = learning_rate if isinstance(learning_rate, int | float) else learning_rate[0][1]
    return torch.optim.AdamW(parameters, lr=float(start), eps=_EPSILON, weight_decay=0.0)


def annealed(learning_rate: float, done: int, total: int | None) -> float:
    """The learning rate after a part of the way, on a straight line to 0.

    Args:
        learning_rate: At the start.
        done: Decisions (or passes) so far.
        total: Decisions (or passes) until 0; `None` or 0 for a constant rate.
    """
    return learning_rate * max(0.0, 1.0 - done / total) if total else learning_rate


def approximate_kl(log_ratio: torch.Tensor) -> torch.Tensor:
    """Mean of (ratio - 1) - log ratio over samples of the old policy: never negative, little variance."""
    return (log_ratio.exp() - 1.0 - log_ratio).mean()


class Minibatch(NamedTuple):
    """Rows of one module, or a part of them: what all hooks of the loss take.

    Attributes:
        module_id: The module's id.
        module: The module, unwrapped.
        config: Its settings.
        rows: RLlib's columns.
        out: What `forward_train` of the module gave for them.
    """

    module_id: ModuleID
    module: Any
    config: Any
    rows: Mapping[str, Any]
    out: Mapping[str, torch.Tensor]


class ActorTerms(NamedTuple):
    """Terms of the actor's loss over the rows of a minibatch.

    Attributes:
        log_ratio: (B,) log of new over old probability of the whole decision; with trained messages that of message
            and action.
        action_ratio: (B,) new over old probability of the action alone.
        policy_loss: Mean over the rows, to be minimised.
        entropy: Mean over the rows of the entropy of actions, to be maximised.
    """

    log_ratio: torch.Tensor
    action_ratio: torch.Tensor
    policy_loss: torch.Tensor
    entropy: torch.Tensor


class MultiAgentPPOLearner(WholeEpochsMixin, PPOTorchLearner):
    """Trains modules with `actor_parameters()` and `critic_parameters()`, whose lists do not overlap.

    Minimises -L_clip + `vf_loss_coeff` * L_V - `entropy_coeff` * H (Verco Eq. 4-6, with the signs that make it a
    minimisation). Actor and critic have an AdamW each, and their gradients are clipped apart. When the approximate KL
    of a minibatch exceeds `target_kl`, the actor stays as it is for the rest of this update and is not even computed;
    the critic goes on, which reads frozen features and costs next to nothing.

    RLlib calls `update`, which for each minibatch calls our `_uncompiled_update` -> `_losses_and_gradients` ->
    `compute_losses` -> `compute_loss_for_module` per module, made of `critic_loss` and `actor_objective` ->
    `compute_gradients` -> `postprocess_gradients`, which clips them per optimizer -> `apply_gradients`. What a loss of
    one's own overrides is listed in docs/extend/algorithm.md.

    All that changes on the way (`lr`, `critic_lr`, `entropy_coeff`, `target_kl`, `anneal`, `critic_warmup`) counts
    decisions: the rows of the updates so far.

    Settings read from the config, beside PPO's: `critic_lr`, `value_clip_mode`, `target_kl`, `anneal`, `critic_warmup`,
    `advantage_floor`.

    Attributes:
        rates: Part of the module that has an optimizer -> the setting that holds its learning rate. The module gives
            the part's weights by a method `PART_parameters`, such as `actor_parameters`.
        stopped: Modules whose policies are not changed until the next update.
    """

    rates: ClassVar[Mapping[str, str]] = {ACTOR: "lr", CRITIC: "critic_lr"}

    @override(PPOTorchLearner)
    def build(self) -> None:
        """Builds as PPO does and puts the semi-Markov GAE in place of RLlib's."""
        self.stopped: set[ModuleID] = set()
        self._decisions = self._begun = 0
        self._minibatches: dict[ModuleID, int] = defaultdict(int)
        self._policy_steps: dict[ModuleID, int] = defaultdict(int)
        super().build()
        pipeline = with_own_connectors(self._learner_connector)
        if pipeline is not None and self.config.add_default_connectors_to_learner_pipeline:
            pipeline.remove("GeneralAdvantageEstimation")
            for piece in self.advantage_pieces():
                pipeline.append(piece)

    def advantage_pieces(self) -> Sequence[ConnectorV2]:
        """The connectors that compute advantages; the first reduces the batch by `train_batch.decisions_only`."""
        config: Any = self.config
        return [SemiMarkovGAE(gamma=config.gamma, lambda_=config.lambda_, floor=config.advantage_floor)]

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
        """One AdamW for each part."""
        for name, setting in self.rates.items():
            parameters, rate = self._parameters_of(module_id, name), getattr(config, setting)
            if parameters:
                self.register_optimizer(
                    module_id=module_id,
                    optimizer_name=name,
                    optimizer=adamw(parameters, rate),
                    params=parameters,
                    # With a rate given here RLlib would set it again after every update.
                    lr_or_lr_schedule=None if config.anneal else rate,
                )

    def _parameters_of(self, module_id: ModuleID, part: str) -> list[torch.nn.Parameter]:
        found: list[torch.nn.Parameter] = getattr(self._module[module_id].unwrapped(), f"{part}_parameters")()
        return found

    def _policy_parameters(self, module_id: ModuleID) -> list[torch.nn.Parameter]:
        """What is trained and is not the critic's."""
        return [one for part in self.rates if part != CRITIC for one in self._parameters_of(module_id, part)]

    @override(PPOTorchLearner)
    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Starts an update: sets learning rates, and lets policies learn again unless the critic still learns alone."""
        super().before_gradient_based_update(timesteps=timesteps)
        self.stopped.clear()
        self._begun = self._decisions
        for scheduler in self.entropy_coeff_schedulers_per_module.values():
            scheduler.update(timestep=self._begun)  # a restored run has its first value otherwise
        if self._decisions < self.config.critic_warmup:
            self.stopped.update(self.module.keys())
        self._minibatches.clear()
        self._policy_steps.clear()
        for name, optimizer in self._named_optimizers.items():
            config = self.config.get_config_for_module(self._optimizer_name_to_module[name])
            rate = getattr(config, self.rates[name.removeprefix(f"{self._optimizer_name_to_module[name]}_")])
            if isinstance(rate, int | float):
                # Also without annealing: a restored optimizer brings the rate of the run that it comes from.
                self._set_optimizer_lr(optimizer, annealed(rate, self._decisions, config.anneal))

    @override(WholeEpochsMixin)
    def _create_iterator_if_necessary(self, **kwargs: Any) -> Any:
        iterator = super()._create_iterator_if_necessary(**kwargs)
        if isinstance(iterator, WholeEpochs):
            rows = torch.tensor(iterator.rows, dtype=torch.int64, device=self._device)
            self._decisions += int(self._sum_over_learners(rows))
        return iterator

    def _of_newest_weights(self, batch: Mapping[str, Any]) -> torch.Tensor:
        """True for decisions of the present weights; one that lasted from one roll-out into the next has older ones."""
        known = batch.get(WEIGHTS_SEQ_NO)
        if known is None:
            return torch.ones_like(batch[Columns.ACTION_LOGP], dtype=torch.bool)
        return known >= self._weights_seq_no - 1

    @override(TorchLearner)
    def _uncompiled_update(self, batch: dict[str, Any], **kwargs: Any) -> tuple[Any, Any, Any]:
        with phase(UPDATE, whole=True):
            self._compute_off_policyness(batch)
            # With several Learners DDP wants every trained weight in every loss, so there the actor is computed
            # anyway and its loss multiplied by 0.
            several = self.config.num_learners > 1
            live = {name: rows for name, rows in batch.items() if several or name not in self.stopped}
            outputs, losses, gradients = self._losses_and_gradients(batch, live)
            self.apply_gradients(self.postprocess_gradients(gradients))
            return outputs, losses, {}

    def _losses_and_gradients(self, batch: Mapping[ModuleID, Any], live: Mapping[ModuleID, Any]) -> _Step:
        """Outputs, losses and gradients of a minibatch; the actors of the modules in `live` alone are computed."""
        outputs = dict(self.module.forward_train(live)) if live else {}
        outputs = {module_id: outputs.get(module_id, {}) for module_id in batch}
        losses = self.compute_losses(fwd_out=outputs, batch=batch)
        return outputs, losses, self.compute_gradients(losses)

    @override(TorchLearner)
    def compute_gradients(self, loss_per_module: dict[ModuleID, TensorType], **kwargs: Any) -> ParamDict:
        """As RLlib's, without the parameters that took no part (those of a stopped actor)."""
        gradients = super().compute_gradients(loss_per_module, **kwargs)
        for module_id in self.stopped if self.config.num_learners > 1 else ():
            # Their loss was multiplied by 0, but on a gradient of 0 an optimizer goes on by its momentum.
            for parameter in self._policy_parameters(module_id):
                if parameter.grad is not None and not parameter.grad.any():
                    gradients[parameter] = parameter.grad = None
        return {ref: gradient for ref, gradient in gradients.items() if gradient is not None}

    @override(PPOTorchLearner)
    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Any, batch: dict[str, Any], fwd_out: dict[str, TensorType]
    ) -> TensorType:
        """The critic's loss plus the actor's objective (Verco Eq. 6) of one minibatch."""
        minibatch = Minibatch(module_id, self.module[module_id].unwrapped(), config, batch, fwd_out)
        loss = self.critic_loss(minibatch)
        if Columns.ACTION_DIST_INPUTS in fwd_out:
            loss = loss + self._actor_loss(minibatch)
        self._minibatches[module_id] += 1
        return loss

    # ---- the loss: hooks ------------------------------------------------------------------------------------------

    def critic_loss(self, minibatch: Minibatch) -> torch.Tensor:
        """The critic's loss, weighted by `vf_loss_coeff`."""
        config = minibatch.config
        outputs, targets = self.critic_terms(minibatch)
        penalty = functools.partial(self.critic_penalty, minibatch)
        old_values = minibatch.rows[Columns.VF_PREDS]
        loss = value_loss(outputs, old_values, targets, config.vf_clip_param, config.value_clip_mode, penalty)
        explained = explained_variance(targets, outputs.detach())
        self.log_values(minibatch.module_id, vf_loss=loss, vf_explained_var=explained)
        weighted: torch.Tensor = config.vf_loss_coeff * loss
        return weighted

    def critic_terms(self, minibatch: Minibatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs of the critic on a minibatch and their targets (B,), in the units that it learns.

        A module whose critic shares layers with the actor gives what they have in common as `EMBEDDINGS`.
        """
        values = minibatch.module.compute_values(minibatch.rows, embeddings=minibatch.out.get(Columns.EMBEDDINGS))
        return values, minibatch.rows[Postprocessing.VALUE_TARGETS]

    def critic_penalty(self, minibatch: Minibatch, errors: torch.Tensor) -> torch.Tensor:
        """What errors of the critic (B,) count: their squares."""
        return errors**2

    def actor_terms(self, minibatch: Minibatch) -> ActorTerms:
        """Ratios, policy loss and entropy of a minibatch."""
        rows, logits = minibatch.rows, minibatch.out[Columns.ACTION_DIST_INPUTS]
        distribution = minibatch.module.get_train_action_dist_cls().from_logits(logits)
        log_ratio = distribution.logp(rows[Columns.ACTIONS]) - rows[Columns.ACTION_LOGP]
        ratio = log_ratio.exp()
        loss = -self.surrogate(minibatch, ratio, rows[Postprocessing.ADVANTAGES]).mean()
        return ActorTerms(log_ratio, ratio, loss, distribution.entropy().mean())

    def surrogate(self, minibatch: Minibatch, ratio: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
        """The objective (B,) of decisions, as of `clipped_surrogate`; the policy loss is its negated mean."""
        return clipped_surrogate(ratio, advantages, minibatch.config.clip_param)

    def actor_objective(self, minibatch: Minibatch, terms: ActorTerms) -> torch.Tensor:
        """What the actor minimises: the policy loss, less the entropy bonus."""
        return terms.policy_loss - self._entropy_coeff(minibatch.module_id) * terms.entropy

    def _actor_loss(self, minibatch: Minibatch) -> torch.Tensor:
        """The actor's objective, logged; 0 from the minibatch on that stops the policy."""
        module_id, config = minibatch.module_id, minibatch.config
        terms = self.actor_terms(minibatch)
        log_ratio = terms.log_ratio
        ratio = log_ratio.exp()
        kl = self._mean_over_learners(approximate_kl(log_ratio.detach()))
        self.log_values(
            module_id,
            policy_loss=terms.policy_loss,
            entropy=terms.entropy,
            kl=kl,
            clip_fraction=((ratio - 1.0).abs() > config.clip_param).float().mean(),
        )
        if self._minibatches[module_id] == 0:
            self._log_first_minibatch(module_id, terms, minibatch.rows)
        target, weight = self._target_kl(config), 1.0
        if target is not None and float(kl) > target:
            self.stopped.add(module_id)
        if module_id not in self.stopped:
            self._policy_steps[module_id] += 1
        elif self.config.num_learners <= 1:
            return torch.zeros((), device=ratio.device)
        else:
            weight = 0.0  # DDP waits for a gradient of every parameter, so the graph stays
        return weight * self.actor_objective(minibatch, terms)

    def _entropy_coeff(self, module_id: ModuleID) -> float:
        return float(self.entropy_coeff_schedulers_per_module[module_id].get_current_value())

    def _target_kl(self, config: Any) -> float | None:
        if not isinstance(config.target_kl, list | tuple):
            return config.target_kl  # type: ignore[no-any-return]
        decisions, targets = zip(*config.target_kl, strict=True)
        return float(np.interp(self._begun, decisions, targets))

    def _log_first_minibatch(self, module_id: ModuleID, terms: ActorTerms, batch: Mapping[str, Any]) -> None:
        # Before the first step the ratio must be 1, but for an action that lasted from one roll-out into the next:
        # older weights chose it, so it is left out. Messages are not looked at: the first of each roll-out is as old.
        newest = self._of_newest_weights(batch)
        self.log_values(module_id, older_weights_share=1.0 - newest.float().mean())
        ratio = terms.action_ratio.detach()[newest]
        if len(ratio):
            apart = (ratio - 1.0).abs()
            self.log_values(module_id, ratio_first_minibatch=apart.max(), roll_out_ratio_error=apart.mean())

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
        for module_id, count in self._minibatches.items():
            self.log_values(module_id, minibatches=count, policy_steps=self._policy_steps[module_id])
        log_cost(self.metrics, (ALL_MODULES,))

    def log_values(self, module_id: ModuleID, **values: Any) -> None:
        """Puts values into the results, under `learners` and the module."""
        detached = {k: v.detach() if isinstance(v, torch.Tensor) else v for k, v in values.items()}
        self.metrics.log_dict(detached, key=module_id, window=1)


# ---- the config ---------------------------------------------------------------------------------------------------


_NO_KL_LOSS = {"use_kl_loss": False, "kl_coeff": 0.0, "kl_target": None}
"""RLlib's settings of a loss on the KL divergence, as they are without one."""


class MultiAgentPPOConfig(PlanningConfigMixin, PartnersConfigMixin, PPOConfig):
    """Settings that `Verco` and the systems that it is compared with share: one policy, `MultiAgentPPOLearner`.

    The same losses, advantages per game step, masks and counting of decisions for all of them, so that a comparison
    compares what the agents see and say and nothing else.
    """

    settings_models = {"training": PPOTraining, "planning": PlanningSettings, "partners": PartnersSettings}

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults that all share (ours, unless `PPOTraining` says otherwise)."""
        super().__init__(algo_class=algo_class)
        self._set_shared_policy()
        for name, value in _NO_KL_LOSS.items():
            setattr(self, name, value)
        self.grad_clip_by = "global_norm"
        self.num_env_runners = 0
        self.env_runner_cls = LeanEnvRunner  # ours; samples what RLlib's own one samples
        self.num_envs_per_env_runner = 16

    @override(PPOConfig)
    def training(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets the optimisation; the settings are those of `settings_models["training"]` and RLlib's own."""
        return self.assign("training", settings, values)

    @override(PPOConfig)
    def get_default_learner_class(self) -> type[MultiAgentPPOLearner]:
        """`MultiAgentPPOLearner`."""
        return MultiAgentPPOLearner

    @override(PPOConfig)
    def build_module_to_env_connector(self, env: Any = None, spaces: Any = None) -> Any:
        """RLlib's pipeline, with the pieces of `OWN_CONNECTORS` in place of RLlib's.

        `NormalizeAndClipActions`, which copies all actions, is left out where none has bounds.
        """
        pipeline = super().build_module_to_env_connector(env, spaces)
        added = any(isinstance(one, NormalizeAndClipActions) for one in pipeline.connectors)
        if added and not _has_bounds(pipeline.input_action_space):
            pipeline.remove(NormalizeAndClipActions)
        return with_own_connectors(pipeline)

    @override(PPOConfig)
    def build_env_to_module_connector(self, env: Any = None, spaces: Any = None, device: Any = None) -> Any:
        """RLlib's pipeline, which batches observations part by part.

        Raises:
            UserError: If agents that share a policy have different spaces.
        """
        seen, acts = spaces[INPUT_ENV_SINGLE_SPACES] if env is None and spaces else (None, None)
        seen, acts = getattr(env, "single_observation_space", seen), getattr(env, "single_action_space", acts)
        shared = self.policy_mapping_fn is shared_policy
        if shared:
            _require_equal(acts, "action")
        try:
            return with_own_connectors(super().build_env_to_module_connector(env=env, spaces=spaces, device=device))
        except ValueError:
            if shared:  # of which RLlib says nothing that a user could act on
                _require_equal(seen, "observation")
            raise

    @override(PPOConfig)
    def validate(self) -> None:
        """Checks all settings; registers the environment with RLlib if PettingZoo knows it."""
        self.check_settings()
        self.validate_training()
        if isinstance(self.env_runner_cls, str):
            raise UserError(
                f"`env_runner_cls` is {self.env_runner_cls!r} but must be a class, or null for RLlib's own one; files "
                "can only say null."
            )
        self._validate_planning()
        ensure_registered(self.env)
        self._validate_partners()
        self.add_callback(EpisodeMetrics)
        self.add_callback(PhaseSeconds)
        self.add_callback(WarnOfEntropyCollapse)
        super().validate()

    def validate_training(self) -> None:
        """Checks which settings do not fit together, before a game is made; subclasses add their own."""
        for name, value in _NO_KL_LOSS.items():
            if (given := getattr(self, name)) != value:
                raise UserError(
                    f"`{name}` is {given!r}, a setting of RLlib's loss on the KL divergence, which "
                    f"{self.algo_class.__name__} does not have; omit it, or set `target_kl` to stop updates early."
                )
        self.require_whole_setting("num_envs_per_env_runner", 1)
        if self.num_learners > 1 and not self.minibatch_size:
            raise UserError(
                f"`minibatch_size` is {self.minibatch_size!r} with `num_learners` {self.num_learners}; "
                "several learners must agree on the number of minibatches, so set `minibatch_size`."
            )


def _has_bounds(space: spaces.Space[Any]) -> bool:
    return any(isinstance(part, spaces.Box) for part in tree.flatten(get_base_struct_from_space(space)))


def _require_equal(of_agents: Any, kind: str) -> None:
    """Refuses agents of one policy whose spaces differ."""
    if not isinstance(of_agents, spaces.Dict):
        return
    (first, wanted), *others = of_agents.spaces.items()
    for agent, space in others:
        if space == wanted:
            continue
        own: object = space
        other: object = wanted
        part = ""
        if isinstance(space, spaces.Dict) and isinstance(wanted, spaces.Dict):
            name = next(n for n in {**wanted.spaces, **space.spaces} if space.spaces.get(n) != wanted.spaces.get(n))
            own, other, part = space.spaces.get(name), wanted.spaces.get(name), f" (`{name}`)"
        raise UserError(
            f"the {kind} space of agent {agent!r} is {shown(own)} but that of {first!r} is {shown(other)}{part}, and "
            "agents that share a policy need equal ones; fill up the shorter with zeros and masked actions, give each "
            "agent a policy of its own, or train QMIX, which takes both."
        )
