"""A trained policy of language-model agents to act with, message exchange included; needs no Ray."""

from __future__ import annotations

import dataclasses
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
from rllib_llm_comm.envs.interface import secret_of, telling_words
from rllib_llm_comm.language.adapters import REFERENCE
from rllib_llm_comm.language.base_model import check_base_model
from rllib_llm_comm.policies.decision import Decision, Heard, Memory, Request, choose
from rllib_llm_comm.policies.policy import Spoken, TalkingPolicy, make_environment
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.policies.recorded_settings import Withheld, granted
from rllib_llm_comm.verco.encoding import ObservationEncoder, TextObservation, read_observation
from rllib_llm_comm.verco.language_agent import LLMCommCore
from rllib_llm_comm.verco.message_protocol import MessageProtocol, Speaker, heard_by, require_possible, write_apart
from rllib_llm_comm.verco.policy_files import load_adapter_of, load_core, load_cores, policy_files
from rllib_llm_comm.verco.settings import MESSAGE_MODES, WRITTEN, CommunicationSettings
from rllib_llm_comm.verco.teachers.base import make_teacher
from rllib_llm_comm.verco.teachers.taught_env import TeacherMessages


@dataclass
class EpisodeMemory(Memory):
    """State of one episode between two calls.

    Attributes:
        rng: Draws its actions.
        mailbox: The latest message of every speaker.
    """

    rng: np.random.Generator
    mailbox: dict[str, str] = field(default_factory=dict)


