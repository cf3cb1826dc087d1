"""A model that plans by rules, for the tests' chat server: it reads the menu and the question, and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

from rllib_llm_comm.chat.chat_model import ChatCounters, ChatModel


def planner(prompt: str) -> str:
    """What a model would say that takes the first subgoal on the menu for each agent."""
    if "Which things of the game must the players use" in prompt:
        return json.dumps({"objects": ["onion", "pot", "dish"]})
    if "Which goal should the team reach next" in prompt:
        return json.dumps({"thoughts": "The pot {is} empty.", "goal": "fill the pot"})
    if "Plan ahead" in prompt:
        return json.dumps({"thoughts": "", "goals": ["get onions", "fill the pot", "deliver"]})
    if "Why not?" in prompt:
        return "Nobody was there."
    if "Split this goal" in prompt:
        first, second = choices(prompt)
        return json.dumps({"subgoals": [{"subgoal": first, "reason": "a"}, {"subgoal": second, "reason": "b"}]})
    if "Give each of these subgoals to one agent" in prompt:
        return said({"alice": 1, "bob": 2})
    if "Which phase made the mistake" in prompt:
        return json.dumps({"thoughts": "", "phase": "decomposition", "why": "bob was in the way"})
    raise AssertionError(prompt)


def said(numbers: dict[str, int]) -> str:
    return json.dumps({"assignment": [{"agent": agent, "number": number} for agent, number in numbers.items()]})


def menu(prompt: str) -> dict[str, list[str]]:
    """Who can do what, as the prompt lists it."""
    listed = re.findall(r"^- (.*) \(([a-z]+(?: or [a-z]+)*)\)$", prompt, re.MULTILINE)
    return {subgoal: agents.split(" or ") for subgoal, agents in listed}


def choices(prompt: str) -> tuple[str, str]:
    """The last entry for alice that is not to go, and another one for bob."""
    listed = menu(prompt)
    useful = [subgoal for subgoal in listed if not subgoal.startswith("go ")] + list(listed)
    first = next(subgoal for subgoal in useful if "alice" in listed[subgoal])
    return first, next(subgoal for subgoal in useful if "bob" in listed[subgoal] and subgoal != first)


class Answers(ChatModel):
    """Gives answers in turn, the last one for ever, and keeps the prompts."""

    model = "a test"

    def __init__(self, *answers: Any) -> None:
        self.answers, self.prompts, self.counters = list(answers), [], ChatCounters()

    def complete(self, prompt: str, system: str = "") -> str:
        self.prompts.append(prompt)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer if isinstance(answer, str) else json.dumps(answer)
