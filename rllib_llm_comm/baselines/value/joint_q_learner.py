"""Learner of teams that learn by value decomposition, on batches of whole episodes."""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.rl_module.apis import TargetNetworkAPI
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.value.q_losses import TeamLoss

RMSPROP, ADAM = "rmsprop", "adam"
_LAST_COPY = "last_target_copy"


class JointQLearner(DQNTorchLearner):
    """Stock DQN's learner with the loss of a `JointQModule`'s config (`team_loss`).

    Target teams are copied by stock DQN, every `target_network_update_freq` game steps; buffers (statistics) go along.
    """

    @override(DQNTorchLearner)
    def build(self) -> None:
        """Builds as stock DQN does, and the loss."""
        super().build()
        self._team_loss: TeamLoss = self.config.team_loss()

    @override(DQNTorchLearner)
    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """One optimizer for agents and mixer."""
        parameters = list(self.module[module_id].unwrapped().team.parameters())
        start = config.lr if isinstance(config.lr, int | float) else config.lr[0][1]
        if config.optimizer_name == RMSPROP:
            optimizer: torch.optim.Optimizer = torch.optim.RMSprop(
                parameters, lr=float(start), alpha=config.rmsprop_alpha, eps=config.rmsprop_epsilon
            )
        else:
            optimizer = torch.optim.Adam(parameters, lr=float(start), eps=config.adam_epsilon)
        self.register_optimizer(
            module_id=module_id, optimizer=optimizer, params=parameters, lr_or_lr_schedule=config.lr
        )

    @override(DQNTorchLearner)
    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any) -> torch.Tensor:
        """The team's loss."""
        module = self.module[module_id].unwrapped()
        module.team.train()
        module.target.eval()  # RLlib trains all parts of a module, but statistics of a copy are those of its model
        loss, report = self._team_loss(module.team, module.target, batch)
        self.metrics.log_dict(report, key=module_id, window=1)
        return loss

    @override(DQNTorchLearner)
    def compute_gradients(self, loss_per_module: dict[str, Any], **kwargs: Any) -> dict[Any, Any]:
        """Gradients of the weights that are in the loss; an ablation leaves some out, which RLlib takes for a fault."""
        gradients = super().compute_gradients(loss_per_module, **kwargs)
        return {name: gradient for name, gradient in gradients.items() if gradient is not None}

    @override(DQNTorchLearner)
    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Copies target teams if it is time."""
        before = dict(self.last_update_ts_by_mid)
        super().after_gradient_based_update(timesteps=timesteps)
        for module_id, step in self.last_update_ts_by_mid.items():
            if step != before.get(module_id, 0):
                for live, target in self.module[module_id].unwrapped().get_target_network_pairs():
                    for ours, theirs in zip(live.buffers(), target.buffers(), strict=True):
                        theirs.copy_(ours)

    @override(Learner)
    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state and the step of the last copy, without which a restored run would copy at once."""
        return {**super().get_state(*args, **kwargs), _LAST_COPY: dict(self.last_update_ts_by_mid)}

    @override(Learner)
    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        super().set_state(state)
        self.last_update_ts_by_mid.update(state.get(_LAST_COPY, {}))

    @classmethod
    @override(DQNTorchLearner)
    def rl_module_required_apis(cls) -> list[type]:
        """Target networks; values are the loss's own business."""
        return [TargetNetworkAPI]
