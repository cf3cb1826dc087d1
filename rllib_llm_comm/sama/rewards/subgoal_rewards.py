"""Judges of subgoals and so of their rewards: the game's exact tests, reward code, or a language model."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.cassettes import open_chat
from rllib_llm_comm.chat.chat_model import ChatError, ChatModel, count_scope
from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.core.files import read_foreign_json, read_text, write_atomically
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.sama.planning_game import PlanningGame, State
from rllib_llm_comm.sama.plans import (
    BY_RULES,
    ERROR,
    FALLBACKS,
    NOBODY,
    NONE,
    RULES,
    answerer_of,
    answerers_of,
)
from rllib_llm_comm.sama.rewards.reward_code import CodeReward, JudgeReward, SubgoalReward, write_reward
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError

logger = logging.getLogger(__name__)

EXACT, CODE, CHAT, JUDGE = REWARDS = ("exact", "code", "chat", "judge")
_SETTINGS = {
    EXACT: (),
    CODE: ("path", "fallback"),
    CHAT: ("chat", "path", "fallback"),
    JUDGE: ("chat", "fallback"),
}
_MOST_STATES = 4
_MOST_BYTES = 2**24  # of a file with code
_INSTEAD = {BY_RULES: "the game's exact test takes its place", NONE: "its subgoal counts as not done"}


class Judgement(NamedTuple):
    """The answer to whether a subgoal is done, with its author.

    Attributes:
        done: Whether it is.
        answered_by: "code", "rules" (the game's exact test), `NOBODY` (without a judge it is not done), or one of
            `answered.ANSWERERS`.
    """

    done: bool
    answered_by: str


class SubgoalRewards:
    """The game's exact tests. One object serves all environments of a process.

    Attributes:
        name: Its name in settings.
        slow: Whether `prepare` may wait for a server.
        judges: All whom `judged` may name.
    """

    name = EXACT
    slow = False
    judges: tuple[str, ...] = (RULES,)

    def prepare(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> None:
        """Gets ready for a subgoal that is about to be given.

        Args:
            game: The game.
            state: A moment of it.
            agent: The agent that will have the subgoal.
            subgoal: The subgoal.

        Raises:
            UserError: If the user has to do something first.
        """

    def learn(self, sources: Mapping[str, str]) -> None:
        """Takes code for subgoals that had none; who needs none leaves it.

        Args:
            sources: Code by subgoal.
        """

    def done(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> bool:
        """True if an agent has done a subgoal in one game step.

        Args:
            game: The game.
            before: The moment before the step.
            after: The moment after it.
            agent: Its name.
            subgoal: The subgoal.
        """
        return game.done(before, after, agent, subgoal)

    def judged(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> Judgement:
        """Judgement of `done`, with the judge's name.

        Args:
            game: See `rllib_llm_comm.sama.rewards.subgoal_rewards.SubgoalRewards.done`, as for all others.
            before: The moment before the step.
            after: The moment after it.
            agent: Its name.
            subgoal: The subgoal.
        """
        return Judgement(self.done(game, before, after, agent, subgoal), self.judges[0])

    @property
    def refused(self) -> int:
        """For how many subgoals there is nothing that works, so that `fallback` says what counts."""
        return 0


class _ByState(SubgoalRewards):
    """Rewards that look at plain states; `fallback` says what counts where there is none that works.

    Args:
        judge: The judge where there is one.
        fallback: "rules": the game's exact test. "none": nobody, so the subgoal is not done. "error": the run ends.
    """

    def __init__(self, judge: str | tuple[str, ...], fallback: str) -> None:
        require_choice("fallback", fallback, FALLBACKS)
        self.fallback = fallback
        substitute = {BY_RULES: (RULES,), NONE: (NOBODY,), ERROR: ()}[fallback]
        self.judges = tuple(dict.fromkeys((*((judge,) if isinstance(judge, str) else judge), *substitute)))
        self._rewards: dict[str, SubgoalReward | None] = {}
        self._plain: dict[int, tuple[State, Mapping[str, Any]]] = {}

    @property
    def refused(self) -> int:
        """Number of subgoals that have no working reward, so that `fallback` decides."""
        return sum(reward is None for reward in self._rewards.values())

    def done(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> bool:
        """True if the reward of a subgoal, or its fallback, calls it done in one game step."""
        return self.judged(game, before, after, agent, subgoal).done

    def judged(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> Judgement:
        """Judgement by the reward of a subgoal, or by `fallback`.

        Raises:
            UserError: If there is no reward that works and `fallback` is "error".
        """
        reward = self._rewards.get(subgoal)
        if reward is not None:
            try:
                start = self._start(game, before, after, agent, subgoal)
                found = reward(self._as_plain(game, before), self._as_plain(game, after), agent, start)
                return self._judgement(game, agent, bool(found), self.judges[0])
            except RefusedCodeError as error:
                self._refuse(subgoal, error.reason)
        return self._substitute(game, before, after, agent, subgoal)

    def _start(
        self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str
    ) -> Mapping[str, Any] | None:
        """The moment at which a subgoal began, as plain values, where the game's tests count since then."""
        if not game.counts_since:
            return None
        return game.plain(game.judged_starts.of(game.same_moment, before, after, agent, subgoal))

    def _judgement(self, game: PlanningGame, agent: str, done: bool, by: str) -> Judgement:
        """A judgement; a subgoal that is done begins anew if it is given once more."""
        if done:
            game.judged_starts.end(agent)
        return Judgement(done, by)

    def _substitute(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> Judgement:
        if self.fallback == NONE:
            return Judgement(False, NOBODY)
        return Judgement(game.done(before, after, agent, subgoal), RULES)

    def _refuse(self, subgoal: str, reason: str) -> None:
        self._stop(subgoal, reason)
        self._rewards[subgoal] = None
        logger.warning("The reward of %r is refused (%s); %s.", subgoal, reason, _INSTEAD[self.fallback])

    def _stop(self, subgoal: str, reason: str) -> None:
        """Ends the run if nothing may take over."""
        if self.fallback == ERROR:
            raise UserError(
                f"Nobody can say when {subgoal!r} is done ({reason.rstrip('.')}), and `subgoal_rewards.fallback` is "
                f"{ERROR!r}; set it to {BY_RULES!r} (the game's exact test) or {NONE!r}, or give other rewards."
            )

    def _as_plain(self, game: PlanningGame, state: State) -> Mapping[str, Any]:
        """A moment as plain values; the latest are kept, since each is looked at several times."""
        found = self._plain.get(id(state))
        if found is None:
            while len(self._plain) >= _MOST_STATES:
                del self._plain[next(iter(self._plain))]
            found = self._plain[id(state)] = (state, game.plain(state))
        return found[1]


class CodeRewards(_ByState):
    """Code from files, run in the sandbox.

    Code that is missing or refused (it may not run, fails, or returns neither 0 nor 1) is told once in the log;
    from then on `fallback` says what counts for this subgoal.

    Args:
        path: A JSON file of subgoals and their code, or a folder of files such as `put_the_onion_into_the_pot.py`.
        fallback: "rules" (the game's exact test), "none" (such a subgoal is never done) or "error" (the run ends).

    Raises:
        UserError: If there is no such file or folder, or it is not what it should be.
    """

    name = CODE

    def __init__(self, path: str | os.PathLike[str], fallback: str = BY_RULES) -> None:
        super().__init__(CODE, fallback)
        self.path = local_path(path, "subgoal_rewards.path")
        self._sources = _read_sources(self.path)

    def learn(self, sources: Mapping[str, str]) -> None:
        """Takes code for subgoals that had none, those that were refused for it, too."""
        for subgoal in [one for one in sources if file_name(one) not in self._sources]:
            self._sources[file_name(subgoal)] = sources[subgoal]
            self._rewards.pop(subgoal, None)

    def prepare(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> None:
        """Loads the code of a subgoal, once."""
        if subgoal in self._rewards:
            return
        source = self._sources.get(file_name(subgoal))
        if source is None:
            self._refuse(subgoal, f"{str(self.path)!r} has no code for it")
            return
        try:
            self._rewards[subgoal] = CodeReward(source)
        except RefusedCodeError as error:
            self._refuse(subgoal, error.reason)


class ChatRewards(_ByState):
    """Code that a chat model writes when a subgoal first occurs, run in the sandbox.

    If both its answers are refused, `fallback` says what counts for this subgoal from then on. If a request failed, the
    same holds until the subgoal is given again; then the model is asked again.

    Args:
        model: The chat model.
        path: A folder in which the code is kept, for `CodeRewards` and for later runs; `None` keeps none.
        fallback: See `rllib_llm_comm.sama.rewards.subgoal_rewards.CodeRewards`.
    """

    name = CHAT
    slow = True

    def __init__(self, model: ChatModel, path: str | os.PathLike[str] | None = None, fallback: str = BY_RULES) -> None:
        super().__init__(CODE, fallback)
        self.model = model
        self.path = None if path is None else local_path(path, "subgoal_rewards.path")
        self._known = {} if self.path is None or not self.path.exists() else _read_sources(self.path)
        self._lock = threading.Lock()

    def prepare(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> None:
        """Loads the code of a subgoal, or has it written, once."""
        with self._lock:
            if subgoal in self._rewards:
                return
            try:
                self._rewards[subgoal] = self._reward(game, state, agent, subgoal)
            except (AnswerError, RefusedCodeError) as error:
                self._refuse(subgoal, str(error))
            except ChatError as error:
                self._stop(subgoal, str(error))
                instead = _INSTEAD[self.fallback]
                logger.warning("No reward was written for %r (%s); until then %s.", subgoal, error, instead)

    def _reward(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> CodeReward:
        known = self._known.get(file_name(subgoal))
        if known is not None:
            return CodeReward(known)
        how: dict[str, Any] = {"agent": agent, "manual": game.manual(), "since": game.counts_since}
        reward = write_reward(self.model, subgoal, game.plain(state), **how)
        if self.path is not None:
            write_atomically(self.path / f"{file_name(subgoal)}.py", f"# {subgoal}\n{reward.source.strip()}\n")
        return reward


class JudgeRewards(_ByState):
    """A chat model that is asked after each game step about each agent; the game waits for it.

    What counts where it says neither yes nor no, or a request failed, is told by `fallback`.

    Args:
        model: The chat model.
        fallback: "none" (default): the subgoal is not done in this step. "rules": the game's exact test. "error": the
            run ends.
    """

    name = JUDGE

    def __init__(self, model: ChatModel, fallback: str = NONE) -> None:
        super().__init__(answerers_of(model), fallback)
        self.model = model

    def prepare(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> None:
        """Makes the judge of a subgoal, once."""
        if subgoal not in self._rewards:
            self._rewards[subgoal] = JudgeReward(self.model, subgoal, manual=game.manual())

    def judged(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> Judgement:
        """Judgement by the chat model, or by `fallback`."""
        reward, why = self._rewards.get(subgoal), "the judge says neither yes nor no"
        if isinstance(reward, JudgeReward):
            try:
                start = self._start(game, before, after, agent, subgoal)
                with count_scope() as asked:
                    said = reward.answer(self._as_plain(game, before), self._as_plain(game, after), agent, start)
                if said is not None:
                    return self._judgement(game, agent, said, answerer_of(self.model, asked))
            except ChatError as error:
                self._stop(subgoal, why := str(error))
                logger.warning("The judge gave no answer (%s); %s.", error, _INSTEAD[self.fallback])
        self._stop(subgoal, why)
        return self._substitute(game, before, after, agent, subgoal)


def file_name(subgoal: str) -> str:
    """The name, without ending, of the file with a subgoal's code.

    Args:
        subgoal: The subgoal in words.
    """
    return "_".join(re.findall(r"[a-z0-9]+", subgoal.lower()))


def make_rewards(settings: str | Mapping[str, Any] | SubgoalRewards = EXACT) -> SubgoalRewards:
    """Rewards from settings as they stand in YAML files.

    Args:
        settings: "exact", or a dict with `name` and arguments: "code" takes `path`; "chat" takes `chat` (for
            `open_chat`) and maybe `path`; "judge" takes `chat`; all three take `fallback`. Rewards are given back as
            they are.

    Raises:
        UserError: If there are no such rewards or a setting is not allowed.
    """
    if isinstance(settings, SubgoalRewards):
        return settings
    if not isinstance(settings, str | Mapping):
        raise UserError(
            f"`subgoal_rewards` is {settings!r} but must be 'exact' or a mapping with `name` ({', '.join(REWARDS)})."
        )
    given: dict[str, Any] = {"name": settings} if isinstance(settings, str) else dict(settings)
    name = str(given.pop("name", ""))
    require_choice("subgoal_rewards", name, REWARDS)
    for key in given:
        if key not in _SETTINGS[name]:
            listed = ", ".join(["name", *_SETTINGS[name]])
            raise UserError(f"`{key}` is no setting of `subgoal_rewards` {name!r}; its settings are {listed}.")
    if name == EXACT:
        return SubgoalRewards()
    if not isinstance(given.get("path", ""), str | os.PathLike | None):
        raise UserError(f"`subgoal_rewards.path` is {given['path']!r} but must be the path of a folder or file.")
    how = {"fallback": given["fallback"]} if "fallback" in given else {}
    if name == CODE:
        if not given.get("path"):
            raise UserError(
                "`subgoal_rewards` is 'code' but `path` is not set; give a folder of Python files or a JSON file."
            )
        return CodeRewards(given["path"], **how)
    if not given.get("chat"):
        raise UserError(
            f"`subgoal_rewards` is {name!r} but `chat` is not set; give the chat model's settings, such as "
            "{'model': 'gpt-4o'} or {'cassette': 'recording.jsonl'}."
        )
    model = open_chat(given["chat"])
    return JudgeRewards(model, **how) if name == JUDGE else ChatRewards(model, given.get("path"), **how)


def _read_sources(path: Path) -> dict[str, str]:
    """Code by `file_name`."""
    try:
        if path.is_dir():
            return {file.stem: read_text(file, _MOST_BYTES) for file in sorted(path.glob("*.py"))}
        document = read_foreign_json(path, _MOST_BYTES)
        if not isinstance(document, dict) or not all(isinstance(source, str) for source in document.values()):
            raise ValueError("it is no JSON object of subgoals and code")
    except (OSError, ValueError) as error:
        raise UserError(
            f"`subgoal_rewards.path` is {str(path)!r}, which cannot be read ({error}); give a folder of Python files "
            "or a JSON file of subgoals and their code."
        ) from None
    return {file_name(subgoal): source for subgoal, source in document.items()}