class LanguagePolicy(TalkingPolicy):
    """Agents that are language models: each speaks, hears the others and chooses.

    Args:
        core: The network of all agents; or, by agent, that of each.
        communication: Settings of the messages.
        manifest: Origin of the policy.
    """

    communication: CommunicationSettings

    def __init__(
        self,
        core: LLMCommCore | Mapping[str, LLMCommCore],
        communication: CommunicationSettings,
        manifest: PolicyManifest,
    ) -> None:
        self._cores = core
        self.communication = communication
        self.manifest = manifest
        any_core = core if isinstance(core, LLMCommCore) else next(iter(core.values()))
        self._encoder = ObservationEncoder(any_core.lm.base, any_core.settings)
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
        **options: Any,
    ) -> Self:
        """The policy of a folder; all as of `load_policy`."""
        communication = _communication(manifest, messages, message_server)
        overrides: dict[str, Any] = {"device": device or _at_hand(str(manifest.model_config.get("device", "cpu")))}
        if base_model is not None:
            overrides["base_model"] = base_model
        load = load_cores if manifest.agents else load_core
        core = load(folder, manifest, reference=reference is not None, **overrides)
        if reference is not None:
            for agent, one in core.items() if isinstance(core, dict) else [(None, core)]:
                load_adapter_of(one, reference, agent, into=REFERENCE)
        if teacher is not None:
            manifest = dataclasses.replace(manifest, teacher=teacher)
        return cls(core, communication, manifest)

    def files(self) -> dict[str, bytes]:
        """Adapters and critic; of agents with a network each in a folder of its name."""
        if isinstance(self._cores, LLMCommCore):
            return policy_files(self._cores)
        return {
            f"{agent}/{name}": file for agent, core in self._cores.items() for name, file in policy_files(core).items()
        }

    def require_readable(self, observations: Mapping[Any, Mapping[str, Any]]) -> None:
        """Refuses agents without a network and observations that are not in words."""
        for agent, seen in observations.items():
            self.core_of(agent)
            read_observation(seen)

    @property
    def core(self) -> LLMCommCore:
        """The network that all agents share.

        Raises:
            UserError: If each has its own.
        """
        if not isinstance(self._cores, LLMCommCore):
            raise UserError(
                f"each of {', '.join(self._cores)} has a network of its own; take that of `core_of(agent)`."
            )
        return self._cores

    def core_of(self, agent: Any) -> LLMCommCore:
        """The network of an agent.

        Raises:
            UserError: If it has none.
        """
        if isinstance(self._cores, LLMCommCore):
            return self._cores
        if str(agent) not in self._cores:
            raise UserError(f"agent {agent!r} has no policy here; those of {', '.join(self._cores)} were trained.")
        return self._cores[str(agent)]

    def reset(self, seed: int | None = None) -> None:
        """Begins an episode: all mailboxes are empty.

        Args:
            seed: Fixes sampled actions and messages from here on; `None` goes on with the random numbers at
                hand.
        """
        if seed is None:
            self._memory = EpisodeMemory(self._memory.rng)
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
            seed: Fixes its sampled actions.
        """
        return EpisodeMemory(np.random.default_rng(seed))

    def note(self, infos: Mapping[Any, Mapping[str, Any]]) -> None:
        """Notes what is told to anybody in the episode that `act` plays; call it before `act` where messages are
        `"other_fact"`.

        Args:
            infos: The environment's latest infos, by agent.
        """
        self._memory.secret = secret_of(infos)

    def act(self, observations: Mapping[Any, Mapping[str, Any]], explore: bool = True) -> dict[Any, Decision]:
        """Lets agents speak, listen and choose.

        Args:
            observations: The environment's observations of the agents that are asked now, and only of these.
                An agent that is busy is left out; what it said last is still heard.
            explore: True if actions are sampled; otherwise the most likely one is taken.

        Returns:
            One decision per given agent.

        Raises:
            UserError: If an observation is not one in words, or a prompt is longer than in training.
        """
        return self.act_together([Request(self._memory, observations)], explore)[0]

    def speak_together(self, requests: Sequence[Request], explore: bool = True) -> list[dict[Any, Spoken]]:
        """Lets the agents of several episodes speak, as `act_together` does before they choose.

        Args:
            requests: As for `act_together`; the mailboxes of the memories take in the messages.
            explore: As for `act`.

        Returns:
            Per episode and given agent its message and, where a control changes it, the true one.
        """
        rows = _rows(requests)
        cores = [self.core_of(row.agent) for row in rows]
        speakers = [
            Speaker(str(row.agent), row.view, row.memory.mailbox, row.memory.secret, core.settings.templates)
            for row, core in zip(rows, cores, strict=True)
        ]
        write = write_apart([core.write_messages for core in cores])
        models = [core.lm for core in cores]
        said = self._protocol.speak(speakers, write, greedy=not explore, models=models)
        replaced: Sequence[str | None] = self._protocol.replaced or [None] * len(rows)
        spoken: list[dict[Any, Spoken]] = [{} for _ in requests]
        for row, message, own in zip(rows, said, replaced, strict=True):
            spoken[row.episode][row.agent] = (message, own)
        return spoken

    def act_together(
        self, requests: Sequence[Request], explore: bool = True, spoken: Sequence[Mapping[Any, Spoken]] | None = None
    ) -> list[dict[Any, Decision]]:
        """Does for several episodes what `act` does for one, in one pass of the network.

        Args:
            requests: Per episode its memory (of `begin`) and the observations of its agents that are asked now.
            explore: As for `act`.
            spoken: The messages of these agents, where they have spoken before this call (`speak_together`) beside
                agents of other policies.

        Returns:
            One decision per given agent, by episode.
        """
        rows = _rows(requests)
        answers: list[dict[Any, Decision]] = [{} for _ in requests]
        if not rows:
            return answers
        if len({len(row.view.candidates) for row in rows}) > 1:
            raise UserError("all agents need the same number of `candidates`, as their action spaces have in training.")
        if spoken is None:
            spoken = self.speak_together(requests, explore)
        heard = [heard_by(str(row.agent), row.memory.mailbox) for row in rows]
        probabilities, values = self._judge(
            [(row.agent, row.view, ears) for row, ears in zip(rows, heard, strict=True)]
        )
        for index, row in enumerate(rows):
            chances = probabilities[index]
            said, replaced = spoken[row.episode][row.agent]
            answers[row.episode][row.agent] = Decision(
                action=choose(chances, row.memory.rng, explore),
                said=said,
                heard=heard[index],
                candidates=list(row.view.candidates),
                probabilities=chances,
                value=float(values[index]),
                prompt=self._encoder.prompt(row.view, heard[index]),
                replaced=replaced,
            )
        return answers

    def probabilities(self, heard: Sequence[Heard]) -> np.ndarray:
        """The chances of each candidate behind messages that are given, not written.

        Args:
            heard: Per row an agent, its observation, and the messages that it hears, by speaker.

        Returns:
            (B, K) probabilities; 0 where forbidden.
        """
        rows = [(agent, read_observation(seen), messages) for agent, seen, messages in heard]
        return np.stack(self._judge(rows, with_values=False)[0])

    def _judge(
        self, rows: Sequence[tuple[Any, TextObservation, Mapping[str, str]]], with_values: bool = True
    ) -> tuple[list[np.ndarray], list[float]]:
        """Probabilities and value of every row, by its agent's network, in one pass of each."""
        encoded = [self._encoder.encode(view, dict(ears)) for _, view, ears in rows]
        cores = [self.core_of(agent) for agent, _, _ in rows]
        probabilities, values = [np.empty(0)] * len(rows), [float("nan")] * len(rows)
        for core in dict.fromkeys(cores):
            own = [row for row, other in enumerate(cores) if other is core]
            batch = {name: torch.from_numpy(np.stack([encoded[row][name] for row in own])) for name in encoded[0]}
            with torch.no_grad():
                chances = core.remembered_logits(batch).double().softmax(-1).numpy()
                judged = core.values(batch).tolist() if with_values else []
            chances = np.where(np.stack([rows[row][1].mask for row in own]), chances, 0.0)
            chances = chances / chances.sum(1, keepdims=True)
            for place, row in enumerate(own):
                probabilities[row] = chances[place]
                if judged:
                    values[row] = judged[place]
        return probabilities, values

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
        self._protocol.telling_words = telling_words(getattr(env.unwrapped, "facts", ()))
        if self.communication.messages == "teacher":
            teacher = granted(self.manifest.teacher)
            if not teacher:
                raise UserError("`messages` is 'teacher' but no `teacher` is set; give one, for example 'scripted'.")
            env = TeacherMessages(env, teacher)
        return env


@dataclass(frozen=True)
class _Row:
    """An agent that is asked now."""

    episode: int
    agent: Any
    memory: EpisodeMemory
    view: TextObservation


def _rows(requests: Sequence[Request]) -> list[_Row]:
    """All agents that are asked, in the order of the requests."""
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
        # The training of messages says nothing about other ones.
        trained = bool(talk.get("train_messages")) and messages == talk.get("messages")
        talk.update(messages=messages, train_messages=trained)
    if message_server is not None:
        talk["message_server"] = None if message_server == "none" else message_server
    if talk.get("messages", "student") in WRITTEN:
        granted(talk.get("message_server"))
    elif isinstance(talk.get("message_server"), Withheld):
        del talk["message_server"]  # nobody asks it
    return CommunicationSettings.from_mapping(talk)


def _at_hand(device: str) -> str:
    return device if not device.startswith("cuda") or torch.cuda.is_available() else "cpu"
