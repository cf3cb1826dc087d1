"""RED: officers that win by themselves and follow commands (Xu, Wang, Wu 2022, Grounded Reinforcement Learning)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.numeric.mappo import MAPPOConfig
from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPOConfig
from rllib_llm_comm.baselines.red.learner import METHODS, RL, REDLearner
from rllib_llm_comm.baselines.red.learner import RED as BOTH_PHASES
from rllib_llm_comm.baselines.red.module import OfficerModule
from rllib_llm_comm.baselines.red.officer_demonstrations import INDEX
from rllib_llm_comm.baselines.red.officer_executor import load_officer
from rllib_llm_comm.baselines.red.officer_settings import OfficerSettings
from rllib_llm_comm.core.errors import UserError, require_choice, require_number, require_whole
from rllib_llm_comm.envs.minirts.game import ENV_ID
from rllib_llm_comm.policies.numeric_network import BY_TEAM
from rllib_llm_comm.rl.equal_starts import StartApart
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin
from rllib_llm_comm.rl.policy_export import on_first_learner
from rllib_llm_comm.rl.strict_config import SHARED_POLICY

if TYPE_CHECKING:
    from typing_extensions import Self

RED_RESULTS = "red"
_NETWORK = ("filters", "stride", "width", "words", "keys")


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
    own_env: ClassVar[str | None] = ENV_ID
    env_defaults: ClassVar[Mapping[str, Any]] = {
        "action_level": "red", "observe": ["officer"], "num_agents": 2, "opponent": "medium2",
    }  # fmt: skip

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: RED's and SAMA's where they are known, at a size for two cores."""
        super().__init__(algo_class=algo_class or RED)
        self.batch_mode = "complete_episodes"
        for name in _NETWORK:
            setattr(self, name, getattr(OfficerSettings(), name))
        self.critic_observation = BY_TEAM
        self.method = BOTH_PHASES
        self.demonstrations: str | None = None
        self.officer: str | None = None
        self.rl_updates = 10
        self.rl_until: float | None = None
        self.rl_window = 10
        self.critic_first = 10
        self.warm_up = 10
        self.clone_steps = 200
        self.clone_batch_size = 128
        self.clone_lr = 2e-4
        self.clone_rows = 50_000
        self.clone_idle = 0.3
        self.clone_grad_clip = 0.5
        self.held_out = 0.1
        self.won_ratio = 1.0
        self.nll_limit: float | None = 1.1
        self.joint_coeff = 1.0
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

    @override(MAPPOConfig)
    def policy_network(
        self,
        *,
        filters: int = NotProvided,
        stride: int = NotProvided,
        width: int = NotProvided,
        words: int = NotProvided,
        keys: int = NotProvided,
        critic_observation: str = NotProvided,
    ) -> Self:
        """Sets the network; with `officer` it is that officer's, and these must agree with it.

        Args:
            filters: As of `OfficerSettings`. Default 32 (ours); RED: 256.
            stride: As of `OfficerSettings`. Default 2 (ours); RED: 1.
            width: As of `OfficerSettings`. Default 64 (ours); RED: 256.
            words: As of `OfficerSettings`. Default 32 (ours); RED: 64.
            keys: As of `OfficerSettings`. Default 16 (ours); RED: 128 to 256.
            critic_observation: Input of the critic. `"team"` (default; RED, SAMA): the view that the officers of a side
                share, with the units of all as one's own. `"own"`: what the officer sees, in one pass of the map
                less per minibatch. For one commander both are the same.

        Returns:
            This config.
        """
        return self._assign(locals())

    @override(MAPPOConfig)
    def training(
        self,
        *,
        method: str = NotProvided,
        demonstrations: str | None = NotProvided,
        officer: str | None = NotProvided,
        rl_updates: int = NotProvided,
        rl_until: float | None = NotProvided,
        rl_window: int = NotProvided,
        critic_first: int = NotProvided,
        warm_up: int = NotProvided,
        clone_steps: int = NotProvided,
        clone_batch_size: int = NotProvided,
        clone_lr: float = NotProvided,
        clone_rows: int = NotProvided,
        clone_idle: float = NotProvided,
        clone_grad_clip: float = NotProvided,
        held_out: float = NotProvided,
        won_ratio: float = NotProvided,
        nll_limit: float | None = NotProvided,
        joint_coeff: float = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets the optimisation.

        Args:
            method: `"red"` (default): both phases. `"rl"`: no cloning phase (MAPPO). `"joint"`: no phases, PPO's loss
                and `joint_coeff` times the cloning loss.
            demonstrations: Folder of `rllib officer demonstrations` (D). Needed unless `method` is `"rl"`.
            officer: A cloned officer to start from, or `None` (default) for fresh weights. The paper starts from one;
                from scratch its RL fails.
            rl_updates: Updates of the RL phase before each cloning phase, >= 1. Default 10 (ours); RED: 100.
            rl_until: Share of games won in the last `rl_window` updates of an RL phase at which it ends early, in
                (0, 1]; or `None` (default; RED). `stop: {red/cloned_won_share: SHARE}` ends the run behind the cloning
                phase after the first RL phase that ends with so many (ours).
            rl_window: Updates whose games count for `won_share`, >= 1; at most `rl_updates` with `rl_until`. Games
                that were played before the actor had learned never count. Default 10 (ours).
            critic_first: First updates at which the critic learns alone, >= 0. Default 10 (RED).
            warm_up: Updates behind these over which `lr` rises from 0 on a line, >= 0. Default 10 (ours); SAMA: the
                first fifth of the run.
            clone_steps: Gradient steps of a cloning phase, >= 1. Default 200 (ours).
            clone_batch_size: Decisions per such step, >= 1. Default 128.
            clone_lr: Learning rate of its Adam, > 0. Default 2e-4 (SAMA).
            clone_rows: Most decisions of D in a phase, and of D_k, >= 1. Default 50,000 (ours); RED: all.
            clone_idle: As `OfficerCloningSettings.idle`. Default 0.3 (ours).
            clone_grad_clip: Gradient norm allowed in the cloning phase, > 0. Default 0.5.
            held_out: Share of the demonstrated games that is held out, in [0.01, 0.5]. Default 0.1 (ours).
            won_ratio: |D_k| : |D|, >= 0; 0 for an empty D_k. Default 1 (RED).
            nll_limit: A cloning phase goes on, up to three times `clone_steps`, while the held-out loss is more than so
                many times that of `officer`, > 0; or `None`. Default 1.1 (RED).
            joint_coeff: Weight of the cloning loss with `"joint"`, >= 0. Default 1 (ours).
            **kwargs: Other training settings, as of `MAPPOConfig.training`; of these `gamma` is 0.999 by default
                (SAMA), `lr` 5e-5 (SAMA), `vf_loss_coeff` and `grad_clip` 0.5 (RED).

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().training(**kwargs)
        return self._assign(own)

    @override(NumericPPOConfig)
    def network_settings(self) -> Any:
        """The module's `model_config` as checked settings (`OfficerSettings`).

        Raises:
            UserError: If a value is not allowed.
        """
        sizes = {name: getattr(self, name) for name in _NETWORK}
        return OfficerSettings(**sizes, critic_observation=self.critic_observation, init_seed=self.seed)

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
        require_choice("method", self.method, METHODS)
        for name, least in (
            ("rl_updates", 1), ("rl_window", 1), ("critic_first", 0), ("warm_up", 0), ("clone_steps", 1),
            ("clone_batch_size", 1), ("clone_rows", 1),
        ):  # fmt: skip
            require_whole(name, getattr(self, name), least)
        for name, low, high in (
            ("clone_lr", 1e-12, 1.0), ("clone_idle", 1e-3, 1.0), ("clone_grad_clip", 1e-12, 1e6),
            ("held_out", 0.01, 0.5), ("won_ratio", 0.0, 1e3), ("joint_coeff", 0.0, 1e6),
        ):  # fmt: skip
            require_number(name, getattr(self, name), low, high)
        if self.rl_until is not None:
            require_number("rl_until", self.rl_until, 1e-3, 1.0)
            if self.method == BOTH_PHASES and self.rl_window > self.rl_updates:
                raise UserError(
                    f"`rl_window` is {self.rl_window} but must be at most `rl_updates`, which is {self.rl_updates}, "
                    "for `rl_until` to end an RL phase."
                )
        if self.nll_limit is not None:
            require_number("nll_limit", self.nll_limit, 1e-3, 1e3)
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
            self._sync_runners()
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
            self._sync_runners()
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
