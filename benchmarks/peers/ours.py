"""This package's iteration: packed candidates, the critic's own pass over its own prompts, PPO over the candidates."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from party import serve, start

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import torch  # noqa: E402

from rllib_llm_comm.envs.interface import ACTION_MASK  # noqa: E402
from rllib_llm_comm.language.packing import PAD  # noqa: E402
from rllib_llm_comm.policies.decision import CANDIDATE_IDS, PROMPT_IDS  # noqa: E402
from rllib_llm_comm.rl.multi_agent_ppo import adamw, clipped_surrogate, value_loss  # noqa: E402
from rllib_llm_comm.verco.encoding import (  # noqa: E402
    CANDIDATE_WORDS,
    CRITIC_IDS,
)
from rllib_llm_comm.verco.language_network import LanguageNetwork  # noqa: E402
from rllib_llm_comm.verco.settings import ModuleSettings  # noqa: E402

CLIP, ENTROPY_WEIGHT, VALUE_WEIGHT = 0.2, 0.01, 0.5


def main() -> None:
    """Serves scores, iterations and messages."""
    folder, problem = start()
    network = LanguageNetwork(ModuleSettings(base_model=str(folder / "model"), init_seed=0, max_prompt_tokens=1024))
    for role in ("action", "message"):
        network.lm.load_adapter(role, folder / role)
    for _, parameter in network.lm.named_adapter_parameters("action"):
        parameter.requires_grad_(True)
    batch = _batch(problem)

    def scores() -> Any:
        """Log-probabilities of all candidates."""
        with torch.no_grad():
            return network.logits(batch).tolist()

    def iteration() -> None:
        """Scores and values without gradient, then the update."""
        network.forget()  # what a round has read is new to the next one
        _learn(network, problem, batch)

    def messages() -> Any:
        """Greedy messages."""
        network.forget()
        return network.write_messages(problem["message_prompts"], max_words=problem["max_words"])

    serve({"scores": scores, "iteration": iteration, "messages": messages}, {"torch": torch.__version__})


def _batch(problem: dict[str, Any]) -> dict[str, torch.Tensor]:
    def rectangle(rows: list[list[int]]) -> torch.Tensor:
        """Rows padded on the right."""
        width = max(map(len, rows))
        return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])

    many = len(problem["candidates"])
    tails = rectangle([tail for tails in problem["candidate_ids"] for tail in tails])
    words = [[len(phrase.split()) for phrase in phrases] for phrases in problem["candidates"]]
    return {
        PROMPT_IDS: rectangle(problem["prompt_ids"]),
        CANDIDATE_IDS: tails.reshape(many, -1, tails.shape[1]),
        CANDIDATE_WORDS: torch.tensor(words),
        ACTION_MASK: torch.ones(many, len(words[0]), dtype=torch.int8),
        CRITIC_IDS: rectangle(problem["critic_ids"]),
    }


def _learn(network: LanguageNetwork, problem: dict[str, Any], batch: dict[str, torch.Tensor]) -> None:
    actor = [parameter for _, parameter in network.lm.named_adapter_parameters("action")]
    optimizers = [adamw(actor, problem["lr"]), adamw(network.critic.parameters(), problem["lr"])]
    actions, advantages = torch.tensor(problem["actions"]), torch.tensor(problem["advantages"])
    with torch.no_grad():
        old = torch.distributions.Categorical(logits=network.remembered_logits(batch)).log_prob(actions)
        old_values = network.values(batch)
    for _ in range(problem["epochs"]):
        for rows in torch.arange(len(actions)).split(problem["minibatch_size"]):
            part = {name: array[rows] for name, array in batch.items()}
            chances = torch.distributions.Categorical(logits=network.logits(part))
            ratio = (chances.log_prob(actions[rows]) - old[rows]).exp()
            loss = -clipped_surrogate(ratio, advantages[rows], CLIP).mean() - ENTROPY_WEIGHT * chances.entropy().mean()
            targets = advantages[rows] + old_values[rows]
            loss = loss + VALUE_WEIGHT * value_loss(network.values(part), old_values[rows], targets, CLIP)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()


if __name__ == "__main__":
    main()
