"""Recorded sessions with two chat models, how they were made, and what came of them.

Each is a cassette in `docs/results/planning/recordings`, or, where a run of an installed package needs it, in the
package. Its first line tells the model, the day and how it was recorded; the same
functions that recorded it play it back without network or model, and come to what the JSON file beside it says.
`python -m tools.record_cassettes` records what is missing.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.cassettes import Cassette, open_chat
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.envs import overcooked_ai
from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot
from rllib_llm_comm.envs.overcooked_ai.subgoals import parse_subgoal
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import RULES, Plan
from rllib_llm_comm.sama.preparation import open_game, preparation_of
from rllib_llm_comm.sama.recordings import recorded_code, recording
from rllib_llm_comm.sama.rewards.subgoal_rewards import Agreement, measure_agreement, write_reward
from rllib_llm_comm.sama.translation import ActionWords, Translation, translate, translate_actions
from tools import rules_chat  # noqa: F401  (makes the chat model "rules" known)

logger = logging.getLogger(__name__)

RECORDINGS = Path(__file__).parents[1] / "docs" / "results" / "planning" / "recordings"
SEED = 0
PATIENCE = 20
REWARD_SUBGOALS = (
    "fetch an onion from the left onion crate",
    "put the onion into the pot",
    "fetch a dish from the dish stack",
    "deliver the soup at the serving counter",
)
_REWARD_STEPS = 600


@dataclass(frozen=True)
class PlanRecording:
    """Settings of a recording of plans.

    Attributes:
        layout: The kitchen.
        examples: See `rllib_llm_comm.sama.planners.chat.ChatPlanSettings`.
        objects: See `rllib_llm_comm.sama.planners.chat.ChatPlanSettings`.
    """

    layout: str
    examples: int = 1
    objects: bool = True


ABLATIONS = tuple(
    PlanRecording("cramped_room", examples, objects) for examples, objects in ((0, True), (3, True), (1, False))
)
PLANS = (*(PlanRecording(layout) for layout in LAYOUT_NAMES), *ABLATIONS)


def played_plans(model: ChatModel, how: PlanRecording, plans: int) -> Iterator[Plan | None]:
    """The plans that a chat model makes one after the other in an episode that obeys it; `None` where it makes none.

    Each cook goes to the place that its subgoal names until that is done, stuck or impossible.

    Args:
        model: The chat model.
        how: The kitchen and the questions.
        plans: Number of plans.
    """
    game = overcooked_ai.parallel_env(layout=how.layout, observe=["entities"], action_level="goal_cell")
    planner = make_planner({"name": "chat", "examples": how.examples, "objects": how.objects}, model)
    env = PlannedSubgoals(game, planner, patience=PATIENCE, wait=True)
    observations, infos = env.reset(seed=SEED)
    last, made = env.plan, 1
    yield last
    while made < plans and env.agents:
        choosing = {agent: observations[agent] for agent in asked(observations, infos)}
        observations, _, _, _, infos = env.step(_obeyed(game, choosing))
        metrics = infos[next(iter(infos))]["episode_metrics"] if infos else {}
        if metrics.get("plans", 0) + metrics.get("plans_failed", 0) > made:
            made += 1
            yield None if env.plan is last else env.plan
            last = env.plan


def _obeyed(game: Any, observations: Mapping[str, Any]) -> dict[str, int]:
    layout, actions = game.kitchen.layout, {}
    for agent, seen in observations.items():
        told = parse_subgoal(layout, seen["subgoal"]) if seen["subgoal"] else None
        x, y = game.kitchen.cook(game.players[agent]).cell if told is None else told.cell
        actions[agent] = y * layout.width + x
    return actions


def random_kitchen(layout: str, seed: int) -> Any:
    """An onion-soup kitchen in a random legal state.

    Args:
        layout: Its name.
        seed: Of the state.
    """
    env = overcooked_ai.parallel_env(layout=layout, observe=["entities"], action_level="goal_cell")
    env.reset(seed=SEED)
    env.kitchen.restore(random_snapshot(env.kitchen.layout, "old", np.random.default_rng(seed)))
    return env


def translated_state(model: ChatModel, layout: str, seed: int) -> Translation:
    """A random state in a chat model's words, checked.

    It is shown one piece of code and no manual, as a model of 8,000 tokens and one processor has no time for more.

    Args:
        model: The chat model.
        layout: The kitchen.
        seed: Of the state.

    Raises:
        ChatError: If there is no usable answer.
    """
    game = planning_game(random_kitchen(layout, seed))
    state = game.state()
    return translate(model, recorded_code("kitchen_source"), game.plain(state), partial(game.holds, state), pieces=1)


def translated_actions(model: ChatModel, layout: str, seed: int, agent: str) -> ActionWords:
    """Effects of a cook's primitive actions in a random state, in a chat model's words, checked.

    Args:
        model: The chat model.
        layout: The kitchen.
        seed: Of the state.
        agent: The cook.

    Raises:
        ChatError: If there is no usable answer.
    """
    game = planning_game(random_kitchen(layout, seed))
    state = game.state()
    actions = preparation_of(game).actions(state, agent)
    beside = preparation_of(game).beside(state, agent)
    return translate_actions(
        model, recorded_code("kitchen_source"), game.plain(state), agent, actions, beside=beside, pieces=1
    )


def reward_agreement(model: ChatModel, subgoal: str) -> Agreement | None:
    """Agreement of reward code that a chat model writes with the game's own test; `None` if none is usable.

    Args:
        model: The chat model.
        subgoal: A subgoal of the cramped room.
    """
    game = open_game(overcooked_ai.ENV_ID, {"layout": "cramped_room"})
    try:
        reward = write_reward(model, subgoal, game.plain(game.state()), agent="alice")
    except AnswerError as error:
        logger.info("No reward for %r: %s", subgoal, error)
        return None
    return measure_agreement(reward, game, subgoal, preparation_of(game).steps(_REWARD_STEPS))


def plan_figures(plans: Sequence[Plan | None]) -> dict[str, Any]:
    """Counts of the outcomes of plans.

    Args:
        plans: `None` where there was none.

    Returns:
        `plans` that were asked for, `made`, `subgoals` in those made, and of these the `replaced` ones: refused twice
        or not given out in a possible way, and so replaced by the nearest possible one; `refused`: first answers that
        named something unknown or impossible; `given_out_by_rules`: plans whose assignment was not the model's.
    """
    made = [plan for plan in plans if plan is not None]
    return {
        "plans": len(plans),
        "made": len(made),
        "subgoals": sum(len(plan.subgoals) for plan in made),
        "replaced": sum(sum(bool(refusal.instead) for refusal in plan.refused) for plan in made),
        "refused": sum(sum(not refusal.instead for refusal in plan.refused) for plan in made),
        "given_out_by_rules": sum(plan.answered_by.assignment == RULES for plan in made),
    }


def items(plans: int, states: int, actions: int, rewards: int) -> list[list[Any]]:
    """Items to record: a list of a task's name and its arguments, something of each task first.

    Args:
        plans: Plans per kitchen; one for each other way to ask.
        states: Random states per kitchen.
        actions: Random states per kitchen whose actions are translated.
        rewards: Subgoals, at most `len(REWARD_SUBGOALS)`.
    """
    first: list[list[Any]] = [["plans", how.layout, how.examples, how.objects, 1] for how in PLANS]
    said = [["states", layout, seed] for seed in range(states) for layout in LAYOUT_NAMES]
    done = [["actions", layout, seed, "alice"] for seed in range(actions) for layout in LAYOUT_NAMES]
    mixed = [item for group in zip_longest(first, said, done) for item in group if item is not None]
    mixed += [["rewards", subgoal] for subgoal in REWARD_SUBGOALS[:rewards]]
    return mixed + [["plans", layout, 1, True, count] for count in range(2, plans + 1) for layout in LAYOUT_NAMES]


def outcome(model: ChatModel, item: Sequence[Any]) -> dict[str, Any]:
    """Outcome of one item, as plain values.

    Args:
        model: The chat model, or a cassette.
        item: One of `items`.
    """
    task, *given = item
    if task == "plans":
        layout, examples, objects, count = given
        plans = list(played_plans(model, PlanRecording(layout, examples, objects), count))
        shown = [None if plan is None else {"goal": plan.goal, **plan.by_agent()} for plan in plans]
        return {**plan_figures(plans), "shown": shown}
    if task == "rewards":
        agreement = reward_agreement(model, *given)
        return {"usable": False} if agreement is None else {"usable": True, **vars(agreement)}
    try:
        found = translated_state(model, *given) if task == "states" else translated_actions(model, *given)
    except AnswerError:
        return {"usable": False}
    return {"usable": True, **{name: len(said) for name, said in vars(found).items()}}


def recorded(name: str) -> Path:
    """The path of a recording: of the package, or else one of the docs' results.

    Args:
        name: Its name without ending, such as "smollm2_plans".
    """
    shipped, there = recording(name), sorted(RECORDINGS.glob(f"{name}.jsonl*"))
    return shipped if shipped.is_file() else there[0] if there else RECORDINGS / f"{name}.jsonl"


def read_results(name: str) -> dict[str, Any]:
    """Results of a recording: `items`, each with its `outcome`.

    Args:
        name: Of the recording, such as "smollm2".
    """
    found: dict[str, Any] = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def summary(results: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The numbers of all outcomes of a task added up.

    Args:
        results: Result of `read_results`.
    """
    sums: dict[str, dict[str, int]] = {}
    # A longer episode begins with the plans of a shorter one.
    longest = {tuple(entry["item"][:4]): entry for entry in results["items"]}
    for entry in longest.values():
        task = sums.setdefault(entry["item"][0], {"items": 0})
        task["items"] += 1
        for name, value in entry["outcome"].items():
            if isinstance(value, int):
                task[name] = task.get(name, 0) + value
    return sums


