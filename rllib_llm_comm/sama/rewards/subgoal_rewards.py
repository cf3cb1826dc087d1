"""Rewards for subgoals: the game's exact tests, code that a language model writes, or a language model's judgement."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import Field

from rllib_llm_comm.chat.answers import AnswerError, UnusableError, ask_checked, read_yes_no
from rllib_llm_comm.chat.cassettes import open_chat
from rllib_llm_comm.chat.chat_model import JUDGE as JUDGING
from rllib_llm_comm.chat.chat_model import REWARD_CODE, ChatError, ChatModel, asking_for, count_scope
from rllib_llm_comm.chat.settings import AskingChat
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json, read_text, write_atomically
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.registry import Registry
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.language.prompts import fill
from rllib_llm_comm.sama.manuals.manual import ManualShown, read_manual
from rllib_llm_comm.sama.planning_game import OURS, PlanningGame, State, SubgoalStarts, worded
from rllib_llm_comm.sama.plans import (
    BY_RULES,
    ERROR,
    NOBODY,
    NONE,
    RULES,
    answerer_of,
    answerers_of,
)
from rllib_llm_comm.sama.preparation import Transition
from rllib_llm_comm.sama.recordings import with_recording
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError, Sandbox, code_of, shared_sandbox

# ---- code and judges of one subgoal -----------------------------------------------------------------------------


PlainState = Mapping[str, Any]
"""A moment of a game as plain values (`PlanningGame.plain`)."""
_SINCE = (
    ', and `state["start"]` the game when the agent was given the subgoal, so that you can count what has happened '
    "since; one subgoal may take many steps, and is reached in the step in which all of it has been done"
)


class SubgoalReward(Protocol):
    """Interface of tests for a subgoal: 1 if an agent has reached it in one step of a game."""

    def __call__(self, before: PlainState, after: PlainState, agent: str, start: PlainState | None = None) -> int:
        """1 if it has, else 0.

        Args:
            before: The state before the step, of plain values.
            after: The state after it.
            start: The state when the agent was given the subgoal, in games whose tests count since then
                (`PlanningGame.counts_since`).
        """


@dataclass(frozen=True)
class CodeReward:
    """Reward code, run in the sandbox.

    The code's `reward(state)` gets `{"before": ..., "after": ..., "agent": ...}`, and `"start"` where it is given.

    Attributes:
        sandbox: Its sandbox; by default one for all rewards of this process.
    """

    source: str
    sandbox: Sandbox = field(default_factory=shared_sandbox, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuses code that may not run: see `rllib_llm_comm.sama.rewards.sandbox.Sandbox.check`."""
        self.sandbox.check(self.source)

    def __call__(self, before: PlainState, after: PlainState, agent: str, start: PlainState | None = None) -> int:
        """1 if the code returns 1 for the step, else 0.

        Raises:
            RefusedCodeError: If the code runs into a limit, fails, or returns anything but 0 and 1.
        """
        since = {} if start is None else {"start": start}
        return self.sandbox.run(self.source, {"before": before, "after": after, "agent": agent, **since})


def write_reward(
    model: ChatModel,
    subgoal: str,
    example: PlainState,
    *,
    agent: str,
    manual: str = "",
    since: bool = False,
    prompts: str = OURS,
) -> CodeReward:
    """Lets a chat model write the reward code of a subgoal, and once more if the sandbox refuses it.

    Args:
        example: A state of the game; the code is tried on a step from it to itself, in which nobody can have done
            anything.
        manual: The game in words.
        since: Whether the code is given the state when the agent was given the subgoal, too.
        prompts: As of `PromptsOf`.

    Raises:
        AnswerError: If both answers are refused.
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """

    def read(text: str) -> CodeReward:
        try:
            reward = CodeReward(code_of(text))
            done = reward(example, example, agent, example if since else None)
        except RefusedCodeError as error:
            raise UnusableError(error.reason) from None
        if done:
            raise UnusableError("it returns 1 for a step in which nothing has happened")
        return reward

    told = manual or "It is told nowhere."
    prompt = fill(
        __package__,
        worded(prompts, "reward_code"),
        manual=told,
        subgoal=subgoal,
        example=json.dumps(example),
        since=_SINCE if since else "",
        both="All of them look" if since else "Both look",
    )
    with asking_for(REWARD_CODE):
        return ask_checked(model, prompt, read, what="reward code")


