"""The RLModule of agents that talk: frozen language model, message and action adapters, critic."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.utils.annotations import override
from ray.rllib.utils.torch_utils import convert_to_torch_tensor
from ray.rllib.utils.typing import StateDict
from torch import nn

from rllib_llm_comm.core.errors import require_choice
from rllib_llm_comm.language.adapters import ACTION, MESSAGE, REFERENCE
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.policies.policy_folder import PolicyExport
from rllib_llm_comm.policies.policy_manifest import LANGUAGE
from rllib_llm_comm.rl.actor_critic import RLLIB_KEYS, SetupErrorsMixin
from rllib_llm_comm.rl.columns import CANDIDATE_IDS, CRITIC_FEATURES, CRITIC_IDS, PROMPT_IDS
from rllib_llm_comm.verco.encoding import MESSAGE_IDS, MESSAGE_LABELS, UTTERANCE_LOGP
from rllib_llm_comm.verco.language_network import BatchedNetworks, LanguageNetwork, message_log_probs
from rllib_llm_comm.verco.policy import base_model_digest, load_adapter_of, policy_files
from rllib_llm_comm.verco.settings import LanguageModelSettings

logger = logging.getLogger(__name__)

MESSAGE_LOG_PROBS = "message_log_probs"
MESSAGE_HITS = "message_hits"
UTTERANCE_LOG_PROBS = "utterance_log_probs"
UTTERANCE_ENTROPY = "utterance_entropy"
UTTERANCE_KL = "utterance_kl"
KL_COEFF = "kl_coeff"
_LEAST_TOKENS = 64  # of a micro-batch; a GPU that does not hold so many is too small for the model


class LLMCommMultiModule(MultiRLModule):
    """Modules of agents with a policy each, on one base: what they are asked in a moment is scored in one batch."""

    def setup(self) -> None:
        """Builds the modules."""
        super().setup()
        self._batched = BatchedNetworks([])

    @override(MultiRLModule)
    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        self._score_ahead(batch)
        return super()._forward_inference(batch, **kwargs)  # type: ignore[no-any-return]

    @override(MultiRLModule)
    def _forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        self._score_ahead(batch)
        return super()._forward_exploration(batch, **kwargs)  # type: ignore[no-any-return]

    def _score_ahead(self, batch: Mapping[str, Any]) -> None:
        self._batched = batched_networks_of(self, self._batched)
        modules = {module_id: self[module_id].unwrapped() for module_id in batch if module_id in self}
        asked = [
            (one.network, batch[name][Columns.OBS]) for name, one in modules.items() if isinstance(one, LLMCommModule)
        ]
        self._batched.score_ahead(asked)


def batched_networks_of(modules: MultiRLModule, known: BatchedNetworks) -> BatchedNetworks:
    """All networks among some modules, to be asked together.

    Args:
        modules: The modules of an EnvRunner.
        known: Those of an earlier moment, which is taken if it has the same networks.
    """
    each = [module.unwrapped() for module in modules.values()]
    networks = tuple(module.network for module in each if isinstance(module, LLMCommModule))
    return known if known.networks == networks else BatchedNetworks(networks)


class LLMCommModule(SetupErrorsMixin, TorchRLModule, InferenceOnlyAPI, ValueFunctionAPI):
    """One policy that writes messages and chooses among candidate actions.

    `model_config` holds the fields of `LanguageModelSettings`. Observations are those of the
    `MessageExchange` connector; actions are candidate indices.

    The language model is shared by all modules of a process and hidden from torch's registry: parameters,
    state, weight sync, DDP and checkpoints carry adapters and critic only. It runs in eval mode, but
    for MessageSFT with `lora_dropout` (dropout would make the first PPO ratio differ from 1), and stays on the
    device named in `model_config`, wherever RLlib moves the module, since others use it too; inputs may come from any
    device.

    Where PPO trains both adapters, a third one is held: the message adapter as it was when it was loaded (fresh, if it
    was not), frozen, from which the KL divergence of messages is measured. It stays where the learning is: acting needs
    none.

    A training batch with the columns of supervised message training is answered with their log-probabilities.
    """

    @override(TorchRLModule)
    def setup(self) -> None:
        """Builds or borrows the base model, and registers adapters and critic."""
        config = {name: value for name, value in dict(self.model_config).items() if name not in RLLIB_KEYS}
        settings = LanguageModelSettings.from_mapping(config)
        has_reference = {MESSAGE, ACTION} <= set(settings.trainable_roles) and not self.inference_only
        self.network = LanguageNetwork(settings, reference=has_reference)
        self.adapters = nn.ParameterDict()
        self.reference = nn.ParameterDict()
        for name, parameter in self.network.lm.named_adapter_parameters():
            role = name.split(".", 1)[0]
            parameter.requires_grad_(role in settings.trainable_roles)
            held = self.reference if role == REFERENCE else self.adapters
            held[name.replace(".", "/")] = parameter  # torch allows no dots in parameter names
        if has_reference:
            self.reference.register_buffer(KL_COEFF, torch.tensor(torch.nan))
        self.critic = self.network.critic.requires_grad_(settings.train_critic)

    @override(InferenceOnlyAPI)
    def get_non_inference_attributes(self) -> list[str]:
        """Critic and reference are not needed to act."""
        return ["critic", "reference"]

    def _apply(self, fn: Any, recurse: bool = True) -> LLMCommModule:
        # The shared base stays on its device, and adapters and critic with it.
        return self

    def actor_parameters(self) -> list[nn.Parameter]:
        """The trainable parameters of the action adapter."""
        return self._trainable(ACTION)

    def speaker_parameters(self) -> list[nn.Parameter]:
        """The trainable parameters of the message adapter."""
        return self._trainable(MESSAGE)

    def _trainable(self, role: str) -> list[nn.Parameter]:
        return [p for name, p in self.adapters.items() if name.split("/", 1)[0] == role and p.requires_grad]

    def critic_parameters(self) -> list[nn.Parameter]:
        """The trainable critic parameters."""
        return [parameter for parameter in self.network.critic.parameters() if parameter.requires_grad]

    def halve_micro_batches(self, observations: Mapping[str, torch.Tensor]) -> int | None:
        """Makes micro-batches of observations half as large, for a GPU whose memory did not hold them.

        Returns:
            The tokens that are then held at once; `None`, with nothing changed, if there were hardly any.
        """
        tokens = sum(int((observations[name] != PAD).sum()) for name in (PROMPT_IDS, CANDIDATE_IDS))
        held = min(tokens, self.network.micro_batch_tokens or tokens)
        if held < 2 * _LEAST_TOKENS:
            return None
        self.network.micro_batch_tokens = held // 2
        return held // 2

    @property
    def rounds_by_batch(self) -> bool:
        """True if scores depend on the shape of their batch by more than a ratio may err, as in half precision."""
        lm = self.network.lm
        return lm.base.model.dtype != torch.float32 or lm.base.is_quantized or self.network.settings.autocast != "none"

    @property
    def message_kl_coeff(self) -> float | None:
        """The adapted weight of the KL divergence from the reference; `None` until it was set."""
        value = float(self.reference.get_buffer(KL_COEFF))
        return None if value != value else value

    @message_kl_coeff.setter
    def message_kl_coeff(self, value: float) -> None:
        self.reference.get_buffer(KL_COEFF).fill_(value)

    def write_messages(self, prompts: list[str], **kwargs: Any) -> list[str]:
        """Messages behind message prompts, as of `LanguageNetwork.write_messages`."""
        return self.network.write_messages(prompts, **kwargs)

    def critic_features(self, batch: dict[str, Any]) -> torch.Tensor:
        """Frozen features (B, F) of a batch's observations, on which the critic stands."""
        return self.network.features(batch[Columns.OBS][CRITIC_IDS])

    @override(TorchRLModule)
    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.network.remembered_logits(batch[Columns.OBS])}

    @override(TorchRLModule)
    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        if MESSAGE_IDS in batch:
            log_probs, hits = message_log_probs(self.network.lm, batch[MESSAGE_IDS], batch[MESSAGE_LABELS])
            return {MESSAGE_LOG_PROBS: log_probs, MESSAGE_HITS: hits}
        out = {Columns.ACTION_DIST_INPUTS: self.network.logits(batch[Columns.OBS])}
        if UTTERANCE_LOGP in batch[Columns.OBS]:
            terms = self.network.utterance_terms(batch[Columns.OBS])
            out[UTTERANCE_LOG_PROBS] = terms.log_probs
            out[UTTERANCE_ENTROPY], out[UTTERANCE_KL] = terms.mean(terms.entropy), terms.mean(terms.kl)
        return out

    @override(ValueFunctionAPI)
    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        """Values (B,) of a batch's observations; uses the column of features where the batch has it.

        The column is written by this package's learner connector, where bootstrap rows get features of their
        own; with RLlib's stock connectors the features are computed (and remembered) here.
        """
        features = batch.get(CRITIC_FEATURES)
        if features is None:
            features = self.critic_features(batch)
        return self.network.values_of(features)

    @override(RLModule)
    def set_state(self, state: StateDict) -> None:
        """Loads adapters and critic; weights that did not change are left alone.

        So what is remembered about a frozen adapter outlives the weight sync after every update.
        """
        own = self.state_dict()
        missing = own.keys() - state.keys()
        if self.inference_only and missing:
            raise ValueError(f"the state misses {sorted(missing)}")
        incoming = convert_to_torch_tensor({name: state[name] for name in own if name in state})
        changed = {
            name: tensor for name, tensor in incoming.items() if not torch.equal(tensor.to(own[name].device), own[name])
        }
        self.load_state_dict(changed, strict=False)
        if missing and all(name.startswith("reference.") for name in missing):
            # A checkpoint of an earlier version, which had no reference.
            logger.warning(
                "The state has no reference for the KL divergence of messages; it is its message adapter now."
            )
            self.network.keep_reference()

    def load_adapter(self, path: str, role: str = MESSAGE, *, agent: str | None = None) -> None:
        """Loads the adapter of a checkpoint or PEFT folder; that of messages also as the reference.

        Args:
            path: The checkpoint or folder.
            role: The adapter: `MESSAGE` or `ACTION`.
            agent: Its agent, in a checkpoint in which each agent has its own.
        """
        require_choice("role", role, (MESSAGE, ACTION))
        load_adapter_of(self.network, path, agent, role)
        if role == MESSAGE:
            self.network.keep_reference()

    def export_policy(self) -> PolicyExport:
        """Settings and weights of this module for a checkpoint's policy folder."""
        network = self.network
        digests = (base_model_digest(network.lm.base), network.lm.base.sha256)
        return PolicyExport(LANGUAGE, policy_files(network), network.settings.to_dict(), *digests)
