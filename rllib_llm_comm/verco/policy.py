"""A trained policy of language-model agents to act with, message exchange included; needs no Ray."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from typing_extensions import Self

from rllib_llm_comm.chat.message_server import MessageServer
from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.envs.interface import GameInfo, secret_of, telling_words
from rllib_llm_comm.language.adapters import REFERENCE
from rllib_llm_comm.language.base_model import check_base_model
from rllib_llm_comm.policies.decision import Decision, Heard, Memory, Request, choose
from rllib_llm_comm.policies.policy import Spoken, TalkingPolicy, make_environment
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.policies.recorded_settings import Withheld, granted
from rllib_llm_comm.verco.encoding import ObservationEncoder, TextObservation, read_observation
from rllib_llm_comm.verco.language_network import (
    BatchedNetworks,
    LanguageNetwork,
    load_adapter_of,
    load_networks,
    policy_files,
)
from rllib_llm_comm.verco.message_protocol import MessageProtocol, Speaker, heard_by, require_possible
from rllib_llm_comm.verco.settings import (
    MESSAGE_MODES,
    WRITTEN_BY_ADAPTER,
    CommunicationSettings,
)
from rllib_llm_comm.verco.teachers.base import TeacherMessages, make_teacher

logger = logging.getLogger(__name__)


@dataclass
class EpisodeMemory(Memory):
    """State of one episode between two calls.

    Attributes:
        rng: Draws its actions.
        words: Draws its sampled messages.
        mailbox: The latest message of every speaker.
    """

    rng: np.random.Generator
    words: np.random.Generator = field(default_factory=np.random.default_rng)
    mailbox: dict[str, str] = field(default_factory=dict)


class LanguagePolicy(TalkingPolicy):
    """Agents that are language models: each speaks, hears the others and chooses.

    Args:
        network: The network of all agents; or, by agent, that of each.
        communication: Settings of the messages.
        manifest: Origin of the policy.
    """

    communication: CommunicationSettings

    def __init__(
        self,
        network: LanguageNetwork | Mapping[str, LanguageNetwork],
        communication: CommunicationSettings,
        manifest: PolicyManifest,
    ) -> None:
        self._networks = network
        self.communication = communication
        self.manifest = manifest
        any_network = network if isinstance(network, LanguageNetwork) else next(iter(network.values()))
        self._batched = BatchedNetworks([network] if isinstance(network, LanguageNetwork) else network.values())
        self._batched_before: BatchedNetworks | None = None
        self._encoder = ObservationEncoder(any_network.lm.base, any_network.settings)
        self._protocol = MessageProtocol(communication)
        self._memory = EpisodeMemory(np.random.default_rng())

    @staticmethod
    def check_options(
        messages: str | None,
        teacher: str | Mapping[str, Any] | None,
        message_server: str | Mapping[str, Any] | None,
        base_model: str | None,
    ) -> None:
        """Refuses arguments of `load` that fit no checkpoint; nothing is loaded.

        Raises:
            UserError: If one is not allowed.
        """
        if messages is not None:
            require_choice("messages", messages, MESSAGE_MODES)
        if teacher is not None:
            make_teacher(teacher)
        if isinstance(message_server, Mapping):
            MessageServer.from_settings(message_server)
        elif message_server is not None:
            require_choice("message_server", message_server, ("none",))
        if base_model is not None:
            check_base_model(base_model)

    @classmethod
    def load(
        cls,
        folder: Path,
        manifest: PolicyManifest,
        *,
        device: str | None = None,
        base_model: str | None = None,
        messages: str | None = None,
        teacher: str | Mapping[str, Any] | None = None,
        message_server: str | Mapping[str, Any] | None = None,
        reference: str | os.PathLike[str] | None = None,
        max_prompt_tokens: int | None = None,
        **options: Any,
    ) -> Self:
        """The policy of a folder; all as of `load_policy`."""
        communication = _communication(manifest, messages, message_server)
        overrides: dict[str, Any] = {"device": device or _at_hand(str(manifest.model_config.get("device", "cpu")))}
        if base_model is not None:
            overrides["base_model"] = base_model
        if max_prompt_tokens is not None:
            overrides["max_prompt_tokens"] = max_prompt_tokens
        networks = load_networks(folder, manifest, reference=reference is not None, **overrides)
        if reference is not None:
            for agent, network in networks.items():
                load_adapter_of(network, reference, agent or None, into=REFERENCE)
        if teacher is not None:
            manifest = dataclasses.replace(manifest, teacher=teacher)
        return cls(networks if manifest.agents else networks[""], communication, manifest)

    def files(self) -> dict[str, bytes]:
        """Adapters and critic; of agents with a network each in a folder of its name."""
        if isinstance(self._networks, LanguageNetwork):
            return policy_files(self._networks)
        return {
            f"{agent}/{name}": file
            for agent, network in self._networks.items()
            for name, file in policy_files(network).items()
        }

    def require_readable(self, observations: Mapping[Any, Mapping[str, Any]]) -> None:
        """Refuses agents without a network and observations that are not in words."""
        for agent, seen in observations.items():
            self.network_of(agent)
            read_observation(seen)

    @property
    def network(self) -> LanguageNetwork:
        """The network that all agents share.

        Raises:
            UserError: If each has its own.
        """
        if not isinstance(self._networks, LanguageNetwork):
            raise UserError(
                f"each of {', '.join(self._networks)} has a network of its own; take that of `network_of(agent)`."
            )
        return self._networks

    def network_of(self, agent: Any) -> LanguageNetwork:
        """The network of an agent.

        Raises:
            UserError: If it has none.
        """
        if isinstance(self._networks, LanguageNetwork):
            return self._networks
        if str(agent) not in self._networks:
            raise UserError(f"agent {agent!r} has no policy here; those of {', '.join(self._networks)} were trained.")
        return self._networks[str(agent)]

    def reset(self, seed: int | None = None) -> None:
        """Begins an episode: all mailboxes are empty.

        Args:
            seed: Fixes sampled actions and messages from here on; `None` goes on with the random numbers at
                hand.
        """
        if seed is None:
            self._memory = EpisodeMemory(self._memory.rng, self._memory.words)
        else:
            self._memory = self.begin(seed)
            self._protocol.reseed(seed)

    def forget(self) -> None:
        """Forgets the messages of all episodes so far, from which the controls `"other_moments"` and `"other_fact"`
        draw; call it before a series of episodes that is to be repeated.
        """
        self._protocol.forget()

    def begin(self, seed: int) -> EpisodeMemory:
        """Begins an episode that is played beside others.

        Args:
            seed: Fixes its sampled actions and words.
        """
        return EpisodeMemory(np.random.default_rng(seed), np.random.default_rng([seed, 1]))

    def note(self, infos: Mapping[Any, Mapping[str, Any]]) -> None:
        """Takes the private facts of the episode that `act` plays from its infos; call it before `act` where messages
        are `"other_fact"`.
        """
        self._memory.secret = secret_of(infos)

    def speak_together(self, requests: Sequence[Request], explore: bool = True) -> list[dict[Any, Spoken]]:
        """Lets the agents of several episodes speak, as `act_together` does before they choose.

        Args:
            requests: As for `act_together`; the mailboxes of the memories take in the messages.
            explore: As for `act`.

        Returns:
            Per episode and given agent its message and, where a control changes it, the true one.
        """
        rows = _rows(requests)
        networks = [self.network_of(row.agent) for row in rows]
        speakers = [
            Speaker(
                str(row.agent),
                row.view,
                row.memory.mailbox,
                row.memory.secret,
                network.settings.templates,
                row.memory.words,
            )
            for row, network in zip(rows, networks, strict=True)
        ]
        write = self._batched.writer(networks)
        models = [network.lm for network in networks]
        said = self._protocol.speak(speakers, write, greedy=not explore, models=models)
        replaced: Sequence[str | None] = self._protocol.replaced or [None] * len(rows)
        spoken: list[dict[Any, Spoken]] = [{} for _ in requests]
        for row, message, own in zip(rows, said, replaced, strict=True):
            spoken[row.episode][row.agent] = (message, own)
        return spoken

    def act_together(
        self, requests: Sequence[Request], explore: bool = True, spoken: Sequence[Mapping[Any, Spoken]] | None = None
    ) -> list[dict[Any, Decision]]:
        """As `act`, for several episodes in one batch.

        Args:
            requests: Per episode its memory (of `begin`) and the observations of its agents that are asked now.
            explore: As for `act`.
            spoken: The messages of these agents, where they have spoken before this call (`speak_together`) beside
                agents of other policies.
        """
        rows = _rows(requests)
        answers: list[dict[Any, Decision]] = [{} for _ in requests]
        if not rows:
            return answers
        if spoken is None:
            spoken = self.speak_together(requests, explore)
        heard = [row.heard for row in rows]
        batches = self._encoded(heard)
        probabilities = self._probabilities(batches, [row.view.mask for row in rows])
        values = functools.cache(functools.partial(_values, batches, len(rows)))  # all of a moment, if one is read
        for index, row in enumerate(rows):
            said, replaced = spoken[row.episode][row.agent]
            answers[row.episode][row.agent] = Decision(
                action=choose(probabilities[index], row.memory.rng, explore),
                said=said,
                heard=heard[index][2],
                candidates=list(row.view.candidates),
                probabilities=probabilities[index],
                value=lambda index=index: values()[index],  # type: ignore[misc]
                prompt=self._encoder.prompt(row.view, heard[index][2]),
                replaced=replaced,
            )
        return answers

    def write_ahead(self, asked: Sequence[tuple[TalkingPolicy, Sequence[Request]]], explore: bool = True) -> None:
        """Writes in one batch the greedy messages of several policies on one base model, which they remember then.

        Args:
            asked: Policies, with what `speak_together` of each is going to be given.
            explore: As for `act`.
        """
        writers = [one for one in _language_policies(asked) if one[0]._protocol.writes_greedily(not explore)]
        for words in {policy.communication.max_message_words for policy, _ in writers}:
            networks, prompts = [], []
            for policy, row in writers:
                if policy.communication.max_message_words == words:
                    networks.append(policy.network_of(row.agent))
                    prompts.append(networks[-1].settings.templates.message(row.view.text, row.view.subgoal))
            self._batched_across(networks).write_ahead(networks, prompts, words)

    def judge_ahead(self, asked: Sequence[tuple[TalkingPolicy, Sequence[Request]]]) -> None:
        """Scores in one batch the candidates of several policies on one base model, which remember them then.

        Args:
            asked: Policies, with what `act_together` of each is going to be given; all agents have spoken.
        """
        rows = _language_policies(asked)
        networks = [policy.network_of(row.agent) for policy, row in rows]
        batched = self._batched_across(networks)
        if not batched.is_quicker(networks):
            return
        encoded: list[tuple[LanguageNetwork, dict[str, torch.Tensor]]] = []
        for policy in dict.fromkeys(policy for policy, _ in rows):
            own = policy._encoded([row.heard for holder, row in rows if holder is policy])
            encoded += [(network, batch) for network, (_, batch) in own.items()]
        batched.score_ahead(encoded)

    def _batched_across(self, networks: Sequence[LanguageNetwork]) -> BatchedNetworks:
        """Networks of several policies, to be asked together; those of the latest moment are kept."""
        if self._batched_before is None or not set(networks).issubset(self._batched_before.networks):
            self._batched_before = BatchedNetworks(networks)
        return self._batched_before

    def probabilities(self, heard: Sequence[Heard]) -> np.ndarray:
        """The probabilities of each candidate behind messages that are given, not written.

        Args:
            heard: Per row an agent, its observation, and the messages that it hears, by speaker.

        Returns:
            (B, K) probabilities; 0 where forbidden.
        """
        rows = [(agent, read_observation(seen), messages) for agent, seen, messages in heard]
        return np.stack(self._probabilities(self._encoded(rows), [view.mask for _, view, _ in rows]))

    def _encoded(self, rows: Sequence[tuple[Any, TextObservation, Mapping[str, str]]]) -> _Batches:
        """The rows of each network."""
        if len({len(view.candidates) for _, view, _ in rows}) > 1:
            raise UserError("all agents need the same number of `candidates`, as their action spaces have in training.")
        encoded = [self._encoder.encode(view, dict(messages)) for _, view, messages in rows]
        places: dict[LanguageNetwork, list[int]] = {}
        for row, (agent, _, _) in enumerate(rows):
            places.setdefault(self.network_of(agent), []).append(row)
        return {
            network: (
                own,
                {name: torch.from_numpy(np.stack([encoded[row][name] for row in own])) for name in encoded[0]},
            )
            for network, own in places.items()
        }

    def _probabilities(self, batches: _Batches, masks: Sequence[Any]) -> list[np.ndarray]:
        """Probabilities of every row, by its agent's network, in one pass of each."""
        probabilities = [np.empty(0)] * len(masks)
        self._batched.score_ahead([(network, batch) for network, (_, batch) in batches.items()])
        for network, (own, batch) in batches.items():
            with torch.no_grad():
                softmax = network.remembered_logits(batch).double().softmax(-1).numpy()
            allowed = np.where(np.stack([masks[row] for row in own]), softmax, 0.0)
            for row, of_row in zip(own, allowed / allowed.sum(1, keepdims=True), strict=True):
                probabilities[row] = of_row
        return probabilities

    def env(self, *, planning: Mapping[str, Any] | None = None, **settings: Any) -> Any:
        """Makes the PettingZoo environment that the policy was trained on.

        Args:
            planning: Source of subgoals, if not as in training, as of `make_environment`.
            **settings: Settings that differ from those of the training, such as `render_mode`.

        Raises:
            UserError: If the checkpoint names none, or PettingZoo does not know it in this process; or if messages are
                to tell another fact and it tells at most one.
        """
        env = make_environment(self.manifest, settings, planning)
        require_possible(self.communication.messages, env)
        self._protocol.telling_words = telling_words(GameInfo(env).facts)
        if self.communication.messages == "teacher":
            teacher = granted(self.manifest.teacher)
            if not teacher:
                raise UserError("`messages` is 'teacher' but no `teacher` is set; give one, for example 'scripted'.")
            env = TeacherMessages(env, teacher)
        return env


