"""Protocol of messages, without RLlib: writing and hearing in training and under a loaded policy."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rllib_llm_comm.chat.message_server import MessageServer
from rllib_llm_comm.core.bounded_cache import Memo
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import disk_error
from rllib_llm_comm.core.phases import MESSAGES, phase
from rllib_llm_comm.envs.interface import HIDDEN, PRIVATE, GameInfo, telling_words
from rllib_llm_comm.language.adapters import MESSAGE, AdaptedModel
from rllib_llm_comm.language.prompts import DEFAULT_TEMPLATES, PromptTemplates, limit_words
from rllib_llm_comm.verco.encoding import TextObservation
from rllib_llm_comm.verco.settings import (
    OTHER_FACT,
    OTHER_MOMENTS,
    SHUFFLED,
    SWAPPED,
    WRITTEN_BY_ADAPTER,
    CommunicationSettings,
)

WriteMessages = Callable[..., list[str]]
_POOL = 2048  # latest messages that controls draw from
_REMEMBERED = 32768  # greedy messages of a server that are kept
_MOST_SEEDS = 2**31 - 1


class Speaker(NamedTuple):
    """One agent that is about to decide, and so to speak.

    Attributes:
        agent: Its name.
        observation: Its observation.
        mailbox: The messages of its episode, by speaker; shared by all agents of the episode and kept by
            whoever keeps the episode.
        secret: Facts told to anybody in its episode at the moment (`envs.interface.secret_of`); empty for nothing.
        templates: Its prompts.
        rng: Random numbers of its episode, by which sampled words do not depend on the episodes beside it; `None`:
            those of the protocol.
    """

    agent: str
    observation: TextObservation
    mailbox: MutableMapping[str, str]
    secret: str = ""
    templates: PromptTemplates = DEFAULT_TEMPLATES
    rng: np.random.Generator | None = None


def heard_by(agent: str, mailbox: Mapping[str, str]) -> dict[str, str]:
    """The latest message of every other agent of the episode.

    Returns:
        Speaker to message, sorted by name (the order in the prompt must not depend on who spoke first);
        agents that have not spoken yet, or said nothing, are left out.
    """
    return {speaker: mailbox[speaker] for speaker in sorted(mailbox) if speaker != agent and mailbox[speaker]}


class MessageProtocol:
    """Turns the agents that are asked in one moment into messages in their mailboxes.

    All of them speak first; what they hear is read afterwards. An agent that is busy is not asked, so its
    last message stays in the mailbox until it speaks again. A mailbox belongs to one episode.

    Attributes:
        replaced: In controls that change messages (`"other_moments"`, `"other_fact"`, `"swapped"`), the true ones: what
            each speaker of the latest `speak` would have said itself; otherwise empty.
        telling_words: The words by which private facts differ (`envs.interface.telling_words`), for swapped messages.
    """

    def __init__(self, settings: CommunicationSettings, seed: int = 0) -> None:
        self.settings = settings
        self.replaced: list[str] = []
        self.telling_words: tuple[str, ...] = ()
        self._random = random.Random(seed)
        self._pool: deque[tuple[str, str]] = deque(maxlen=_POOL)
        self._server = MessageServer(**settings.message_server) if settings.message_server else None
        loads = self._server is not None and self._server.adapter_folder is not None
        self._served = ServedAdapter(self._server) if self._server is not None and loads else None
        self._known: Memo[str] = Memo(_REMEMBERED)
        self._unchanged: list[tuple[str, str]] = []
        self._does_something = False

    def reseed(self, seed: int) -> None:
        """Starts the random numbers anew."""
        self._random = random.Random(seed)

    def forget(self) -> None:
        """Empties the pool that controls draw from, as before the first episode."""
        self._pool.clear()

    def speak(
        self,
        speakers: Sequence[Speaker],
        write: WriteMessages,
        greedy: bool = False,
        models: Sequence[AdaptedModel] = (),
    ) -> list[str]:
        """Lets all speakers of one moment (of any number of episodes) speak, in one batch.

        Args:
            speakers: The agents that are asked; their mailboxes are updated.
            write: `LanguageNetwork.write_messages`, or a function with its arguments.
            greedy: True if messages that are part of the policy (`train_messages`) are the most likely ones.
            models: Each speaker's model, whose message adapter a server with an `adapter_folder` is to use.

        Raises:
            UserError: If such a server is asked for agents with models of their own, or loads no adapter; or if a
                control has left some thousand messages as they were.
        """
        self.replaced = []
        if self._served is not None and speakers and self.settings.messages in WRITTEN_BY_ADAPTER:
            self._known.require(self._served.serve(models))
        said = self._messages(speakers, write, greedy)
        for speaker, message in zip(speakers, said, strict=True):
            speaker.mailbox[speaker.agent] = message
        if self.replaced and not self._does_something:
            self._require_changes(said)
        return said

    def _require_changes(self, said: Sequence[str]) -> None:
        """Refuses a control that has done nothing for as many messages as the pool holds."""
        replaced = list(zip(self.replaced, said, strict=True))
        self._does_something = changes_messages(replaced)
        self._unchanged = [] if self._does_something else self._unchanged + replaced
        if len(self._unchanged) >= _POOL:
            raise idle_control_error(self.settings.messages, self._unchanged)

    def _messages(self, speakers: Sequence[Speaker], write: WriteMessages, greedy: bool) -> list[str]:
        settings = self.settings
        if settings.messages == "none" or not speakers:
            return [""] * len(speakers)
        if settings.messages == "constant":
            return [settings.constant_message] * len(speakers)
        if settings.messages == "teacher":
            return [limit_words(_teacher_message(speaker), settings.max_message_words) for speaker in speakers]
        temperature = self._temperature(greedy)
        menu = {"menu": settings.message_menu} if self._of_menu else {}
        written = (self._from_server if self._server else write)(
            [s.templates.message(s.observation.text, s.observation.subgoal) for s in speakers],
            max_words=settings.max_message_words,
            temperature=temperature,
            seed=self._seed(speakers) if temperature > 0 else None,
            **menu,
        )
        if settings.messages in ("student", "menu"):
            return written
        if settings.messages == SWAPPED:
            return self._swapped(written)
        return self._shuffled(speakers, written)

    def writes_greedily(self, greedy: bool) -> bool:
        """True if the agents' own adapters write all messages word by word, always the most likely ones."""
        written = self.settings.messages in WRITTEN_BY_ADAPTER and not self._server
        return written and not self._of_menu and self._temperature(greedy) == 0

    def _temperature(self, greedy: bool) -> float:
        return 0.0 if greedy and self.settings.train_messages else self.settings.message_temperature

    @property
    def _of_menu(self) -> bool:
        """True if messages are phrases: those of controls are, too, where agents chose among phrases."""
        return bool(self.settings.message_menu) and self.settings.messages in ("menu", *SHUFFLED, SWAPPED)

    def _seed(self, speakers: Sequence[Speaker]) -> int | list[int]:
        own = [speaker.rng for speaker in speakers if speaker.rng is not None]
        if len(own) < len(speakers):
            return self._random.randrange(_MOST_SEEDS)
        return [int(rng.integers(_MOST_SEEDS)) for rng in own]

    def _from_server(
        self, prompts: Sequence[str], *, temperature: float, seed: int | Sequence[int] | None, **kwargs: Any
    ) -> list[str]:
        assert self._server is not None
        with phase(MESSAGES):
            if temperature > 0:
                one = seed if seed is None or isinstance(seed, int) else seed[0]  # of a whole request
                return self._server.write(prompts, temperature=temperature, seed=one, **kwargs)
            known = {prompt: self._known.get(prompt) for prompt in prompts}
            missing = [prompt for prompt, message in known.items() if message is None]
            if missing:
                for prompt, message in zip(missing, self._server.write(missing, **kwargs), strict=True):
                    known[prompt] = message
                    self._known.put(prompt, message)
            return [known[prompt] or "" for prompt in prompts]

    def _shuffled(self, speakers: Sequence[Speaker], written: Sequence[str]) -> list[str]:
        """Right words at the wrong moment: each speaker says what was said at another moment or by another agent.

        The pool also holds this moment's messages of the others, so that there is something to draw from at the start.
        About another fact only messages of moments in which another one was told are drawn: others may say the truth. A
        speaker for whom there is nothing to draw is silent.
        """
        about = [speaker.secret if self.settings.messages == OTHER_FACT else None for speaker in speakers]
        fresh = [(speaker.secret, message) for speaker, message in zip(speakers, written, strict=True)]
        before = {fact: [entry for entry in self._pool if _is_other(entry[0], fact)] for fact in set(about)}
        said = []
        for index, fact in enumerate(about):
            now = [entry for place, entry in enumerate(fresh) if place != index and _is_other(entry[0], fact)]
            choices = len(before[fact]) + len(now)
            if choices == 0:
                said.append("")
                continue
            drawn = self._random.randrange(choices)
            said.append((before[fact][drawn] if drawn < len(before[fact]) else now[drawn - len(before[fact])])[1])
        self._pool.extend(fresh)
        self.replaced = list(written)
        return said

    def _swapped(self, written: Sequence[str]) -> list[str]:
        """The same sentences about something else: each telling word is replaced by the next one."""
        words = self.telling_words
        if len(words) < 2:  # noqa: PLR2004
            raise UserError(
                "`messages` is 'swapped' but this environment tells no private facts that differ in words; use "
                f"{OTHER_MOMENTS!r}, or an environment whose agents are told different things."
            )
        following = dict(zip(words, (*words[1:], words[0]), strict=True))
        self.replaced = list(written)
        return [" ".join(following.get(word, word) for word in message.split(" ")) for message in written]


