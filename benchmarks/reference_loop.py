"""The yardstick of a whole iteration: PPO over agents that talk, built plainly on the reference's scores.

No RLlib, nothing remembered, nothing packed: kitchens side by side, a message for every cook that is asked, a score for
every candidate, and minibatches in which all of it is computed again with gradients. One shortcut:
behind a time limit and behind a roll-out's last decision no further state is judged, which saves this side some work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from rllib_llm_comm.envs.overcooked_text import parallel_env
from rllib_llm_comm.language.prompts import action_prompt, critic_prompt, message_prompt
from rllib_llm_comm.rl.multi_agent_ppo import adamw
from rllib_llm_comm.rl.train_batch import semi_markov_gae
from rllib_llm_comm.verco.encoding import read_observation
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.message_protocol import heard_by
from stream import Ask, Game
from twosome_reference import TwosomeReference

GAMMA, LAMBDA, CLIP, VALUE_WEIGHT, ENTROPY_WEIGHT = 0.99, 0.95, 0.2, 0.5, 0.01
_ROWS_PER_PASS = 64


@dataclass
class Decision:
    """A decision with its rewards, advantage and value target."""

    ask: Ask
    action: int
    log_prob: float
    value: float
    rewards: list[float] = field(default_factory=list)
    advantage: float = 0.0
    target: float = 0.0


class ReferenceLoop:
    """Roll-out and update.

    Args:
        network: Holds model, adapters and critic.
        num_envs: Kitchens side by side.
        lr: Step size of the action adapter.
        critic_lr: Step size of the critic.
    """

    def __init__(
        self, network: LanguageNetwork, num_envs: int = 16, lr: float = 0.002, critic_lr: float = 0.001
    ) -> None:
        self.network = network
        self.reference = TwosomeReference(network.lm, network.critic)
        self._games = [
            Game(parallel_env(map_name="B", recipe="lettuce-tomato salad"), seed) for seed in range(num_envs)
        ]
        self._rng = np.random.default_rng(0)
        adapter = [parameter for _, parameter in network.lm.named_adapter_parameters("action")]
        self.parameters = [*adapter, *network.critic.parameters()]
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self._optimizers = [adamw(adapter, lr), adamw(network.critic.parameters(), critic_lr)]

    def iterate(self, decisions: int, minibatch_size: int, num_epochs: int) -> None:
        """Plays and learns once."""
        batch = self.play(decisions)
        for _ in range(num_epochs):
            order = self._rng.permutation(len(batch))
            for rows in np.array_split(order, max(1, round(len(batch) / minibatch_size))):
                self.step([batch[row] for row in rows])

    @torch.no_grad()
    def play(self, decisions: int) -> list[Decision]:
        """A roll-out with advantages and value targets."""
        tracks: dict[tuple[int, str], list[Decision]] = {}
        done: list[Decision] = []
        while len(done) + sum(map(len, tracks.values())) < decisions:
            asked = [(number, agent) for number, game in enumerate(self._games) for agent in game.asked()]
            for (number, agent), decision in zip(asked, self._decide(asked), strict=True):
                tracks.setdefault((number, agent), []).append(decision)
                self._games[number].actions[agent] = decision.action
            for number, game in enumerate(self._games):
                outcome = game.step()
                for agent, info in outcome.infos.items():
                    # What began in the roll-out before belongs to no decision of this one.
                    if track := tracks.get((number, agent)):
                        track[-1].rewards += info["step_rewards"]
                if outcome.over:
                    for agent in outcome.infos:
                        done += _with_advantages(tracks.pop((number, agent), []), 0.0, outcome.terminated)
        for track in tracks.values():
            done += _with_advantages(track, track[-1].value, False)
        spread = np.array([decision.advantage for decision in done])
        for decision in done:
            decision.advantage = float((decision.advantage - spread.mean()) / spread.std())
        return done

    def _decide(self, asked: Sequence[tuple[int, str]]) -> list[Decision]:
        seen = [read_observation(self._games[number].observations[agent]) for number, agent in asked]
        said = self.reference.messages([message_prompt(view.text) for view in seen])
        for (number, agent), words in zip(asked, said, strict=True):
            self._games[number].mailbox[agent] = words
        asks = [Ask(view, heard_by(agent, self._games[number].mailbox))
                for (number, agent), view in zip(asked, seen, strict=True)]  # fmt: skip
        log_probs = self.log_probs(asks)
        values = self.values(asks).tolist()
        chosen = [self._rng.choice(len(row), p=row / row.sum()) for row in log_probs.exp().double().numpy()]
        return [Decision(ask, int(action), float(log_probs[row, action]), value)
                for row, (ask, action, value) in enumerate(zip(asks, chosen, values, strict=True))]  # fmt: skip

    def log_probs(self, asks: Sequence[Ask]) -> torch.Tensor:
        """Log-probabilities (B, K) of all actions."""
        scores = self.reference.scores([action_prompt(ask.seen.text, ask.heard) for ask in asks],
                                       [ask.seen.candidates for ask in asks])  # fmt: skip
        mask = torch.tensor([ask.seen.mask for ask in asks])
        return (scores / self.network.settings.temperature).masked_fill(~mask, -1e9).log_softmax(-1)

    def values(self, asks: Sequence[Ask]) -> torch.Tensor:
        """Values (B,)."""
        return self.reference.values([critic_prompt(ask.seen.text) for ask in asks])

    def step(self, minibatch: Sequence[Decision]) -> float:
        """One step of both optimizers; gradients of passes of 64 rows are summed. Gives the loss."""
        total = self.gradients(minibatch)
        for optimizer in self._optimizers:
            torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 0.5)
            optimizer.step()
        return total

    def gradients(self, minibatch: Sequence[Decision]) -> float:
        """Leaves the gradients of a minibatch in the parameters, and gives the loss."""
        for parameter in self.parameters:
            parameter.grad = None
        total = 0.0
        for start in range(0, len(minibatch), _ROWS_PER_PASS):
            part = minibatch[start : start + _ROWS_PER_PASS]
            loss = self._loss(part) * len(part) / len(minibatch)
            loss.backward()
            total += float(loss.detach())
        return total

    def _loss(self, part: Sequence[Decision]) -> torch.Tensor:
        asks = [decision.ask for decision in part]
        log_probs = self.log_probs(asks)
        actions = torch.tensor([decision.action for decision in part])
        old, advantage, old_value, target = (
            torch.tensor([getattr(decision, name) for decision in part])
            for name in ("log_prob", "advantage", "value", "target")
        )
        ratio = (log_probs.gather(1, actions[:, None])[:, 0] - old).exp()
        objective = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        value = self.values(asks)
        near = old_value + (value - old_value).clamp(-CLIP, CLIP)
        error = torch.maximum((value - target) ** 2, (near - target) ** 2).mean()
        return -objective - ENTROPY_WEIGHT * entropy + VALUE_WEIGHT * error


def _with_advantages(track: list[Decision], last_value: float, terminated: bool) -> list[Decision]:
    rewards = np.array([sum(r * GAMMA**k for k, r in enumerate(decision.rewards)) for decision in track])
    durations = np.array([float(len(decision.rewards)) for decision in track])
    values = np.array([*(decision.value for decision in track), last_value])
    advantages, targets = semi_markov_gae(rewards, durations, values, terminated, GAMMA, LAMBDA)
    for decision, advantage, target in zip(track, advantages, targets, strict=True):
        decision.advantage, decision.target = float(advantage), float(target)
    return track
