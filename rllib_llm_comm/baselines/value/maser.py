"""MASER: QMIX whose agents are paid for nearing subgoals of the replay (Jeon et al. 2022, arXiv 2206.10607)."""

from __future__ import annotations

from pydantic import Field
from ray.rllib.algorithms.dqn import DQN
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.value.q_auxiliary_losses import MASERLoss, MaserWeights
from rllib_llm_comm.baselines.value.q_losses import TeamLoss
from rllib_llm_comm.baselines.value.q_settings import QSettings
from rllib_llm_comm.baselines.value.qmix import MIXER_SETTINGS, QMIXConfig
from rllib_llm_comm.baselines.value.value_decomposition import AGENT_SETTINGS, ValueDecomposition, ValueTraining
from rllib_llm_comm.core.errors import require_whole
from rllib_llm_comm.rl.strict_config import part


class MASERTraining(ValueTraining):
    """The optimisation. Weights are of the authors' qmix.yaml; the run in their README sets the last four to 1."""

    faithful: bool = False
    """True for what the released code does (`MASERLoss`), its faults included (ours: no)."""
    subgoal_reward: float = Field(0.03, ge=0)
    """Weight of the rewards for nearness."""
    own_value_share: float = Field(0.5, ge=0, le=1)
    """Share of an agent's own value in the choice of its subgoal."""
    maser_weight: float = Field(0.001, ge=0)
    """Weight of all three terms together."""
    individual_weight: float = Field(0.8, ge=0)
    """Weight of the agents' own temporal differences."""
    mixed_weight: float = Field(0.2, ge=0)
    """Weight of the two terms below together."""
    exploring_weight: float = Field(0.3, ge=0)
    """Weight of the evenness of values behind the subgoal."""
    distance_weight: float = Field(0.7, ge=0)
    """Weight of the distance network's error."""


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

    settings_models = {
        "training": MASERTraining,
        "policy_network": part(QSettings, *AGENT_SETTINGS, *MIXER_SETTINGS, "distance_width"),
    }

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: the authors', unless said otherwise in `training`."""
        super().__init__(algo_class=algo_class or MASER)
        self.distance_width = 128

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
        require_whole("distance_width", self.distance_width, 1)


class MASER(ValueDecomposition):
    """QMIX whose agents are paid for nearing subgoals of the replay; settings: `MASERConfig`."""

    @classmethod
    @override(DQN)
    def get_default_config(cls) -> MASERConfig:
        """The default settings."""
        return MASERConfig()
