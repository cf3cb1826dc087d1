"""Who says that a subgoal is done, and so is rewarded: the game's exact tests, code, or a language model."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib_llm_comm.errors import UserError, require_choice
from rllib_llm_comm.language.cassettes import open_chat
from rllib_llm_comm.language.chat import ChatError
from rllib_llm_comm.language.chat_answers import AnswerError
from rllib_llm_comm.language.chat_model import ChatModel
from rllib_llm_comm.planning.game import PlanningGame, State, planning_game
from rllib_llm_comm.planning.rewards import CodeReward, JudgeReward, SubgoalReward, write_reward
from rllib_llm_comm.planning.sandbox import RefusedCodeError

logger = logging.getLogger(__name__)

EXACT, CODE, CHAT, JUDGE = REWARDS = ("exact", "code", "chat", "judge")
_SETTINGS = {EXACT: (), CODE: ("path",), CHAT: ("chat", "path"), JUDGE: ("chat",)}
_MOST_STATES = 4


class SubgoalRewards:
    """The game's exact tests. One object serves all environments of a process.

    Attributes:
        name: What it is called in settings.
        slow: Whether `prepare` may wait for a server.
    """

    name = EXACT
    slow = False

    def prepare(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> None:
        """Gets ready for a subgoal that is about to be given.

        Args:
            game: The game.
            state: A moment of it.
            agent: Who will have the subgoal.
            subgoal: The subgoal.

        Raises:
            UserError: If the user has to do something first.
        """
        return

    def done(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> bool:
        """Whether an agent has done a subgoal in one game step.

        Args:
            game: The game.
            before: The moment before the step.
            after: The moment after it.
            agent: Its name.
            subgoal: The subgoal.
        """
        return game.done(before, after, agent, subgoal)

    @property
    def refused(self) -> int:
        """For how many subgoals the exact test took the place of what there was, or was not."""
        return 0


class _ByState(SubgoalRewards):
    """Rewards that look at plain states; where there is none that works, the exact test decides."""

    def __init__(self) -> None:
        self._rewards: dict[str, SubgoalReward | None] = {}
        self._plain: dict[int, tuple[State, Mapping[str, Any]]] = {}

    @property
    def refused(self) -> int:
        """See `SubgoalRewards`."""
        return sum(reward is None for reward in self._rewards.values())

    def done(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> bool:
        """See `SubgoalRewards`."""
        reward = self._rewards.get(subgoal)
        if reward is None:
            return game.done(before, after, agent, subgoal)
        try:
            return bool(reward(self._as_plain(game, before), self._as_plain(game, after), agent))
        except RefusedCodeError as error:
            self._fall_back(subgoal, error.reason)
            return game.done(before, after, agent, subgoal)

    def _fall_back(self, subgoal: str, reason: str) -> None:
        self._rewards[subgoal] = None
        logger.warning("The reward of %r is refused (%s); the game's exact test takes its place.", subgoal, reason)

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
    from then on the exact test decides for this subgoal.

    Args:
        path: A JSON file of subgoals and their code, or a folder of files such as `put_the_onion_into_the_pot.py`.

    Raises:
        UserError: If there is no such file or folder, or it is not what it should be.
    """

    name = CODE

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = Path(path).expanduser()
        self._sources = _read_sources(self.path)

    def prepare(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> None:
        """See `SubgoalRewards`."""
        if subgoal in self._rewards:
            return
        source = self._sources.get(file_name(subgoal))
        if source is None:
            self._fall_back(subgoal, f"{str(self.path)!r} has no code for it")
            return
        try:
            self._rewards[subgoal] = CodeReward(source)
        except RefusedCodeError as error:
            self._fall_back(subgoal, error.reason)


class ChatRewards(_ByState):
    """Code that a chat model writes when a subgoal first occurs, run in the sandbox.

    If both its answers are refused, the exact test decides for this subgoal from then on. If a request failed, the
    model is asked again when the subgoal is given again.

    Args:
        model: Whom to ask.
        path: A folder in which the code is kept, for `CodeRewards` and for later runs; `None` keeps none.
    """

    name = CHAT
    slow = True

    def __init__(self, model: ChatModel, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self.model = model
        self.path = None if path is None else Path(path).expanduser()
        self._known = {} if self.path is None or not self.path.exists() else _read_sources(self.path)
        self._lock = threading.Lock()

    def prepare(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> None:
        """See `SubgoalRewards`."""
        with self._lock:
            if subgoal in self._rewards:
                return
            try:
                self._rewards[subgoal] = self._reward(game, state, agent, subgoal)
            except (AnswerError, RefusedCodeError) as error:
                self._fall_back(subgoal, str(error))
            except ChatError as error:
                logger.warning("No reward was written for %r (%s); until then the exact test counts.", subgoal, error)

    def _reward(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> CodeReward:
        known = self._known.get(file_name(subgoal))
        if known is not None:
            return CodeReward(known)
        reward = write_reward(self.model, subgoal, game.plain(state), agent=agent, manual=game.manual())
        if self.path is not None:
            self.path.mkdir(parents=True, exist_ok=True)
            scratch = self.path / f".{os.getpid()}.tmp"
            scratch.write_text(f"# {subgoal}\n{reward.source.strip()}\n", encoding="utf-8")
            os.replace(scratch, self.path / f"{file_name(subgoal)}.py")
        return reward


class JudgeRewards(_ByState):
    """A chat model that is asked after each game step about each agent; the game waits for it.

    A request that failed counts as no.

    Args:
        model: Whom to ask.
    """

    name = JUDGE

    def __init__(self, model: ChatModel) -> None:
        super().__init__()
        self.model = model

    def prepare(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> None:
        """See `SubgoalRewards`."""
        if subgoal not in self._rewards:
            self._rewards[subgoal] = JudgeReward(self.model, subgoal, manual=game.manual())

    def done(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> bool:
        """See `SubgoalRewards`."""
        try:
            return super().done(game, before, after, agent, subgoal)
        except ChatError as error:
            logger.warning("The judge gave no answer (%s), which counts as no.", error)
            return False


def reward_own_subgoals(env: Any, rewards: SubgoalRewards) -> Any:
    """Lets rewards say when the subgoals are done that an environment gives itself, such as sampled ones.

    Args:
        env: The environment; changed.
        rewards: The rewards. What they need for a subgoal they get when it first occurs, and the game waits for it.

    Returns:
        The environment.

    Raises:
        UserError: If it gives none.
    """
    game = planning_game(env)

    def done(before: State, after: State, agent: str, subgoal: str) -> bool:
        rewards.prepare(game, before, agent, subgoal)
        return rewards.done(game, before, after, agent, subgoal)

    game.judge_own_subgoals(done)
    return env


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
            `open_chat`) and maybe `path`; "judge" takes `chat`. Rewards are given back as they are.

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
    if name == CODE:
        if not given.get("path"):
            raise UserError(
                "`subgoal_rewards` is 'code' but `path` is not set; give a folder of Python files or a JSON file."
            )
        return CodeRewards(given["path"])
    if not given.get("chat"):
        raise UserError(
            f"`subgoal_rewards` is {name!r} but `chat` is not set; give the chat model's settings, such as "
            "{'model': 'gpt-4o'} or {'cassette': 'recording.jsonl'}."
        )
    model = open_chat(given["chat"])
    return JudgeRewards(model) if name == JUDGE else ChatRewards(model, given.get("path"))


def _read_sources(path: Path) -> dict[str, str]:
    """Code by `file_name`."""
    if path.is_dir():
        return {file.stem: file.read_text(encoding="utf-8") for file in sorted(path.glob("*.py"))}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or not all(isinstance(source, str) for source in document.values()):
            raise ValueError("it is no JSON object of subgoals and code")
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"`subgoal_rewards.path` is {str(path)!r}, which cannot be read ({error}); give a folder of Python files "
            "or a JSON file of subgoals and their code."
        ) from None
    return {file_name(subgoal): source for subgoal, source in document.items()}
