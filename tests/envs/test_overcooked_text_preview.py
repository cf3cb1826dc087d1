"""What an action is said to do is what it does."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.envs.overcooked_text.actions import MacroRunner, PrimitiveRunner
from rllib_llm_comm.envs.overcooked_text.rules import TextKitchen

PATIENCE = 40


@st.composite
def kitchens(draw):
    """A kitchen after some random play, with macro-actions first and single steps then."""
    kitchen = TextKitchen(
        map_name=draw(st.sampled_from("ABC")),
        layout=draw(st.sampled_from(["full", "oneplate"])),
        recipe=draw(st.sampled_from(["tomato salad", "lettuce-tomato salad"])),
        num_agents=draw(st.integers(1, 3)),
        view_radius=draw(st.integers(0, 3)),
    )
    rng = random.Random(draw(st.integers(0, 10**6)))
    runner = MacroRunner(kitchen, include_moves=True)
    for _ in range(draw(st.integers(0, 120))):
        useful = [
            [k for k in range(len(runner.macros)) if runner.preview(i, k).kind not in ("none", "deliver")]
            for i in range(kitchen.num_agents)
        ]
        runner.step([rng.choice(options) for options in useful])
    for _ in range(draw(st.integers(0, 30))):
        kitchen.step([rng.randrange(5) for _ in kitchen.agents])
        if kitchen.delivered:
            kitchen.reset()
    return kitchen


def knows_the_truth(kitchen, agent):
    """Whether everything is where the agent believes it, and as it believes it."""
    belief = kitchen.beliefs[agent]
    placed = all(belief.cell(thing.name) == thing.cell for thing in kitchen.things)
    return placed and all(abs(belief.food_status(food.name) - food.chops / 3) < 1e-9 for food in kitchen.foods.values())


def carry_out(kitchen, agent, action):
    """Events and place of an agent that does one macro-action while the others stand still."""
    runner = MacroRunner(kitchen.copy(), include_moves=True)
    events = []
    for _ in range(PATIENCE):
        actions = [action if i == agent else 0 for i in range(kitchen.num_agents)]
        outcome = runner.step(actions)
        events += outcome.events[agent]
        if runner.finished[agent]:
            break
    return runner, events


def expected_events(effect, kitchen):
    if effect.kind in ("none", "wait", "walk", "move"):
        return []
    if effect.kind == "deliver":
        return ["correct_delivery" if effect.correct else "wrong_delivery"]
    if effect.kind == "chop":
        cuts = 3 - kitchen.foods[effect.item].chops
        return [f"chop {effect.item}"] * cuts + [f"chopped {effect.item}"]
    events = [f"{effect.kind} {effect.item}"]
    if effect.kind == "add_to_plate" and effect.takes_plate and effect.place == "counter":
        events.append(f"pick_up {effect.plate}")
    return events


@given(kitchens())
def test_macro_actions_do_what_is_said(kitchen):
    for agent in range(kitchen.num_agents):
        if not knows_the_truth(kitchen, agent):
            continue
        names = MacroRunner(kitchen, include_moves=True).names
        for action, name in enumerate(names):
            effect = MacroRunner(kitchen, include_moves=True).preview(agent, action)
            runner, events = carry_out(kitchen, agent, action)
            cook = runner.kitchen.agents[agent]
            if "blocked" in events or (not runner.finished[agent] and kitchen.num_agents > 1):
                assert set(events) <= {"blocked"}
                continue  # another cook stands in the way for ever
            assert events == expected_events(effect, kitchen), (name, effect)
            assert runner.finished[agent], (name, effect)
            if effect.kind in ("none", "wait"):
                assert cook.cell == kitchen.agents[agent].cell, (name, effect)
            if effect.kind in ("walk", "move"):
                away = abs(cook.x - effect.cell[0]) + abs(cook.y - effect.cell[1])
                assert away == (1 if effect.kind == "walk" else 0), (name, effect)
            if effect.kind == "add_to_plate":
                plate = runner.kitchen.items[effect.plate]
                assert runner.kitchen.items[effect.item] in plate.contents
                assert (cook.held is plate) == (effect.into_held or effect.takes_plate)


@given(kitchens())
def test_primitive_actions_do_what_is_said(kitchen):
    runner = PrimitiveRunner(kitchen)
    for agent in range(kitchen.num_agents):
        for action in range(runner.num_actions):
            effect = runner.preview(agent, action)
            copy = kitchen.copy()
            outcome = copy.step([action if i == agent else 4 for i in range(kitchen.num_agents)])
            events = [event for event in outcome.events[agent] if event != "blocked"]
            if effect.kind == "chop":
                assert events[0] == f"chop {effect.item}"
            elif effect.kind == "add_to_plate":
                assert events == [f"add_to_plate {effect.item}"]
            else:
                assert events == expected_events(effect, kitchen)
            moved = copy.agents[agent].cell != kitchen.agents[agent].cell
            assert moved == (effect.kind == "move")
            if effect.kind in ("none", "wait"):
                ours, theirs = copy.snapshot(), kitchen.snapshot()
                assert all(ours[part] == theirs[part] for part in ("grid", "foods", "plates", "agents"))


@given(kitchens(), st.data())
def test_an_agent_learns_nothing_from_previews_that_it_does_not_see_or_remember(kitchen, data):
    """Changing what is out of sight changes no preview."""
    agent = data.draw(st.integers(0, kitchen.num_agents - 1))
    seen, cells = kitchen.sight(agent), kitchen.cells
    hidden = [food for food in kitchen.foods.values() if not seen[food.cell] and cells[food.cell] == food.code]
    free = [cell for cell in range(49) if cells[cell] == 1 and not seen[cell]]
    if not hidden or not free:
        return
    runner = MacroRunner(kitchen)
    before = [runner.preview(agent, action) for action in range(len(runner.macros))]
    food, cell = data.draw(st.sampled_from(hidden)), data.draw(st.sampled_from(free))
    kitchen.cells[food.cell], kitchen.cells[cell] = 1, food.code
    food.cell, food.chops = cell, 3 - food.chops
    assert [runner.preview(agent, action) for action in range(len(runner.macros))] == before