@dataclass(frozen=True)
class JudgeReward:
    """A chat model that is asked after each step whether a subgoal is reached.

    Called as a reward, an answer that is neither yes nor no counts as no. What was asked once costs nothing the second
    time if the model keeps its answers.

    Attributes:
        manual: The game in words.
    """

    model: ChatModel
    subgoal: str
    manual: str = ""

    def __call__(self, before: PlainState, after: PlainState, agent: str, start: PlainState | None = None) -> int:
        """1 if the model's answer is yes, else 0.

        Raises:
            ChatError: If a request failed for good.
            UserError: If the budget is spent or the key is missing.
        """
        return int(bool(self.answer(before, after, agent, start)))

    def answer(self, before: PlainState, after: PlainState, agent: str, start: PlainState | None = None) -> bool | None:
        """The model's answer; `None` if it is neither yes nor no. Arguments as of `SubgoalReward`.

        Raises:
            ChatError: If a request failed for good.
            UserError: If the budget is spent or the key is missing.
        """
        with asking_for(JUDGING):
            return read_yes_no(self.model.complete(self.prompt(before, after, agent, start)))

    def prompt(self, before: PlainState, after: PlainState, agent: str, start: PlainState | None = None) -> str:
        """Prompt for the model."""
        since = f"The game when {agent} was given its subgoal:\n{json.dumps(start)}\n\n" if start is not None else ""
        manual = f"The game:\n{self.manual}\n\n" if self.manual else ""
        return fill(
            __package__,
            "judge",
            manual=manual,
            since=since,
            before=json.dumps(before),
            after=json.dumps(after),
            agent=agent,
            subgoal=self.subgoal,
        )


@dataclass(frozen=True)
class Agreement:
    """Comparison of a reward with the hand-written test of the same subgoal.

    Attributes:
        both: Steps in which both say 1.
        neither: Steps in which both say 0.
        missed: Steps in which only the hand-written test says 1.
        false_alarms: Steps in which only the reward says 1.
        refused: Steps in which the reward was refused: it ran into a limit, failed, or returned neither 0 nor 1.
    """

    both: int = 0
    neither: int = 0
    missed: int = 0
    false_alarms: int = 0
    refused: int = 0

    @property
    def steps(self) -> int:
        """Steps looked at."""
        return self.both + self.neither + self.missed + self.false_alarms + self.refused

    @property
    def share(self) -> float:
        """Share of the steps in which both say the same; 1 if there are none."""
        return (self.both + self.neither) / self.steps if self.steps else 1.0

    @property
    def precision(self) -> float:
        """Of the steps in which the reward says 1, the share in which it is right; 1 if there are none."""
        return self.both / (self.both + self.false_alarms) if self.both + self.false_alarms else 1.0

    @property
    def recall(self) -> float:
        """Of the steps in which the subgoal is reached, the share that the reward sees; 1 if there are none.

        Refused steps are left out.
        """
        return self.both / (self.both + self.missed) if self.both + self.missed else 1.0

    def __add__(self, other: Agreement) -> Agreement:
        """The agreement over the steps of both."""
        mine, theirs = vars(self), vars(other)
        return Agreement(**{name: mine[name] + theirs[name] for name in mine})


def measure_agreement(
    reward: SubgoalReward, game: PlanningGame, subgoal: str, transitions: Iterable[Transition]
) -> Agreement:
    """Compares a reward with the exact test of a subgoal.

    Args:
        subgoal: The subgoal that the reward is for, in the words of the game's library.
        transitions: Steps of a game that has this subgoal, one after the other; each is looked at for all agents.
    """
    counts, starts = dict.fromkeys(Agreement.__dataclass_fields__, 0), SubgoalStarts(game.same_moment)
    for step in transitions:
        for agent in game.agents:
            start = _plain_start(game, starts, step.before, step.after, agent, subgoal)
            done = game.done(step.before, step.after, agent, subgoal)
            if done:
                starts.end(agent)
            counts[_outcome(reward, step, agent, start, done)] += 1
    return Agreement(**counts)