def _is_other(told: str, fact: str | None) -> bool:
    """True if a message may be drawn: any where no fact is given, else one of a moment with another fact."""
    return fact is None or bool(told and fact and told != fact)


def changes_messages(replaced: Iterable[tuple[str, str]]) -> bool:
    """True if a control did something: one message, at least, is neither the true one nor silence.

    Args:
        replaced: Pairs of the true message and the one in its place.
    """
    return any(said and said != true for true, said in replaced)


def idle_control_error(messages: str, replaced: Sequence[tuple[str, str]]) -> UserError:
    """The error of a control that did nothing.

    Args:
        messages: The message mode.
        replaced: Pairs of the true message and the one in its place, at least one.
    """
    count, silent = len(replaced), sum(not said for _, said in replaced)
    if silent < count:
        found = f"of {count} messages {silent} were silence and all others equal to the true ones"
    elif any(true for true, _ in replaced):
        found = f"each of {count} messages was silence, as there was no other one to draw from yet"
    else:
        found = f"each of {count} messages was silence, as were the true ones"
    drawn = "a message about another fact" if messages == OTHER_FACT else "another message"
    return UserError(
        f"`messages` is {messages!r}, a control, but it did nothing: {found}; play more episodes, so that there is "
        f"{drawn} to draw, or use 'none' (silence) or 'constant'."
    )


