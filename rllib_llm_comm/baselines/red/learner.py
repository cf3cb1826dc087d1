"""RED's learner: PPO under no command, and in turns with it behaviour cloning on demonstrations and won games."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.utils.annotations import override
from ray.rllib.utils.typing import EpisodeType, ModuleID, TensorType

from rllib_llm_comm.baselines.numeric.mappo import MAPPOLearner
from rllib_llm_comm.baselines.red import won_games
from rllib_llm_comm.baselines.red.officer_cloning import SEEN, drawn_decisions, mean_nll, split
from rllib_llm_comm.baselines.red.officer_demonstrations import ACTION, OfficerRows, read_demonstrations
from rllib_llm_comm.baselines.red.officer_inputs import distinct_views
from rllib_llm_comm.baselines.red.officer_network import OfficerNetwork
from rllib_llm_comm.baselines.red.phases import RLPhase
from rllib_llm_comm.baselines.red.won_games import WonGames, mixed_batch
from rllib_llm_comm.policies.numeric_network import BY_TEAM
from rllib_llm_comm.rl.minibatches import ROW_GROUP
from rllib_llm_comm.rl.multi_agent_ppo_learner import ACTOR, MultiAgentPPOLearner

WEIGHT = "weight"
RED_STATE = "rllib_llm_comm_red"
RED, RL, JOINT = "red", "rl", "joint"
_MOST_ROUNDS = 3


class KeepWonGames(ConnectorV2):
    """Learner connector that keeps the decisions of won games; episodes must be whole games.

    Args:
        won: Takes the games in.
        phase: Takes their number in.
    """

    def __init__(self, *args: Any, won: WonGames, phase: RLPhase, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._won, self._phase = won, phase

    @override(ConnectorV2)
    def __call__(
        self, *, rl_module: RLModule, batch: dict[str, Any], episodes: list[EpisodeType], **kwargs: Any
    ) -> Any:
        """Takes in what was won; the batch stays as it is."""
        games = [[single for single in episode.agent_episodes.values() if len(single)] for episode in episodes]
        won = [singles for singles in games if _is_won(singles)]
        for singles in won:
            self._won.add(_decisions(singles))
        self._phase.add(len(won), len(games))
        return batch


class KeepPairs(ConnectorV2):
    """Learner connector that lets rows with the same shared view stay in one minibatch, where the critic reads it once.

    It comes behind all others.
    """

    @override(ConnectorV2)
    def __call__(
        self, *, rl_module: RLModule, batch: dict[str, Any], episodes: list[EpisodeType], **kwargs: Any
    ) -> Any:
        """Adds the number of its view to each row."""
        for rows in batch.values():
            rows[ROW_GROUP] = distinct_views(rows[Columns.OBS])[1]
        return batch


class REDLearner(MAPPOLearner):
    """`MAPPOLearner` for officers with RED's second phase.

    The RL phase is PPO; the actor rests for the first `critic_first` updates, then its rate rises for `warm_up` more.
    `phase` tells when it is over. `clone` is the cloning phase, with an Adam of its own. With the method "joint" there
    are no phases: each loss of PPO has the cloning loss of a minibatch of demonstrations on top.

    Settings read from the config, beside those of `MAPPOLearner`: `method`, `demonstrations`, `held_out`,
    `critic_first`, `warm_up`, `clone_steps`, `clone_batch_size`, `clone_lr`, `clone_rows`, `clone_idle`,
    `clone_grad_clip`, `won_ratio`, `nll_limit`, `joint_coeff`, `rl_updates`, `rl_window`, `rl_until`.
    """

    @override(MultiAgentPPOLearner)
    def build(self) -> None:
        """Builds as MAPPO does, and reads the demonstrations."""
        config: Any = self.config
        self._won = WonGames(config.clone_rows)
        # Shares that are only logged need not wait for more updates than a phase has.
        window = min(config.rl_window, config.rl_updates) if config.method == RED else config.rl_window
        self.phase = RLPhase(config.rl_updates, window, config.rl_until, uncounted=config.critic_first + 1)
        self._draws = np.random.default_rng(config.seed)
        super().build()
        if self._learner_connector is not None:
            self._learner_connector.prepend(KeepWonGames(won=self._won, phase=self.phase))
            if config.critic_observation == BY_TEAM:
                self._learner_connector.append(KeepPairs())
        self._shown: OfficerRows | None = None
        self._first_nll: float | None = None
        if config.method != RL:
            self._shown = read_demonstrations(config.demonstrations)
            self._learned, self._held_out = split(self._shown, config.held_out)
        self._cloner = torch.optim.Adam(self._network().parameters(), lr=config.clone_lr)

    def _network(self) -> OfficerNetwork:
        module_id = next(iter(self.module.keys()))
        network: OfficerNetwork = self.module[module_id].unwrapped().network
        return network

    @override(MultiAgentPPOLearner)
    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Starts an update; at first the critic learns alone."""
        super().before_gradient_based_update(timesteps=timesteps)
        config: Any = self.config
        share = (self._weights_seq_no - config.critic_first + 1) / max(1, config.warm_up)
        share = 0.0 if self._weights_seq_no < config.critic_first else min(1.0, share)
        for name, optimizer in self._named_optimizers.items():
            if name.rsplit("_", 1)[1] == ACTOR and share < 1.0:
                self._set_optimizer_lr(optimizer, share * self._get_optimizer_lr(optimizer))

    @override(MultiAgentPPOLearner)
    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Any, batch: dict[str, Any], fwd_out: dict[str, TensorType]
    ) -> TensorType:
        """PPO's loss of a minibatch; with the method "joint" and the cloning loss of another."""
        loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        if config.method != JOINT:
            return loss
        cloned = self._clone_loss(self._demonstrated(config.clone_batch_size))
        self._log(module_id, clone_loss=cloned)
        return loss + config.joint_coeff * cloned

    # ---- the cloning phase -------------------------------------------------------------------------------------

    def note_first_nll(self) -> None:
        """Keeps the held-out loss of the officer from which training starts, for `nll_limit`."""
        self._first_nll = self.held_out_nll()

    def clone(self) -> dict[str, float]:
        """The cloning phase: `clone_steps` gradient steps on demonstrations and won games.

        While the held-out loss is more than `nll_limit` times that of the first officer there are more, up to three
        times as many.

        Returns:
            Figures of the phase: the mean `clone_loss`, the numbers of `won_games` and `won_decisions` in D_k, and the
            `held_out_nll` of demonstrations after it.
        """
        config: Any = self.config
        self.phase.begin()
        demonstrated, won = self._demonstrated(config.clone_rows), self._won_decisions()
        losses, nll = list[float](), float("nan")
        for _ in range(_MOST_ROUNDS):
            losses += [self._clone_step(demonstrated, won) for _ in range(config.clone_steps)]
            nll = self.held_out_nll()
            if None in (config.nll_limit, self._first_nll) or nll <= config.nll_limit * self._first_nll:
                break
        return {
            "clone_loss": float(np.mean(losses)),
            "clone_steps": float(len(losses)),
            "won_games": float(len(self._won)),
            "won_decisions": float(self._won.count),
            "held_out_nll": nll,
        }

    def _clone_step(self, demonstrated: won_games.Columns, won: won_games.Columns | None) -> float:
        config: Any = self.config
        loss = self._clone_loss(mixed_batch(demonstrated, won, *self._mixture()))
        self._cloner.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._network().parameters(), config.clone_grad_clip)
        self._cloner.step()
        return float(loss.detach())

    def held_out_nll(self) -> float:
        """Mean negative log-likelihood of the held-out demonstrations, in nats; NaN without demonstrations."""
        if self._shown is None:
            return float("nan")
        return mean_nll(self._network(), self._shown, self._held_out)

    def _mixture(self) -> tuple[int, float, np.random.Generator]:
        config: Any = self.config
        return config.clone_batch_size, config.won_ratio, self._draws

    def _demonstrated(self, most: int) -> dict[str, np.ndarray]:
        """At most so many decisions of D, with their weights."""
        config: Any = self.config
        assert self._shown is not None
        among = self._draws.permutation(self._learned)[: round(most / config.clone_idle)]
        return _weighted(self._shown.columns, among, config.clone_idle, most, self._draws)

    def _won_decisions(self) -> dict[str, np.ndarray] | None:
        """The decisions of D_k with their weights; `None` where it is empty, by its ratio or as nothing was won."""
        config: Any = self.config
        columns = self._won.columns() if config.won_ratio else None
        if columns is None:
            return None
        return _weighted(columns, np.arange(self._won.count), config.clone_idle, self._won.count, self._draws)

    def _clone_loss(self, batch: dict[str, np.ndarray]) -> torch.Tensor:
        choice = self._network().choice({name: torch.from_numpy(batch[name]) for name in SEEN})
        weight = torch.from_numpy(batch[WEIGHT])
        loss: torch.Tensor = -(choice.logp(torch.from_numpy(batch[ACTION])) * weight).sum() / weight.sum()
        return loss

    # ---- checkpoints -------------------------------------------------------------------------------------------

    @override(Learner)
    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state, the won games, and the state of the cloning phase's Adam and draws."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if self._check_component(RED_STATE, components, not_components):
            state[RED_STATE] = {
                "won": self._won.get_state(),
                "phase": self.phase.get_state(),
                "cloner": self._cloner.state_dict(),
                "draws": self._draws.bit_generator.state,
                "first_nll": self._first_nll,
            }
        return state

    @override(Learner)
    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        super().set_state(state)
        if kept := state.get(RED_STATE):
            self._won.set_state(kept["won"])
            if "phase" in kept:  # not in checkpoints of the first releases
                self.phase.set_state(kept["phase"])
            self._cloner.load_state_dict(kept["cloner"])
            self._draws.bit_generator.state = kept["draws"]
            self._first_nll = kept["first_nll"]

    @override(TorchLearner)
    def get_parameters(self, module: Any) -> list[torch.nn.Parameter]:
        """All of them."""
        return list(module.parameters())


def _is_won(singles: Sequence[Any]) -> bool:
    """True for a game that ended in time and paid all its agents."""
    return bool(singles) and all(single.is_terminated and single.get_rewards(-1) > 0 for single in singles)


def _decisions(singles: Sequence[Any]) -> dict[str, np.ndarray]:
    """The decisions of a game, agent after agent, as columns."""
    parts = []
    for single in singles:
        seen = [single.get_observations(step) for step in range(len(single))]
        columns = {name: np.stack([one[name] for one in seen]) for name in SEEN}
        parts.append({**columns, ACTION: np.stack(list(single.get_actions())).astype(np.int16)})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _weighted(
    columns: Any, among: np.ndarray, idle: float, most: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Some decisions, those without orders thinned out and weighted for it."""
    numbers, weights = drawn_decisions(columns[ACTION], among, idle, rng)
    numbers, weights = numbers[:most], weights[:most]
    return {**{name: columns[name][numbers] for name in (*SEEN, ACTION)}, WEIGHT: weights}
