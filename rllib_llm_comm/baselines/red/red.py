"""RED: officers that win by themselves and follow commands (Xu, Wang, Wu 2022, Grounded Reinforcement Learning)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.annotations import override
from typing_extensions import Self

from rllib_llm_comm.baselines.numeric.mappo import MAPPOConfig, MAPPOTraining
from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPOConfig
from rllib_llm_comm.baselines.red.learner import RED as BOTH_PHASES
from rllib_llm_comm.baselines.red.learner import RL, REDLearner
from rllib_llm_comm.baselines.red.module import OfficerModule
from rllib_llm_comm.baselines.red.officer_demonstrations import INDEX
from rllib_llm_comm.baselines.red.officer_executor import load_officer
from rllib_llm_comm.baselines.red.officer_settings import OfficerSettings
from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.envs.minirts import ENV_ID
from rllib_llm_comm.policies.numeric_network import BY_TEAM, NumericSettings
from rllib_llm_comm.rl.equal_starts import StartApart
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin
from rllib_llm_comm.rl.policy_export import on_first_learner
from rllib_llm_comm.rl.strict_config import SHARED_POLICY, part

RED_RESULTS = "red"
_NETWORK = ("filters", "stride", "width", "words", "keys")


class REDTraining(MAPPOTraining):
    """The optimisation; RED's and SAMA's values where they are known, at a size for two cores."""

    method: Literal["red", "rl", "joint"] = "red"
    """`"red"`: both phases. `"rl"`: no cloning phase (MAPPO). `"joint"`: no phases, PPO's loss and `joint_coeff` times
    the cloning loss."""
    demonstrations: str | None = None
    """Folder of `rllib officer demonstrations` (D). Needed unless `method` is `"rl"`."""
    officer: str | None = None
    """A cloned officer to start from; None: fresh weights. The paper starts from one; from scratch its RL fails."""
    rl_updates: int = Field(10, ge=1, le=LARGEST)
    """Updates of the RL phase before each cloning phase. 10 (ours); RED: 100."""
    rl_until: float | None = Field(None, ge=1e-3, le=1)
    """Share of games won in the last `rl_window` updates of an RL phase at which it ends early; None: it does not
    (RED). `stop: {red/cloned_won_share: SHARE}` ends the run behind the cloning phase after the first RL phase that
    ends with so many (ours)."""
    rl_window: int = Field(10, ge=1, le=LARGEST)
    """Updates whose games count for `won_share`; at most `rl_updates` with `rl_until`. Games that were played before
    the actor had learned never count (ours)."""
    critic_first: int = Field(10, ge=0, le=LARGEST)
    """First updates at which the critic learns alone (RED)."""
    warm_up: int = Field(10, ge=0, le=LARGEST)
    """Updates behind these over which `lr` rises from 0 on a line. 10 (ours); SAMA: the first fifth of the run."""
    clone_steps: int = Field(200, ge=1, le=LARGEST)
    """Gradient steps of a cloning phase (ours)."""
    clone_batch_size: int = Field(128, ge=1, le=LARGEST)
    """Decisions per such step."""
    clone_lr: float = Field(2e-4, ge=1e-12, le=1)
    """Learning rate of its Adam (SAMA)."""
    clone_rows: int = Field(50_000, ge=1, le=LARGEST)
    """Most decisions of D in a phase, and of D_k. 50,000 (ours); RED: all."""
    clone_idle: float = Field(0.3, ge=1e-3, le=1)
    """As `OfficerCloningSettings.idle` (ours)."""
    clone_grad_clip: float = Field(0.5, ge=1e-12, le=1e6)
    """Gradient norm allowed in the cloning phase."""
    held_out: float = Field(0.1, ge=0.01, le=0.5)
    """Share of the demonstrated games that is held out (ours)."""
    won_ratio: float = Field(1.0, ge=0, le=1e3)
    """|D_k| : |D|; 0 for an empty D_k (RED)."""
    nll_limit: float | None = Field(1.1, ge=1e-3, le=1e3)
    """A cloning phase goes on, up to three times `clone_steps`, while the held-out loss is more than so many times that
    of `officer`; None: it does not (RED)."""
    joint_coeff: float = Field(1.0, ge=0, le=1e6)
    """Weight of the cloning loss with `"joint"` (ours)."""

    @model_validator(mode="after")
    def _window_within_a_phase(self) -> Self:
        if self.rl_until is not None and self.method == BOTH_PHASES and self.rl_window > self.rl_updates:
            raise UserError(
                f"`rl_window` is {self.rl_window} but must be at most `rl_updates`, which is {self.rl_updates}, for "
                "`rl_until` to end an RL phase."
            )
        return self


class REDConfig(MAPPOConfig):
    """Settings of `RED`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import REDConfig

        config = REDConfig().training(demonstrations="results/demonstrations", officer="results/officer")
        algo = config.build_algo()
        algo.train()
    """

    network: ClassVar[str] = "officer"
    settings_models = {
        **MAPPOConfig.settings_models,
        "training": part(NumericSettings, "use_value_norm", "value_norm_beta", base=REDTraining),
        "policy_network": part(OfficerSettings, *_NETWORK, "critic_observation"),
    }
    own_env: ClassVar[str | None] = ENV_ID
    env_defaults: ClassVar[Mapping[str, Any]] = {
        "action_level": "red", "observe": ["officer"], "num_agents": 2, "opponent": "medium2",
    }  # fmt: skip

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: RED's and SAMA's where they are known, at a size for two cores."""
        super().__init__(algo_class=algo_class or RED)
        self.batch_mode = "complete_episodes"
        self.critic_observation = BY_TEAM
        self.use_value_norm = False
        self.huber_delta = None
        self.lr = 5e-5
        self.critic_lr = 5e-4
        self.gamma = 0.999
        self.vf_loss_coeff = 0.5
        self.grad_clip = 0.5
        self.num_epochs = 4
        self.minibatch_size = 256
        self.train_batch_size_per_learner = 4000
        self.num_envs_per_env_runner = 4

    @override(NumericPPOConfig)
    def network_settings(self) -> Any:
        """The module's `model_config` as checked settings (`OfficerSettings`).

        Raises:
            UserError: If a value is not allowed.
        """
        own = {name: getattr(self, name) for name in (*_NETWORK, "critic_observation")}
        return OfficerSettings(**own, init_seed=self.seed)

    @override(PPOConfig)
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The shared module."""
        return RLModuleSpec(module_class=OfficerModule, model_config=self.network_settings().to_dict())

    @override(MAPPOConfig)
    def get_default_learner_class(self) -> type[Learner] | str:
        """`REDLearner`."""
        return REDLearner

    @override(MAPPOConfig)
    def _validate_training(self) -> None:
        super()._validate_training()
        self._require_orders()
        if self.batch_mode != "complete_episodes":
            raise UserError("`batch_mode` must be 'complete_episodes': RED learns from whole games that were won.")
        self._add_callback(StartApart)
        if self.num_learners > 1:
            raise UserError(f"`num_learners` is {self.num_learners} but must be 0 or 1: won games lie in one Learner.")
        if self.method != RL and self.demonstrations is None:
            raise self._without_demonstrations()
        if self.officer is not None:
            self._require_same_network()
        # Behind the officer: those of a stage that is still to run are not there yet, and hide what is checked later.
        if self.method != RL and not (Path(str(self.demonstrations)) / INDEX).is_file():
            raise self._without_demonstrations()

    def _without_demonstrations(self) -> UserError:
        return UserError(
            f"`demonstrations` is {self.demonstrations!r} but must be a folder of `rllib officer demonstrations` "
            "unless `method` is 'rl'."
        )

    def _require_orders(self) -> None:
        """Refuses the game's other action level: its actions are no orders, of which the network's parts are made."""
        level = (self.env_config or {}).get("action_level")
        if self.env == self.own_env and level != "red":
            raise UserError(
                f"`env_config.action_level` is {level!r} but must be 'red', since officers order units themselves; set "
                "that, or leave it away."
            )

    def _require_same_network(self) -> None:
        held = load_officer(str(self.officer), "officer").settings
        for name in _NETWORK:
            if getattr(held, name) != getattr(self, name):
                raise UserError(
                    f"`{name}` is {getattr(self, name)!r} but the officer {self.officer!r} has "
                    f"{getattr(held, name)!r}; set the same."
                )


class RED(PolicyCheckpointMixin, PPO):
    """PPO under no command, in turns with cloning on demonstrations and won games; settings: `REDConfig`.

    Results of an iteration, under `red`: `won_share` (as `RLPhase.won_share`, before the cloning phase); with a cloning
    phase also `cloned_won_share`, the same, `clone_loss`, `clone_steps`, `won_games`, `won_decisions`, and
    `held_out_nll` of the demonstrations. Later iterations have NaN for these until the next cloning phase.
    """

    @classmethod
    @override(PPO)
    def get_default_config(cls) -> REDConfig:
        """The default settings."""
        return REDConfig()

    @override(Algorithm)
    def setup(self, config: AlgorithmConfig) -> None:
        """Builds all parts and takes over the officer to start from."""
        super().setup(config)
        officer = getattr(self.config, "officer", None)
        if officer is not None:
            weights = {name: tensor.clone() for name, tensor in load_officer(officer, "officer").state_dict().items()}
            on_first_learner(self, _load_weights, everywhere=True, weights=weights)
            self.sync_runners()
            if getattr(self.config, "method", RL) == BOTH_PHASES:
                on_first_learner(self, _note_first_nll)

    @override(PPO)
    def training_step(self) -> None:
        """A PPO update under no command; at the end of an RL phase a cloning phase."""
        super().training_step()
        config: Any = self.config
        share, is_over = on_first_learner(self, _phase)
        results = {"won_share": share}
        if config.method == BOTH_PHASES and is_over:
            results.update({"cloned_won_share": share, **on_first_learner(self, _clone)})
            self.sync_runners()
        for name, value in results.items():
            self.metrics.log_value((RED_RESULTS, name), value, window=1)

    @override(PolicyCheckpointMixin)
    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The config without `officer`: its weights are here, the old folder may be gone."""
        args, kwargs = super().get_ctor_args_and_kwargs()
        return ({**dict(args[0]), "officer": None}, *args[1:]), kwargs

    @override(PolicyCheckpointMixin)
    def provenance(self) -> dict[str, Any]:
        """Demonstrations and first officer, for the policy folder."""
        config: Any = self.config
        return {"method": config.method, "demonstrations": config.demonstrations, "officer": config.officer}


def _phase(learner: REDLearner) -> tuple[float, bool]:
    return learner.phase.won_share, learner.phase.is_over


def _clone(learner: REDLearner) -> dict[str, float]:
    return learner.clone()


def _note_first_nll(learner: REDLearner) -> None:
    learner.note_first_nll()


def _load_weights(learner: Learner, weights: Mapping[str, Any]) -> None:
    learner.module[SHARED_POLICY].unwrapped().network.load_state_dict(dict(weights))
