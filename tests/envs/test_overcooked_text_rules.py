"""The rules of the textual kitchen: against recorded play of the original, and what we changed on purpose."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.golden import check_golden
from rllib_llm_comm.envs.overcooked_text import parallel_env
from rllib_llm_comm.envs.overcooked_text.actions import MacroRunner
from rllib_llm_comm.envs.overcooked_text.layouts import (
    DEFAULT_REWARDS,
    LAYOUTS,
    MAPS,
    RECIPES,
    nearest_free_counter,
    recipe_foods,
)
from rllib_llm_comm.envs.overcooked_text.rules import TextKitchen

GOLDEN = Path(__file__).parents[1] / "data" / "overcooked_text_golden.jsonl.gz"
RIGHT, DOWN, LEFT, UP, STAY = range(5)
STEP = DEFAULT_REWARDS["step"]


def do(kitchen, *actions):
    """Single steps of the first agent; the others stay."""
    outcomes = [kitchen.step([action] + [STAY] * (kitchen.num_agents - 1)) for action in actions]
    return outcomes[-1]


def play(runner, agent, *names):
    """Macro-actions of one agent to their ends; the others stay. Returns all rewards of that agent."""
    rewards = []
    for name in names:
        action = runner.names.index(name)
        for _ in range(60):
            outcome = runner.step([action if i == agent else 0 for i in range(runner.kitchen.num_agents)])
            rewards.append(outcome.rewards[agent])
            if runner.finished[agent] or outcome.done:
                break
        else:
            raise AssertionError(f"{name} does not end")
    return rewards


def alone(**settings):
    return TextKitchen(**{"map_name": "A", "num_agents": 1, **settings})


# ---- like the original -------------------------------------------------------------------------------


def test_all_recorded_episodes_of_the_original_are_reproduced():
    report = check_golden(GOLDEN)
    assert (report.episodes, report.steps) == (41, 3915)
    assert report.mismatch_count == 0, "\n".join(map(str, report.mismatches[:10]))
    assert report.ok


@pytest.mark.parametrize(("map_name", "layout", "num_agents"), list(itertools.product(MAPS, LAYOUTS, (1, 2, 3))))
def test_every_start_can_be_built(map_name, layout, num_agents):
    for recipe in RECIPES:
        if layout == "tomato" and recipe != "tomato salad":
            with pytest.raises(UserError, match="`recipe`.*has no"):
                parallel_env(map_name=map_name, layout=layout, recipe=recipe, num_agents=num_agents)
            continue
        kitchen = TextKitchen(map_name, layout, recipe, num_agents)
        plates, boards = (2, 2) if layout == "full" else (1, 2 if layout == "oneplate" else 1)
        foods = 1 if layout == "tomato" else 3
        assert (len(kitchen.plates), len(kitchen.knives), len(kitchen.foods)) == (plates, boards, foods)
        size = 3 * foods + 2 * (plates + boards + 1 + num_agents) + 7
        assert len(kitchen.seen_vector(0)) == len(kitchen.memory_vector(0)) == size
        assert [agent.name for agent in kitchen.agents] == [f"agent{k + 1}" for k in range(num_agents)]
        check_invariants(kitchen)


def test_starts_of_twosomes_single_cook():
    assert (alone(layout="tomato", recipe="tomato salad").agents[0].y, alone().agents[0].y) == (4, 2)
    assert alone(map_name="B", layout="oneplate").agents[0].y == 2


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_can_be_cooked_and_pays(recipe):
    runner = MacroRunner(alone(recipe=recipe))
    foods = recipe_foods(recipe)
    rewards = []
    for board, food in enumerate(foods[:2], 1):
        rewards += play(runner, 0, f"get {food}", f"go to knife {board}", "chop")
    rewards += play(runner, 0, "get plate 1", *[f"get {food}" for food in foods[:2]])
    for food in foods[2:]:
        rewards += play(runner, 0, "go to knife 2", f"get {food}", "go to knife 1", "chop")
        rewards += play(runner, 0, "get tomato")  # takes the chopped food off the board
        rewards += play(runner, 0, "get plate 1")
    rewards += play(runner, 0, "deliver")
    assert runner.kitchen.delivered
    steps = runner.kitchen.game_step
    assert sum(rewards) == pytest.approx(0.2 * len(foods) + 1 + steps * STEP)


def test_a_wrong_delivery_costs_and_puts_everything_back_raw():
    runner = MacroRunner(alone(recipe="lettuce salad"))
    rewards = play(runner, 0, "get tomato", "go to knife 1", "chop", "get plate 1", "get tomato", "deliver")
    kitchen = runner.kitchen
    assert not kitchen.delivered
    assert rewards[-1] == pytest.approx(STEP - 0.1)
    assert max(rewards) < 0  # chopping a food that the recipe does not need pays nothing
    tomato, plate = kitchen.foods["tomato"], kitchen.plates[0]
    assert (tomato.x, tomato.y, tomato.chops) == (0, 5, 0)
    assert (plate.x, plate.y, plate.contents) == (5, 6, [])
    check_invariants(kitchen)


# ---- what we changed on purpose ----------------------------------------------------------------------


def throw_away_loop(**settings):
    """Chops the tomato, serves it bare (wrong) and chops it again; returns the rewards of both chops."""
    runner = MacroRunner(alone(recipe="tomato salad", **settings))
    chops = []
    for _ in range(2):
        play(runner, 0, "get tomato", "go to knife 1")
        chops.append(max(play(runner, 0, "chop")))
        play(runner, 0, "get tomato", "deliver")
    return chops


def test_a_food_pays_its_chop_once_an_episode():
    assert throw_away_loop() == pytest.approx([0.2 + STEP, STEP])
    assert throw_away_loop(chop_pays_once=False) == pytest.approx([0.2 + STEP, 0.2 + STEP])
    assert throw_away_loop(legacy=True) == pytest.approx([0.2 + STEP, 0.2 + STEP])
    runner = MacroRunner(alone(recipe="tomato salad"))
    for _ in range(2):
        runner.reset()
        assert max(play(runner, 0, "get tomato", "go to knife 1", "chop")) == pytest.approx(0.2 + STEP)


def beside_each_other(**settings):
    """Agents at (1, 3) and (1, 4)."""
    kitchen = TextKitchen("A", **settings)
    kitchen.step([RIGHT, STAY, STAY][: kitchen.num_agents])
    return kitchen


@pytest.mark.parametrize(
    ("settings", "paid"),
    [({}, [0.01, 0.0]), ({"shared_collision": True}, [0.01, 0.01]), ({"legacy": True}, [0.0, 0.0])],
)
def test_the_blocked_agent_pays_for_a_collision_unless_told_otherwise(settings, paid):
    outcome = beside_each_other(**settings).step([RIGHT, STAY])
    assert outcome.blocked == [0] and outcome.events == [["blocked"], []]
    assert outcome.rewards == pytest.approx([STEP - one for one in paid])


def test_two_blocked_agents_pay_each():
    kitchen = TextKitchen("A", num_agents=3)
    state = kitchen.snapshot()
    grid = [list(row) for row in state["grid"]]
    for x, y, code in ((1, 2, "0"), (1, 4, "0"), (5, 2, "0"), (3, 2, "2"), (3, 3, "2"), (3, 4, "2")):
        grid[x][y] = code
    state["grid"] = ["".join(row) for row in grid]
    state["agents"] = [[3, 2, None], [3, 3, None], [3, 4, None]]
    del state["memory"]
    kitchen.restore(state)
    outcome = kitchen.step([RIGHT, STAY, LEFT])
    assert outcome.blocked == [0, 2]
    assert outcome.rewards == pytest.approx([STEP - 0.01, STEP, STEP - 0.01])


@pytest.mark.parametrize(("actions", "swaps"), [([RIGHT, LEFT], [(0, 1)]), ([RIGHT, RIGHT], []), ([UP, STAY], [])])
def test_swapping_following_and_touching_furniture_are_no_collisions(actions, swaps):
    outcome = beside_each_other().step(actions)
    assert outcome.blocked == [] and outcome.swaps == swaps
    assert outcome.rewards == pytest.approx([STEP, STEP])


def test_what_returns_to_an_occupied_place_is_put_beside_it():
    def onto_occupied(legacy):
        kitchen = alone(recipe="lettuce salad", legacy=legacy)
        # The tomato starts at (0, 5). Take it, put the lettuce there, serve the raw tomato.
        do(kitchen, RIGHT, RIGHT, RIGHT, UP)  # at (1, 5) with the tomato
        do(kitchen, DOWN, DOWN, LEFT, LEFT, LEFT, LEFT, DOWN, LEFT)  # at (4, 1), tomato put on (4, 0)
        assert kitchen.foods["tomato"].cell == 28
        do(kitchen, UP, RIGHT, RIGHT, RIGHT, RIGHT, UP, UP, RIGHT)  # lettuce in hand at (1, 5)
        assert kitchen.agents[0].held is kitchen.foods["lettuce"]
        do(kitchen, UP)
        do(kitchen, DOWN, DOWN, LEFT, LEFT, LEFT, LEFT, DOWN, LEFT)
        outcome = do(kitchen, UP, LEFT)
        assert outcome.events == [["wrong_delivery"]]
        return kitchen

    kitchen = onto_occupied(legacy=True)
    assert kitchen.foods["tomato"].cell == kitchen.foods["lettuce"].cell == 5
    kitchen = onto_occupied(legacy=False)
    assert kitchen.foods["lettuce"].cell == 5 and kitchen.foods["tomato"].cell == 4
    assert kitchen.grid[0][4] == 3
    check_invariants(kitchen)


def test_status_of_unseen_food_decays_in_legacy_mode_only():
    for legacy, remembered in ((True, 1 / 27), (False, 1.0)):
        runner = MacroRunner(alone(legacy=legacy), include_moves=True)
        play(runner, 0, "get tomato", "go to knife 1", "chop", "right", "right", "right", "right")
        belief = runner.kitchen.beliefs[0]
        assert belief.where("tomato") == (1, 0)
        assert belief.food_status("tomato") == pytest.approx(remembered)


def test_no_macro_action_runs_after_what_was_carried_away():
    runner = MacroRunner(TextKitchen("A"), include_moves=True, wait_steps=1)
    get = runner.names.index("get tomato")
    play(runner, 1, "get tomato")
    assert runner.preview(0, get).kind == "pick_up"  # nothing was seen of it
    play(runner, 1, "left")
    assert runner.kitchen.visible(0, *divmod(runner.kitchen.foods["tomato"].cell, 7))
    play(runner, 0, "left")
    assert runner.kitchen.beliefs[0].where("tomato") == (1, 4)  # in bob's hand, out of sight now
    assert runner.preview(0, get).kind == "none"
    play(runner, 0, "get tomato")
    assert runner.kitchen.agents[0].cell == 8


def test_waiting_ends_when_another_cook_is_seen_doing_something():
    runner = MacroRunner(TextKitchen("A"))
    stay, tomato = 0, runner.names.index("get tomato")
    runner.step([stay, stay])
    assert runner.finished == [False, False]
    for _ in range(3):
        runner.step([None, None])
    assert runner.finished == [True, True]
    runner = MacroRunner(TextKitchen("A", view_radius=0))
    for expected in (False, True):
        runner.step([stay, tomato])
        assert runner.finished[0] is expected
    assert runner.kitchen.agents[1].held.name == "tomato"


# ---- state -------------------------------------------------------------------------------------------


def check_invariants(kitchen):
    """Every object is in exactly one place, and the grid tells the same."""
    places = {name: [] for name in kitchen.items}
    for agent in kitchen.agents:
        assert kitchen.skeleton[agent.cell] == 0 and kitchen.cells[agent.cell] == 2
        if agent.held:
            places[agent.held.name].append(("held", agent.cell))
    assert len({agent.cell for agent in kitchen.agents}) == kitchen.num_agents
    for surface in (*kitchen.knives, kitchen.delivery):
        assert kitchen.cells[surface.cell] == surface.code
        if surface.on:
            places[surface.on.name].append(("on", surface.cell))
    for plate in kitchen.plates:
        for food in plate.contents:
            assert food.chopped
            places[food.name].append(("in", plate.cell))
    for cell, code in enumerate(kitchen.cells):
        if code in (3, 4, 5, 8):
            here = [item for item in kitchen.items.values() if item.cell == cell and item.code == code]
            (lying,) = [item.name for item in here if not places[item.name]]
            places[lying].append(("counter", cell))
        elif code == 2:
            assert any(agent.cell == cell for agent in kitchen.agents)
    for name, found in places.items():
        assert len(found) == 1, (name, found)
        assert found[0][1] == kitchen.items[name].cell
    for food in kitchen.foods.values():
        assert 0 <= food.chops <= 3


settings = st.fixed_dictionaries(
    {
        "map_name": st.sampled_from("ABC"),
        "layout": st.sampled_from(["full", "oneplate"]),
        "recipe": st.sampled_from(RECIPES),
        "num_agents": st.integers(1, 3),
        "view_radius": st.integers(0, 3),
    }
)


@pytest.mark.parametrize("level", ["macro-actions", "single steps"])
@given(settings, st.integers(0, 10**6))
def test_random_play_keeps_everything_in_one_place(level, chosen, seed):
    rng = random.Random(seed)
    runner = MacroRunner(TextKitchen(**chosen), include_moves=True)
    player, actions = runner, range(len(runner.macros))
    if level == "single steps":
        player, actions = runner.kitchen, (0, 1, 2, 3, 3, 0, 4)
    for _ in range(200):
        player.step([rng.choice(actions) for _ in range(chosen["num_agents"])])
        check_invariants(runner.kitchen)
        if runner.kitchen.delivered:
            runner.reset()


@given(settings, st.integers(0, 10**6), st.booleans())
def test_a_restored_snapshot_goes_on_in_the_same_way(chosen, seed, legacy):
    rng = random.Random(seed)
    runner = MacroRunner(TextKitchen(**chosen, legacy=legacy), include_moves=True)
    count = chosen["num_agents"]
    for _ in range(rng.randrange(80)):
        runner.step([rng.randrange(len(runner.macros)) for _ in range(count)])
        if runner.kitchen.delivered:
            runner.reset()
    twin = MacroRunner(runner.kitchen.copy(), include_moves=True)
    twin.restore(runner.snapshot())
    assert twin.kitchen is not runner.kitchen
    for _ in range(30):
        actions = [rng.randrange(len(runner.macros)) for _ in range(count)]
        one, two = runner.step(actions), twin.step(actions)
        assert one == two
        assert runner.snapshot() == twin.snapshot()


def test_a_golden_state_without_memory_can_be_restored():
    kitchen = TextKitchen("A")
    do(kitchen, DOWN, DOWN)
    state = kitchen.snapshot()
    for key in ("memory", "game_step", "delivered", "paid"):
        del state[key]
    twin = TextKitchen("A")
    twin.restore(state)
    assert (twin.agents[0].x, twin.agents[0].y) == (3, 2)
    assert twin.beliefs[1].where("agent1") == (3, 2)


def test_the_nearest_free_counter_has_floor_before_it():
    kitchen = TextKitchen("A")
    assert nearest_free_counter(kitchen.cells, kitchen.skeleton, 5) == 4
    assert nearest_free_counter(kitchen.cells, kitchen.skeleton, 48) not in (48, 0, 6, 42)
