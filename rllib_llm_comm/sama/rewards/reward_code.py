"""Rewards for subgoals by a language model: code that it writes, held against the game's own test, or its judgement."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from rllib_llm_comm.chat.answers import AnswerError, UnusableError, ask_checked, read_yes_no
from rllib_llm_comm.chat.chat_model import JUDGE, REWARD_CODE, ChatModel, asking_for
from rllib_llm_comm.language.prompts import fill
from rllib_llm_comm.sama.manuals.manual import read_manual
from rllib_llm_comm.sama.planning_game import PlanningGame, SubgoalStarts
from rllib_llm_comm.sama.preparation import Transition
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError, Sandbox, shared_sandbox

_FENCE = re.compile(r"```[\w+-]*[ \t]*\n(.*?)```", re.DOTALL)

State = Mapping[str, Any]
_SINCE = (
    ', and `state["start"]` the game when the agent was given the subgoal, so that you can count what has happened '
    "since; one subgoal may take many steps, and is reached in the step in which all of it has been done"
)


class SubgoalReward(Protocol):
    """Interface of tests for a subgoal: 1 if an agent has reached it in one step of a game."""

    def __call__(self, before: State, after: State, agent: str, start: State | None = None) -> int:
        """1 if it has, else 0.

        Args:
            before: The state before the step, of plain values.
            after: The state after it.
            agent: The agent of the subgoal.
            start: The state when the agent was given the subgoal, in games whose tests count since then
                (`PlanningGame.counts_since`).
        """


@dataclass(frozen=True)
class CodeReward:
    """Reward code, run in the sandbox.

    The code's `reward(state)` gets `{"before": ..., "after": ..., "agent": ...}`, and `"start"` where it is given.

    Attributes:
        source: The code.
        sandbox: Its sandbox; by default one for all rewards of this process.
    """

    source: str
    sandbox: Sandbox = field(default_factory=shared_sandbox, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuses code that may not run: see `rllib_llm_comm.sama.rewards.sandbox.Sandbox.check`."""
        self.sandbox.check(self.source)

    def __call__(self, before: State, after: State, agent: str, start: State | None = None) -> int:
        """1 if the code returns 1 for the step, else 0.

        Raises:
            RefusedCodeError: If the code runs into a limit, fails, or returns anything but 0 and 1.
        """
        since = {} if start is None else {"start": start}
        return self.sandbox.run(self.source, {"before": before, "after": after, "agent": agent, **since})


def write_reward(
    model: ChatModel,
    subgoal: str,
    example: State,
    *,
    agent: str,
    manual: str = "",
    since: bool = False,
    sandbox: Sandbox | None = None,
) -> CodeReward:
    """Lets a chat model write the reward code of a subgoal, and once more if the sandbox refuses it.

    Args:
        model: The chat model.
        subgoal: The subgoal in words.
        example: A state of the game; the code is tried on a step from it to itself, in which nobody can have done
            anything.
        agent: An agent in it.
        manual: The game in words.
        since: Whether the code is given the state when the agent was given the subgoal, too.
        sandbox: Sandbox of the code; by default one for all rewards of this process.

    Raises:
        AnswerError: If both answers are refused.
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """
    place = sandbox or shared_sandbox()

    def read(text: str) -> CodeReward:
        blocks = _FENCE.findall(text)
        try:
            reward = CodeReward(blocks[0] if blocks else text, place)
            done = reward(example, example, agent, example if since else None)
        except RefusedCodeError as error:
            raise UnusableError(error.reason) from None
        if done:
            raise UnusableError("it returns 1 for a step in which nothing has happened")
        return reward

    told = manual or "It is told nowhere."
    prompt = fill(
        __package__,
        "reward_code",
        manual=told,
        subgoal=subgoal,
        example=json.dumps(example),
        since=_SINCE if since else "",
        both="All of them look" if since else "Both look",
    )
    with asking_for(REWARD_CODE):
        return ask_checked(model, prompt, read, what="reward code")


