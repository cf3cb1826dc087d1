"""A trained policy of language-model agents: how it acts, messages included, and its files; needs no Ray."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError, one_line, require_choice
from rllib_llm_comm.core.places import fetched
from rllib_llm_comm.core.weights import read_weights
from rllib_llm_comm.envs.interface import GameInfo, secret_of, telling_words
from rllib_llm_comm.language.adapters import (
    ACTION,
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    MESSAGE,
    REFERENCE,
    base_of_adapter,
    read_adapter_settings,
    require_rank,
)
from rllib_llm_comm.language.base_model import KNOWN, BaseModel, check_base_model
from rllib_llm_comm.language.chat_template import CHAT, PLAIN, PROMPT_DATE
from rllib_llm_comm.language.prompts import AGENT_TEMPLATES, DEFAULT, SHIPPED, read_prompts
from rllib_llm_comm.policies.decision import Decision, Hearing, Memory, Request, choose
from rllib_llm_comm.policies.policy import Spoken, TalkingPolicy, make_environment
from rllib_llm_comm.policies.policy_folder import find_policy, require_shapes
from rllib_llm_comm.policies.policy_manifest import MANIFEST, PolicyManifest, read_manifest
from rllib_llm_comm.policies.recorded_settings import Withheld, granted
from rllib_llm_comm.verco.encoding import ObservationEncoder, TextObservation, read_observation
from rllib_llm_comm.verco.language_network import BatchedNetworks, LanguageNetwork, build_critic
from rllib_llm_comm.verco.message_protocol import MessageProtocol, Speaker, heard_by, require_possible
from rllib_llm_comm.verco.settings import (
    MESSAGE_MODES,
    WRITTEN_BY_ADAPTER,
    CommunicationSettings,
    ModuleSettings,
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
    def check_options(messages: str | None, teacher: str | Mapping[str, Any] | None, base_model: str | None) -> None:
        """Refuses arguments of `load` that fit no checkpoint; nothing is loaded.

        Raises:
            UserError: If one is not allowed.
        """
        if messages is not None:
            require_choice("messages", messages, MESSAGE_MODES)
        if teacher is not None:
            make_teacher(teacher)
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
        hearings = [row.hearing for row in rows]
        batches = self._encoded(hearings)
        probabilities = self._probabilities(batches, [row.view.mask for row in rows])
        values = functools.cache(functools.partial(_values, batches, len(rows)))  # all of a moment, if one is read
        for index, (row, hearing) in enumerate(zip(rows, hearings, strict=True)):
            said, replaced = spoken[row.episode][row.agent]
            answers[row.episode][row.agent] = Decision(
                action=choose(probabilities[index], row.memory.rng, explore),
                said=said,
                heard=dict(hearing.messages),
                candidates=list(row.view.candidates),
                probabilities=probabilities[index],
                value=lambda index=index: values()[index],  # type: ignore[misc]
                prompt=self._encoder.prompt(row.view, hearing.messages),
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
        for max_words in {policy.communication.max_message_words for policy, _ in writers}:
            networks, prompts = [], []
            for policy, row in writers:
                if policy.communication.max_message_words == max_words:
                    networks.append(policy.network_of(row.agent))
                    prompts.append(networks[-1].settings.templates.message(row.view.text, row.view.subgoal))
            self._batched_across(networks).write_ahead(networks, prompts, max_words)

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
            own = policy._encoded([row.hearing for holder, row in rows if holder is policy])
            encoded += [(network, batch) for network, (_, batch) in own.items()]
        batched.score_ahead(encoded)

    def _batched_across(self, networks: Sequence[LanguageNetwork]) -> BatchedNetworks:
        """Networks of several policies, to be asked together; those of the latest moment are kept."""
        if self._batched_before is None or not set(networks).issubset(self._batched_before.networks):
            self._batched_before = BatchedNetworks(networks)
        return self._batched_before

    def probabilities(self, heard: Sequence[Hearing]) -> np.ndarray:
        """The probabilities of each candidate behind messages that are given, not written.

        Returns:
            (B, K) probabilities; 0 where forbidden.
        """
        rows = [Hearing(agent, read_observation(seen), messages) for agent, seen, messages in heard]
        return np.stack(self._probabilities(self._encoded(rows), [row.view.mask for row in rows]))

    def _encoded(self, rows: Sequence[Hearing]) -> _Batches:
        """The rows of each network."""
        if len({len(row.view.candidates) for row in rows}) > 1:
            raise UserError("all agents need the same number of `candidates`, as their action spaces have in training.")
        encoded = [self._encoder.encode(row.view, dict(row.messages)) for row in rows]
        places: dict[LanguageNetwork, list[int]] = {}
        for number, row in enumerate(rows):
            places.setdefault(self.network_of(row.agent), []).append(number)
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
    def hearing(self) -> Hearing:
        """The agent with what it hears now."""
        return Hearing(self.agent, self.view, heard_by(str(self.agent), self.memory.mailbox))


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


# ---- files -----------------------------------------------------------------------------------------------------


_CRITIC = "critic.safetensors"
TRAINS_ALONE = {MESSAGE: "MessageSFT", ACTION: "ActionSFT"}
"""Role of an adapter -> the algorithm that trains it alone, from what was recorded."""
TEMPLATES_OF = {MESSAGE: ("message", "subgoal"), ACTION: ("action", "heard", "subgoal")}
"""Role of an adapter -> templates of the prompts that it reads."""
_told: set[str] = set()


def base_model_digest(base: BaseModel) -> str:
    """A short fingerprint of a base model: its shape and a few rows of its embedding."""
    weight = base.model.get_input_embeddings().weight
    sample = weight[:: max(1, len(weight) // 16)][:16].detach().float().cpu().numpy()
    shape = [list(weight.shape), sum(p.numel() for p in base.model.parameters())]
    return hashlib.blake2b(json.dumps(shape).encode() + sample.tobytes(), digest_size=8).hexdigest()


def has_base(manifest: PolicyManifest, base: BaseModel) -> bool:
    """True if a policy's adapters were trained on these weights, held in whatever format."""
    if manifest.base_model_sha256 and manifest.base_model_sha256 == base.sha256:
        return True
    return manifest.base_model_digest == base_model_digest(base)