_Batches = Mapping[LanguageNetwork, tuple[list[int], dict[str, torch.Tensor]]]
"""By network the numbers of its rows among all, and their encoded observations."""


@torch.no_grad()
def _values(batches: _Batches, count: int) -> list[float]:
    values = [float("nan")] * count
    for network, (own, batch) in batches.items():
        for row, value in zip(own, network.values(batch).tolist(), strict=True):
            values[row] = value
    return values


@dataclass(frozen=True)
class _Row:
    """An agent that is asked now."""

    episode: int
    agent: Any
    memory: EpisodeMemory
    view: TextObservation

    @property
    def heard(self) -> tuple[Any, TextObservation, dict[str, str]]:
        """Agent, view, and what it hears now."""
        return self.agent, self.view, heard_by(str(self.agent), self.memory.mailbox)


def _language_policies(
    asked: Sequence[tuple[TalkingPolicy, Sequence[Request]]],
) -> list[tuple[LanguagePolicy, _Row]]:
    return [(policy, row) for policy, own in asked if isinstance(policy, LanguagePolicy) for row in _rows(own)]


def _rows(requests: Sequence[Request]) -> list[_Row]:
    return [
        _Row(number, agent, memory, read_observation(seen))
        for number, (memory, observations) in enumerate(requests)
        for agent, seen in observations.items()
    ]


