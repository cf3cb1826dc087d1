"""Measures of communication: private information in messages (signalling), their influence (listening), their drift.

Definitions and sources: docs/guides/communication.md. All figures are in nats.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from rllib_llm_comm.envs.base_env import Game
from rllib_llm_comm.envs.interface import ACTION_MASK, PRIVATE, parts_of, secret_of, words_of
from rllib_llm_comm.evaluation.statistics import (
    MutualInformation,
    causal_influence,
    miller_madow,
    mutual_information,
    rounded,
    zipf_slope,
)
from rllib_llm_comm.language.adapters import REFERENCE
from rllib_llm_comm.language.generation import Written
from rllib_llm_comm.policies.decision import Decision, Hearing, Judge, Policy
from rllib_llm_comm.policies.play_loop import Observer, PlayedGame
from rllib_llm_comm.verco.encoding import MessageEncoder, TextObservation, read_observation
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.policy import LanguagePolicy
from rllib_llm_comm.verco.settings import SHUFFLED, CommunicationSettings

PROMPTS = 400
"""Message prompts of the played episodes that are judged at most; of more, so many are drawn (ours)."""
_SCORED_AT_ONCE = 32
_WRITTEN_BY_ADAPTER = ("student", "menu", *SHUFFLED)


@dataclass(frozen=True)
class Drift:
    """Trained messages compared with those of the reference, the adapter that training began with.

    Both adapters draw one message at temperature 1 behind the same prompts of played episodes, with the same random
    numbers: equal adapters draw equal messages.

    Attributes:
        kl: KL(message adapter || reference) in nats per message: the exact divergence of the next token, summed over
            the tokens of messages drawn by the message adapter; of a menu that of the choice.
        kl_per_token: The same per token; `None` for a menu.
        new_words: Share of the messages with a word that the reference, at temperature 0 behind the same prompts,
            never uses; `None` for a menu.
        new_words_reference: The same share of the reference's own messages, which is not 0: they are drawn, too.
        unreadable: Share of the messages that are none of the game's own sentences; `None` for a game without any,
            and for a menu.
        unreadable_reference: The same share of the reference's own messages.
        messages: Messages drawn by each adapter.
    """

    kl: float
    kl_per_token: float | None
    new_words: float | None
    new_words_reference: float | None
    unreadable: float | None
    unreadable_reference: float | None
    messages: int


def measure_drift(
    policy: Policy,
    spoken: Sequence[tuple[Any, Mapping[str, Any]]],
    reads: Callable[[str], bool | None] | None = None,
    *,
    seed: int = 0,
) -> Drift | None:
    """Measures the drift of a policy's messages.

    Args:
        policy: The policy that `load_policy` gives.
        spoken: Agents and their observations at decisions at which they said something.
        reads: True if a message is one of the game's own sentences, if it has any.
        seed: Fixes which prompts are judged and what is drawn.

    Returns:
        The figures; `None` where no reference is known, nothing was said, or others than the message adapter spoke.
    """
    if not spoken or not isinstance(policy, LanguagePolicy):
        return None
    talk = policy.communication
    if talk.messages not in _WRITTEN_BY_ADAPTER or talk.message_server is not None:
        return None
    if not all(REFERENCE in policy.network_of(agent).lm.roles for agent, _ in spoken):
        return None
    rng = np.random.default_rng(seed)
    if len(spoken) > PROMPTS:
        spoken = [spoken[index] for index in sorted(rng.choice(len(spoken), PROMPTS, replace=False))]
    views: dict[LanguageNetwork, list[TextObservation]] = {}
    for agent, seen in spoken:
        views.setdefault(policy.network_of(agent), []).append(read_observation(seen))
    parts = [_of_network(network, own, talk, seed + number) for number, (network, own) in enumerate(views.items())]
    return _figures(parts, reads, menu=talk.messages == "menu")


@dataclass(frozen=True)
class _DrawnMessages:
    """The messages that the adapters of one network drew, and the divergence (B,) of each."""

    kl: np.ndarray
    own: Sequence[Written]
    taught: Sequence[Written] = ()
    greedy: Sequence[Written] = ()


def _of_network(
    network: LanguageNetwork, views: Sequence[TextObservation], talk: CommunicationSettings, seed: int
) -> _DrawnMessages:
    prompts = [network.settings.templates.message(view.text, view.subgoal) for view in views]
    menu = talk.message_menu if talk.messages == "menu" else ()
    max_words = talk.max_message_words
    if menu:
        chosen = network.write_messages(prompts, menu=menu, temperature=1.0, seed=seed)
        own = [Written(text) for text in chosen]
        return _DrawnMessages(_divergence(network, views, own, max_words, menu), own)
    own = network.draw_messages(prompts, max_words=max_words, temperature=1.0, seed=seed)
    return _DrawnMessages(
        _divergence(network, views, own, max_words, menu),
        own,
        network.draw_messages(prompts, max_words=max_words, temperature=1.0, seed=seed, role=REFERENCE),
        network.draw_messages(prompts, max_words=max_words, role=REFERENCE),
    )


@torch.no_grad()
def _divergence(
    network: LanguageNetwork,
    views: Sequence[TextObservation],
    said: Sequence[Written],
    max_words: int,
    menu: Sequence[str],
) -> np.ndarray:
    settings = network.settings
    encoder = MessageEncoder(network.lm.base, settings.max_prompt_tokens, max_words, menu, settings.templates)
    rows = [encoder.encode(view, message) for view, message in zip(views, said, strict=True)]
    found = []
    for start in range(0, len(rows), _SCORED_AT_ONCE):
        part = rows[start : start + _SCORED_AT_ONCE]
        batch = {name: torch.from_numpy(np.stack([row[name] for row in part])) for name in part[0]}
        found.append(network.message_terms(batch, kl=True).kl.cpu().numpy())
    return np.concatenate(found)


def _figures(parts: Sequence[_DrawnMessages], reads: Callable[[str], bool | None] | None, menu: bool) -> Drift:
    kl = np.concatenate([part.kl for part in parts]).astype(np.float64)
    own = [message for part in parts for message in part.own]
    taught = [message for part in parts for message in part.taught]
    known = {word for part in parts for message in part.greedy for word in message.text.split()}
    tokens = sum(len(message.ids) for message in own)

    def share(messages: Sequence[Written], flagged: Callable[[str], bool]) -> float | None:
        texts = [message.text for message in messages if message.text]
        return None if menu or not texts else float(np.mean([flagged(text) for text in texts]))

    def new(text: str) -> bool:
        return not known.issuperset(text.split())

    def unreadable(text: str) -> bool:
        return reads is not None and not reads(text)

    return Drift(
        kl=float(kl.mean()),
        kl_per_token=float(kl.sum() / tokens) if tokens else None,
        new_words=share(own, new),
        new_words_reference=share(taught, new),
        unreadable=None if reads is None else share(own, unreadable),
        unreadable_reference=None if reads is None else share(taught, unreadable),
        messages=len(own),
    )


Meaning = Callable[[str], str | None]
"""The meaning of a message in a game's own sayings; `None` for one that it does not understand."""
Reads = Callable[[str], bool | None]
"""True if a message is one of the game's own sentences."""

