"""Learner of Verco: the losses of actions and messages, micro-batches, and half precision."""

from __future__ import annotations

import copy
import functools
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import torch
import tree
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.annotations import override
from ray.rllib.utils.typing import ModuleID, ParamDict, TensorType

from rllib_llm_comm.core.phases import UPDATE, phase
from rllib_llm_comm.rl.gae import SemiMarkovGAE
from rllib_llm_comm.rl.minibatches import WholeEpochs
from rllib_llm_comm.rl.multi_agent_ppo_learner import ACTOR, CRITIC, ActorTerms, MultiAgentPPOLearner, policy_loss
from rllib_llm_comm.verco.advantages import GAE, MESSAGE_ADVANTAGES, SPEAKER, AddGroupAdvantages, MessageCredit
from rllib_llm_comm.verco.message_loss import UTTERANCE_LOGP, spoken
from rllib_llm_comm.verco.module import UTTERANCE_ENTROPY, UTTERANCE_KL, UTTERANCE_LOG_PROBS, LLMCommModule

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
_KL_COEFF_OF_TEXT = 0.1  # default of `message_kl_coeff` for written messages (ours)
_KL_GAIN, _LARGEST_KL_ERROR = 0.1, 0.2  # of `adapted_kl_coeff`, as in arXiv 1909.08593
_LEAST_ENTROPY = 1e-3  # nats; a policy that begins below it samples one action only


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

    A minibatch with more tokens than `micro_batch_tokens` is computed in parts whose gradients are added up. Where the
    memory of a GPU does not hold it, the parts get smaller. In half precision ratios are taken from log-probabilities
    of the update itself.
    """

    rates: ClassVar[Mapping[str, str]] = {ACTOR: "lr", "speaker": "message_lr", CRITIC: "critic_lr"}

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

    # ---- the loss --------------------------------------------------------------------------------------------------

    @override(MultiAgentPPOLearner)
    def critic_loss(
        self, module_id: ModuleID, module: Any, config: Any, batch: dict[str, Any], fwd_out: dict[str, TensorType]
    ) -> torch.Tensor:
        """As PPO's; 0 where advantages come from groups, without a critic."""
        if config.advantages == GAE:
            return super().critic_loss(module_id, module, config, batch, fwd_out)
        return torch.zeros((), device=batch[Postprocessing.ADVANTAGES].device)

    @override(MultiAgentPPOLearner)
    def actor_terms(
        self, config: Any, module: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, torch.Tensor]
    ) -> ActorTerms:
        """As PPO's; what was said is part of the action, or has an advantage of its own."""
        acted = super().actor_terms(config, module, batch, fwd_out)
        if UTTERANCE_LOG_PROBS not in fwd_out:
            return acted
        of_message = fwd_out[UTTERANCE_LOG_PROBS] - batch[Columns.OBS][UTTERANCE_LOGP][:, 0]
        log_ratio = acted.log_ratio + of_message  # what was said is part of the action
        if MESSAGE_ADVANTAGES not in batch:
            loss = policy_loss(log_ratio.exp(), batch[Postprocessing.ADVANTAGES], config.clip_param)
        else:
            credited = batch[MESSAGE_ADVANTAGES]
            loss = acted.policy_loss + policy_loss(of_message.exp(), credited, config.clip_param)
        return acted._replace(log_ratio=log_ratio, policy_loss=loss)

    @override(MultiAgentPPOLearner)
    def other_terms(
        self, module_id: ModuleID, module: Any, config: Any, fwd_out: Mapping[str, torch.Tensor]
    ) -> torch.Tensor | float:
        """What trained messages add: their KL divergence from the reference, and their negated entropy."""
        if UTTERANCE_LOG_PROBS not in fwd_out:
            return 0.0
        entropy, kl = fwd_out[UTTERANCE_ENTROPY], fwd_out[UTTERANCE_KL]
        self._message_kls[module_id].append(float(self._mean_over_learners(kl.detach())))
        coefficient = self._message_kl_coeff(module, config)
        self.log_values(module_id, message_entropy=entropy, message_kl=kl, message_kl_coeff=coefficient)
        return self._message_loss(module_id, module, config, fwd_out)

    def _message_loss(
        self, module_id: ModuleID, module: Any, config: Any, fwd_out: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """Loss terms of messages beside the policy loss: KL divergence from the reference, and the negated entropy."""
        entropy_coeff = config.message_entropy_coeff
        if entropy_coeff is None:
            entropy_coeff = self._entropy_coeff(module_id)
        kl = self._message_kl_coeff(module, config) * fwd_out[UTTERANCE_KL]
        return kl - entropy_coeff * fwd_out[UTTERANCE_ENTROPY]

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
                of_parts[module_id] = {}
                outputs[module_id] = self._outputs(module_id, live[module_id], parts, of_parts[module_id])
            outputs = {module_id: outputs.get(module_id, {}) for module_id in batch}
            losses = self.compute_losses(fwd_out=outputs, batch=dict(batch))
            gradients = self.compute_gradients(losses)
            for module_id, own in of_parts.items():
                if not self._kl_stop.stopped(module_id):
                    gradients.update(own)
            return outputs, losses, gradients

        return self._within_memory(live, compute)

    def _parts(self, module_id: ModuleID, rows: Mapping[str, Any]) -> list[torch.Tensor]:
        """Row numbers of the parts of a minibatch whose gradients are added up; none where it is computed as a whole.

        DDP (several Learners) expects one backward pass, and the loss of a subclass may be no mean over rows. In both
        cases the module itself splits the minibatch and computes each part again in the backward pass.
        """
        module = self.module[module_id].unwrapped()
        added = self.config.num_learners <= 1 and self._grad_scalers is None and isinstance(module, LLMCommModule)
        if not added or any(getattr(type(self), name) is not here for name, here in _MEANS_OVER_ROWS.items()):
            return []
        parts: list[torch.Tensor] = module.network.micro_batches(rows[Columns.OBS])
        return parts if len(parts) > 1 else []

    def _outputs(
        self,
        module_id: ModuleID,
        rows: Mapping[str, Any],
        parts: list[torch.Tensor] | None = None,
        gradients: ParamDict | None = None,
    ) -> dict[str, torch.Tensor]:
        """A module's outputs for a minibatch, computed part by part.

        Each part's loss is weighted by its share of the rows, or of the messages, over which the whole loss is a mean.

        Args:
            module_id: The module.
            rows: Its minibatch.
            parts: Row numbers of the parts; by default those of `_parts`.
            gradients: Gets the gradients of all parts, added up; `None` computes none.
        """
        module = self.module[module_id].unwrapped()
        parts = self._parts(module_id, rows) if parts is None else parts
        if not parts:
            return dict(module.forward_train(dict(rows)))
        config, observations = self.config.get_config_for_module(module_id), rows[Columns.OBS]
        speaks = UTTERANCE_LOGP in observations
        said = spoken(observations) if speaks else torch.zeros(len(torch.cat(parts)))
        trained = self._policy_parameters(module_id)
        found: list[dict[str, torch.Tensor]] = []
        shares = []
        for part in parts:
            own = tree.map_structure(lambda column, part=part: column[part.to(column.device)], dict(rows))
            out = module.forward_train(own)
            shares.append(float(said[part.to(said.device)].sum() / said.sum().clamp(min=1)))
            if gradients is not None:
                terms = self.actor_terms(config, module, own, out)
                loss = self.policy_objective(module_id, terms) * (len(part) / len(said))
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


# A Learner that overrides one of these computes minibatches whole: parts add up only if its loss is a mean over rows.
_MEANS_OVER_ROWS = {
    name: getattr(VercoLearner, name)
    for name in (
        "compute_loss_for_module",
        "_actor_loss",
        "actor_terms",
        "policy_objective",
        "other_terms",
        "_message_loss",
    )
}


def _add_gradients(gradients: ParamDict, parameters: list[torch.nn.Parameter], loss: torch.Tensor) -> None:
    """Adds the gradients of a loss to those by parameter; a parameter that has no part in it gets none."""
    if not (parameters and loss.requires_grad):
        return
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
        if gradient is not None:
            gradients[parameter] = gradients[parameter] + gradient if parameter in gradients else gradient
