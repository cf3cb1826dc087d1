"""Rewards for subgoals that nobody wrote by hand: code by a language model, or a language model that is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rllib_llm_comm.chat.answers import UnusableError, ask_checked, read_yes_no
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.chat.purposes import JUDGE, REWARD_CODE, asking_for
from rllib_llm_comm.language.prompt_files import fill
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
