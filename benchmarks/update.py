"""A whole Verco iteration and one gradient step, ours against a loop built on the plain reference.

    python benchmarks/update.py --json docs/results/benchmarks/update.json

Both sides play 1,024 decisions of the main job's kitchen with the embedded model, messages included, and learn from
them in two epochs of minibatches of 256, without the stop on KL. Before anything is timed, the loss
and the gradients of one minibatch are compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import ray
import torch

from harness import Row, compare, main
from reference_loop import CLIP, ENTROPY_WEIGHT, VALUE_WEIGHT, Decision, ReferenceLoop
from rllib_llm_comm import VercoConfig
from rllib_llm_comm.rl.multi_agent_ppo import clipped_surrogate, value_loss
from rllib_llm_comm.verco.encoding import ObservationEncoder
from rllib_llm_comm.verco.language_network import LanguageNetwork
from stream import new_network, to_batch

EPOCHS = 2


def our_gradients(network: LanguageNetwork, minibatch: Sequence[Decision], parameters: Sequence[Any]) -> float:
    """Leaves the gradients of a minibatch in the parameters, with this package's pieces, and gives the loss."""
    for parameter in parameters:
        parameter.grad = None
    batch = to_batch(ObservationEncoder(network.lm.base, network.settings), [decision.ask for decision in minibatch])
    old, advantage, old_value, target = (
        torch.tensor([getattr(decision, name) for decision in minibatch])
        for name in ("log_prob", "advantage", "value", "target")
    )
    distribution = torch.distributions.Categorical(logits=network.logits(batch))
    actions = torch.tensor([decision.action for decision in minibatch])
    ratio = (distribution.log_prob(actions) - old).exp()
    loss = -clipped_surrogate(ratio, advantage, CLIP).mean() - ENTROPY_WEIGHT * distribution.entropy().mean()
    loss = loss + VALUE_WEIGHT * value_loss(network.values(batch), old_value, target, CLIP)
    loss.backward()
    return float(loss.detach())


def largest_differences(
    network: LanguageNetwork, loop: ReferenceLoop, minibatch: Sequence[Decision]
) -> dict[str, float]:
    """Between the losses of both sides, and between their gradients relative to the largest entry."""
    ours = our_gradients(network, minibatch, loop.parameters)
    own = [parameter.grad.clone() for parameter in loop.parameters]
    theirs = loop.gradients(minibatch)
    largest = max(float(parameter.grad.abs().max()) for parameter in loop.parameters)
    apart = max(float((a - b.grad).abs().max()) for a, b in zip(own, loop.parameters, strict=True))
    return {"loss_difference": abs(ours - theirs), "gradient_difference": apart / largest}


def gradient_step(decisions: int, rounds: int) -> Row:
    """Losses and gradients of one minibatch."""
    network = new_network()
    loop = ReferenceLoop(network)
    minibatch = loop.play(decisions)
    # One step away from where both adapters are the identity, so that every gradient counts.
    loop.step(minibatch[: decisions // 2])
    apart = largest_differences(network, loop, minibatch)
    assert apart["loss_difference"] < 1e-4, apart
    assert apart["gradient_difference"] < 1e-3, apart
    seconds, other = compare(
        lambda: our_gradients(network, minibatch, loop.parameters), lambda: loop.gradients(minibatch), rounds
    )
    settings = {"rows": len(minibatch), "base_model": "embedded", **apart}
    return Row(
        "update/gradients of a minibatch", len(minibatch) / seconds, len(minibatch) / other, "rows/s", None, settings
    )


def iteration(decisions: int, minibatch_size: int, rounds: int) -> Row:
    """Roll-out and update."""
    config = (
        VercoConfig()
        .environment(
            "rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B", "recipe": "lettuce-tomato salad"}
        )
        .language_model(temperature=1.5)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=16)
        .training(
            train_batch_size_per_learner=decisions,
            minibatch_size=minibatch_size,
            num_epochs=EPOCHS,
            target_kl=None,
            lr=0.002,
            critic_lr=0.001,
            entropy_coeff=ENTROPY_WEIGHT,
        )
        .debugging(seed=0)
    )
    ray.init(num_cpus=1, num_gpus=0, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    algorithm = config.build_algo()
    loop = ReferenceLoop(new_network())
    played: list[int] = []

    def ours() -> None:
        """One iteration of the algorithm."""
        sampled = algorithm.train()["env_runners"]["num_agent_steps_sampled"]
        played.append(int(sum(sampled.values())))

    try:
        seconds, other = compare(ours, lambda: loop.iterate(decisions, minibatch_size, EPOCHS), rounds)
    finally:
        algorithm.stop()
        ray.shutdown()
    settings = {"decisions": decisions, "minibatch_size": minibatch_size, "epochs": EPOCHS, "num_envs": 16,
                "played_by_ours": played, "base_model": "embedded"}  # fmt: skip
    return Row("update/whole iteration", decisions / seconds, decisions / other, "decisions/s", 5.0, settings)


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    decisions, minibatch = (96, 48) if options.smoke else (1024, 256)
    return [
        gradient_step(minibatch, min(options.rounds, 3)),
        iteration(decisions, minibatch, min(options.rounds, 3)),
    ]


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