def policy_files(network: LanguageNetwork) -> dict[str, bytes]:
    """Adapters and critic as file contents by relative path."""
    from safetensors.torch import save

    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for role in network.lm.roles:
            network.lm.save_adapter(role, Path(scratch) / role)
            for path in sorted((Path(scratch) / role).iterdir()):
                files[f"adapters/{role}/{path.name}"] = path.read_bytes()
    if network.settings.critic_hiddens is not None:
        files[_CRITIC] = save({name: tensor.cpu().contiguous() for name, tensor in network.critic.state_dict().items()})
    return files


def load_networks(
    folder: str | os.PathLike[str], manifest: PolicyManifest, **overrides: Any
) -> dict[str, LanguageNetwork]:
    """Builds the networks of a policy folder by agent, or that of all agents under no name, as `load_network`."""
    return {agent: load_network(Path(folder) / agent, manifest, **overrides) for agent in manifest.agents or ("",)}


def load_network(
    folder: str | os.PathLike[str], manifest: PolicyManifest, *, reference: bool = False, **overrides: Any
) -> LanguageNetwork:
    """Builds the network of a policy folder.

    Args:
        folder: The policy folder, or that of one of its agents.
        manifest: Its manifest.
        reference: True if it has a reference adapter also where the folder holds none (then a fresh one).
        **overrides: Language-model settings to change, such as `device` or `base_model` (a new place of the
            same model).

    Raises:
        UserError: If files are missing, the base model is withheld or another one, or weights do not fit the
            settings.
    """
    values = {name: granted(value) for name, value in {**manifest.model_config, **overrides}.items()}
    settings = ModuleSettings.from_mapping(values)
    held = Path(folder) / "adapters"
    roles = (MESSAGE, ACTION, REFERENCE) if (held / REFERENCE).is_dir() else (MESSAGE, ACTION)
    if others := sorted(path.parent.name for path in held.glob(f"*/{ADAPTER_CONFIG}") if path.parent.name not in roles):
        raise UserError(
            f"{folder} has the adapter {others[0]!r}, whose role is unknown here; take the code that wrote it."
        )
    for role in roles:
        read_adapter_settings(held / role, role)
        require_rank(held / role, role, settings.lora_r)
    critic = {} if settings.critic_hiddens is None else read_weights(Path(folder) / _CRITIC)
    _require_critic(str(folder), settings, critic)
    network = LanguageNetwork(settings, reference=reference or REFERENCE in roles)
    _require_same_base(network.lm.base, manifest, str(folder))
    for role in roles:
        network.lm.load_adapter(role, held / role)
    try:
        network.critic.load_state_dict(critic)
    except RuntimeError as error:
        raise _misfit(str(folder), error) from error
    return network


def take_files(network: LanguageNetwork, files: Mapping[str, bytes]) -> None:
    """Loads adapters and critic into a network of the same settings.

    Args:
        network: The network; a reference adapter that the files do not have stays.
        files: From `policy_files`.
    """
    from safetensors.torch import load

    with tempfile.TemporaryDirectory() as scratch:
        for name, content in files.items():
            (Path(scratch) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(scratch) / name).write_bytes(content)
        for role in network.lm.roles:
            if (Path(scratch) / "adapters" / role).is_dir():
                network.lm.load_adapter(role, Path(scratch) / "adapters" / role)
    if _CRITIC in files and network.settings.critic_hiddens is not None:
        network.critic.load_state_dict(load(files[_CRITIC]))