def require_possible(messages: str, env: Any) -> None:
    """Refuses a control about other facts in a game that tells at most one.

    Args:
        messages: The message mode.
        env: An environment. Games that do not name their `facts` are begun anew.

    Raises:
        UserError: If no message can tell another fact.
    """
    if messages not in (OTHER_FACT, SWAPPED):
        return
    game = env.unwrapped
    facts = tuple(dict.fromkeys(GameInfo(game).facts))
    if messages == SWAPPED:
        possible = len(telling_words(facts)) > 1
    elif facts:
        possible = len(facts) > 1
    else:
        possible = any(key in info for info in game.reset()[1].values() for key in (PRIVATE, HIDDEN))
    if not possible:
        told = f"the same in every episode ({facts[0]!r})" if facts else "nothing"
        raise UserError(
            f"`messages` is {messages!r} but agents of this environment are told {told}, so that no message tells "
            f"another fact; use {OTHER_MOMENTS!r}, or an environment whose agents are told different things."
        )


def _teacher_message(speaker: Speaker) -> str:
    message = speaker.observation.teacher_message
    if message is None:
        raise UserError(
            f"`messages` is 'teacher' but the observation of {speaker.agent!r} has no `teacher_message`; "
            "wrap the environment in `TeacherMessages`, as the callback `AddTeacherMessages` and "
            "`Policy.env()` do."
        )
    return message


# ---- the message adapter at a server ----------------------------------------------------------------------------


_DIGITS = 16


class ServedAdapter:
    """Keeps a server's adapter the same as the run's: it is written and loaded again whenever its weights change.

    Args:
        server: The server; it has an `adapter_folder`.
    """

    def __init__(self, server: MessageServer) -> None:
        self._server = server
        self._stamp: Hashable = None
        self._digest = ""

    def serve(self, models: Sequence[AdaptedModel]) -> str:
        """Has the server load the message adapter, unless it has it.

        Returns:
            Digest of its weights.

        Raises:
            UserError: If the speakers have different models, the folder cannot be written, or the server refuses.
        """
        if len({id(model) for model in models}) != 1:
            raise UserError(
                "`message_server.adapter_folder` is set but the agents have adapters of their own; let them share one "
                "policy, or start the server with the adapter and omit `adapter_folder`."
            )
        stamp = models[0].stamp(MESSAGE)
        if stamp != self._stamp:
            self._digest = self._load(models[0])
            self._stamp = stamp
        return self._digest

    def _load(self, model: AdaptedModel) -> str:
        folder = self._server.adapter_folder
        assert folder is not None
        digest = _digest(model)
        place = folder / f"message-{digest}"
        if not place.is_dir():
            try:
                model.save_adapter(MESSAGE, place)
            except OSError as error:
                doing = f"the message adapter could not be written to `message_server.adapter_folder` {str(folder)!r}"
                raise disk_error(error, doing) from error
        self._server.use_adapter(digest, place)
        return digest


def _digest(model: AdaptedModel) -> str:
    whole = hashlib.sha256()
    for name, weights in model.named_adapter_parameters(MESSAGE):
        whole.update(name.encode())
        whole.update(weights.detach().float().cpu().contiguous().numpy().tobytes())
    return whole.hexdigest()[:_DIGITS]
