"""MASER: QMIX whose agents are paid for nearing subgoals of the replay (Jeon et al. 2022, arXiv 2206.10607)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.rllib.algorithms.algorithm_config import NotProvided
from ray.rllib.algorithms.dqn import DQN
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.value.q_auxiliary_losses import MASERLoss, MaserWeights
from rllib_llm_comm.baselines.value.q_losses import TeamLoss
from rllib_llm_comm.baselines.value.qmix import QMIXConfig
from rllib_llm_comm.baselines.value.value_decomposition import ValueDecomposition
from rllib_llm_comm.core.errors import require_choice, require_number, require_whole

if TYPE_CHECKING:
    from typing_extensions import Self

_WEIGHTS = (
    "subgoal_reward",
    "maser_weight",
    "individual_weight",
    "mixed_weight",
    "exploring_weight",
    "distance_weight",
)


class MASERConfig(QMIXConfig):
    """Settings of `MASER`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import MASERConfig

        algo = (
            MASERConfig()
            .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
            .training(faithful=False)
            .build_algo()
        )
    """

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: the authors', unless said otherwise in `training`."""
        super().__init__(algo_class=algo_class or MASER)
        self.distance_width = 128
        self.faithful = False
        self.subgoal_reward = 0.03
        self.own_value_share = 0.5
        self.maser_weight = 0.001
        self.individual_weight = 0.8
        self.mixed_weight = 0.2
        self.exploring_weight = 0.3
        self.distance_weight = 0.7

    @override(QMIXConfig)
    def policy_network(self, *, distance_width: int = NotProvided, **kwargs: Any) -> Self:
        """Sets the networks of agents and mixer.

        Args:
            distance_width: Units of the network of distances, >= 1. Default 128 (authors).
            **kwargs: Settings of `QMIXConfig.policy_network`.

        Returns:
            This config.
        """
        super().policy_network(**kwargs)
        return self._assign({"distance_width": distance_width})

    @override(QMIXConfig)
    def training(
        self,
        *,
        faithful: bool = NotProvided,
        subgoal_reward: float = NotProvided,
        own_value_share: float = NotProvided,
        maser_weight: float = NotProvided,
        individual_weight: float = NotProvided,
        mixed_weight: float = NotProvided,
        exploring_weight: float = NotProvided,
        distance_weight: float = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets the optimisation. Weights are those of the authors' qmix.yaml.

        The run in their README sets the last four to 1.

        Args:
            faithful: True for what the released code does (`MASERLoss`), its faults included. Default no (ours).
            subgoal_reward: Weight of the rewards for nearness, >= 0. Default 0.03.
            own_value_share: Share of an agent's own value in the choice of its subgoal, in [0, 1]. Default 0.5.
            maser_weight: Weight of all three terms together, >= 0. Default 0.001.
            individual_weight: Weight of the agents' own temporal differences, >= 0. Default 0.8.
            mixed_weight: Weight of the two terms below together, >= 0. Default 0.2.
            exploring_weight: Weight of the evenness of values behind the subgoal, >= 0. Default 0.3.
            distance_weight: Weight of the distance network's error, >= 0. Default 0.7.
            **kwargs: Settings of `ValueDecompositionConfig.training`.

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().training(**kwargs)
        return self._assign(own)

    @override(QMIXConfig)
    def team_loss(self) -> TeamLoss:
        """The loss of a batch of episodes."""
        weights = MaserWeights(
            reward=self.subgoal_reward,
            own_value=self.own_value_share,
            total=self.maser_weight,
            individual=self.individual_weight,
            mixed=self.mixed_weight,
            exploring=self.exploring_weight,
            distance=self.distance_weight,
        )
        return MASERLoss(self.gamma, self.td_lambda, weights, faithful=self.faithful)

    @override(QMIXConfig)
    def _validate_training(self) -> None:
        super()._validate_training()
        require_choice("faithful", self.faithful, (False, True))
        require_number("own_value_share", self.own_value_share, 0.0, 1.0)
        require_whole("distance_width", self.distance_width, 1)
        for name in _WEIGHTS:
            require_number(name, getattr(self, name), 0.0)


class MASER(ValueDecomposition):
    """QMIX whose agents are paid for nearing subgoals of the replay; settings: `MASERConfig`."""

    @classmethod
    @override(DQN)
    def get_default_config(cls) -> MASERConfig:
        """The default settings."""
        return MASERConfig()