def _communication(
    manifest: PolicyManifest, messages: str | None, message_server: str | Mapping[str, Any] | None
) -> CommunicationSettings:
    """The recorded settings of messages, with those that the caller gives in their place."""
    talk = dict(manifest.communication)
    if messages is not None:
        learned = manifest.provenance.get("message_checkpoint") or talk.get("messages", "student") in WRITTEN_BY_ADAPTER
        if messages in WRITTEN_BY_ADAPTER and not learned and message_server is None:
            logger.warning(
                "`messages` is %r, but the policy was trained with %r and its message adapter has learned nothing: the "
                "language model writes as it is.", messages, talk["messages"]
            )  # fmt: skip
        # `train_messages` is about the mode that was trained; messages of another mode are not part of the policy.
        trained = bool(talk.get("train_messages")) and messages == talk.get("messages")
        talk.update(messages=messages, train_messages=trained)
    if message_server is not None:
        talk["message_server"] = None if message_server == "none" else message_server
    if talk.get("messages", "student") in WRITTEN_BY_ADAPTER:
        granted(talk.get("message_server"))
    elif isinstance(talk.get("message_server"), Withheld):
        del talk["message_server"]  # nobody asks it
    return CommunicationSettings.from_mapping(talk)


def _at_hand(device: str) -> str:
    """A recorded device, or the CPU where this process sees no GPU."""
    return device if not device.startswith("cuda") or torch.cuda.is_available() else "cpu"