def _plain_start(
    game: PlanningGame, starts: SubgoalStarts, before: State, after: State, agent: str, subgoal: str
) -> PlainState | None:
    """The moment at which a subgoal began, as plain values, where the game's tests count since then."""
    return game.plain(starts.of(before, after, agent, subgoal)) if game.counts_since else None


def _outcome(reward: SubgoalReward, step: Transition, agent: str, start: PlainState | None, done: bool) -> str:
    try:
        said = reward(step.plain_before, step.plain_after, agent, start)
    except RefusedCodeError:
        return "refused"
    if done:
        return "both" if said else "missed"
    return "false_alarms" if said else "neither"


class RewardChecks(ManualShown):
    """By what reward code is written, and when it is good enough."""

    steps: int = Field(300, ge=1, le=100_000)
    """Steps of disturbed scripted play in which the code is compared with the game's own test (ours)."""
    least_agreement: float = Field(0.8, ge=0, le=1)
    """Least share of judgements that agree; code below it is left out, and its subgoal with it (ours; SAMA checks
    nothing)."""


def told_manual(game: PlanningGame, manual: str = "") -> str:
    """The game in words for whoever writes reward code, by the file of a manual; empty: the game's own."""
    return f"{read_manual(manual)} {game.scenario()}" if manual else game.manual()


def checked_reward(
    model: ChatModel,
    game: PlanningGame,
    subgoal: str,
    manual: str,
    transitions: Sequence[Transition],
    least: float,
    prompts: str = OURS,
) -> tuple[str, dict[str, Any]]:
    """Reward code of a subgoal, if it agrees with the game's own test, and how it compares.

    Args:
        game: The game; the moment that it is in is the example that the model is shown.
        subgoal: The subgoal in the words of the game's library.
        manual: The game in words.
        least: Least share of judgements that agree, in [0, 1].
        prompts: As of `PromptsOf`.

    Returns:
        The code, empty if there is none to be used; and `subgoal`, `kept`, `why` not, `share` and `agreement`.

    Raises:
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """
    agent = next(agent for agent in game.agents if subgoal in game.library(agent))
    try:
        how: dict[str, Any] = {"agent": agent, "manual": manual, "since": game.counts_since, "prompts": prompts}
        reward = write_reward(model, subgoal, game.plain(game.state()), **how)
    except (AnswerError, RefusedCodeError) as error:
        return "", {"subgoal": subgoal, "kept": False, "why": str(error)}
    found = measure_agreement(reward, game, subgoal, transitions)
    kept = found.share >= least and not found.refused
    why = "" if kept else f"it was refused in {found.refused} steps" if found.refused else "it agrees too little"
    row = {"subgoal": subgoal, "kept": kept, "why": why, "share": round(found.share, 4), "agreement": asdict(found)}
    return reward.source if kept else "", row


# ---- judges of all subgoals -------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

Fallback = Literal["rules", "none", "error"]
EXACT, CODE, CHAT, JUDGE = ("exact", "code", "chat", "judge")
_MOST_STATES = 4
_MOST_BYTES = 2**24  # of a file with code
_INSTEAD = {BY_RULES: "the game's exact test takes its place", NONE: "its subgoal counts as not done"}


class Judgement(NamedTuple):
    """The answer to whether a subgoal is done, with its author.

    Attributes:
        answered_by: "code", "rules" (the game's exact test), `NOBODY` (without a judge it is not done), or one of
            `answered.ANSWERERS`.
    """

    done: bool
    answered_by: str


