"""Answers that were written by hand for the recording `sama_frozen_lake`, for every situation of a small frozen lake.

No language model gave them. They follow a rule that knows of no holes and targets, as the planners of this game do: go
down as far as the lake goes, then along the last row to its farther side. `python -m tools.sama_lake_sheet` asks all
questions that a run of `tuned_examples/sama_frozen_lake.yaml` can ask, and writes the recording. The manual is not in
it: Claude gave that, in the recording that it names (`with`).
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.chat.chat_model import ChatCounters, ChatModel
from rllib_llm_comm.envs.frozen_lake import ENV_ID
from rllib_llm_comm.envs.frozen_lake.rules import ARRIVED, FELL, STEPS, WALKS, Cell, get_layout
from rllib_llm_comm.envs.frozen_lake.text import WALKERS, place
from rllib_llm_comm.experiments.language_stages import (
    RewardStageSettings,
    SubgoalStageSettings,
    TranslationStageSettings,
    run_rewards,
    run_subgoals,
    run_translation,
)
from rllib_llm_comm.sama.manuals.latex import find_paper, read_latex, split_latex
from rllib_llm_comm.sama.manuals.manual import make_manual
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.planners.chat import ChatPlanner
from rllib_llm_comm.sama.planning_game import PlanningGame
from rllib_llm_comm.sama.plans import DONE, STUCK, FailedAttempt, Outcome, Plan, Planner, PlanRequest
from rllib_llm_comm.sama.preparation import open_game, preparation_of
from rllib_llm_comm.sama.recordings import ANSWERS_TO, asked_with, recording
from rllib_llm_comm.sama.reflection import ChatReflector
from tools.sama_sheet import AUTHOR, HOW

NOTE = (
    "The plans, states, words, reward code and the translator of this recording were written by hand "
    "(tools/sama_lake_sheet.py); no language model was asked for them. They follow one rule without knowing holes and "
    "targets, and show what the stages do, not how well a model plans. The recording that it includes (`with`) holds "
    "answers of Claude, which was asked by hand, not through its API."
)
INCLUDED = ["manual_frozen_lake.jsonl"]
ROWS = ["1.2", ".H.", "b.a"]
STATES, TRIALS = 24, 1
_ENDS = {WALKS: "is at", ARRIVED: "has arrived at a target at", FELL: "has fallen into a hole at"}
_TRANSLATOR = """```python
def translate(state):
    ends = {"walks": " is at ", "arrived": " has arrived at a target at ", "fell": " has fallen into a hole at "}
    sentences = []
    for name in state["walkers"]:
        one = state["walkers"][name]
        where = "column " + str(one["column"]) + ", row " + str(one["row"])
        sentences.append(name[0].upper() + name[1:] + ends[one["fate"]] + where + ".")
    return sentences
```"""
_REWARD = """```python
def reward(state):
    before = state["before"]["walkers"][state["agent"]]
    after = state["after"]["walkers"][state["agent"]]
    there = after["column"] == {x} and after["row"] == {y}
    was_there = before["column"] == {x} and before["row"] == {y}
    return 1 if there and not was_there else 0
```"""
_SAID = re.compile(r"(Alice|Bob) (is|has arrived|has fallen)[a-z ]* at column (\d+), row (\d+)\.")
_FATE = {"is": WALKS, "has arrived": ARRIVED, "has fallen": FELL}

Situation = tuple[tuple[Cell, Cell], tuple[str, str]]


def ways(cell: Cell, fate: str) -> list[Cell]:
    """The cells that a walker is to go to, the best first; it is to wait where it is at the end.

    Args:
        cell: Its own.
        fate: Its fate.
    """
    if fate != WALKS:
        return [cell]
    x, y = cell
    far = 1 if x < len(ROWS[0]) / 2 else -1
    beside = [(x, y + 1), (x + far, y), (x - far, y), (x, y - 1)]
    layout = get_layout(ROWS)
    return [*(one for one in beside if layout.inside(one)), cell]


def plans(situation: Situation) -> list[tuple[Cell, Cell]]:
    """The plans for a situation: first both go on, then one after the other, then elsewhere.

    Args:
        situation: Cells and fates of alice and bob.
    """
    (alice, bob), fates = situation
    first, second = ways(alice, fates[0]), ways(bob, fates[1])
    wanted = [(first[0], second[0]), (first[0], bob), (alice, second[0])]
    wanted += [pair for pair in product(first, second) if pair not in wanted]
    moving = [(one, other) for one, other in wanted if (one, other) != (alice, bob) and one != other]
    return list(dict.fromkeys(moving))


class HandWritten(ChatModel):
    """Answers the questions of the stages by the rule; a question that it does not know is an error.

    Attributes:
        model: Says in the recording that no model answered.
        counters: Counts so far.
    """

    model = AUTHOR

    def __init__(self) -> None:
        self.counters = ChatCounters()

    def complete(self, prompt: str, system: str = "") -> str:
        """The answer of the rule."""
        if "Which things of the game must the players use" in prompt:
            return json.dumps({"objects": ["column", "row", "hole", "target"]})
        if "Write a function `translate(state)`" in prompt:
            return _TRANSLATOR
        if "Write a function `reward(state)`" in prompt:
            x, y = re.findall(r"\d+", prompt.partition("The subgoal:\n")[2].partition("\n")[0])
            return _REWARD.replace("{x}", x).replace("{y}", y)
        if "You prepare the training of a team" in prompt:
            return json.dumps({"states": [_proposed(one) for one in _chosen()]})
        if "Say of each of these" in prompt:
            return _effects(prompt)
        situation = _situation(prompt)
        tried = len(re.findall(r"^- goal: ", prompt, re.MULTILINE))
        if "Which phase made the mistake?" in prompt:
            why = "Something was in the way, so it is better to go one after the other or elsewhere."
            return json.dumps({"thoughts": "The goal fits.", "phase": "decomposition", "why": why})
        plan = plans(situation)[tried]
        if "Give each of these subgoals to one agent" in prompt:
            return _assignment(prompt, situation, plan)
        return _proposal(situation, plan)


def _said(situation: Situation, plan: tuple[Cell, Cell]) -> list[str]:
    pairs = zip(situation[0], plan, strict=True)
    return ["wait" if here == there else f"go to {place(there)}" for here, there in pairs]


def _why(words: str) -> str:
    return "it is out, or in the other one's way" if words == "wait" else "nobody knows what is there"


def _proposal(situation: Situation, plan: tuple[Cell, Cell]) -> str:
    subgoals = [{"subgoal": words, "reason": _why(words)} for words in _said(situation, plan)]
    thoughts = "Nobody sees holes and targets; they may well be far from the start."
    return json.dumps({"thoughts": thoughts, "goal": "go on to the far side of the lake", "subgoals": subgoals})


def _assignment(prompt: str, situation: Situation, plan: tuple[Cell, Cell]) -> str:
    listed = dict(re.findall(r"^(\d)\. (.*)$", prompt.rpartition("The subgoals:")[2], re.MULTILINE))
    numbers = {text: int(number) for number, text in listed.items()}
    given = [
        {"agent": agent, "number": numbers[words], "reason": _why(words)}
        for agent, words in zip(WALKERS, _said(situation, plan), strict=True)
    ]
    return json.dumps({"thoughts": "Each goes to the cell beside it.", "assignment": given})


def _effects(prompt: str) -> str:
    state = json.loads(prompt.partition("The state:\n")[2].partition("\n")[0])
    one = state["walkers"][WALKERS[0]]
    x, y = one["column"], one["row"]
    layout, effects = get_layout(ROWS), []
    for dx, dy in STEPS:
        there = (x + dx, y + dy)
        moves = one["fate"] == WALKS and layout.inside(there) and there != (x, y)
        effects.append(f"go to {place(there)}" if moves else "do nothing")
    return json.dumps({"effects": effects})


def _situation(prompt: str) -> Situation:
    """Cells and fates, from the translator's sentences in a question."""
    now = prompt.partition("The game now:\n")[2].partition("\n\n")[0]
    found = {name.lower(): ((int(x), int(y)), _FATE[fate]) for name, fate, x, y in _SAID.findall(now)}
    (alice, one), (bob, other) = (found[name] for name in WALKERS)
    return (alice, bob), (one, other)