ALTERNATIVES = 32
"""Messages of other episodes per decision of a listener (ours)."""
JUDGED = 400
"""Decisions of listeners that are judged at most; of more, so many are drawn (ours)."""
OBEYED_WITHIN = 3
"""Decisions within which a request counts as obeyed (ours)."""


@dataclass(frozen=True)
class Turn:
    """One decision of an agent in a played episode.

    Attributes:
        episode: The episode's seed.
        agent: Its name.
        private: Facts that it was told and others may not know, such as the order; empty if none.
        secret: Facts of the whole episode at this moment, whoever knows them; equal in episodes with the same order.
        observation: The environment's observation.
        decision: Its message, what it heard, its candidates with their probabilities, and its choice.
    """

    episode: int
    agent: str
    private: str
    secret: str
    observation: Mapping[str, Any] = field(repr=False)
    decision: Decision = field(repr=False)


class TurnRecorder(Observer):
    """Records every decision of played episodes, in the order of play."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    @override
    def on_decisions(self, game: PlayedGame, decisions: Mapping[Any, Decision]) -> None:
        facts = {agent: str(info.get(PRIVATE) or "") for agent, info in game.infos.items()}
        secret = secret_of(game.infos)
        self.turns += [
            Turn(game.seed, str(agent), facts.get(agent, ""), secret, game.observations[agent], decision)
            for agent, decision in decisions.items()
        ]


@dataclass(frozen=True)
class CommunicationFigures:
    """Measures of one policy's talk.

    Attributes:
        signalling: I(meaning of a message; its speaker's private fact), over messages of informed agents; `None` where
            nobody was told anything or nothing was said.
        signalling_raw: The same with the messages' words instead of their meanings.
        listening: Mean causal influence of what is heard on decisions of agents that were not told; over all agents if
            everybody or nobody was told. `None` where nothing was heard in two episodes.
        listening_told: The same for decisions of informed agents.
        decisions: Decisions behind `listening`.
        first_choice: I(the first choice of an uninformed agent that names a fact's words; the private fact), over
            episodes. In silence it is a cue without words: timing, or what lies about. `None` where nobody is
            uninformed, or without a parser.
        consistency: I(meaning of a message; its speaker's action), corrected. High also with a deaf listener.
        coordination: I(meaning of a message; its listener's action), corrected. Correlation, not influence.
        obeyed: Share of requests for something that the listener can do, which it does within its next decisions.
        obeyed_chance: The same share for requests of other episodes in the place of those heard.
        messages: Messages said.
        distinct: Different messages.
        vocabulary: Different words.
        zipf: Slope of log frequency over log rank of the words; `None` with fewer than three words.
        understood: Share of messages that are one of the game's own sentences, also such as name nothing ("i wait
            here"); `None` for a game without any.
        unprintable: Share of messages with characters outside printable ASCII.
        drift: Drift of trained messages from the taught ones; `None` where that is not known.
    """

    signalling: MutualInformation | None
    signalling_raw: MutualInformation | None
    listening: float | None
    listening_told: float | None
    decisions: int
    first_choice: MutualInformation | None
    consistency: float | None
    coordination: float | None
    obeyed: float | None
    obeyed_chance: float | None
    messages: int
    distinct: int
    vocabulary: int
    zipf: float | None
    understood: float | None
    unprintable: float | None
    drift: Drift | None = None

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values, rounded to four digits."""
        return dict(rounded(asdict(self)))


def measure(policy: Policy, turns: TurnRecorder, seed: int = 0) -> CommunicationFigures:
    """Measures the talk of a policy that has played; of agents without a language model only `first_choice` is told.

    The seed fixes the drawn messages of other episodes, and the permutations.
    """
    game = policy.env().unwrapped
    has_sayings = isinstance(game, Game) and game.understands("") is not None
    reads = game.understands if has_sayings else None
    spoken = [(turn.agent, turn.observation) for turn in turns.turns if turn.decision.said]
    found = communication_figures(turns.turns, policy.judge, RequestReader.of_game(game), reads=reads, seed=seed)
    return replace(found, drift=measure_drift(policy, spoken, reads, seed=seed))


def communication_figures(
    turns: Sequence[Turn],
    judge: Judge | None = None,
    requests: RequestReader | None = None,
    *,
    reads: Reads | None = None,
    seed: int = 0,
) -> CommunicationFigures:
    """Measures talk in played episodes.

    Args:
        turns: All decisions of some episodes, in order.
        judge: Scores candidates behind other messages than those that were heard; without it `listening` is `None`.
        requests: How the game reads messages; without it a message's meaning is its words.
        reads: True if a message is one of the game's own sentences; without it `understood` is `None`.
        seed: Fixes which messages of other episodes are drawn, and the permutations.
    """
    said = [turn for turn in turns if turn.decision.said]
    words = [word for turn in said for word in turn.decision.said.split()]
    rng = np.random.default_rng(seed)
    informed, others = _sides(turns)
    meaning = None if requests is None else requests.meaning
    obeyed = [] if requests is None else _obeyed(turns, requests, rng)
    return CommunicationFigures(
        signalling=_signalling(said, lambda message: _meant(message, meaning)),
        signalling_raw=_signalling(said, lambda message: message),
        listening=_listening(others, turns, judge, rng),
        listening_told=_listening(informed, turns, judge, rng) if others is not informed else None,
        decisions=sum(bool(turn.decision.heard) for turn in others),
        first_choice=None if meaning is None else _first_choice(turns, meaning),
        consistency=_information([(_meant(t.decision.said, meaning), _chosen(t)) for t in said]),
        coordination=_information([(_meant(m, meaning), _chosen(t)) for t in turns for m in t.decision.heard.values()]),
        obeyed=_mean([own for own, _ in obeyed]),
        obeyed_chance=_mean([chance for _, chance in obeyed if chance is not None]),
        messages=len(said),
        distinct=len({turn.decision.said for turn in said}),
        vocabulary=len(set(words)),
        zipf=zipf_slope(words),
        understood=None if reads is None else _mean([bool(reads(t.decision.said)) for t in said]),
        unprintable=_mean([any(c not in _PRINTABLE for c in t.decision.said) for t in said]),
    )


_PRINTABLE = frozenset(string.printable)


def _sides(turns: Sequence[Turn]) -> tuple[Sequence[Turn], Sequence[Turn]]:
    """Decisions of informed agents, and of those that must listen: the others, or all if there is no difference."""
    informed = [turn for turn in turns if turn.private]
    others = [turn for turn in turns if not turn.private]
    return (informed, others) if informed and others else (turns, turns)


def _meant(message: str, meaning: Meaning | None) -> str:
    if meaning is None:
        return message
    return meaning(message) or ""


def _chosen(turn: Turn) -> str:
    return turn.decision.candidates[turn.decision.action]


def _signalling(said: Sequence[Turn], read: Callable[[str], str]) -> MutualInformation | None:
    told = [turn for turn in said if turn.private]
    if not told:
        return None
    # One order may follow another within an episode: each is a group of its own.
    groups = [(turn.episode, turn.private) for turn in told]
    return mutual_information([read(t.decision.said) for t in told], [t.private for t in told], groups)


def _first_choice(turns: Sequence[Turn], meaning: Meaning) -> MutualInformation | None:
    """Information of the first telling choice of each uninformed agent, per episode and order."""
    facts = {word for turn in turns for word in words_of(turn.secret)}
    first: dict[tuple[int, str, str], str] = {}
    for turn in turns:
        if turn.secret and not turn.private:
            key = (turn.episode, turn.secret, turn.agent)
            named = meaning(_chosen(turn)) or ""
            first.setdefault(key, "")
            if not first[key] and facts & words_of(named):
                first[key] = named
    if not first:
        return None
    return mutual_information(list(first.values()), [secret for _, secret, _ in first], [key[:2] for key in first])


def _information(pairs: Sequence[tuple[str, str]]) -> float | None:
    if not pairs:
        return None
    return miller_madow([one for one, _ in pairs], [two for _, two in pairs])


def _listening(
    listeners: Sequence[Turn], turns: Sequence[Turn], judge: Judge | None, rng: np.random.Generator
) -> float | None:
    """Mean causal influence over decisions with something heard, each against messages of other episodes.

    The message that was heard counts as one draw more, which keeps the figure finite where a listener obeys to the
    letter and the draws miss its message.
    """
    hearing = [turn for turn in listeners if turn.decision.heard]
    if len(hearing) > JUDGED:
        hearing = [hearing[index] for index in sorted(rng.choice(len(hearing), JUDGED, replace=False))]
    pool = _Pool(turns)
    asked, found = [], []
    for turn in hearing:
        drawn = pool.draw(turn, ALTERNATIVES, rng)
        if drawn:
            asked.append((turn, drawn))
    if judge is None or not asked:
        return None
    for start in range(0, len(asked), _BATCH):
        part = asked[start : start + _BATCH]
        rows = judge([Hearing(turn.agent, turn.observation, heard) for turn, drawn in part for heard in drawn])
        used = 0
        for turn, drawn in part:
            own = turn.decision.probabilities
            found.append(causal_influence(own, np.vstack([rows[used : used + len(drawn)], own[None]])))
            used += len(drawn)
    return float(np.mean(found))


_BATCH = 16


class _Pool:
    """The messages that each agent heard in all episodes, to be drawn from for another episode."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._heard: dict[str, list[tuple[int, dict[str, str]]]] = {}
        for turn in turns:
            if turn.decision.heard:
                self._heard.setdefault(turn.agent, []).append((turn.episode, turn.decision.heard))

    def draw(self, turn: Turn, count: int, rng: np.random.Generator) -> list[dict[str, str]]:
        """Messages that this agent heard in other episodes, as often as they were heard."""
        heard = [messages for episode, messages in self._heard.get(turn.agent, []) if episode != turn.episode]
        return [heard[index] for index in rng.integers(len(heard), size=count)] if heard else []


@dataclass(frozen=True)
class RequestReader:
    """How a game reads messages and choices (`meaning`) and requests (`read`), and all of its private facts.

    A choice that means another fact than was asked for does not obey.
    """

    meaning: Meaning
    read: Meaning
    facts: frozenset[str] = frozenset()

    @classmethod
    def of_game(cls, game: Any) -> RequestReader | None:
        """How a game (unwrapped) reads requests; `None` for one that does not tell what messages mean."""
        if not isinstance(game, Game) or type(game).meaning is Game.meaning:
            return None
        return cls(game.meaning, game.request, frozenset(game.facts))

    def names(self, phrase: str, thing: str) -> bool:
        """True if a choice shares a word with a request (as of `read`) and does not mean another of the facts.

        A plum bowl is no lime bowl, and the right pot not the upper one.
        """
        if not words_of(phrase) & words_of(thing):
            return False
        meant = self.meaning(phrase)
        return meant == thing or not {meant, thing} <= self.facts


def _obeyed(
    turns: Sequence[Turn], requests: RequestReader, rng: np.random.Generator
) -> list[tuple[float, float | None]]:
    """Per request that can be followed now: whether it is, and whether one of another episode would be."""
    following: dict[tuple[int, str], list[Turn]] = {}
    for turn in turns:
        following.setdefault((turn.episode, turn.agent), []).append(turn)
    pool = _Pool(turns)
    found = []
    for own in following.values():
        for index, turn in enumerate(own):
            nexts = own[index : index + OBEYED_WITHIN]
            kept = _followed(turn, nexts, turn.decision.heard, requests)
            if kept is not None:
                other = pool.draw(turn, 1, rng)
                found.append((kept, _followed(turn, nexts, other[0], requests) if other else None))
    return found


def _followed(turn: Turn, nexts: Sequence[Turn], heard: Mapping[str, str], requests: RequestReader) -> float | None:
    """Share of the requests that name something the listener can do now, which its next choices name, too."""
    things = [thing for thing in (requests.read(message) for message in heard.values()) if thing]
    mask = parts_of(turn.observation).get(ACTION_MASK, [1] * len(turn.decision.candidates))
    offered = [phrase for phrase, allowed in zip(turn.decision.candidates, mask, strict=True) if allowed]
    doable = [thing for thing in things if any(requests.names(phrase, thing) for phrase in offered)]
    return _mean([any(requests.names(_chosen(after), thing) for after in nexts) for thing in doable])


def _mean(values: Sequence[float | bool]) -> float | None:
    return float(np.mean(values)) if len(values) else None
