"""Collects demonstrations: what a player does where it stands, for language agents that begin by doing the same."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from rllib_llm_comm.chat.settings import AskingChat
from rllib_llm_comm.core.errors import UserError, did_you_mean, shown
from rllib_llm_comm.core.session_files import Session, read_session
from rllib_llm_comm.envs.interface import GameInfo
from rllib_llm_comm.evaluation.chat_player import ChatPlayer, keeping_answers
from rllib_llm_comm.evaluation.replay import moments_again
from rllib_llm_comm.policies.decision import Request
from rllib_llm_comm.policies.load_policy import Loading, Trust
from rllib_llm_comm.policies.partner_settings import CHAT, CHECKPOINT, FUNCTION, PEOPLE, PartnerSettings
from rllib_llm_comm.policies.partners import Partner, PartnerMemory, game_difference, make_partner
from rllib_llm_comm.policies.policy import make_recorded_game
from rllib_llm_comm.policies.policy_folder import weights_digest
from rllib_llm_comm.verco.encoding import TextObservation, read_observation
from rllib_llm_comm.verco.message_protocol import heard_by
from rllib_llm_comm.verco.teachers.base import PeopleSettings, make_teacher, teacher_identity
from rllib_llm_comm.verco.teachers.chat_teacher import ChatTeacher
from rllib_llm_comm.verco.teachers.collect_labels import (
    CollectionGame,
    CollectionReport,
    CollectionSettings,
    Collector,
    Progress,
    TeacherInCollection,
    env_text,
    take_recorded,
)
from rllib_llm_comm.verco.teachers.label_store import ANSWERS, DEMONSTRATIONS, LabelStore

NONE, OWN, TEACHER = "none", "own", "teacher"
_DECIDING = ("policy", "habit", "greedy", "unstuck")
OF_PARTNERS = (*_DECIDING, "max_prompt_tokens")


class DemonstrationSettings(CollectionSettings, Trust):
    """What `collect_demonstrations` is told."""

    player: str | dict[str, Any] = "scripted"
    """Who holds all seats: `"scripted"` (the game's scripted player), the path of a checkpoint or `zoo:NAME`,
    `"module:function"`, or a mapping with `policy` and `habit`, `greedy`, `unstuck` or `max_prompt_tokens` of
    `PartnerSettings` (of a checkpoint the most likely action is taken unless `greedy` is false). Or
    `{"sessions": [...], "names": [...]}`: people in sessions of `rllib play --record`, whose `env_config` counts; or
    `{"chat": {...}}`: a chat model, as of `open_chat`."""
    messages: Literal["none", "own", "teacher"] = "none"
    """What is heard before a choice: `"none"`, `"own"`: what the player itself says (messages of a checkpoint or of
    people), or `"teacher"`: what `teacher` says in each agent's place."""
    target_demonstrations: int = Field(2000, ge=1)
    """Ends when so many rows are there (ours)."""
    max_choices_per_state: int = Field(3, ge=1)
    """Most different choices kept of one state (ours)."""

    @model_validator(mode="after")
    def _heard_by_the_player(self) -> Self:
        who = read_player(self.player)
        if who.chat and self.messages != NONE:
            raise UserError(
                f"`messages` is {self.messages!r}, but a chat model that plays reads what its agent sees alone; set it "
                "to 'none'."
            )
        if who.sessions and self.messages == TEACHER:
            raise UserError("`messages` is 'teacher', but people have heard each other; set it to 'own' or 'none'.")
        if self.messages == OWN and who.partner is not None and who.partner.kind not in (CHECKPOINT, FUNCTION):
            raise UserError(
                f"`messages` is 'own', but the player {who.partner.policy!r} says nothing of its own; set it to "
                "'teacher' or 'none'."
            )
        return self


def collect_demonstrations(
    env: str, output: str | os.PathLike[str], *, progress: Progress | None = None, **settings: Any
) -> CollectionReport:
    """Collects demonstrations into a folder of Parquet files; goes on where a killed or failed call stopped.

    A row is what an agent sees, what it has heard, the actions that it may choose among, and the one that the player
    chooses there. States in which one action is allowed are left out: they teach nothing.

    Args:
        env: Id of a PettingZoo environment with observations in words.
        output: The folder.
        progress: Called with the rows so far and the target.
        **settings: Those of `DemonstrationSettings`; one that is None has its default.

    Raises:
        UserError: If a setting is not allowed, the folder is damaged, or a player or teacher gives up: all rows so far
            are on disk then, and the next call goes on.
    """
    chosen = DemonstrationSettings(**{name: value for name, value in settings.items() if value is not None})
    who, teaches = read_player(chosen.player), chosen.messages == TEACHER
    deciding = {
        "env": env,
        "env_config": chosen.env_config,
        "player": who.identity(),
        "messages": chosen.messages,
        "teacher": teacher_identity(chosen.teacher) if teaches else None,
        "target_demonstrations": chosen.target_demonstrations,
        "max_choices_per_state": chosen.max_choices_per_state,
        "random_share": chosen.random_share,
        "num_envs": chosen.num_envs,
        "max_message_words": chosen.max_message_words,
        "seed": chosen.seed,
    }
    store = LabelStore(output, deciding, chosen.max_choices_per_state, DEMONSTRATIONS)
    if who.sessions:
        rows = _recorded(who, env, chosen.messages == OWN, chosen.trust)
        report = take_recorded(store, rows, chosen.target_demonstrations)
        if not report.labels:
            raise UserError("`player.sessions` hold no choice of a person among several actions; give other sessions.")
        return report
    teaching = None
    if teaches:
        made = make_teacher(chosen.teacher)
        made.keep_answers(store.folder / ANSWERS)
        teaching = TeacherInCollection(made, chosen)
    return _DemonstrationCollector(store, env, chosen, who, teaching).collect(chosen.target_demonstrations, progress)


@dataclass(frozen=True)
class DemonstrationPlayer:
    """Who demonstrates; one of the three kinds.

    Attributes:
        partner: A player of the package.
        sessions: Folders of recorded sessions.
        names: The people in them who are taken; all if empty.
        chat: Settings of a chat model.
    """

    partner: PartnerSettings | None = None
    sessions: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    chat: Mapping[str, Any] | None = None

    @property
    def kind(self) -> str:
        """As it stands in the column `player`: a key of `stand_ins.PLAYERS`."""
        return self.partner.kind if self.partner is not None else PEOPLE if self.sessions else CHAT

    def identity(self) -> dict[str, Any]:
        """The settings that decide what it does."""
        if self.partner is not None:
            known = {name: getattr(self.partner, name) for name in _DECIDING}
            trained = self.partner.kind == CHECKPOINT
            return {**known, **({"digest": weights_digest(self.partner.policy)} if trained else {})}
        if self.chat is not None:
            return {"chat": {k: v for k, v in self.chat.items() if k not in ChatTeacher.without_effect}}
        return {"sessions": list(self.sessions), "names": list(self.names)}


def read_player(player: str | Mapping[str, Any]) -> DemonstrationPlayer:
    """The player of a setting; nothing is loaded.

    Args:
        player: As of `collect_demonstrations`.

    Raises:
        UserError: If it is no such player.
    """
    given = {"policy": player} if isinstance(player, str) else player
    named = [kind for kind in ("policy", "sessions", "chat") if isinstance(given, Mapping) and kind in given]
    if len(named) != 1:
        raise UserError(
            f"`player` is {shown(player)} but must be a name or path, or a mapping with one of `policy`, `sessions` "
            "and `chat`."
        )
    if named == ["chat"]:
        return DemonstrationPlayer(chat=AskingChat.checked("player", given).chat)
    if named == ["sessions"]:
        people = PeopleSettings.checked("player", given)
        return DemonstrationPlayer(sessions=people.folders, names=people.people or ())
    if others := [key for key in given if key not in OF_PARTNERS]:
        remedy = " Mistakes of a player are no demonstrations: use `random_share`." if others[0] == "noise" else ""
        raise UserError(
            f"`player.{others[0]}` is no known key; known are {', '.join(OF_PARTNERS)}."
            f"{did_you_mean(str(others[0]), OF_PARTNERS)}{remedy}",
            "unknown",
        )
    partner = PartnerSettings.checked("player", given)
    if partner.kind == CHECKPOINT and "greedy" not in given:
        partner = partner.replace(greedy=True)
    return DemonstrationPlayer(partner)


def _row(view: TextObservation, heard: Mapping[str, str], action: int, whose: str) -> dict[str, Any] | None:
    """The learned columns of a choice; `None` if it was none among several.

    Args:
        whose: Player and moment, for the message.

    Raises:
        UserError: If the action is not allowed.
    """
    allowed = [index for index, flag in enumerate(view.mask) if flag]
    phrases = list(dict.fromkeys(view.candidates[index] for index in allowed))  # actions of one phrase are one choice
    if action not in allowed:
        names = dict(enumerate(view.candidates))
        open_ones = ", ".join(f"{index} ({names[index]!r})" for index in allowed)
        raise UserError(
            f"{whose} chose action {action} ({names.get(action)!r}) but must choose one of {open_ones}, reading "
            f"{shown(view.text)}; mend the player, as a demonstration has to be an allowed action."
        )
    if len(phrases) == 1:
        return None
    return {
        "text": view.text,
        "subgoal": view.subgoal,
        "heard": json.dumps(dict(heard), ensure_ascii=False),
        "candidates": json.dumps(phrases, ensure_ascii=False),
        "chosen": phrases.index(view.candidates[action]),
    }


def _whose(player: str, env: str, place: Mapping[str, Any]) -> str:
    """Player and moment, as the subject of a sentence."""
    at = f"at game step {place['game_step']} of episode {place['episode']}"
    return f"the player {player!r} of {place['agent']!r} in {env!r} {at}"


class _DemonstrationCollector(Collector):
    """The collection of a player that plays now."""

    def __init__(
        self,
        store: LabelStore,
        env: str,
        settings: DemonstrationSettings,
        who: DemonstrationPlayer,
        teaching: TeacherInCollection | None,
    ) -> None:
        super().__init__(store, env, settings)
        self._env, self._teaching = env, teaching
        self._speaks, self._random_share = settings.messages == OWN, settings.random_share
        self._row = {"player": who.kind, "env": env_text(env, settings.env_config)}
        self._name = CHAT if who.partner is None else who.partner.policy
        self._partner: Partner | None = None
        self._chat: ChatPlayer | None = None
        if who.chat is not None:
            game = GameInfo(self._envs[0])
            self._chat = ChatPlayer(keeping_answers(who.chat, store.folder / ANSWERS), game.task, game.brief)
        else:
            assert who.partner is not None
            loading = Loading(messages=None if self._speaks else NONE, trust=settings.trust, trust_own=True)
            self._partner = make_partner(who.partner, loading.load)
            if self._partner.policy is not None:
                require_game(self._partner.policy.manifest, env)
            if self._speaks and who.partner.kind == CHECKPOINT and not self._partner.talks:
                raise UserError(
                    f"`messages` is 'own', but the agents of {who.partner.policy!r} say nothing; set it to 'teacher' "
                    "or 'none'."
                )

    def begin_round(self, rng: np.random.Generator) -> None:
        if self._partner is not None and self._partner.talks and self._partner.policy is not None:
            self._partner.policy.forget()
            self._partner.policy.reset(seed=int(rng.integers(2**31)))

    def begin(self, game: CollectionGame) -> None:
        if self._chat is not None:
            self._chat.reset(seed=game.seed)
            game.memory = PartnerMemory(game.seed, np.random.default_rng(game.seed))
        else:
            assert self._partner is not None
            game.memory = self._partner.begin(game.seed)

    def decide(self, games: list[CollectionGame], rng: np.random.Generator) -> list[dict[str, int]]:
        asks = [game.request(game.memory) for game in games]
        played: list[dict[str, int]] = []
        for game, ask, advice in zip(games, asks, self._advise(games, asks, rng), strict=True):
            played.append({})
            for agent, observation in ask.observations.items():
                view = read_observation(observation)
                action = advice[agent]
                if action is not None:
                    place = game.place(agent)
                    whose = _whose(self._name, self._env, place)
                    row = _row(view, heard_by(str(agent), game.memory.mailbox), action, whose)
                    if row is not None:
                        self.store.add({**row, **place, **self._row})
                if action is None or rng.random() < self._random_share:
                    action = int(rng.choice(np.flatnonzero(view.mask)))
                played[-1][agent] = action
        return played

    def _advise(
        self, games: list[CollectionGame], asks: Sequence[Request], rng: np.random.Generator
    ) -> list[dict[str, int | None]]:
        """Per game the player's choices, behind messages; `None` where an answer of a chat model was not understood."""
        if self._chat is not None:
            advised = []
            for ask in asks:
                decided = self._chat.act(ask.observations)
                ways = self._chat.understood
                advised.append({a: None if ways[str(a)] == "fallback" else one.choice for a, one in decided.items()})
            return advised
        assert self._partner is not None
        if self._speaks:
            spoken = self._partner.speak_together(asks)
        else:
            spoken = []
            silent: Iterable[dict[str, str]] = (dict.fromkeys(ask.observations, "") for ask in asks)
            words = silent if self._teaching is None else self._teaching.messages(games, self.store, rng)
            for game, said in zip(games, words, strict=True):
                game.memory.mailbox.update({str(agent): message for agent, message in said.items()})
                spoken.append({agent: (message, None) for agent, message in said.items()})
        made = self._partner.act_together(asks, spoken=spoken)
        return [{agent: one.choice for agent, one in decisions.items()} for decisions in made]


def read_sessions(who: DemonstrationPlayer, env: str) -> list[Session]:
    """The sessions of recorded people, all of one environment.

    Raises:
        UserError: If one cannot be read or is of another environment, or nobody has one of the names.
    """
    sessions = [read_session(path) for path in who.sessions]
    for session in sessions:
        if session.env != env:
            raise UserError(f"`env` is {env!r} but a session of `player.sessions` is of {session.env!r}.")
    people = {seat.name for one in sessions for e in one.episodes for m in e.moments for seat in m.people.values()}
    for name in who.names:
        if name not in people:
            raise UserError(
                f"`player.names` has {name!r}, but nobody in the sessions has that name; there are "
                f"{', '.join(map(repr, sorted(people))) or 'no people'}."
            )
    return sessions


def require_game(manifest: Any, env: str) -> None:
    """Refuses a checkpoint of another game as a player; another map of its game is one to demonstrate in."""
    if reason := game_difference(env, {}, manifest.env, {}):
        raise UserError(f"`player` {reason}")


def _recorded(who: DemonstrationPlayer, env: str, heard: bool, trust: bool) -> Iterator[dict[str, Any]]:
    """Rows of people in recorded sessions, whose games are played again to tell what was allowed."""
    before = 0
    for session in read_sessions(who, env):
        yield from _of_session(session, who, before, heard, trust)
        before += len(session.episodes)


def _of_session(
    session: Session, who: DemonstrationPlayer, before: int, heard: bool, trust: bool
) -> Iterator[dict[str, Any]]:
    common = {"player": PEOPLE, "env": env_text(session.env, session.env_config)}
    game = make_recorded_game(session.env, session.env_config, trust=trust)
    try:
        for episode in session.episodes:
            for moment, now in moments_again(game, episode):
                if moment is None:
                    break
                for agent, person in moment.people.items():
                    if agent not in moment.actions or person.forced or (who.names and person.name not in who.names):
                        continue
                    told = moment.agents[agent].get("heard", {}) if heard else {}
                    place = {"agent": agent, "episode": before + episode.episode - 1, "game_step": moment.game_step}
                    whose = _whose(person.name, session.env, place)
                    row = _row(read_observation(now.observations[agent]), told, moment.actions[agent], whose)
                    yield {**(row or {"chosen": None}), **place, **common}
    finally:
        game.close()
