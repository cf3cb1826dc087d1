"""Fictitious co-play in a repeated lever game: what its pool is for, with the pieces of `FCP` on tables of numbers.

Two players pull one of five levers ten times; a round pays if both pull the same one. Members of self-play are blind:
they see nothing and end on one lever. The learner sees the lever that its partner pulled last. Scores are exact
expectations per round.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rllib_llm_comm.baselines.population.fcp import Member, partners_of
from rllib_llm_comm.baselines.population.kitchen_partners import FrozenPartner, PartnerPool, SeatedPartners
from rllib_llm_comm.policies.policy_folder import PolicyExport
from rllib_llm_comm.rl.past_policies import PastPolicy, milestones

LEVERS, ROUNDS = 5, 10
GAMES, UPDATES, RATE = 64, 150, 3.0
SEEDS = range(14)
BEST = (ROUNDS - 1 + 1 / LEVERS) / ROUNDS
LOGITS = "logits"


def chances(logits):
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def pull(rng, chosen_by):
    """A lever for each row of chances (B, 5)."""
    return (chosen_by.cumsum(-1) > rng.random((*chosen_by.shape[:-1], 1))).argmax(-1)


def kept(logits, update, score):
    return PastPolicy(update, 0, score, PolicyExport("lever", {LOGITS: logits.astype(np.float64).tobytes()}, {}))


def blind(one):
    """Chances (5,) of a blind policy."""
    return chances(np.frombuffer(one.policy.files[LOGITS]))


def self_play(seed):
    """A blind member, by REINFORCE with the mean as baseline; every fifth policy is kept."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 0.1, LEVERS)
    past = [kept(logits, 0, np.nan)]
    for update in range(1, UPDATES + 1):
        p = chances(logits)
        pulled = pull(rng, np.broadcast_to(p, (GAMES, ROUNDS, 2, LEVERS)))
        paid = (pulled[..., 0] == pulled[..., 1]).astype(float)
        credit = np.repeat((paid - paid.mean())[..., None], 2, -1)
        towards = np.eye(LEVERS)[pulled] - p
        logits = logits + RATE * (credit[..., None] * towards).mean((0, 1, 2))
        if update % 5 == 0:
            past.append(kept(logits, update, paid.mean()))
    return Member(seed, UPDATES, milestones=milestones(past))


def best_response(members, seed, updates=UPDATES * 4):
    """A table (6, 5) of chances, by the partner's last lever, trained beside partners that are drawn per game."""
    drawn = partners_of(members, past=True)
    pool = PartnerPool(tuple(FrozenPartner(name, "stay") for name in drawn))  # the draw is FCP's, the game is not
    seated = SeatedPartners(pool, SimpleNamespace(states=np.zeros(GAMES)), seed)
    partners = np.stack([blind(one) for one in drawn.values()])
    rng = np.random.default_rng(seed)
    table = rng.normal(0, 0.1, (LEVERS + 1, LEVERS))
    for _ in range(updates):
        theirs = pull(rng, np.repeat(partners[seated.partner][:, None], ROUNDS, 1))
        seen = np.concatenate([np.full((GAMES, 1), LEVERS), theirs[:, :-1]], 1)
        p = chances(table)[seen]
        own = pull(rng, p)
        paid = (own == theirs).astype(float)  # what it pulls changes nothing later: a round's points are its return
        credit = (paid - paid.mean())[..., None] * (np.eye(LEVERS)[own] - p)
        gradient = np.zeros_like(table)
        np.add.at(gradient, seen, credit)
        table += RATE * gradient / GAMES
        seated.redraw(np.ones(GAMES, bool))
    return chances(table)


def score(table, partner):
    """Points per round of a learner with a blind partner (5,)."""
    return float(table[LEVERS] @ partner + (ROUNDS - 1) * np.einsum("l,la,a->", partner, table[:LEVERS], partner)) / (
        ROUNDS
    )


@pytest.fixture(scope="module")
def members():
    """One member for each lever, and those that no pool has seen."""
    by_lever, unseen = {}, []
    for seed in SEEDS:
        member = self_play(seed)
        lever = int(blind(member.milestones["final"]).argmax())
        if lever in by_lever:
            unseen.append(member)
        else:
            by_lever[lever] = member
    assert len(by_lever) == LEVERS and len(unseen) == len(SEEDS) - LEVERS
    return list(by_lever.values()), unseen


def with_all(table, partners, age):
    return float(np.mean([score(table, blind(one.milestones[age])) for one in partners]))


def test_members_learn_one_lever_and_their_half_way_policies_are_half_way(members):
    for member in [*members[0], *members[1]]:
        own = {age: float(blind(one) @ blind(one)) for age, one in member.milestones.items()}
        assert own["final"] >= 0.95 and own["initial"] < 0.25 and 0.3 < own["half_way"] < 0.75, own


def test_the_learner_meets_strangers_and_self_play_does_not(members):
    pool, unseen = members
    fcp = best_response(pool, seed=0)
    one_seed = best_response(pool[:1], seed=0)
    finals = [blind(one.milestones["final"]) for one in unseen]
    cross_play = np.mean([a @ b for i, a in enumerate(finals) for j, b in enumerate(finals) if i != j])
    told = {age: [with_all(table, unseen, age) for table in (fcp, one_seed)] for age in ("final", "half_way")}
    print({"learner, pool of one seed": told, "self-play": cross_play})
    assert with_all(fcp, unseen, "final") >= 0.88
    assert with_all(fcp, unseen, "final") <= BEST + 0.02
    assert cross_play <= 0.35 and with_all(one_seed, unseen, "final") <= 0.35
    assert with_all(fcp, unseen, "half_way") > 0.4 > with_all(one_seed, unseen, "half_way")
    uniform = np.full(LEVERS, 1 / LEVERS)
    assert max(score(table, uniform) for table in (fcp, one_seed)) == pytest.approx(1 / LEVERS)
    assert max(with_all(table, unseen, "initial") for table in (fcp, one_seed)) <= 0.23
