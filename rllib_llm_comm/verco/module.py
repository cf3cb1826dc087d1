"""Agents that talk, in RLlib: their module, the connector by which they hear each other, a teacher's callback.

The module is a frozen language model with message and action adapters and a critic. Two mixins are the base of all
algorithms that train it, PPO (`verco.verco`) and supervised training (`verco.sft`): settings of the language model and
of messages, and adapters that are taken from checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.vector.sync_vector_multi_agent_env import SyncVectorMultiAgentEnv
from ray.rllib.utils.annotations import override
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.torch_utils import convert_to_torch_tensor
from ray.rllib.utils.typing import StateDict
from torch import nn
from typing_extensions import Self

from rllib_llm_comm.chat.chat_model import concurrent_questions, side_by_side
from rllib_llm_comm.core import phases
from rllib_llm_comm.core.errors import UserError, require_choice, space_text
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.games import is_understood
from rllib_llm_comm.envs.interface import secret_of
from rllib_llm_comm.language.adapters import ACTION, MESSAGE, REFERENCE
from rllib_llm_comm.language.generation import Written
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.language.prompts import read_prompts
from rllib_llm_comm.policies.decision import CANDIDATE_IDS, CRITIC_IDS, PROMPT_IDS
from rllib_llm_comm.policies.find_checkpoint import is_named
from rllib_llm_comm.policies.partners import game_difference
from rllib_llm_comm.policies.policy_folder import PolicyExport, find_policy
from rllib_llm_comm.policies.policy_manifest import LANGUAGE, PolicyManifest, read_manifest
from rllib_llm_comm.policies.seated_policy import Told
from rllib_llm_comm.rl.actor_critic import RLLIB_KEYS, SetupErrorsMixin
from rllib_llm_comm.rl.callbacks import ChatCost
from rllib_llm_comm.rl.connectors import MAILBOX, newest_observation
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin, on_every_learner
from rllib_llm_comm.rl.rllib_adapter import wrap_games
from rllib_llm_comm.rl.strict_config import StrictConfigMixin
from rllib_llm_comm.rl.train_batch import CRITIC_FEATURES
from rllib_llm_comm.verco.encoding import (
    CANDIDATES,
    LABEL_IDS,
    LABEL_TARGETS,
    MESSAGE_LOGP,
    TEXT,
    MessageEncoder,
    ObservationEncoder,
    TextObservation,
    encoded_space,
    is_text_observation,
    read_observation,
)
from rllib_llm_comm.verco.language_network import (
    BatchedNetworks,
    LanguageNetwork,
    base_of,
    label_log_probs,
)
from rllib_llm_comm.verco.message_protocol import MessageProtocol, Speaker, heard_by
from rllib_llm_comm.verco.policy import base_model_digest, load_adapter_of, other_prompts, policy_files, tell_once
from rllib_llm_comm.verco.settings import (
    SHUFFLED,
    CommunicationSettings,
    LanguageModelSettings,
    ModuleSettings,
)
from rllib_llm_comm.verco.teachers.base import TeacherMessages

logger = logging.getLogger(__name__)

# ---- the module -----------------------------------------------------------------------------------------------------


LABEL_LOG_PROBS = "label_log_probs"
LABEL_HITS = "label_hits"
MESSAGE_LOG_PROBS = "message_log_probs"
MESSAGE_ENTROPY = "message_entropy"
MESSAGE_KL = "message_kl"
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

    `model_config` holds the fields of `ModuleSettings`. Observations are those of the
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
        settings = ModuleSettings.from_mapping(config)
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

    def message_parameters(self) -> list[nn.Parameter]:
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
        if LABEL_IDS in batch:
            log_probs, hits = label_log_probs(self.network.lm, batch[LABEL_IDS], batch[LABEL_TARGETS])
            return {LABEL_LOG_PROBS: log_probs, LABEL_HITS: hits}
        out = {Columns.ACTION_DIST_INPUTS: self.network.logits(batch[Columns.OBS])}
        if MESSAGE_LOGP in batch[Columns.OBS]:
            terms = self.network.message_terms(batch[Columns.OBS])
            out[MESSAGE_LOG_PROBS] = terms.log_probs
            out[MESSAGE_ENTROPY], out[MESSAGE_KL] = terms.mean(terms.entropy), terms.mean(terms.kl)
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
            # Of a training that did not train messages.
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


# ---- messages -------------------------------------------------------------------------------------------------------


METRICS_WINDOW = 100
"""Moments over which metrics of messages are means."""
SHUFFLED_SAME_SHARE, SHUFFLED_SILENT_SHARE = "shuffled_same_share", "shuffled_silent_share"
"""Metrics of controls that change messages: how many are as before, and how many are silence."""


class _Entry(NamedTuple):
    """An agent whose newest observation is in words."""

    episode: MultiAgentEpisode
    agent: Any
    single: SingleAgentEpisode

    @property
    def acts(self) -> bool:
        """True if it has to choose; nobody acts on a final observation."""
        return not self.episode.is_done and not self.single.is_done


class MessageExchange(ConnectorV2):
    """Lets all agents that act now write messages, exchanges these, and writes the action prompts.

    Input: multi-agent episodes whose newest observations are dicts with `text`, `candidates` and, optionally,
    `action_mask`, `subgoal` and `teacher_message`. Output: the same episodes, where these observations are
    replaced by the token ids of `encoded_space`. So roll-out, learner, bootstrap rows and recorded data see
    one text.

    Messages of all agents of all environments are written in one batch. The mailbox (latest message of every
    agent) travels in the episode's `custom_data`: it survives the cuts between roll-out fragments and ends
    with the episode.
    Final observations get no new messages: nobody acts on them.

    .. testcode::
        :skipif: True

        config.env_runners(
            env_to_module_connector=lambda env, spaces, device: MessageExchange(
                language_model={"base_model": "embedded"}, communication={"messages": "student"}
            )
        )

    Args:
        input_observation_space: Dict of the agents' text observations.
        input_action_space: Dict of the agents' Discrete spaces.
        language_model: The module's `model_config`; gives the widths of the arrays.
        communication: Fields of `CommunicationSettings`.
    """

    def __init__(
        self,
        input_observation_space: gym.Space | None = None,
        input_action_space: gym.Space | None = None,
        *,
        language_model: Mapping[str, Any] | None = None,
        communication: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._settings = ModuleSettings.from_mapping(dict(language_model or {}))
        self._communication = CommunicationSettings.from_mapping(dict(communication or {}))
        self._protocol: MessageProtocol | None = None
        self._encoders: dict[str, ObservationEncoder] = {}
        self._messages: MessageEncoder | None = None
        self._batched = BatchedNetworks([])
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def policy_record(self) -> dict[str, Any]:
        """What a policy folder tells of the messages."""
        return {"communication": self._communication.to_dict()}

    @override(ConnectorV2)
    def recompute_output_observation_space(
        self, input_observation_space: gym.Space, input_action_space: gym.Space
    ) -> gym.Space:
        """The agents' observation spaces in token ids."""
        if not isinstance(input_observation_space, gym.spaces.Dict):
            return input_observation_space
        spaces: dict[str, gym.Space] = {}
        for agent, space in input_observation_space.spaces.items():
            if not (isinstance(space, gym.spaces.Dict) and {TEXT, CANDIDATES} <= set(space.spaces)):
                raise UserError(
                    f"the observation space of agent {agent!r} is {space_text(space)}, but must be a Dict with `text` "
                    "and `candidates`; make the environment tell its observation in words."
                )
            action_space = input_action_space[agent]  # type: ignore[index]
            if not isinstance(action_space, gym.spaces.Discrete):
                raise UserError(
                    f"the action space of agent {agent!r} is {action_space}, but must be Discrete: one index "
                    "per candidate phrase."
                )
            encoded = encoded_space(self._settings, int(action_space.n))
            trained = self._message_encoder().space() if self._communication.train_messages else {}
            spaces[agent] = gym.spaces.Dict({**encoded.spaces, **trained})
        return gym.spaces.Dict(spaces)

    @override(ConnectorV2)
    def __call__(
        self,
        *,
        rl_module: RLModule,
        batch: dict[str, Any],
        episodes: list[MultiAgentEpisode],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Replaces the newest observations of the episodes by token ids, messages included."""
        with phases.phase(phases.TEXT):
            self._exchange(rl_module, episodes, metrics, explore is False)
        return batch

    def _exchange(self, rl_module: RLModule, episodes: list[MultiAgentEpisode], metrics: Any, greedy: bool) -> None:
        waiting: list[_Entry] = []
        observations = {}
        for episode in episodes:
            # Partners play inside the game, unseen by RLlib; those that have not spoken yet do so now.
            if isinstance(mailbox := episode.custom_data.get(MAILBOX), Told) and not episode.is_done:
                mailbox.complete()
            singles = episode.agent_episodes
            for agent in sorted(singles, key=str):
                single = singles[agent]
                if len(single.observations) and is_text_observation(raw := newest_observation(single)):
                    waiting.append(_Entry(episode, agent, single))
                    observations[id(single)] = read_observation(raw)
        speaking = [entry for entry in waiting if entry.acts]
        said = self._write(rl_module, speaking, observations, greedy)
        replaced = [(true, new.text) for true, new in zip(self._message_protocol().replaced, said, strict=False)]
        message_of = {id(single): message for (_, _, single), message in zip(speaking, said, strict=True)}
        trained = self._message_arrays(rl_module, waiting, observations, message_of)
        for episode, agent, single in waiting:
            heard = heard_by(str(agent), episode.custom_data.get(MAILBOX, {}))
            encoder = self._encoder(rl_module, episode.module_for(agent))
            arrays = {**encoder.encode(observations[id(single)], heard), **trained.get(id(single), {})}
            if (seen := single.observations).finalized:
                single.set_observations(at_indices=-1, new_data=arrays)
            else:
                seen.data[-1] = arrays
            space = self.observation_space[agent]
            if single.observation_space is not space:  # setting it makes its structure anew
                single.observation_space = space
        if metrics is not None and said and self._communication.messages != "none":
            for name, value in message_metrics([message.text for message in said]).items():
                metrics.log_value(name, value, window=METRICS_WINDOW)
            if replaced:  # a control that changes few messages shows little
                for name, flags in (
                    (SHUFFLED_SAME_SHARE, [new == true for true, new in replaced]),
                    (SHUFFLED_SILENT_SHARE, [not new for _, new in replaced]),
                ):
                    metrics.log_value(name, float(np.mean(flags)), window=METRICS_WINDOW)

    def _write(
        self,
        rl_module: RLModule,
        speaking: Sequence[_Entry],
        observations: Mapping[int, TextObservation],
        greedy: bool,
    ) -> list[Written]:
        """Messages of the agents, each by its own module; with their token ids where PPO trains free text."""
        speakers, networks = [], []
        with_ids = self._communication.train_messages and self._communication.messages == "student"
        needs_facts = self._communication.messages in SHUFFLED
        self._batched = batched_networks_of(rl_module, self._batched)
        modules: dict[str, Any] = {}
        for episode, agent, single in speaking:
            mailbox = episode.custom_data.setdefault(MAILBOX, {})
            secret = _secret(episode) if needs_facts else ""
            module_id = episode.module_for(agent)
            if module_id not in modules:
                modules[module_id] = _unwrapped(rl_module, module_id)
            module = modules[module_id]
            templates = module.network.settings.templates
            speakers.append(Speaker(str(agent), observations[id(single)], mailbox, secret, templates))
            networks.append(module.network)
        write = self._batched.writer(networks, with_ids)
        if not with_ids:
            models = [network.lm for network in networks]
            return [Written(text) for text in self._message_protocol().speak(speakers, write, greedy, models)]
        drawn: list[Written] = []

        def write_and_keep(prompts: list[str], **kwargs: Any) -> list[str]:
            drawn.extend(write(prompts, **kwargs))
            return [message.text for message in drawn]

        self._message_protocol().speak(speakers, write_and_keep, greedy)
        return drawn

    def _message_arrays(
        self,
        rl_module: RLModule,
        waiting: Sequence[_Entry],
        observations: Mapping[int, TextObservation],
        message_of: Mapping[int, Written],
    ) -> dict[int, dict[str, np.ndarray]]:
        """Arrays of the messages that PPO trains, with their probability; by the id of the agent's episode."""
        if not self._communication.train_messages:
            return {}
        found: dict[int, dict[str, np.ndarray]] = {}
        by_module: dict[str, list[int]] = {}
        for episode, agent, single in waiting:
            message = message_of.get(id(single))
            found[id(single)] = self._message_encoder().encode(observations[id(single)], message, episode.env_t)
            by_module.setdefault(episode.module_for(agent), []).append(id(single))
        for module_id, keys in by_module.items():
            names = [name for name in found[keys[0]] if name != MESSAGE_LOGP]
            batch = {name: torch.from_numpy(np.stack([found[key][name] for key in keys])) for name in names}
            with torch.no_grad():
                log_probs = _unwrapped(rl_module, module_id).network.message_terms(batch).log_probs
            for key, value in zip(keys, log_probs.tolist(), strict=True):
                found[key] = {**found[key], MESSAGE_LOGP: np.array([value], np.float32)}
        return found

    def _message_encoder(self) -> MessageEncoder:
        if self._messages is None:
            menu = self._communication.message_menu if self._communication.messages == "menu" else ()
            max_words = self._communication.max_message_words
            self._messages = MessageEncoder(
                base_of(self._settings), self._settings.max_prompt_tokens, max_words, menu, self._settings.templates
            )
        return self._messages

    def _message_protocol(self) -> MessageProtocol:
        if self._protocol is None:
            # RLlib seeds numpy in every EnvRunner from `seed` and the runner's index.
            self._protocol = MessageProtocol(self._communication, seed=int(np.random.randint(2**31 - 1)))
        return self._protocol

    def _encoder(self, rl_module: RLModule, module_id: str) -> ObservationEncoder:
        if module_id not in self._encoders:
            network = _unwrapped(rl_module, module_id).network
            settings = self._settings.replace(prompts=network.settings.prompts)
            self._encoders[module_id] = ObservationEncoder(network.lm.base, settings)
        return self._encoders[module_id]


def message_metrics(said: Sequence[str]) -> dict[str, float]:
    """Metrics of the messages of one moment, of which there is one at least.

    Returns:
        `message_words`: mean words. `message_vocabulary`: different words. `message_distinct_share`: share of different
        messages. `message_printable_share`: share of those in printable ASCII. `message_understood_share`: share of
        those that are a sentence of one of the package's games (`envs.games.is_understood`), as scripted
        players use them.
    """
    return {
        "message_words": sum([len(message.split()) for message in said]) / len(said),
        "message_vocabulary": len({word for message in said for word in message.split()}),
        "message_distinct_share": len(set(said)) / len(said),
        "message_printable_share": sum(one.isascii() and one.isprintable() for one in said) / len(said),
        "message_understood_share": sum(map(is_understood, said)) / len(said),
    }


def _secret(episode: MultiAgentEpisode) -> str:
    """Facts told to anybody, by the latest infos of all agents."""
    latest = {agent: single.infos[-1] for agent, single in episode.agent_episodes.items() if len(single.infos)}
    return secret_of({agent: info for agent, info in latest.items() if isinstance(info, Mapping)})


def _unwrapped(rl_module: RLModule, module_id: str) -> LLMCommModule:
    module = rl_module[module_id].unwrapped()
    if not isinstance(module, LLMCommModule):
        raise UserError(
            f"module {module_id!r} is {type(module).__name__}, which cannot write messages; use "
            "LLMCommModule with the MessageExchange connector."
        )
    return module


@dataclass(frozen=True)
class _PlayedStep:
    """A game whose step, or reset, has been played already."""

    unwrapped: Any
    result: Any

    def reset(self) -> Any:
        return self.result

    def step(self, actions: Any) -> Any:
        return self.result


class GamesSideBySide(SyncVectorMultiAgentEnv):
    """Games that go on while others wait for a chat model's answer; each takes the course that it takes alone.

    Attributes:
        at_once: Most games that have begun a step and not finished it.
    """

    at_once: int
    envs: list[Any]

    @override(SyncVectorMultiAgentEnv)
    def step(self, actions: list[dict[Any, Any]]) -> Any:
        """One step of each game."""
        games, over = self.envs, self._autoreset_envs

        def play(number: int) -> Any:
            return games[number].reset() if over[number] else games[number].step(actions[number])

        results = side_by_side(play, range(len(games)), self.at_once)
        self.envs = [_PlayedStep(game.unwrapped, result) for game, result in zip(games, results, strict=True)]
        try:
            return super().step(actions)
        finally:
            self.envs = games


class AddTeacherMessages(RLlibCallback):
    """Wraps the games of every EnvRunner so that observations carry `teacher_message`.

    A chat teacher is asked by several games at once, as many as its client answers (`max_concurrent`).

    `Verco` adds it when `messages` is "teacher" and reads the teacher from the config's `teacher`. In a
    config of your own use `AddTeacherMessages.of("scripted")`.
    """

    teacher: str | Mapping[str, Any] | None = None

    @classmethod
    def of(cls, teacher: str | Mapping[str, Any]) -> type[AddTeacherMessages]:
        """The callback class for a given teacher."""
        return type("AddTeacherMessages", (cls,), {"teacher": teacher})

    @classmethod
    def policy_record(cls) -> dict[str, Any]:
        """What a policy folder tells of the teacher."""
        return {"teacher": cls.teacher}

    def on_environment_created(self, *, env_runner: Any, env: Any, **kwargs: Any) -> None:
        """Puts the wrapper between adapter and game, in each sub-environment.

        Raises:
            UserError: If the environment is no PettingZoo environment behind our adapter.
        """
        teacher = self.teacher or getattr(env_runner.config, "teacher", None)
        if not teacher:
            raise UserError("`messages` is 'teacher' but `teacher` is not set; set it, for example to 'scripted'.")
        seed = (env_runner.config.seed or 0) + 1000 * (env_runner.worker_index or 0)
        taught: list[TeacherMessages] = []

        def wrapped(game: Any, number: int) -> TeacherMessages:
            taught.append(TeacherMessages(game, teacher, seed=seed + number))
            return taught[-1]

        wrap_games(env, wrapped, "A teacher needs")
        at_once = concurrent_questions(taught[0].teacher.chat_model)  # each game has a client of its own
        # RLlib has made the vector of games and takes no other class, so it becomes one.
        if at_once > 1 and type(env) is SyncVectorMultiAgentEnv:
            env.__class__, env.at_once = GamesSideBySide, at_once
        self._cost = ChatCost(game.teacher.chat_model for game in taught)

    def on_sample_end(self, *, env_runner: Any, metrics_logger: Any, samples: Any, **kwargs: Any) -> None:
        """Logs what the questions of a teacher have cost."""
        self._cost.log(metrics_logger)


# ---- configs and checkpoints of algorithms that train such modules --------------------------------------------------


class LanguageModelConfigMixin(StrictConfigMixin):
    """Adds `.language_model(...)` and `.communication(...)`."""

    prompts: Any
    settings_models = {"language_model": LanguageModelSettings, "communication": CommunicationSettings}

    def language_model(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets the language model, its adapters and the critic on it, as of `LanguageModelSettings`."""
        return self.assign("language_model", settings, values)

    def communication(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets how agents talk, as of `CommunicationSettings`."""
        return self.assign("communication", settings, values)

    def validate(self) -> None:
        """Checks the prompts, and keeps their texts: a checkpoint is restored where their folder is not."""
        self.prompts = read_prompts(self.prompts)
        super().validate()

    def language_model_settings(self) -> ModuleSettings:
        """The module's `model_config` as checked settings."""
        return ModuleSettings.from_attributes(self, **self.trained_parts(), init_seed=self.seed)

    def trained_parts(self) -> dict[str, Any]:
        """Fields of `ModuleSettings` that say what is trained."""
        raise NotImplementedError

    def communication_settings(self) -> CommunicationSettings:
        """The connector's settings, checked."""
        return CommunicationSettings.from_attributes(self)

    def member_adapters(self) -> Iterator[tuple[str, str, str]]:
        """Per adapter of a member of a population its setting, its checkpoint and its role."""
        yield from ()

    def policy_record(self) -> dict[str, Any]:
        """What a policy folder tells of the training; with the way of talking."""
        talk = {"communication": self.communication_settings().to_dict(), "teacher": getattr(self, "teacher", None)}
        return {**super().policy_record(), **talk}


_AUTHORS = {f"{MESSAGE}_checkpoint": "taught_by", f"{ACTION}_checkpoint": "cloned_from"}
"""Setting -> key of `provenance` that says whose answers the adapter has learned."""


class AdapterCheckpointMixin(PolicyCheckpointMixin):
    """Takes adapters from `message_checkpoint` and `action_checkpoint`; checkpoints tell whose answers they learned."""

    @override(PolicyCheckpointMixin)
    def provenance(self) -> dict[str, Any]:
        """Where its adapters come from."""
        found: dict[str, Any] = {}
        for setting, authors in _AUTHORS.items():
            if hasattr(self.config, setting):
                path = found[setting] = getattr(self.config, setting)
                if isinstance(path, str):
                    found[authors] = _authors(path, authors)
                else:  # a restored config has none any more, but its adapter is still the one that was taken
                    restored = self._restored_provenance
                    found |= {name: restored[name] for name in (setting, authors) if name in restored}
        return found

    def load_adapter(self, path: str, role: str = MESSAGE) -> None:
        """Loads the message adapter (or that of `ACTION`) of a checkpoint into Learners and EnvRunners.

        Raises:
            UserError: If there is none at `path`, or it belongs to another base model.
        """
        require_choice("role", role, (MESSAGE, ACTION))
        setting = f"{role}_checkpoint"
        place = path if is_named(path) else str(local_path(path, setting).absolute())
        try:
            on_every_learner(self, _load, path=place, role=role)
        except UserError as error:
            raise UserError(f"`{setting}`: {error}") from error
        self.sync_runners()
        learned_in = getattr(_manifest(place), "env", None)
        if isinstance(self.config.env, str) and game_difference(self.config.env, {}, learned_in, {}):
            tell_once(
                f"The {role} adapter of {path!r} was trained in {learned_in!r}, another game than {self.config.env!r} "
                "here; it is taken all the same."
            )

    @override(PolicyCheckpointMixin)
    def tell_other_settings(self, path: Any, manifest: PolicyManifest) -> None:
        """Tells of prompts that differ from those of a checkpoint."""
        tell_once(other_prompts(path, manifest, self.config.language_model_settings()))

    @override(Checkpointable)
    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The config without checkpoints of adapters: their weights are here, the old files may be gone."""
        args, kwargs = super().get_ctor_args_and_kwargs()
        state = dict(args[0])
        state |= dict.fromkeys(state.keys() & _AUTHORS.keys())
        return (state, *args[1:]), kwargs


def _authors(checkpoint: str, key: str) -> Any:
    """Whose answers an adapter has learned, as far as its checkpoint tells."""
    manifest = _manifest(checkpoint)
    return [] if manifest is None else manifest.provenance.get(key, [])


def _manifest(checkpoint: str) -> PolicyManifest | None:
    try:
        return read_manifest(find_policy(checkpoint))
    except UserError:  # an adapter alone, or a checkpoint that is gone by now
        return None


def _load(learner: Learner, path: str, role: str) -> None:
    for module_id, module in learner.module.items():
        if isinstance(module.unwrapped(), LLMCommModule):
            module.unwrapped().load_adapter(path, role, agent=module_id)