def _require_critic(folder: str, settings: ModuleSettings, weights: Mapping[str, torch.Tensor]) -> None:
    inputs = next((tensor.shape[-1] for tensor in weights.values() if tensor.dim() == 2), 1)
    try:
        require_shapes(lambda: build_critic(inputs, settings.critic_hiddens), weights)
    except RuntimeError as error:
        raise _misfit(folder, error) from error


def _misfit(folder: str, error: RuntimeError) -> UserError:
    reason = one_line(str(error), 300)
    return UserError(
        f"the critic in {str(Path(folder) / _CRITIC)!r} does not fit its own settings ({reason}); save the checkpoint "
        "again."
    )


def load_adapter_of(
    network: LanguageNetwork,
    path: str | os.PathLike[str],
    agent: str | None = None,
    role: str = MESSAGE,
    into: str | None = None,
) -> None:
    """Loads one adapter of a checkpoint, and nothing else of it.

    Args:
        network: The network it goes into.
        path: A checkpoint, as of `find_policy`, or a PEFT adapter folder.
        agent: The adapter's agent, of a checkpoint in which each agent has its own.
        role: The adapter that is taken: `MESSAGE` or `ACTION`.
        into: The network's adapter that takes its weights; by default that of the same role.

    Raises:
        UserError: If there is none, it was never trained, or it belongs to another base model.
    """
    root = fetched(path, "checkpoint")
    base = network.lm.base
    if (root / ADAPTER_CONFIG).is_file():
        _require_role(root, role)
        trained_on = base_of_adapter(read_adapter_settings(root, role))
        if trained_on and not _same_name(trained_on, base.name):
            raise _other_base(str(root), trained_on, base.name)
        network.lm.load_adapter(into or role, root)
        above = next((one for one in root.resolve().parents[1:3] if (one / MANIFEST).is_file()), None)
        if above is not None:  # it lies in a policy folder, maybe in that of one agent
            tell_once(other_prompts(path, read_manifest(above), network.settings, TEMPLATES_OF[role]))
        return
    folder = find_policy(root)
    manifest = read_manifest(folder)
    _require_same_base(base, manifest, str(path))
    if manifest.agents:
        if agent is None or agent not in manifest.agents:
            listed = ", ".join(manifest.agents)
            raise UserError(
                f"checkpoint {str(path)!r} has a {role} adapter for each of {listed}, but {agent!r} is none of them; "
                f"give one of its folders, such as {str(folder / manifest.agents[0] / 'adapters' / role)!r}."
            )
        folder = folder / agent
    _require_learned(str(path), manifest, role)
    network.lm.load_adapter(into or role, folder / "adapters" / role)
    if role == ACTION:
        _tell_other_scores(str(path), manifest, network.settings)
    tell_once(other_prompts(path, manifest, network.settings, TEMPLATES_OF[role]))


def other_prompts(
    path: str | os.PathLike[str],
    manifest: PolicyManifest,
    settings: ModuleSettings,
    templates: Sequence[str] = AGENT_TEMPLATES,
) -> str:
    """A sentence if weights were trained with other prompts than they get here; else empty."""
    trained = manifest.model_config.get("prompts", DEFAULT)
    if not isinstance(trained, Mapping) and trained not in SHIPPED:
        return ""  # no checkpoint of ours names a folder
    before, now = read_prompts(trained), read_prompts(settings.prompts)
    other = [name for name in templates if before[name] != now[name]]
    if not other:
        return ""
    return (
        f"{str(path)!r} was trained with other prompts than `prompts` gives it here: the templates {', '.join(other)} "
        "differ; it goes on with those given here."
    )


def tell_once(sentence: str) -> None:
    """Warns with a sentence, unless it is empty or this process has told it before."""
    if sentence and sentence not in _told:
        _told.add(sentence)
        logger.warning("%s", sentence)


