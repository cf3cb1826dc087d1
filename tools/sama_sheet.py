"""Answers that were written by hand for the recording `sama`, for every situation of the cramped room.

No language model gave them. Somebody who knows the game wrote, for each pair of things that the cooks can hold and each
content of the pot, four plans in the order in which they are to be tried; a translator; states; and the things that
matter. `python -m tools.sama_sheet` asks all questions that a run of `tuned_examples/sama.yaml` can ask about them, and
writes the recording. The manual, the words for actions and the reward code are not in it: Claude gave these, in the
recordings that it names (`with`).
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.chat.chat_model import ChatCounters, ChatModel
from rllib_llm_comm.envs import overcooked_ai
from rllib_llm_comm.envs.overcooked_ai.places import COOKS
from rllib_llm_comm.envs.overcooked_ai.recipes import COOK_TIME
from rllib_llm_comm.sama.manuals.latex import find_paper, read_latex, split_latex
from rllib_llm_comm.sama.manuals.manual import make_manual
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.planners.chat import ChatPlanner
from rllib_llm_comm.sama.planning_game import PlanningGame, planning_game
from rllib_llm_comm.sama.plans import DONE, STUCK, FailedAttempt, Outcome, Plan, Planner, PlanRequest
from rllib_llm_comm.sama.recordings import ANSWERS_TO, asked_with, recording
from rllib_llm_comm.sama.reflection import ChatReflector

AUTHOR = "written by hand"
NOTE = (
    "The plans, states and the translator of this recording were written by hand (tools/sama_sheet.py); no language "
    "model was asked for them. They show what the stages do with good answers, not how well a model plans. The "
    "recordings that it includes (`with`) hold answers of Claude, which was asked by hand, not through its API."
)
INCLUDED = ["manual_onion_soup.jsonl", "claude_actions.jsonl", "claude_reward_code.jsonl.xz"]
LAYOUT, STATES, TRIALS = "cramped_room", 40, 3
HOW = {"name": "sama", "menu": "none", "examples": 0, "history": False, "memory": "round"}
ALSO = {"examples": 1, "memory": "episode"}  # what these settings add decides nothing about answers of a sheet
AHEAD = 8
WITHOUT = ["examples", "earlier"]

_SUBGOALS = {
    "FL": "fetch an onion from the left onion crate",
    "FR": "fetch an onion from the right onion crate",
    "FD": "fetch a dish from the dish stack",
    "P": "put the onion into the pot",
    "L": "fill the dish with the soup from the pot",
    "V": "deliver the soup at the serving counter",
    "CO": "put the onion on a counter",
    "CD": "put the dish on a counter",
    "CS": "put the soup on a counter",
    "W": "wait",
}
_LEAVES = {"FL": "O", "FR": "O", "FD": "D", "P": "N", "L": "S", "V": "N", "CO": "N", "CD": "N", "CS": "N"}
_WHY = {
    "FL": "the pot needs onions, and these hands are free",
    "FR": "the pot needs onions, and these hands are free",
    "FD": "a soup can only be taken out with a dish",
    "P": "the onion belongs into the pot",
    "L": "the soup needs the dish that is in these hands",
    "V": "only a delivered soup brings points",
    "CO": "the onion is of no use now, and the hands are needed",
    "CD": "the dish is of no use now, and the hands are needed",
    "CS": "the other one delivers first",
    "W": "there is nothing to do that would not be in the way",
}
_GOALS = {
    "0": "put three onions into the pot",
    "1": "put two more onions into the pot",
    "2": "put the last onion into the pot",
    "c": "have a dish at the pot for the soup that cooks",
    "r": "take the soup out of the pot",
}
_DELIVER = "deliver the soup"
# Hands of the two cooks (Nothing, Onion, Dish, Soup) and pot (0, 1, 2 onions, cooking, ready): four plans, the
# subgoal of the one who holds the first thing, then of the other one.
_FILL = {
    "NN": "FL,FR FR,FL FL,W W,FR",
    "NO": "FL,P FR,P W,P FL,W",
    "ND": "FL,W FL,CD FR,W W,CD",
    "NS": "FL,V FR,V W,V FL,W",
    "OO": "P,P P,W W,P P,CO",
    "OD": "P,W P,CD W,CD CO,W",
    "OS": "P,V W,V P,W CO,V",
    "DD": "CD,CD CD,W W,CD W,W",
    "DS": "W,V CD,V CD,W W,W",
    "SS": "V,V V,W W,V CS,V",
}
_SHEET = {
    "0": {**_FILL, "ND": "FL,CD FR,CD FL,W FR,W"},
    "1": _FILL,
    "2": {**_FILL, "NN": "FL,FD FR,FD FD,FL FL,W", "NO": "FD,P W,P FD,W FL,P", "OO": "P,W W,P P,CO CO,P"},
    "c": {
        **_FILL,
        "NN": "FD,FL FL,FD FD,W W,FD",
        "NO": "FD,W FD,CO W,CO FL,W",
        "ND": "FL,L W,L FR,L FL,W",
        "NS": "FD,V W,V FL,V FD,W",
        "OO": "CO,W W,CO CO,CO W,W",
        "OD": "W,L CO,L W,W CO,W",
        "OS": "W,V CO,V W,W CO,W",
        "DD": "L,W W,L L,CD CD,L",
        "DS": "L,V W,V L,W CD,V",
    },
}
_SHEET["r"] = _SHEET["c"]
_OBJECTS = ["onion", "onion crate", "pot", "dish", "dish stack", "soup", "serving counter"]
_THINGS = {"N": "nothing", "O": "onion", "D": "dish", "S": "soup"}
_POTS = {"0": (0, "no"), "1": (1, "no"), "2": (2, "no"), "c": (3, "yes"), "r": (3, "ready")}
_TRANSLATOR = """```python
def translate(state):
    words = {"nothing": "nothing", "onion": "an onion", "dish": "a dish", "soup": "a soup", "tomato": "a tomato"}
    sentences = []
    for name in state["cooks"]:
        sentences.append(name[0].upper() + name[1:] + " holds " + words[state["cooks"][name]["holds"]] + ".")
    for name in state["pots"]:
        pot = state["pots"][name]
        if pot["cooking"] == "yes":
            sentences.append("The soup in the " + name + " is cooking.")
        elif pot["cooking"] == "ready":
            sentences.append("The soup in the " + name + " is ready.")
        elif pot["onions"] == 0:
            sentences.append("The " + name + " is empty.")
        elif pot["onions"] == 1:
            sentences.append("There is 1 onion in the " + name + ".")
        else:
            sentences.append("There are " + str(pot["onions"]) + " onions in the " + name + ".")
    return sentences
```"""
_ONIONS = re.compile(r"There (?:is|are) (\d) onions? in the pot")


def plans(hands: tuple[str, str], pot: str) -> list[tuple[str, str]]:
    """The four plans for a situation, as codes for alice and bob.

    Args:
        hands: "N", "O", "D" or "S", of alice and of bob.
        pot: "0", "1", "2", "c" or "r".
    """
    order = "NODS"
    swapped = order.index(hands[0]) > order.index(hands[1])
    found = _SHEET[pot]["".join(reversed(hands)) if swapped else "".join(hands)]
    pairs = [tuple(plan.split(",")) for plan in found.split()]
    return [(second, first) if swapped else (first, second) for first, second in pairs]


def chain(hands: tuple[str, str], pot: str, first: tuple[str, str]) -> list[tuple[str, str]]:
    """A plan and those of the sheet that follow when both cooks do theirs each time.

    Args:
        hands: As of `plans`.
        pot: As of `plans`.
        first: The plan that is begun with.
    """
    return [first, *(plans(then, now)[0] for then, now in _followed(hands, pot, first))]


def _followed(hands: tuple[str, str], pot: str, codes: tuple[str, str]) -> list[tuple[tuple[str, str], str]]:
    """The situations in which the further parts of a plan begin."""
    found: list[tuple[tuple[str, str], str]] = []
    while len(found) < AHEAD - 1:
        if "L" in codes:
            pot = "0"
        elif codes.count("P"):
            onions = int(pot) + codes.count("P")
            pot = str(onions) if onions < 3 else "c"
        hands = (_LEAVES.get(codes[0], hands[0]), _LEAVES.get(codes[1], hands[1]))
        found.append((hands, pot))
        codes = plans(hands, pot)[0]
    return found


class HandWritten(ChatModel):
    """Looks up the sheet for the questions of the stages; a question that it does not know is an error.

    Attributes:
        model: Says in the recording that no model answered.
        counters: Counts so far.
    """

    model = AUTHOR

    def __init__(self) -> None:
        self.counters = ChatCounters()

    def complete(self, prompt: str, system: str = "") -> str:
        """The answer of the sheet."""
        if "Which things of the game must the players use" in prompt:
            return json.dumps(
                {"objects": ["onion", "onion crate", "pot", "dish", "dish stack", "soup", "serving counter"]}
            )
        if "Write a function `translate(state)`" in prompt:
            return _TRANSLATOR
        if "You prepare the training of a team" in prompt:
            return json.dumps({"states": [_state(*one) for one in _chosen()]})
        hands, pot = _situation(prompt)
        tried = len(re.findall(r"^- goal: ", prompt, re.MULTILINE))
        if "Which phase made the mistake?" in prompt:
            return _blame(plans(hands, pot), len(re.findall(r"^- the \w+ was blamed", prompt, re.MULTILINE)))
        codes = plans(hands, pot)[tried]
        if "and what each agent does for it" in prompt:
            return _several(chain(hands, pot, codes), hands, pot)
        if "Give each of these subgoals to one agent" in prompt:
            return _assignment(prompt, codes)
        return _proposal(codes, hands, pot)


def _proposal(codes: tuple[str, str], hands: tuple[str, str], pot: str) -> str:
    return json.dumps({**_meant(hands, pot), "subgoals": _worded(codes)})


def _several(parts: list[tuple[str, str]], hands: tuple[str, str], pot: str) -> str:
    work = [
        {"agent": agent, "subgoals": _worded(codes)}
        for agent, codes in zip(COOKS, zip(*parts, strict=True), strict=True)
    ]
    return json.dumps({**_meant(hands, pot), "agents": work})


def _goal(hands: tuple[str, str], pot: str) -> str:
    return _DELIVER if "S" in hands else _GOALS[pot]


def _meant(hands: tuple[str, str], pot: str) -> dict[str, Any]:
    goal = _goal(hands, pot)
    held = " and ".join(f"{agent} holds {_THINGS[hand]}" for agent, hand in zip(COOKS, hands, strict=True))
    return {"thoughts": f"{held}, so the next thing is to {goal}.", "goal": goal}


def _worded(codes: Iterable[str]) -> list[dict[str, str]]:
    return [{"subgoal": _SUBGOALS[code], "reason": _WHY[code]} for code in codes]


def _assignment(prompt: str, codes: tuple[str, str]) -> str:
    listed = dict(re.findall(r"^(\d)\. (.*)$", prompt.rpartition("The subgoals:")[2], re.MULTILINE))
    numbers = {text: int(number) for number, text in listed.items()}
    given = [
        {"agent": agent, "number": numbers[_SUBGOALS[code]], "reason": _WHY[code]}
        for agent, code in zip(COOKS, codes, strict=True)
    ]
    return json.dumps({"thoughts": "Who holds what decides who can do what.", "assignment": given})


def _blame(tried: list[tuple[str, str]], number: int) -> str:
    """The phase that is planned anew so that the next plan of the sheet comes out."""
    now, then = tried[number], tried[number + 1]
    if sorted(now) == sorted(then):
        why = "The two should change what they do."
        return json.dumps(
            {"thoughts": "The subgoals fit, the cooks were in each other's way.", "phase": "assignment", "why": why}
        )
    why = f"It is better to {_SUBGOALS[then[0]]} and to {_SUBGOALS[then[1]]}."
    return json.dumps({"thoughts": "The goal fits, not all subgoals were done.", "phase": "decomposition", "why": why})


def _situation(prompt: str) -> tuple[tuple[str, str], str]:
    """Hands and pot, from the translator's sentences in a question."""
    now = prompt.partition("The game now:\n")[2].partition("\n\n")[0]
    codes = {"nothing": "N", "an onion": "O", "a dish": "D", "a soup": "S"}
    held = {agent.lower(): codes[what] for agent, what in re.findall(r"(\w+) holds ([a-z]+(?: [a-z]+)?)\.", now)}
    onions = _ONIONS.search(now)
    pot = "c" if "is cooking" in now else "r" if "is ready" in now else onions.group(1) if onions else "0"
    return (held[COOKS[0]], held[COOKS[1]]), pot


