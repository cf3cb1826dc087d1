"""PBT and COLE in the lever game: populations agree inside and not with strangers; who learns about the odd one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from lever_game import LEVERS, ROUNDS, blind, favourite, learned, on_lever, played, score, seeing

from rllib_llm_comm.baselines.population.cole import COLEPopulation, COLESettings, shapley_values
from rllib_llm_comm.baselines.population.pbt import PBTAgent, PBTPopulation, fitness


def population(seed: int, iterations: int = 3, agents: int = 3) -> PBTPopulation:
    """A population of blind players after PBT; games for the fitness are computed exactly."""
    generator = torch.Generator().manual_seed(seed)
    first = [PBTAgent(blind(generator), 0, {"lr": 1.0, "lambda_": 0.98}) for _ in range(agents)]
    whole = PBTPopulation(first, seed)
    for _ in range(iterations):
        while whole.rounds:
            states = []
            for partner, learner in whole.rounds[0]:
                frozen, own = whole.agents[partner].state, whole.agents[learner]
                states.append(learned(own.state, lambda now=frozen: [now], 5, generator, own.settings["lr"]))
            whole.learned(states)
        points = np.array([[ROUNDS * score(a.state, b.state) for b in whole.agents] for a in whole.agents])
        played_steps = np.full((agents, agents), float(ROUNDS))
        players = [agent.state for agent in whole.agents]
        whole.select(fitness(points, played_steps), fitness(points, played_steps), players, 0.33, (0.75, 1.25))
    return whole


def test_pbt_agrees_inside_and_not_with_strangers():
    ends = [[agent.state for agent in population(seed).agents] for seed in range(4)]
    for players in ends:
        assert min(score(a, b) for a in players for b in players) >= 0.95
    strangers = [(a, b) for a, b in combinations(ends, 2) if favourite(a[0]) != favourite(b[0])]
    assert len(strangers) >= 3
    for some, others in strangers:
        assert max(score(a, b) for a in some for b in others) < 0.1


def test_pbt_goes_on_from_the_middle_of_an_iteration():
    """The rest of an iteration is the same from a copy of the state: orders, mutations and who is overwritten."""

    def rest(whole: PBTPopulation) -> list:
        while whole.rounds:
            whole.learned([f"{whole.agents[j].state}<{whole.agents[i].state}" for i, j in whole.rounds[0]])
        worst = whole.select(np.array([1.0, 3.0, 2.0]), np.array([1.0, 3.0, 2.0]), "xyz", 0.5, (0.75, 1.25))
        return [worst, whole.agents, whole.rounds, whole.best]

    def fresh(seed: int) -> PBTPopulation:
        return PBTPopulation([PBTAgent(name, 0, {"lr": 1.0, "num_epochs": 4}) for name in "abc"], seed)

    one, other = fresh(0), fresh(1)
    one.learned(["a2", "b2", "c2"])
    other.set_state(one.get_state())
    assert rest(other) == rest(one)


class Uniform(COLEPopulation):
    """The ablation: all members are drawn alike."""

    def weights(self) -> np.ndarray:
        return np.ones(len(self.members))


def cole(seed: int, generations: int, kind: type = COLEPopulation, **choices) -> tuple[list[float], list[float]]:
    """Points per round of a seeing learner with the odd member and with the others, after each generation.

    The members it begins with are four that choose one lever and one that chooses another.
    """
    rules = COLESettings(initial_size=4, most_members=50, runs_per_generation=5, drawn_partners=3, **choices)
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    common, odd = (on_lever(int(lever)) for lever in rng.choice(LEVERS, 2, replace=False))

    def mean(one: torch.Tensor, other: torch.Tensor) -> float:
        return ROUNDS * float(played(one, other, 32, generator)[0].mean())

    whole = kind(rules, common, mean(common, common), seed)
    members = [common] * 4 + [odd]
    payoffs = np.array([[mean(a, b) for b in members] for a in members])
    values = shapley_values(payoffs, rules.marginals)
    whole.set_state({**whole.get_state(), "members": members, "payoffs": payoffs, "values": values, "visits": [0] * 5})
    learner, with_odd, with_common = seeing(), [], []
    for _ in range(generations):
        done = False
        while not done:
            partners = [learner, *(whole.members[number] for number in whole.draw_partners())]
            learner = learned(learner, lambda now=partners: now, 5, generator, lr=0.3)
            done = whole.run_is_done()
        row = [mean(learner, member) for member in whole.members]
        column = [mean(member, learner) for member in whole.members]
        whole.judge(learner, row, column, mean(learner, learner))
        with_odd.append(score(learner, odd))
        with_common.append(score(learner, common))
    return with_odd, with_common


def test_cole_learns_about_the_odd_member_first_and_about_the_others_last():
    """One generation: the gain over uniform sampling that COLE promises, and its price."""
    odd, common = np.mean([np.array(cole(seed, 1)) for seed in range(4)], 0)[:, 0]
    uniform_odd, uniform_common = np.mean([np.array(cole(seed, 1, Uniform)) for seed in range(4)], 0)[:, 0]
    assert odd >= 0.88 > 0.8 > uniform_odd
    assert common < uniform_common - 0.15


def test_cole_goes_on_from_the_middle_of_a_generation():
    rules = COLESettings(initial_size=1, most_members=3, runs_per_generation=2, drawn_partners=2)

    def rest(whole: COLEPopulation) -> list:
        seen = []
        for number in range(6):
            seen.append(whole.draw_partners())
            if whole.run_is_done():
                n = len(whole.members)
                seen.append(whole.judge(f"copy {number}", np.arange(n) + 1.0, np.ones(n), 2.0))
        return [seen, whole.members, whole.payoffs.tolist(), whole.values.tolist(), whole.generation, whole.refusals]

    one, other = COLEPopulation(rules, "first", 0.0, 0), COLEPopulation(rules, "another", 5.0, 1)
    assert one.draw_partners() == [] and one.run_is_done() and one.judge("second", [1.0], [2.0], 3.0)
    assert one.draw_partners() and not one.run_is_done()
    other.set_state(one.get_state())
    assert rest(other) == rest(one) and len(one.members) == 3


@pytest.mark.slow
def test_cole_over_twelve_generations():
    """The table of the page: means over six seeds, after generations 1, 3 and 12, with the odd one and the others."""
    forms = {
        "signed": (COLEPopulation, {}),
        "signed, bonus 1": (COLEPopulation, {"visit_bonus": 1.0}),
        "clamped, bonus 1": (COLEPopulation, {"marginals": "clamped", "visit_bonus": 1.0}),
        "uniform": (Uniform, {}),
    }
    means = {
        name: np.mean([cole(seed, 12, kind, **choices) for seed in range(6)], 0)[:, [0, 2, 11]]
        for name, (kind, choices) in forms.items()
    }
    print({name: found.round(2).tolist() for name, found in means.items()})
    assert means["signed"][0].min() >= 0.88
    for name in ("signed, bonus 1", "clamped, bonus 1", "uniform"):
        assert means["signed"][0, 0] > means[name][0, 0] and means["signed"][1, 0] < means[name][1, 0]