def _all() -> Iterator[Situation]:
    """All situations in which somebody walks; one walker may pass where the other one has arrived."""
    layout = get_layout(ROWS)
    cells = [(x, y) for y in range(layout.height) for x in range(layout.width)]
    for alice, bob in product(cells, cells):
        fates = [
            FELL if cell in layout.holes else ARRIVED if cell == target else WALKS
            for cell, target in zip((alice, bob), layout.targets, strict=True)
        ]
        if WALKS in fates and (alice != bob or ARRIVED in fates):
            yield (alice, bob), (fates[0], fates[1])


def _chosen() -> list[Situation]:
    """The proposed states, spread over all in which the two are apart."""
    apart = [one for one in _all() if one[0][0] != one[0][1]]
    return [apart[number * len(apart) // STATES] for number in range(STATES)]


def _proposed(situation: Situation) -> dict[str, Any]:
    walkers = zip(WALKERS, *situation, strict=True)
    return {"walkers": [{"walker": name, "column": x, "row": y, "fate": fate} for name, (x, y), fate in walkers]}


# ---- asking everything --------------------------------------------------------------------------------------


def record(target: Path, scratch: Path) -> int:
    """Asks all questions and writes the recording.

    Args:
        target: The recording, packed.
        scratch: An empty folder.

    Returns:
        Number of answers.
    """
    manual, translation, tape = scratch / "manual.md", scratch / "translation.json", scratch / "tape.jsonl"
    source = Cassette(recording("manual_frozen_lake"))
    manual.write_text(make_manual(source, split_latex(read_latex(find_paper("frozen_lake")))).text, encoding="utf-8")
    model = Cassette(tape, HandWritten(), NOTE)
    shared: dict[str, Any] = {"chat": {}, "env_config": {"layout": ROWS}}
    run_translation(model, translation, TranslationStageSettings(**shared, manual=str(manual), actions=1), ENV_ID)
    how = {**HOW, "manual": str(manual), "translation": str(translation)}
    run_subgoals(model, scratch / "subgoals.json", SubgoalStageSettings(**shared, planner=how, states=STATES), ENV_ID)
    rewards = RewardStageSettings(
        chat={"cassette": "none"}, subgoals=str(scratch / "subgoals.json"), manual=str(manual)
    )
    run_rewards(model, scratch / "rewards", "rewards", rewards)
    planner, lake = make_planner(how, model), open_game(ENV_ID, {"layout": ROWS})
    for situation in _all():
        _put(lake, situation)
        _ask(planner, lake)
    lines = tape.read_text(encoding="utf-8").splitlines()
    assert isinstance(planner, ChatPlanner)
    head = {**json.loads(lines[0]), "with": INCLUDED, ANSWERS_TO: asked_with(planner.how)}
    text = "\n".join([json.dumps(head), *lines[1:]]) + "\n"
    target.write_bytes(lzma.compress(text.encode(), preset=6 | lzma.PRESET_EXTREME))
    return len(lines) - 1


def _put(game: PlanningGame, situation: Situation) -> None:
    how: Any = preparation_of(game)
    how.place(*situation)


def _ask(planner: Planner, game: PlanningGame) -> None:
    """Plans, reflections on all ways to fail, and further plans, from one situation."""
    assert isinstance(planner, ChatPlanner)
    reflector, state = ChatReflector(planner), game.state()
    failed: list[FailedAttempt] = []
    for trial in range(TRIALS + 1):
        request = PlanRequest(game, state, failed=tuple(failed))
        plan = planner.plan(request)
        if trial == TRIALS:
            return
        for stuck in (WALKERS[:1], WALKERS[1:], WALKERS):
            blame = reflector(request, plan, _outcomes(plan, stuck))
        failed.append(FailedAttempt(plan, blame.phase, blame.why))


def _outcomes(plan: Plan, stuck: Any) -> list[Outcome]:
    return [Outcome(one.agent, one.subgoal, STUCK if one.agent in stuck else DONE) for one in plan.subgoals]


def _main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__)
    target = recording("any").parent / "sama_frozen_lake.jsonl.xz"
    parser.add_argument("--out", type=Path, default=target, help="the recording")
    with tempfile.TemporaryDirectory() as scratch:
        print(f"{record(parser.parse_args().out, Path(scratch))} answers")


if __name__ == "__main__":
    _main()