def check_adapter_of(
    path: str | os.PathLike[str],
    base_model: str,
    prompt_format: str = PLAIN,
    prompt_date: str = PROMPT_DATE,
    role: str = MESSAGE,
) -> None:
    """Finds out whether an adapter for a base model is at a path, without loading the model.

    Args:
        path: As for `load_adapter_of`.
        base_model: The name of the base model it is to be used with.
        prompt_format: The format of prompts that it is to read.
        prompt_date: The day that a chat template shows.
        role: The adapter that is taken: `MESSAGE` or `ACTION`.

    Raises:
        UserError: If there is none, it was never trained, it belongs to another base model or format, or its weights
            cannot be read or are not finite.
    """
    root = fetched(path, "checkpoint")
    if (root / ADAPTER_CONFIG).is_file():
        _require_role(root, role)
        adapters = [root]
        trained_on = base_of_adapter(read_adapter_settings(root, role))
    else:
        folder = find_policy(root)
        manifest = read_manifest(folder)
        adapters = [folder / agent / "adapters" / role for agent in manifest.agents or ("",)]
        trained_on = manifest.model_config.get("base_model")
        _require_same_form(str(path), manifest, prompt_format, prompt_date)
        if not all((adapter / ADAPTER_CONFIG).is_file() for adapter in adapters):
            raise UserError(
                f"checkpoint {str(path)!r} has no {role} adapter; give a checkpoint of {TRAINS_ALONE[role]} or of "
                "Verco."
            )
        _require_learned(str(path), manifest, role)
    for adapter in adapters:
        read_adapter_settings(adapter, role)
        read_weights(adapter / ADAPTER_WEIGHTS)
    # Two paths may be the same model; whether they are is known only when it is loaded.
    if trained_on and {trained_on, base_model} & set(KNOWN) and not _same_name(trained_on, base_model):
        raise _other_base(str(path), trained_on, base_model)


def _tell_other_scores(where: str, manifest: PolicyManifest, settings: ModuleSettings) -> None:
    """Warns where the same adapter makes another policy, since its scores are read otherwise."""
    for name in ("score_normalization", "temperature"):
        known, here = manifest.model_config.get(name), getattr(settings, name)
        if known is not None and known != here:
            logger.warning(
                "The action adapter of %r was trained with `%s` %r, but `%s` is %r here: it begins as another policy "
                "than the one that was judged.",
                where,
                name,
                known,
                name,
                here,
            )


def _require_role(adapter: Path, role: str) -> None:
    """Refuses an adapter of this package's folders that is another role's; PEFT knows no roles."""
    if adapter.parent.name == "adapters" and adapter.name in TRAINS_ALONE and adapter.name != role:
        raise UserError(
            f"{str(adapter)!r} is the {adapter.name} adapter of a policy, but its {role} adapter is needed; give "
            f"{str(adapter.with_name(role))!r}, or a checkpoint of {TRAINS_ALONE[role]} or of Verco."
        )


def _require_learned(where: str, manifest: PolicyManifest, role: str) -> None:
    """Refuses the adapter that supervised training of the other role has left as it began."""
    kept = f"{role}_checkpoint"
    for other, algorithm in TRAINS_ALONE.items():
        if other != role and manifest.algorithm == algorithm and not manifest.provenance.get(kept):
            raise UserError(
                f"checkpoint {where!r} is of {algorithm}, which trains the {other} adapter alone, but its {role} "
                f"adapter is needed; give a checkpoint of {TRAINS_ALONE[role]} or of Verco."
            )


def _require_same_base(base: BaseModel, manifest: PolicyManifest, where: str) -> None:
    _require_same_form(where, manifest, base.prompt_format, base.prompt_date)
    if not manifest.base_model_digest:
        return
    told, known, here = str(manifest.model_config.get("base_model")), manifest.base_model_sha256, base.sha256
    if not has_base(manifest, base):
        raise _other_base(where, told, base.name, known, here)
    if known and here and known != here:  # weights that were saved anew, or of which only those in between are others
        tell_once(
            f"the adapters in {where!r} were trained on base model {told!r}{_of_file(known)}, but `base_model` "
            f"{base.name!r} is another file{_of_file(here)}: its shape and embedding are the same, the weights between "
            "may not be."
        )


def _require_same_form(where: str, manifest: PolicyManifest, prompt_format: str, prompt_date: str) -> None:
    """Refuses adapters that know prompts in another format, or a chat with another date."""
    known, here = manifest.model_config, {"prompt_format": prompt_format, "prompt_date": prompt_date}
    for name, default in (("prompt_format", PLAIN), ("prompt_date", PROMPT_DATE)):
        if known.get(name, default) != here[name] and (name == "prompt_format" or prompt_format == CHAT):
            raise UserError(
                f"`{name}` is {here[name]!r} but the adapters in {where!r} were trained with "
                f"{known.get(name, default)!r}; set that, or train new ones."
            )


def _same_name(one: str, other: str) -> bool:
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def _other_base(where: str, trained_on: str, base: str, known: str = "", here: str = "") -> UserError:
    return UserError(
        f"`base_model` is {base!r}{_of_file(here)} but the adapters in {where!r} were trained on {trained_on!r}"
        f"{_of_file(known)}, whose weights are others; use that base model, or train new ones."
    )


def _of_file(digest: str) -> str:
    return f" (sha256 {digest[:12]}...)" if digest else ""