def _all() -> Iterator[tuple[tuple[str, str], str]]:
    for pot, one, other in product(_POTS, _THINGS, _THINGS):
        yield (one, other), pot


def _chosen() -> list[tuple[tuple[str, str], str]]:
    """The proposed states: those with a soup in at most one hand, and no two dishes, in a mixed order."""
    useful = [state for state in _all() if state[0].count("S") + state[0].count("D") < 2]
    return useful[::2][: STATES // 2] + useful[1::2][: STATES // 2]


def _state(hands: tuple[str, str], pot: str) -> dict[str, Any]:
    onions, cooks = _POTS[pot]
    players = [{"player": agent, "holds": _THINGS[hand]} for agent, hand in zip(COOKS, hands, strict=True)]
    return {"players": players, "pots": [{"pot": "pot", "onions": onions, "cooks": cooks}]}


# ---- asking everything --------------------------------------------------------------------------------------


def record(target: Path, scratch: Path) -> int:
    """Asks all questions and writes the recording.

    Args:
        target: The recording, packed.
        scratch: An empty folder.

    Returns:
        Number of answers.
    """
    manual, translation, tape = scratch / "manual.md", scratch / "translation.json", scratch / "sama.jsonl"
    source = Cassette(recording("manual_onion_soup"))
    model = Cassette(tape, HandWritten(), NOTE)
    write_files(source, model, manual, translation)
    _ask_for_states(model, manual)
    how = {**HOW, "manual": str(manual), "translation": str(translation)}
    planner, ahead = make_planner(how, model), make_planner({**how, "ahead": AHEAD}, model)
    env = overcooked_ai.parallel_env(layout=LAYOUT, observe=["entities"], action_level="goal_cell")
    env.reset(seed=0)
    for hands, pot in _all():
        _put(env, hands, pot)
        _ask(planner, planning_game(env))
    for hands, pot, goal in _kept():
        _put(env, hands, pot)
        _ask(ahead, planning_game(env), goal)
    lines = tape.read_text(encoding="utf-8").splitlines()
    assert isinstance(planner, ChatPlanner)
    asked = asked_with(planner.how)
    every = [asked, {**asked, **ALSO}, {**asked, "ahead": AHEAD}, {**asked, **ALSO, "ahead": AHEAD}]
    head = {**json.loads(lines[0]), "with": INCLUDED, "without": WITHOUT, ANSWERS_TO: every}
    text = "\n".join([json.dumps(head), *lines[1:]]) + "\n"
    target.write_bytes(lzma.compress(text.encode(), preset=6 | lzma.PRESET_EXTREME))
    return len(lines) - 1


def write_files(source: ChatModel, model: ChatModel, manual: Path, translation: Path) -> None:
    """Writes what the stages before the planner's leave: a manual and a translator.

    Args:
        source: Whom the manual is asked of.
        model: Whom the translator is asked of.
        manual: The manual's place.
        translation: The translator's place.
    """
    from rllib_llm_comm.experiments.language_stages import TranslationStageSettings, run_translation

    manual.write_text(make_manual(source, split_latex(read_latex(find_paper("onion_soup")))).text, encoding="utf-8")
    asked = TranslationStageSettings(chat={"cassette": "none"}, layout=LAYOUT, manual=str(manual), actions=0)
    run_translation(model, translation, asked)


def _ask_for_states(model: ChatModel, manual: Path) -> None:
    from rllib_llm_comm.sama.data_set import propose_states

    env = overcooked_ai.parallel_env(layout=LAYOUT, observe=["entities"], action_level="goal_cell")
    env.reset(seed=0)
    game = planning_game(env)
    told = f"{manual.read_text(encoding='utf-8')}\n{game.scenario()}"
    propose_states(model, game, STATES, manual=told)


def _put(env: Any, hands: tuple[str, str], pot: str) -> None:
    """Brings a kitchen into a situation."""
    snapshot = env.kitchen.snapshot()
    for player, hand in zip(snapshot["players"], hands, strict=True):
        held = {"N": None, "S": ["soup", 3, 0, COOK_TIME]}
        player[3] = held.get(hand, [_THINGS[hand]])
    onions, cooks = _POTS[pot]
    tick = {"no": -1, "yes": COOK_TIME // 2, "ready": COOK_TIME}[cooks]
    cell = next(cell for cell, name in _names(env).items() if name == "pot")
    snapshot["objects"] = [[*cell, "soup", onions, 0, tick]] if onions else []
    env.kitchen.restore(snapshot)


def _names(env: Any) -> Any:
    from rllib_llm_comm.envs.overcooked_ai.places import places_of

    return places_of(env.kitchen.layout).names


def _kept() -> list[tuple[tuple[str, str], str, str]]:
    """Situations and goals in which a part of a plan of `AHEAD` subgoals can fail; an empty goal is a new plan's.

    A plan's goal stays when later parts of it are tried in another way.
    """
    found = dict.fromkeys((hands, pot, "") for hands, pot in _all())
    todo = list(found)
    while todo:
        hands, pot, kept = todo.pop()
        goal = kept or _goal(hands, pot)
        for first in plans(hands, pot):
            for then, now in _followed(hands, pot, first):
                for also in {"c": "cr"}.get(now, now):
                    one = (then, also, goal if goal != _goal(then, also) else "")
                    if one not in found:
                        found[one] = None
                        todo.append(one)
    return list(found)


def _ask(planner: Planner, game: PlanningGame, goal: str = "") -> None:
    """Plans, reflections on all ways to fail, and further plans, from one situation; with the goal of a plan that stood
    already, where one is given."""
    assert isinstance(planner, ChatPlanner)
    reflector, state = ChatReflector(planner), game.state()
    failed: list[FailedAttempt] = []
    for trial in range(TRIALS + 1):
        request = PlanRequest(game, state, failed=tuple(failed))
        plan = planner.plan(request)
        if goal:
            plan = plan.model_copy(update={"goal": goal, "kept": True})
        if trial == TRIALS:
            return
        for stuck in (COOKS[:1], COOKS[1:], COOKS):
            blame = reflector(request, plan, _outcomes(plan, stuck))
        failed.append(FailedAttempt(plan, blame.phase, blame.why))


def _outcomes(plan: Plan, stuck: Any) -> list[Outcome]:
    return [Outcome(one.agent, one.subgoal, STUCK if one.agent in stuck else DONE) for one in plan.subgoals]


def _main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=recording("any").parent / "sama.jsonl.xz", help="the recording")
    with tempfile.TemporaryDirectory() as scratch:
        print(f"{record(parser.parse_args().out, Path(scratch))} answers")


if __name__ == "__main__":
    _main()