@dataclass
class JudgeReward:
    """A chat model that is asked after each step whether a subgoal is reached.

    Called as a reward, an answer that is neither yes nor no counts as no. What was asked once costs nothing the second
    time if the model keeps its answers.

    Attributes:
        model: The chat model.
        subgoal: The subgoal in words.
        manual: The game in words.
        describe: Makes words of a state; by default its JSON.
        unclear: Answers so far that were neither yes nor no.
    """

    model: ChatModel
    subgoal: str
    manual: str = ""
    describe: Callable[[State], str] = json.dumps
    unclear: int = 0

    def __call__(self, before: State, after: State, agent: str, start: State | None = None) -> int:
        """1 if the model's answer is yes, else 0.

        Raises:
            ChatError: If a request failed for good.
            UserError: If the budget is spent or the key is missing.
        """
        return int(bool(self.answer(before, after, agent, start)))

    def answer(self, before: State, after: State, agent: str, start: State | None = None) -> bool | None:
        """The model's answer; `None` if it is neither yes nor no.

        Args:
            before: The state before the step.
            after: The state after it.
            agent: The agent of the subgoal.
            start: The state when the agent was given the subgoal, in games whose tests count since then.

        Raises:
            ChatError: If a request failed for good.
            UserError: If the budget is spent or the key is missing.
        """
        with asking_for(JUDGE):
            said = read_yes_no(self.model.complete(self.prompt(before, after, agent, start)))
        self.unclear += said is None
        return said

    def prompt(self, before: State, after: State, agent: str, start: State | None = None) -> str:
        """Prompt for the model.

        Args:
            before: The state before the step.
            after: The state after it.
            agent: The agent of the subgoal.
            start: The state when the agent was given the subgoal, in games whose tests count since then.
        """
        since = f"The game when {agent} was given its subgoal:\n{self.describe(start)}\n\n" if start is not None else ""
        manual = f"The game:\n{self.manual}\n\n" if self.manual else ""
        return fill(
            __package__,
            "judge",
            manual=manual,
            since=since,
            before=self.describe(before),
            after=self.describe(after),
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
        reward: The reward.
        game: The game.
        subgoal: The subgoal that the reward is for, in the words of the game's library.
        transitions: Steps of a game that has this subgoal, one after the other; each is looked at for all agents.
    """
    counts, starts = dict.fromkeys(Agreement.__dataclass_fields__, 0), SubgoalStarts()
    for step in transitions:
        for agent in game.agents:
            start = (
                game.plain(starts.of(game.same_moment, step.before, step.after, agent, subgoal))
                if game.counts_since
                else None
            )
            done = game.done(step.before, step.after, agent, subgoal)
            if done:
                starts.end(agent)
            counts[_outcome(reward, step, agent, start, done)] += 1
    return Agreement(**counts)


def _outcome(reward: SubgoalReward, step: Transition, agent: str, start: State | None, done: bool) -> str:
    try:
        said = reward(step.plain_before, step.plain_after, agent, start)
    except RefusedCodeError:
        return "refused"
    if done:
        return "both" if said else "missed"
    return "false_alarms" if said else "neither"


def told_manual(game: PlanningGame, manual: str = "") -> str:
    """The game in words for whoever writes reward code.

    Args:
        game: The game.
        manual: File of a manual; empty: the game's own.
    """
    return f"{read_manual(manual)} {game.scenario()}" if manual else game.manual()


def checked_reward(
    model: ChatModel, game: PlanningGame, subgoal: str, manual: str, transitions: Sequence[Transition], least: float
) -> tuple[str, dict[str, Any]]:
    """Reward code of a subgoal, if it agrees with the game's own test, and how it compares.

    Args:
        model: The chat model.
        game: The game; the moment that it is in is the example that the model is shown.
        subgoal: The subgoal in the words of the game's library.
        manual: The game in words.
        transitions: Steps in which code and test are compared.
        least: Least share of judgements that agree, in [0, 1].

    Returns:
        The code, empty if there is none to be used; and `subgoal`, `kept`, `why` not, `share` and `agreement`.

    Raises:
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """
    agent = next(agent for agent in game.agents if subgoal in game.library(agent))
    try:
        how: dict[str, Any] = {"agent": agent, "manual": manual, "since": game.counts_since}
        reward = write_reward(model, subgoal, game.plain(game.state()), **how)
    except (AnswerError, RefusedCodeError) as error:
        return "", {"subgoal": subgoal, "kept": False, "why": str(error)}
    found = measure_agreement(reward, game, subgoal, transitions)
    kept = found.share >= least and not found.refused
    why = "" if kept else f"it was refused in {found.refused} steps" if found.refused else "it agrees too little"
    row = {"subgoal": subgoal, "kept": kept, "why": why, "share": round(found.share, 4), "agreement": asdict(found)}
    return reward.source if kept else "", row
