"""FCP in coordination_ring against self-play, with partners that neither has met.

13,300,000 game steps: five seeds of self-play, of which three are the pool, and two best responses with the learner of
`tuned_examples/study_partners.yaml`. Set FCP_RING_FOLDER to keep what was trained: a test that was interrupted goes on
from there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rllib_llm_comm import BestResponsePPOConfig, SelfPlayPPOConfig
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")
MEMBER, LEARNER, EPISODES = 160, 320, 10  # iterations: 1,024,000 and 4,096,000 game steps
POOL, HELD_OUT = (0, 1, 2), (100, 101)
LEAST_GAIN = 20
"""Points that past checkpoints are worth with such partners, at least (ours)."""


def trained(kind, folder, seed, iterations, **options):
    """The checkpoint of a run; the one of an earlier, interrupted test is taken."""
    where = folder / f"{kind.__name__}_{seed}_{'_'.join(options)}"
    if where.exists():
        return where
    config = (
        kind()
        .environment(env_config={"layout": "coordination_ring", "dynamics": "old"})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=32)
        .training(
            train_batch_size_per_learner=12800, minibatch_size=1600, num_epochs=8 if "pool" in options else 4, lr=0.001,
            shaping_horizon=10**6, entropy_coeff=0.01,
        )
        .debugging(seed=seed)
    )  # fmt: skip
    if "pool" in options:
        config.partners(pool=options["pool"]).policy_network(critic_observation="partner")
    else:
        config.training(keep_policy_every=4)
    with running(config) as algo:
        for _ in range(iterations):
            algo.train()
        algo.save_to_path(str(where))
    return where


def ages(checkpoint: Path) -> list[str]:
    return [str(checkpoint), str(checkpoint / "past" / "initial"), str(checkpoint / "past" / "half_way")]


def figures(folder: Path, member: int, learner: int, episodes: int):
    """Cross-play of self-play's seeds, and of both best responses with those that they have not met."""
    cooks = {seed: trained(SelfPlayPPOConfig, folder, seed, member) for seed in (*POOL, *HELD_OUT)}
    every = [{"policy": one, "name": f"{seed} {place}"} for seed in POOL for place, one in enumerate(ages(cooks[seed]))]
    final = [{"policy": str(cooks[seed]), "name": f"{seed}"} for seed in POOL]
    responses = {
        "fcp": trained(BestResponsePPOConfig, folder / "every", 10, learner, pool=every),
        "final": trained(BestResponsePPOConfig, folder / "final", 10, learner, pool=final),
    }
    held_out = {
        "best": [{"policy": str(cooks[seed]), "name": f"best {seed}"} for seed in HELD_OUT],
        "half": [{"policy": ages(cooks[seed])[2], "name": f"half {seed}"} for seed in HELD_OUT],
        "untrained": [{"policy": ages(cooks[seed])[1], "name": f"untrained {seed}"} for seed in HELD_OUT],
    }
    how = CrossPlaySettings(episodes=episodes, metric="score")
    alone = CrossPlay([{"policy": str(one), "name": f"cook {seed}"} for seed, one in cooks.items()], None, how).play()
    beside = {
        name: CrossPlay([{"policy": str(one), "name": name}], held_out, how).play() for name, one in responses.items()
    }
    pool = CrossPlay([{"policy": str(cooks[seed]), "name": f"cook {seed}"} for seed in POOL], held_out, how).play()
    return {
        "self_play": alone.self_play(),
        "cross_play": alone.cross_play(),
        **{f"self_play, {group}": pool.with_group(group) for group in held_out},
        **{f"{name}, {group}": one.with_group(group) for name, one in beside.items() for group in held_out},
    }


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_fcp_copes_with_partners_who_have_learned_little(tmp_path):
    """The part of FCP's claim that shows at this size; figures with trained strangers are printed only."""
    folder = Path(os.environ.get("FCP_RING_FOLDER", tmp_path))
    found = figures(folder, MEMBER, LEARNER, EPISODES)
    print(json.dumps({name: [round(value, 1) for value in one] for name, one in found.items()}))
    own, final = found["self_play, untrained"], found["final, untrained"]
    assert found["fcp, untrained"].value > own.value + 2 * own.standard_error
    assert found["fcp, untrained"].value > final.value + LEAST_GAIN
    assert found["fcp, half"].value > found["final, half"].value + LEAST_GAIN
