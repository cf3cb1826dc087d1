"""Answers that were written by hand for the recording `sama_minirts`, by a few rules of thumb.

No language model gave them. `python -m tools.sama_minirts_sheet` asks all questions of the stages of
`tuned_examples/sama_minirts.yaml`, and writes the recording. The manual is not in it: Claude gave that, in the
recording that it names (`with`).
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from pathlib import Path
from typing import Any

from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.chat.chat_model import ChatCounters, ChatModel
from rllib_llm_comm.envs.minirts import ENV_ID
from rllib_llm_comm.envs.minirts.words import BUILD, COMMANDERS, MINE, MOST, SINGULAR, TRAIN, parse_command
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
from rllib_llm_comm.sama.recordings import ANSWERS_TO, asked_with, recording
from tools.sama_sheet import AUTHOR, HOW

NOTE = (
    "The plans, reward code and the translator of this recording were written by hand (tools/sama_minirts_sheet.py); "
    "no language model was asked for them. They show what the stages do, not how well a model plans. The recording "
    "that it includes (`with`) holds answers of Claude, which was asked by hand, not through its API."
)
INCLUDED = ["manual_minirts.jsonl"]
SETTINGS = {"opponent": "simple", "money": 2000}
STATES, STEPS = 100, 600
_SINGULAR = {"spearmen": "spearman", "cavalry": "cavalry", "swordmen": "swordman", "archers": "archer"}
_TRAINED = 3
TRAINERS = {"workshop": "archers", "barrack": "spearmen", "stable": "cavalry", "blacksmith": "swordmen"}
_MOST_JOBS = 4
_ARMY = 5
_OBJECTS = ["gold", "peasant", "town hall", "barrack", "stable", "blacksmith", "workshop", "army"]
_TRANSLATOR = """```python
def translate(state):
    plural = {"cavalry": "cavalry", "spearman": "spearmen", "swordman": "swordmen"}
    army = ["spearman", "swordman", "cavalry", "dragon", "archer", "catapult"]
    does = {"attack": "attacks", "defend": "defends", "scout": "scouts"}
    def group(units):
        said = []
        for name in units:
            if units[name] == 1:
                said.append("1 " + name)
            elif units[name] > 1:
                said.append(str(units[name]) + " " + plural.get(name, name + "s"))
        return " and ".join(said) or "nothing"
    sentences = ["The team has " + str(state["gold"]) + " gold."]
    for name in state["commanders"]:
        one = state["commanders"][name]
        who = name[0].upper() + name[1:]
        sentences.append(who + " commands " + group(one["units"]) + ".")
        if one["mining"] and one["units"].get("peasant", 0):
            sentences.append(who + "'s peasants mine.")
        if sum([one["units"].get(kind, 0) for kind in army]):
            sentences.append(who + "'s army " + does[one["army"]] + ".")
        if one["commands"]:
            sentences.append(who + "'s open commands: " + ", ".join(one["commands"]) + ".")
    if state["known enemies"]:
        sentences.append("The team knows of " + group(state["known enemies"]) + " of the enemy.")
    return sentences
```"""
_COUNTS = """```python
def reward(state):
    made = state["after"]["commanders"][state["agent"]]["made so far"].get("{kind}", 0)
    made_at_first = state["start"]["commanders"][state["agent"]]["made so far"].get("{kind}", 0)
    return 1 if made - made_at_first >= {number} else 0
```"""
_MINES = """```python
def reward(state):
    mine = state["after"]["commanders"][state["agent"]]
    return 1 if mine["mining"] and mine["peasants digging"] > 0 and mine["peasants idle"] == 0 else 0
```"""
_ATTACKS = """```python
def reward(state):
    return 1 if state["after"]["commanders"][state["agent"]]["units attacking"] > 0 else 0
```"""
_NEVER = """```python
def reward(state):
    return 0
```"""


def command_of(now: str, name: str, taken: list[str]) -> str:
    """The command that the rules of thumb give to a commander.

    Args:
        now: The moment in the translator's words.
        name: The commander.
        taken: Commands of those before it.
    """
    who = name.capitalize()
    units = dict(_units(now, who))
    jobs = re.search(rf"{who}'s open commands: ([^.]*)\.", now)
    building = re.findall(r"build one (\w+(?: \w+)?)", f"{now} {' '.join(taken)}")
    there = {kind for agent in COMMANDERS[:2] for kind, _ in _units(now, agent.capitalize())}
    if units.get("peasant") and f"{who}'s peasants mine." not in now:
        return "mine with idle peasants"
    if jobs and len(jobs[1].split(", ")) >= _MOST_JOBS:
        return "wait"
    missing = [house for house in TRAINERS if house not in there and house not in building]
    if sum(number for kind, number in units.items() if kind in _fighters()) >= _ARMY:
        return "wait" if f"{who}'s army attacks." in now else "attack with the army"
    waiting = jobs[1] if jobs else ""
    for house, fighters in TRAINERS.items():
        asked = sum(int(number) for number in re.findall(rf"train (\d) {fighters}", waiting))
        room = MOST - units.get(_SINGULAR[fighters], 0) - asked
        if units.get(house) and room >= _TRAINED:
            return f"train {_TRAINED} {fighters}"
    return f"build one {missing[0]}" if units.get("peasant") and missing else "wait"


def _fighters() -> set[str]:
    return {"spearman", "swordman", "cavalry", "dragon", "archer", "catapult"}


def _units(now: str, who: str) -> list[tuple[str, int]]:
    said = re.search(rf"{who} commands ([^.]*)\.", now)
    found = re.findall(r"(\d+) ([a-z ]+?)(?= and |$)", said[1] if said else "")
    return [(_SINGULAR.get(name, name.removesuffix("s")), int(number)) for number, name in found]


class HandWritten(ChatModel):
    """Answers the questions of the stages by the rules; a question that it does not know is an error.

    Attributes:
        model: Says in the recording that no model answered.
        counters: Counts so far.
    """

    model = AUTHOR

    def __init__(self) -> None:
        self.counters = ChatCounters()

    def complete(self, prompt: str, system: str = "") -> str:
        """The answer of the rules."""
        if "Which things of the game must the players use" in prompt:
            return json.dumps({"objects": _OBJECTS})
        if "Write a function `translate(state)`" in prompt:
            return _TRANSLATOR
        if "Write a function `reward(state)`" in prompt:
            return _reward(prompt.partition("The subgoal:\n")[2].partition("\n")[0])
        now = prompt.partition("The game now:\n")[2].partition("\n\n")[0]
        said: list[str] = []
        for name in COMMANDERS[:2]:
            said.append(command_of(now, name, said))
        if "Give each of these subgoals to one agent" in prompt:
            return _assignment(prompt, said)
        subgoals = [{"subgoal": words, "reason": "it is the next thing to do"} for words in said]
        goal = "destroy the enemy" if "attack with the army" in said else "have an army that beats the enemy's"
        return json.dumps({"thoughts": "Gold first, then buildings, then an army.", "goal": goal, "subgoals": subgoals})


def _reward(subgoal: str) -> str:
    command = parse_command(subgoal)
    assert command is not None
    if command.verb in (BUILD, TRAIN):
        return _COUNTS.replace("{kind}", SINGULAR[command.kind]).replace("{number}", str(command.number))
    return {MINE: _MINES, "attack": _ATTACKS}.get(command.verb, _NEVER)


def _assignment(prompt: str, said: list[str]) -> str:
    listed = dict(re.findall(r"^(\d)\. (.*)$", prompt.rpartition("The subgoals:")[2], re.MULTILINE))
    numbers = {text: int(number) for number, text in listed.items()}
    given = [
        {"agent": agent, "number": numbers[words], "reason": "it has what this needs"}
        for agent, words in zip(COMMANDERS, said, strict=False)
    ]
    return json.dumps({"thoughts": "Who has the building or the peasants does it.", "assignment": given})


def record(target: Path, scratch: Path) -> int:
    """Asks all questions and writes the recording.

    Args:
        target: The recording, packed.
        scratch: An empty folder.

    Returns:
        Number of answers.
    """
    manual, translation, tape = scratch / "manual.md", scratch / "translation.json", scratch / "tape.jsonl"
    source = Cassette(recording("manual_minirts"))
    manual.write_text(make_manual(source, split_latex(read_latex(find_paper("minirts")))).text, encoding="utf-8")
    model = Cassette(tape, HandWritten(), NOTE)
    shared: dict[str, Any] = {"chat": {}, "env_config": SETTINGS}
    told = TranslationStageSettings(**shared, manual=str(manual), states=40, actions=0)
    run_translation(model, translation, told, ENV_ID)
    how = {**HOW, "manual": str(manual), "translation": str(translation)}
    asked = SubgoalStageSettings(**shared, planner=how, states=STATES, states_by="random")
    run_subgoals(model, scratch / "subgoals.json", asked, ENV_ID)
    data = str(scratch / "subgoals.json")
    rewards = RewardStageSettings(chat={"cassette": "none"}, subgoals=data, manual=str(manual), steps=STEPS)
    run_rewards(model, scratch / "rewards", "rewards", rewards)
    lines = tape.read_text(encoding="utf-8").splitlines()
    planner = make_planner(how, model)
    assert isinstance(planner, ChatPlanner)
    head = {**json.loads(lines[0]), "with": INCLUDED, ANSWERS_TO: asked_with(planner.how)}
    text = "\n".join([json.dumps(head), *lines[1:]]) + "\n"
    target.write_bytes(lzma.compress(text.encode(), preset=6 | lzma.PRESET_EXTREME))
    return len(lines) - 1


def _main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__)
    target = recording("any").parent / "sama_minirts.jsonl.xz"
    parser.add_argument("--out", type=Path, default=target, help="the recording")
    with tempfile.TemporaryDirectory() as scratch:
        print(f"{record(parser.parse_args().out, Path(scratch))} answers")


if __name__ == "__main__":
    _main()