def _record(name: str, settings: Mapping[str, Any], wanted: Sequence[Sequence[Any]], how: str = "") -> None:
    model, target = open_chat(settings), RECORDINGS / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    results: dict[str, Any] = {
        "model": getattr(model, "model", ""),
        "made": datetime.now(timezone.utc).date().isoformat(),
        "settings": settings,
        "note": how,
        "items": [],
    }
    for item in wanted:
        by = f"Recorded by `python -m {__package__}.recordings` with {json.dumps(settings)}"
        note = f"{by}; for {_FOR[item[0]]}. {how}".strip()
        tape = Cassette(recorded(f"{name}_{item[0]}"), model, note)
        results["items"].append({"item": item, "outcome": outcome(tape, item)})
        write_atomically(target, json.dumps(results))
        logger.info("%s", results["items"][-1])
    logger.info("%s", summary(results))


_FOR = {
    "plans": "plans at the start of episodes in the onion-soup kitchens",
    "states": "random states of the kitchens in words",
    "actions": "what a cook's primitive actions would do in random states, in words",
    "rewards": "reward code for subgoals of the cramped room",
}


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="smollm2", help="beginning of the cassettes' names")
    parser.add_argument("--note", default="", help="how the model was asked, if there is more to tell")
    parser.add_argument("--chat", default='{"local": "smollm2", "max_tokens": 200}', help="settings for open_chat")
    for what, number in (("plans", 1), ("states", 1), ("actions", 1), ("rewards", len(REWARD_SUBGOALS))):
        parser.add_argument(f"--{what}", type=int, default=number, help="how many; see `items`")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    wanted = items(given.plans, given.states, given.actions, given.rewards)
    _record(given.name, json.loads(given.chat), wanted, given.note)


if __name__ == "__main__":
    _main()