class SubgoalRewards:
    """The game's exact tests. One object serves all environments of a process.

    Attributes:
        slow: Whether `prepare` may wait for a server.
        judges: All whom `judged` may name.
    """

    name = EXACT
    slow = False
    judges: tuple[str, ...] = (RULES,)

    def prepare(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> None:
        """Gets ready for a subgoal that is about to be given.

        Raises:
            UserError: If the user has to do something first.
        """

    def learn(self, sources: Mapping[str, str]) -> None:
        """Takes code for subgoals that had none; who needs none leaves it."""

    def judged(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> Judgement:
        """Whether an agent has done a subgoal between two moments of one game step, with the judge's name."""
        return Judgement(game.done(before, after, agent, subgoal), self.judges[0])

    @property
    def refused(self) -> int:
        """For how many subgoals there is nothing that works, so that `fallback` says what counts."""
        return 0


class _ByState(SubgoalRewards):
    """Rewards that look at plain states; `fallback` says what counts where there is none that works.

    Args:
        fallback: "rules": the game's exact test. "none": nobody, so the subgoal is not done. "error": the run ends.
    """

    def __init__(self, judges: Iterable[str], fallback: str) -> None:
        self.fallback = fallback
        substitute = {BY_RULES: (RULES,), NONE: (NOBODY,), ERROR: ()}[fallback]
        self.judges = tuple(dict.fromkeys((*judges, *substitute)))
        self._rewards: dict[str, SubgoalReward | None] = {}
        self._plain: dict[int, tuple[State, Mapping[str, Any]]] = {}

    @property
    def refused(self) -> int:
        """Number of subgoals that have no working reward, so that `fallback` decides."""
        return sum(reward is None for reward in self._rewards.values())

    def judged(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> Judgement:
        """Judgement by the reward of a subgoal, or by `fallback`.

        Raises:
            UserError: If there is no reward that works and `fallback` is "error".
        """
        reward = self._rewards.get(subgoal)
        if reward is not None:
            start = _plain_start(game, game.judged_starts, before, after, agent, subgoal)
            step = self._as_plain(game, before), self._as_plain(game, after), agent, start
            found = self._asked(subgoal, reward, *step)
            if found is not None:
                if found.done:  # it begins anew if it is given once more
                    game.judged_starts.end(agent)
                return found
        if self.fallback == NONE:
            return Judgement(False, NOBODY)
        return Judgement(game.done(before, after, agent, subgoal), RULES)

    def _asked(self, subgoal: str, reward: SubgoalReward, *step: Any) -> Judgement | None:
        """What a reward says of a step; `None` if it does not work."""
        try:
            return Judgement(bool(reward(*step)), self.judges[0])
        except RefusedCodeError as error:
            self._refuse(subgoal, error.reason)
        return None

    def _refuse(self, subgoal: str, reason: str) -> None:
        self._stop(subgoal, reason)
        self._rewards[subgoal] = None
        logger.warning("The reward of %r is refused (%s); %s.", subgoal, reason, _INSTEAD[self.fallback])

    def _stop(self, subgoal: str, reason: str) -> None:
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
    """Code from files, or that a chat model writes when a subgoal first occurs; run in the sandbox.

    Code that is missing or refused (the model's twice; it may not run, fails, or returns neither 0 nor 1) is told once
    in the log; from then on `fallback` says what counts for this subgoal. If a request failed, the same holds until the
    subgoal is given again; then the model is asked again.

    Args:
        path: A file or folder of code; a model's is kept in the folder, which need not be there yet.
        fallback: What counts where there is no code that works.
        model: Writes code that is missing; `None`: nobody does.

    Raises:
        UserError: If there is no such file or folder, or it is not what it should be.
    """

    name = CODE

    def __init__(
        self, path: str | os.PathLike[str] | None, fallback: str = BY_RULES, model: ChatModel | None = None
    ) -> None:
        super().__init__((CODE,), fallback)
        self.path = None if path is None else local_path(path, "subgoal_rewards.path")
        self.model, self.slow = model, model is not None
        self._sources: dict[str, str] = {}
        if self.path is not None and (model is None or self.path.exists()):
            self._sources = _read_sources(self.path)
        # Code from files needs none, and so travels to other processes.
        self._lock = contextlib.nullcontext() if model is None else threading.Lock()

    def learn(self, sources: Mapping[str, str]) -> None:
        """Takes code for subgoals that had none, those that were refused for it, too."""
        for subgoal in [one for one in sources if file_name(one) not in self._sources]:
            self._sources[file_name(subgoal)] = sources[subgoal]
            self._rewards.pop(subgoal, None)

    def prepare(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> None:
        """Loads the code of a subgoal, or has it written, once."""
        with self._lock:
            if subgoal in self._rewards:
                return
            try:
                self._rewards[subgoal] = self._reward(game, state, agent, subgoal)
            except RefusedCodeError as error:
                self._refuse(subgoal, error.reason)
            except AnswerError as error:
                self._refuse(subgoal, str(error))
            except ChatError as error:
                self._stop(subgoal, str(error))
                instead = _INSTEAD[self.fallback]
                logger.warning("No reward was written for %r (%s); until then %s.", subgoal, error, instead)

    def _reward(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> CodeReward:
        name = file_name(subgoal)
        if name in self._sources:
            return CodeReward(self._sources[name])
        if self.model is None:
            raise RefusedCodeError(f"{str(self.path)!r} has no code for it")
        how: dict[str, Any] = {"agent": agent, "manual": game.manual(), "since": game.counts_since}
        reward = write_reward(self.model, subgoal, game.plain(state), **how)
        if self.path is not None:
            write_atomically(self.path / f"{name}.py", f"# {subgoal}\n{reward.source.strip()}\n")
        return reward


class JudgeRewards(_ByState):
    """A chat model that is asked after each game step about each agent; the game waits for it.

    What counts where it says neither yes nor no, or a request failed, is told by `fallback`.
    """

    name = JUDGE

    def __init__(self, model: ChatModel, fallback: str = NONE) -> None:
        super().__init__(answerers_of(model), fallback)
        self.model = model

    def prepare(self, game: PlanningGame, state: State, agent: str, subgoal: str) -> None:
        """Makes the judge of a subgoal, once."""
        if subgoal not in self._rewards:
            self._rewards[subgoal] = JudgeReward(self.model, subgoal, manual=game.manual())

    def _asked(self, subgoal: str, reward: Any, *step: Any) -> Judgement | None:
        why = "the judge says neither yes nor no"
        try:
            with count_scope() as asked:
                said = reward.answer(*step)
            if said is not None:
                return Judgement(said, answerer_of(self.model, asked))
        except ChatError as error:
            self._stop(subgoal, why := str(error))
            logger.warning("The judge gave no answer (%s); %s.", error, _INSTEAD[self.fallback])
        self._stop(subgoal, why)
        return None


def file_name(subgoal: str) -> str:
    """The name, without ending, of the file with a subgoal's code."""
    return "_".join(re.findall(r"[a-z0-9]+", subgoal.lower()))


class CodeRewardSettings(Settings):
    """Settings of `subgoal_rewards` with the name "code"."""

    path: Annotated[str, Field(min_length=1)] | os.PathLike[str]
    """A JSON file of subgoals and their code, or a folder of files such as `put_the_onion_into_the_pot.py`."""
    fallback: Fallback = "rules"
    """What counts where there is no code that works. "rules": the game's exact test; "none": such a subgoal is never
    done; "error": the run ends."""


class ChatRewardSettings(AskingChat):
    """Settings of `subgoal_rewards` with the name "chat"; `chat` writes the code."""

    path: Annotated[str, Field(min_length=1)] | os.PathLike[str] | None = None
    """A folder in which the code is kept, for "code" and for later runs; None keeps none."""
    fallback: Fallback = "rules"
    """As of "code"; after a request that failed, until the subgoal is given again."""


class JudgeRewardSettings(AskingChat):
    """Settings of `subgoal_rewards` with the name "judge"; `chat` judges."""

    fallback: Fallback = "none"
    """What counts where it says neither yes nor no, or a request failed. "none": the subgoal is not done in this step;
    "rules": the game's exact test; "error": the run ends."""


REWARDS: Registry[type[Settings]] = Registry(
    "subgoal_rewards",
    {EXACT: Settings, CODE: CodeRewardSettings, CHAT: ChatRewardSettings, JUDGE: JudgeRewardSettings},
)


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
    name, given = REWARDS.checked(settings)
    how: Any = REWARDS[name](**given)
    if name == EXACT:
        return SubgoalRewards()
    if name == JUDGE:
        return JudgeRewards(open_chat(with_recording(how.chat)), how.fallback)
    return CodeRewards(how.path, how.fallback, open_chat(with_recording(how.chat)) if name == CHAT else None)


def _read_sources(path: Path) -> dict[str, str]:
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
