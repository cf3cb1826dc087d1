"""Kitchens in which only soups from one pot pay, and not every cook is told which."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_play import golden, same, story

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.interface import EPISODE_METRICS, PRIVATE
from rllib_llm_comm.envs.overcooked_ai import ENV_ID, parallel_env
from rllib_llm_comm.envs.overcooked_ai.checker import check_sentence
from rllib_llm_comm.envs.overcooked_ai.kernel import EVENTS, INTERACT
from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, LAYOUT_NAMES
from rllib_llm_comm.envs.overcooked_ai.observations import SLOTS, num_symbols
from rllib_llm_comm.envs.overcooked_ai.places import places_of
from rllib_llm_comm.envs.overcooked_ai.planner import CookWalker, plan
from rllib_llm_comm.envs.overcooked_ai.recipes import SOUP_REWARD

PARTS = ["vector", "text", "planes", "state", "entities"]
KITCHENS = [name for name in LAYOUT_NAMES if name != "cramped_room"]
SECRET = {"layout": "forced_coordination", "wanted": "pot", "told_to": ["bob"]}
THREE = ["XPXPX", "O1 2P", "XDXSX"]


def by_pot(**own):
    """Per wanted pot the environment at its start, and what `reset` gave."""
    found = {}
    for seed in range(60):
        env = parallel_env(**own)
        result = env.reset(seed=seed)
        found.setdefault(env.kitchen.wanted.name, (env, *result))
        if len(found) == len(env.kitchen.wanted.names):
            return found
    raise AssertionError("a pot is not drawn")


class Cooks:
    """Two planners that use the same pots, with random steps among theirs."""

    def __init__(self, env, seed=0, noise=0.0):
        self.env, self.rng, self.noise = env, np.random.default_rng(seed), noise
        self.walkers = [CookWalker(env.kitchen, player) for player in range(2)]

    def step(self, pots):
        tasks = plan(self.env.kitchen, pots)
        actions = [walker.action(task.cell) for walker, task in zip(self.walkers, tasks, strict=True)]
        for player in range(2):
            if self.rng.random() < self.noise:
                actions[player] = int(self.rng.choice([0, 1, 2, 3, INTERACT, INTERACT]))
        return self.env.step(dict(zip(self.env.agents, actions, strict=True)))


# ---- contracts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "dynamics", "level", "vector"),
    [
        ("cramped_room", "old", "primitive", "features"),
        ("forced_coordination", "old", "goal", "planes"),
        ("coordination_ring", "new", "primitive", "features"),
        ("counter_circuit", "old", "goal_cell", "features"),
    ],
)
def test_without_a_wanted_pot_random_play_is_as_before_it_came(layout, dynamics, level, vector):
    own = {"layout": layout, "dynamics": dynamics, "action_level": level, "vector": vector}
    env = parallel_env(**own, observe=PARTS, horizon=60, shaping=0.5)
    told = [f"task: {env.task}", f"brief: {env.brief}", *story(env)]
    assert told == golden(f"{layout}, {dynamics}, {level}, {vector}") and env.meaning("use the pot") is None


# ---- what is drawn -----------------------------------------------------------------------------------


def test_told_are_agents_not_players():
    env = parallel_env(**{**SECRET, "layout": "asymmetric_advantages"}, swap_roles=True, observe=["vector"])
    roles = set()
    for seed in range(12):
        observations, infos = env.reset(seed=seed)
        roles.add(env.players["bob"])
        assert infos["alice"][PRIVATE] is None and infos["bob"][PRIVATE] == env.kitchen.wanted.name
        assert observations["bob"]["vector"][-6:].sum() == 1 and not observations["alice"]["vector"][-6:].any()
    assert roles == {0, 1}


# ---- who sees it -------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["primitive", "goal_cell", "goal"])
@pytest.mark.parametrize("layout", [*KITCHENS, THREE], ids=str)
@pytest.mark.parametrize("told", ["alice", "bob"])
def test_what_an_untold_cook_observes_at_the_start_is_the_same_for_every_pot(told, layout, level):
    for vector in ("features", "planes"):
        untold, knowing, own = [], [], {"action_level": level, "observe": PARTS, "vector": vector}
        found = by_pot(layout=layout, wanted="pot", told_to=[told], **own)
        for env, observations, infos in found.values():
            for agent, observation in observations.items():
                assert env.observation_space(agent).contains(observation)
                (knowing if agent == told else untold).append(observation)
                assert infos[agent][PRIVATE] == (env.kitchen.wanted.name if agent == told else None)
        assert all(same(untold[0], other, besides=["state"]) for other in untold)
        assert not any(same(knowing[0], other, besides=["state", key]) for other in knowing[1:] for key in PARTS)
        assert not any(np.array_equal(untold[0]["state"], other["state"]) for other in untold[1:])


def test_who_is_told_finds_the_pot_in_every_part():
    for name, (env, observations, _) in by_pot(**SECRET, observe=PARTS).items():
        wanted, bob = env.kitchen.wanted, observations["bob"]
        x, y = wanted.pot
        assert f"Only soup from the {name} brings points." in bob["text"]
        assert "Only soup from one of the pots brings points" in observations["alice"]["text"]
        assert bob["vector"][-6:].tolist() == [float(pot == wanted.pot) for pot in wanted.pots] + [0.0] * 4
        assert np.argwhere(bob["planes"][..., 26]).tolist() == [[x, y]] and not bob["planes"][..., 27].any()
        marked = bob["entities"][..., SLOTS.index("self")]  # the own slot comes before the last
        assert np.argwhere(marked).tolist() == [[y, x]] and marked[y, x] == num_symbols(env.kitchen.layout)
        assert "the upper pot or the right pot, and only bob is told which." in bob["manual"]


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.sampled_from(KITCHENS))
def test_what_an_untold_cook_observes_later_depends_on_the_pot_by_deliveries_only(seed, layout):
    envs = [parallel_env(layout=layout, wanted="pot", told_to=["bob"], observe=PARTS) for _ in range(2)]
    for env, number in zip(envs, range(2), strict=True):
        env.reset(seed=seed)
        env.kitchen.wanted.pot = env.kitchen.wanted.pots[number]
    pairs = [Cooks(env, seed, noise=0.1) for env in envs]
    for _ in range(150):
        results = [cooks.step(env.kitchen.wanted.pots) for env, cooks in zip(envs, pairs, strict=True)]
        if any("soup_delivery" in info["events"] for info in results[0][4].values()):
            break
        assert same(results[0][0]["alice"], results[1][0]["alice"], besides=["state"])
    assert envs[0].kitchen.time > 20


# ---- what pays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", KITCHENS)
def test_only_soups_from_the_wanted_pot_pay(layout):
    scores = {}
    for right in (True, False):
        env = parallel_env(layout=layout, wanted="pot", horizon=150, observe=["text"])
        env.reset(seed=1)
        wanted, cooks, earned, delivered = env.kitchen.wanted, Cooks(env), 0.0, 0
        pots = [pot for pot in wanted.pots if (pot == wanted.pot) == right]
        while env.agents:
            observations, rewards, _, _, infos = cooks.step(pots)
            earned += rewards["alice"]
            delivered += sum("soup_delivery" in info["events"] for info in infos.values())
        metrics = infos["bob"][EPISODE_METRICS]
        scores[right] = delivered
        assert delivered >= 2
        assert earned == metrics["score"] == (SOUP_REWARD * delivered if right else 0)
        assert metrics["unpaid_soups"] == (0 if right else delivered)
        assert ("No soup is delivered yet." in observations["alice"]["text"]) != right


def carry(cooks, player, cell):
    """Lets one cook go to a cell and use it, as the other walks about."""
    walker, env = cooks.walkers[player], cooks.env
    while env.agents:
        action, held = walker.action(cell), env.kitchen.cook(player).held
        actions = [action, int(cooks.rng.integers(4))] if player == 0 else [int(cooks.rng.integers(4)), action]
        result = env.step(dict(zip(env.agents, actions, strict=True)))
        if action == INTERACT and env.kitchen.cook(player).held != held:
            return result
    raise AssertionError(f"the cook did not get to {cell}")


@pytest.mark.parametrize("right", [True, False])
def test_a_soup_keeps_its_pot_when_it_is_handed_over(right):
    env = parallel_env(layout="coordination_ring", wanted="pot", observe=PARTS)
    env.reset(seed=0)
    wanted, cooks, places = env.kitchen.wanted, Cooks(env), places_of(env.kitchen.layout)
    pot = next(pot for pot in wanted.pots if (pot == wanted.pot) == right)
    while not wanted.origins:
        cooks.step([pot])
    holder = next(p for p in range(2) if (held := env.kitchen.cook(p).held) and held.kind == "soup")
    assert wanted.origins == {holder: pot}
    shared = set.intersection(*(set(places.reachable(start)) for start in env.kitchen.layout.starts))
    free = [cell for cell in places.fixtures[COUNTER] if env.kitchen.item(cell) is None and cell in shared]
    counter = free[0]
    observations = carry(cooks, holder, counter)[0]
    assert wanted.origins == {counter: pot}
    assert f"The soup on {places.phrases[counter]} is from {places.phrases[pot]}." in observations["alice"]["text"]
    assert observations["bob"]["planes"][(*counter, 27)] == wanted.pots.index(pot) + 1
    symbol = num_symbols(env.kitchen.layout) + 1 + wanted.pots.index(pot)
    assert observations["bob"]["entities"][counter[1], counter[0], SLOTS.index("self")] == symbol
    if env.kitchen.cook(1 - holder).held is not None:
        carry(cooks, 1 - holder, free[1])
    observations = carry(cooks, 1 - holder, counter)[0]
    assert wanted.origins == {1 - holder: pot}
    taker = env.possible_agents[1 - holder]
    assert f"Your soup is from {places.phrases[pot]}." in observations[taker]["text"]
    assert observations[taker]["vector"][-4:-2].tolist() == [float(pot == one) for one in wanted.pots]
    rewards = carry(cooks, 1 - holder, env.kitchen.layout.cells(5)[0])[1]
    assert rewards == dict.fromkeys(env.possible_agents, SOUP_REWARD if right else 0.0) and not wanted.origins


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from([*KITCHENS, THREE]))
def test_the_pot_of_every_soup_is_known_and_of_nothing_else(seed, layout):
    env = parallel_env(layout=layout, wanted="pot", wanted_anew=True, observe=["text"])
    env.reset(seed=seed)
    kitchen, cooks = env.kitchen, Cooks(env, seed, noise=0.3)
    paid = 0.0
    for _ in range(250):
        wanted = kitchen.wanted.pot
        _, rewards, _, _, infos = cooks.step(kitchen.wanted.pots)
        held = {player for player in range(2) if (item := kitchen.cook(player).held) and item.kind == "soup"}
        counters = [cell for cell in kitchen.layout.cells(COUNTER) if (i := kitchen.item(cell)) and i.kind == "soup"]
        assert set(kitchen.wanted.origins) == held | set(counters)
        assert kitchen.wanted.pot == wanted or rewards["alice"]
        paid += rewards["alice"]
    metrics = infos["alice"][EPISODE_METRICS]
    assert metrics["score"] == paid == SOUP_REWARD * metrics["soups"]


def test_the_next_pot_is_drawn_after_each_soup_that_pays():
    def pots(told_to, seed):
        env = parallel_env(**{**SECRET, "told_to": told_to}, wanted_anew=True, horizon=400)
        observations, infos = env.reset(seed=seed)
        cooks, found = Cooks(env), [env.kitchen.wanted.name]
        while env.agents:
            observations, rewards, _, _, infos = cooks.step(None)
            if rewards["alice"]:
                found.append(env.kitchen.wanted.name)
                assert f"Only soup from the {found[-1]} brings points." in observations["bob"]["text"]
                assert infos["bob"][PRIVATE] == found[-1]
        assert infos["bob"][EPISODE_METRICS]["unpaid_soups"] == 0
        return found

    first = pots("all", 2)
    assert len(first) > 5 and set(first) == {"upper pot", "right pot"}
    assert first[:6] == pots(["bob"], 2)[:6]
    assert any(one == two for one, two in zip(first, first[1:], strict=False))


def test_events_and_shaped_rewards_do_not_tell_the_pot():
    seen = []
    for number in range(2):
        env = parallel_env(layout="forced_coordination", wanted="pot", shaping=1.0, observe=["vector"], horizon=120)
        env.reset(seed=0)
        env.kitchen.wanted.pot = env.kitchen.wanted.pots[number]
        cooks, pots, log = Cooks(env), env.kitchen.wanted.pots[:1], []
        while env.agents:
            _, _, _, _, infos = cooks.step(pots)
            log.append([infos[agent]["events"] for agent in infos])
        seen.append((log, infos["alice"][EPISODE_METRICS]["shaped"]))
    assert seen[0] == seen[1] and any("soup_delivery" in events for step in seen[0][0] for events in step)
    assert {name for step in seen[0][0] for events in step for name in events} <= set(EVENTS)


# ---- the rest ----------------------------------------------------------------------------------------


def test_pictures_tell_the_pot():
    env = parallel_env(**SECRET)
    env.reset(seed=0)
    first = env.render("ansi").splitlines()[0]
    assert first == f"forced_coordination, step 0 of 400, score 0, wanted: {env.kitchen.wanted.name} (told to bob)"
    assert env.render("rgb_array").shape == (5 * 64 + 32, 5 * 64, 3)


def test_the_checker_of_sentences_does_not_judge_what_it_does_not_know():
    env = parallel_env(**SECRET)
    env.reset(seed=0)
    for sentence in (
        "Only soup from the upper pot brings points.",
        "Only soup from one of the pots brings points, and you are not told which.",
        "Alice's soup is from the upper pot.",
        "The soup on shared counter 1 is from the upper pot.",
    ):
        assert check_sentence(env.kitchen, sentence, 0, speaker=0) is None


def test_what_does_not_know_the_wanted_pot_refuses_it():
    from rllib_llm_comm.baselines.population.self_play_ppo import SelfPlayPPOConfig
    from rllib_llm_comm.sama.games.overcooked_ai import KitchenPlanning

    for refuses in (
        lambda: KitchenPlanning(parallel_env(**SECRET)),
        lambda: SelfPlayPPOConfig().environment(ENV_ID, env_config=SECRET).validate(),
    ):
        with pytest.raises(UserError, match="wanted` is"):
            refuses()
