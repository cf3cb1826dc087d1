"""EMMA under MAPPO: agents that follow subgoals in words, SAMA's lower level; and its control without words.

A connector makes maps of symbols, manuals and subgoals the arrays that the network reads. `SymbolicPPO` reads the
game's numeric vector instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.annotations import override
from typing_extensions import Self

from rllib_llm_comm.baselines.numeric.mappo import MAPPOConfig
from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPOConfig
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.overcooked_ai.game import SUBGOAL_ENV_ID
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import SubgoalKitchen
from rllib_llm_comm.language.text_encoder import check_text_encoder, load_text_encoder
from rllib_llm_comm.policies.numeric_network import AUTO, BY_OWN, BY_STATE, CRITIC_STATE
from rllib_llm_comm.policies.policy_folder import PolicyExport, network_file
from rllib_llm_comm.policies.policy_manifest import GROUNDED
from rllib_llm_comm.rl.actor_critic import ActorCriticModule
from rllib_llm_comm.rl.newest_observation import newest_observation
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin
from rllib_llm_comm.rl.strict_config import StrictConfigMixin, part
from rllib_llm_comm.sama.data_set import BY_MODEL, ENCOUNTERED, NewSubgoals, NewSubgoalSettings
from rllib_llm_comm.sama.emma.network import (
    ENTITIES,
    FRAMES,
    MANUAL_TOKENS,
    SUBGOAL_TOKENS,
    EmmaEncoder,
    EmmaNetwork,
    EmmaSettings,
    emma_space,
)
from rllib_llm_comm.sama.games.overcooked_ai import KitchenSubgoals
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners.baselines import RandomPlanner
from rllib_llm_comm.sama.preparation import preparation_class

if TYPE_CHECKING:
    from ray.rllib.connectors.connector_v2 import ConnectorV2


# ---- subgoals that are added while it trains --------------------------------------------------------------------


class DrawNewSubgoals(RLlibCallback):
    """Shows the states of an EnvRunner's games and lets these draw new subgoals; algorithms add it for `new_subgoals`.

    Games are kitchens that draw subgoals themselves, and games under a planner that draws those of a data set. What was
    added stays for games that are made anew after a failure; new EnvRunners are told by the algorithm.
    """

    def __init__(self) -> None:
        """No games yet."""
        super().__init__()
        self._games: list[Any] = []
        self._texts: list[str] = []
        self._sources: dict[str, str] = {}

    def on_environment_created(self, *, env_runner: Any, env: Any, **kwargs: Any) -> None:
        """Keeps the games and tells them what was added so far."""
        found = [sub.unwrapped.env for sub in env.envs]
        self._games = [game for game in found if isinstance(game.unwrapped, SubgoalKitchen) or _draws(game)]
        self._tell()

    def on_env_runners_recreated(self, *, algorithm: Any, **kwargs: Any) -> None:
        """Has the algorithm tell all EnvRunners, the new ones among them."""
        algorithm.tell_new_subgoals()

    def snapshots(self) -> list[Any]:
        """The states in which the games are; under a planner of those that are not over."""
        kitchens = [game.unwrapped.kitchen.snapshot() for game in self._games if not _draws(game)]
        return kitchens + [game.game.save() for game in self._games if _draws(game) and game.agents]

    def learn(self, texts: Sequence[str], sources: Mapping[str, str]) -> None:
        """Lets all games draw subgoals from now on.

        Args:
            texts: Subgoals in words, all that were added so far.
            sources: Their reward code, where code judges.
        """
        self._texts, self._sources = list(texts), dict(sources)
        self._tell()

    def _tell(self) -> None:
        for game in self._games:
            if _draws(game):
                game.learn(self._texts, self._sources)
                continue
            if self._sources and hasattr(game, "learn"):
                game.learn(self._sources)
            game.unwrapped.draw_also(self._texts)


def _draws(game: Any) -> bool:
    """True for a game under a planner that draws the subgoals of a data set."""
    return isinstance(game, PlannedSubgoals) and isinstance(game.planner, RandomPlanner) and bool(game.planner.subgoals)


def drawing(env_runner: Any) -> DrawNewSubgoals | None:
    """The callback of an EnvRunner, if it has one."""
    return next((one for one in env_runner._callbacks if isinstance(one, DrawNewSubgoals)), None)


NEW_SUBGOALS = "new_subgoals"


class SubgoalData(Settings):
    """The data set of subgoals: `subgoal_file` of kitchens that draw subgoals themselves; in other games that of the
    planner `random`.
    """

    new_subgoals: Mapping[str, Any] | None = None
    """None: it stays as it is. SAMA adds to it "periodically". A mapping with `every` (training iterations between two
    times) and `planner` (asks a chat model), and maybe other fields of
    `rllib_llm_comm.sama.data_set.NewSubgoalSettings`. The training waits for the answers."""


class NewSubgoalsConfigMixin(StrictConfigMixin):
    """Adds `.subgoal_data(...)`: a chat model is asked for further subgoals while the agents train."""

    def subgoal_data(self, **settings: Any) -> Self:
        """Lets the data set of subgoals grow during training; the settings are those of `SubgoalData`."""
        return self.assign("subgoal_data", settings)

    def _validate_new_subgoals(self) -> None:
        if self.new_subgoals is None or self._evaluates_whole_games():
            return
        settings = NewSubgoalSettings.checked(NEW_SUBGOALS, self.new_subgoals)
        config: Any = self
        if config.env == SUBGOAL_ENV_ID:
            _check_kitchen(config)
        else:
            _check_planned_game(config, settings)
        self._add_callback(DrawNewSubgoals)

    def _evaluates_whole_games(self) -> bool:
        """True for settings of a periodic evaluation under a planner, whose games draw no subgoals."""
        config: Any = self
        return bool(config.in_evaluation and config.planner is not None)


def _check_kitchen(config: Any) -> None:
    """Refuses settings with which a kitchen that gives subgoals itself does not draw those of a data set."""
    game = config.env_config or {}
    wanted = (
        ("planner", config.planner, None, "leave one of them away"),
        ("env_config.subgoals", game.get("subgoals", "sampled"), "sampled", "only sampled ones are drawn"),
        ("env_config.dynamics", game.get("dynamics", "old"), "old", "planners know no other"),
    )
    for name, value, right, remedy in wanted:
        if value != right:
            raise UserError(f"`new_subgoals` is set but `{name}` is {value!r} and not {right!r}; {remedy}.")
    if not game.get("subgoal_file"):
        raise UserError("`new_subgoals` is set but `env_config.subgoal_file` is not; give the data set to add to.")


def _check_planned_game(config: Any, settings: NewSubgoalSettings) -> None:
    """Refuses other games that no language model can prepare, and planners that draw no data set."""
    planner = config.planner
    if not isinstance(planner, Mapping) or planner.get("name") != RandomPlanner.name or not planner.get("subgoals"):
        raise UserError(
            f"`new_subgoals` is set but `planner` is {planner!r}, which draws no data set that could grow; give "
            "{name: random, subgoals: FILE}, or train in the onion-soup kitchens with subgoals "
            f"({SUBGOAL_ENV_ID})."
        )
    how = preparation_class(config.env)
    if settings.states_by == BY_MODEL and how.form is None:
        raise UserError(
            f"`new_subgoals.states_by` is {BY_MODEL!r}, but no model can propose states of {config.env!r}; set it to "
            f"{ENCOUNTERED!r}."
        )


class NewSubgoalsMixin(Algorithm):
    """Asks for further subgoals each so many iterations, and keeps what was added in its checkpoints."""

    _new_subgoals: NewSubgoals | None = None

    @override(Algorithm)
    def setup(self, config: Any) -> None:
        """Sets up the algorithm, then who asks."""
        super().setup(config)
        own = self.config
        if own.new_subgoals is not None:
            settings, game = NewSubgoalSettings.checked(NEW_SUBGOALS, own.new_subgoals), dict(own.env_config or {})
            coded = isinstance(own.subgoal_rewards, Mapping) and own.subgoal_rewards.get("name") == "code"
            common: dict[str, Any] = {"with_code": coded, "seed": own.seed or 0}
            if own.env == SUBGOAL_ENV_ID:
                layout, path = game.get("layout", "cramped_room"), str(game["subgoal_file"])
                self._new_subgoals = KitchenSubgoals(settings, layout, path, **common)
            else:
                self._new_subgoals = NewSubgoals(settings, own.env, game, str(own.planner["subgoals"]), **common)

    @override(Algorithm)
    def step(self) -> dict[str, Any]:
        """One training iteration; then, if it is time, new subgoals. The figures stand under `new_subgoals`."""
        result: dict[str, Any] = super().step()
        new = self._new_subgoals
        if new is not None:
            if (self.iteration + 1) % new.settings.every == 0 and new.ask(self._encountered()):
                self.tell_new_subgoals()
            result[NEW_SUBGOALS] = new.figures()
        return result

    def tell_new_subgoals(self) -> None:
        """Lets the games of all EnvRunners draw what was added so far."""
        if self._new_subgoals is None:
            return
        texts, sources = list(self._new_subgoals.subgoals), dict(self._new_subgoals.sources)

        def learn(runner: Any) -> None:
            games = drawing(runner)
            if games is not None:
                games.learn(texts, sources)

        for group in (self.env_runner_group, self.eval_env_runner_group):
            if group is not None:
                group.foreach_env_runner(learn)

    def _encountered(self) -> list[Any]:
        def snapshots(runner: Any) -> list[Any]:
            games = drawing(runner)
            return [] if games is None else games.snapshots()

        assert self.env_runner_group is not None
        parts = self.env_runner_group.foreach_env_runner(snapshots)
        return [snapshot for part in parts for snapshot in part]

    @override(Algorithm)
    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state, and what was asked and added."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        if self._new_subgoals is not None:
            state[NEW_SUBGOALS] = self._new_subgoals.to_state()
        return state

    @override(Algorithm)
    def set_state(self, state: Any) -> None:
        """Goes on from a state; the games draw what was added."""
        super().set_state(state)
        if self._new_subgoals is not None and NEW_SUBGOALS in state:
            self._new_subgoals.set_state(state[NEW_SUBGOALS])
            self.tell_new_subgoals()


# ---- EMMA -------------------------------------------------------------------------------------------------------


EARLIER_FRAMES = "rllib_llm_comm/earlier_frames"


class EmmaObservations(ConnectorV2):
    """Replaces every new observation by what `EmmaEncoder` makes of it.

    Input: multi-agent episodes whose newest observations are dicts with `entities`, `manual` and `subgoal`, and
    optionally `action_mask` and `state`. The earlier maps of an agent travel in the episode's `custom_data` and so
    survive the cuts between roll-out fragments.

    Args:
        input_observation_space: Dict of the agents' observation spaces.
        input_action_space: Dict of the agents' Discrete spaces.
        settings: The network's settings.

    Raises:
        UserError: If the spaces do not hold what is needed.
    """

    def __init__(
        self,
        input_observation_space: gym.Space | None = None,
        input_action_space: gym.Space | None = None,
        *,
        settings: EmmaSettings,
        **kwargs: Any,
    ) -> None:
        self._settings = settings
        self._encoder = EmmaEncoder(load_text_encoder(settings.text_encoder), settings)
        super().__init__(input_observation_space, input_action_space, **kwargs)

    @override(ConnectorV2)
    def recompute_output_observation_space(
        self, input_observation_space: gym.Space, input_action_space: gym.Space
    ) -> gym.Space:
        """The agents' spaces as arrays."""
        if not isinstance(input_observation_space, gym.spaces.Dict):
            return input_observation_space
        return gym.spaces.Dict(
            {
                agent: emma_space(agent, space, input_action_space[agent], self._settings)  # type: ignore[index]
                for agent, space in input_observation_space.spaces.items()
            }
        )

    @override(ConnectorV2)
    def __call__(
        self,
        *,
        rl_module: RLModule,
        batch: dict[str, Any],
        episodes: list[MultiAgentEpisode],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Writes the arrays into the episodes."""
        for episode in episodes:
            earlier = episode.custom_data.setdefault(EARLIER_FRAMES, {})
            for agent, single in episode.agent_episodes.items():
                if not len(single.observations):
                    continue
                seen = newest_observation(single)
                if ENTITIES not in seen:  # arrays already
                    continue
                space = self.observation_space[agent]
                frames = earlier.setdefault(str(agent), [])
                arrays = self._encoder.encode(seen, frames, CRITIC_STATE in space.spaces)
                single.set_observations(at_indices=-1, new_data=arrays)
                single.observation_space = space
                frames.append(np.array(seen[ENTITIES]))
                del frames[: -self._settings.frames]
        return batch


class EmmaModule(ActorCriticModule):
    """One policy that follows subgoals in words (EMMA under MAPPO: SAMA's language-grounded agents).

    `model_config` holds the fields of `EmmaSettings`. Observations are those of the `EmmaObservations` connector. The
    text encoder is frozen and shared by the process; it is no part of the weights.
    """

    @override(ActorCriticModule)
    def build_network(self, config: dict[str, Any]) -> EmmaNetwork:
        """Actor and critic."""
        settings, space = EmmaSettings.from_mapping(config), self.observation_space
        parts: Any = space.spaces if isinstance(space, gym.spaces.Dict) else {}
        for name in (FRAMES, SUBGOAL_TOKENS, MANUAL_TOKENS):
            if name not in parts:
                raise UserError(
                    f"the observation space is {space}, but EMMA needs a Dict with `{name}`; put the connector "
                    "`EmmaObservations` in front of it."
                )
        if settings.critic_observation == AUTO:
            seen = BY_STATE if CRITIC_STATE in parts else BY_OWN
            settings = settings.replace(critic_observation=seen)
        return EmmaNetwork(
            settings,
            symbols=int(parts[FRAMES].high.max()) + 1,
            shape=parts[FRAMES].shape[1:3],
            actions=int(self.action_space.n),
            state_size=parts[CRITIC_STATE].shape[0] if settings.critic_observation == BY_STATE else 0,
            encoder=load_text_encoder(settings.text_encoder),
        )

    @override(ActorCriticModule)
    def export_policy(self) -> PolicyExport:
        """Settings, sizes and weights; not the encoder."""
        return PolicyExport(
            GROUNDED, network_file(self.network), {**self.network.settings.to_dict(), **self.network.sizes}
        )


class EMMAConfig(NewSubgoalsConfigMixin, MAPPOConfig):
    """Settings of `EMMA`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import EMMAConfig

        algo = EMMAConfig().environment(env_config={"layout": "coordination_ring"}).build_algo()
        algo.train()
    """

    network: ClassVar[str] = "emma"
    settings_models = {
        **MAPPOConfig.settings_models,
        "subgoal_data": SubgoalData,
        "policy_network": part(
            EmmaSettings, "text_encoder", "width", "frames", "filters", "hiddens", "critic_observation",
            "max_subgoal_tokens", "max_manual_tokens",
        ),
    }  # fmt: skip
    subgoals_in_vector: ClassVar[bool] = False
    own_env: ClassVar[str | None] = SUBGOAL_ENV_ID
    env_defaults: ClassVar[Mapping[str, Any]] = {
        "observe": ["entities", "state"], "action_level": "goal_cell", "commit": True,
    }  # fmt: skip

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: onion-soup kitchens with sampled subgoals, trained within minutes (ours)."""
        super().__init__(algo_class=algo_class or EMMA)
        self.lr = 2e-3
        self.critic_lr = 1e-3
        self.lambda_ = 0.6
        self.entropy_coeff = 0.02
        self.num_epochs = 8
        self.minibatch_size = 512
        self.train_batch_size_per_learner = 2048
        self.num_envs_per_env_runner = 32

    @override(NumericPPOConfig)
    def network_settings(self) -> Any:
        """The module's `model_config` as checked settings (`EmmaSettings`).

        Raises:
            UserError: If a value is not allowed.
        """
        own = {name: getattr(self, name) for name in EmmaSettings.names() if hasattr(self, name)}
        return EmmaSettings(**{**own, "init_seed": self.seed})

    @override(PPOConfig)
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The shared module."""
        return RLModuleSpec(module_class=EmmaModule, model_config=self.network_settings().to_dict())

    @override(NumericPPOConfig)
    def observations_connector(self) -> ConnectorV2:
        """`EmmaObservations`."""
        return EmmaObservations(settings=self.network_settings())

    @override(MAPPOConfig)
    def validate(self) -> None:
        """Checks all settings.

        Raises:
            UserError: If a value is not allowed or settings do not fit together.
        """
        super().validate()
        self._validate_new_subgoals()
        check_text_encoder(self.text_encoder)


class EMMA(NewSubgoalsMixin, PolicyCheckpointMixin, PPO):
    """MAPPO with a network that reads a manual and a subgoal; settings: `EMMAConfig`."""

    @classmethod
    @override(PPO)
    def get_default_config(cls) -> EMMAConfig:
        """The default settings."""
        return EMMAConfig()


class SymbolicPPOConfig(NewSubgoalsConfigMixin, NumericPPOConfig):
    """Settings of `SymbolicPPO`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import SymbolicPPOConfig

        algo = (
            SymbolicPPOConfig()
            .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
            .training(lr=1e-3)
            .build_algo()
        )
    """

    network: ClassVar[str] = "mlp"
    settings_models = {**NumericPPOConfig.settings_models, "subgoal_data": SubgoalData}

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults (ours: the paper names PPO and gives no number)."""
        super().__init__(algo_class=algo_class or SymbolicPPO)

    @override(NumericPPOConfig)
    def validate(self) -> None:
        """Checks all settings.

        Raises:
            UserError: If a value is not allowed or settings do not fit together.
        """
        super().validate()
        self._validate_new_subgoals()


class SymbolicPPO(NewSubgoalsMixin, PolicyCheckpointMixin, PPO):
    """The paper's "symbolic PPO": all agents share an MLP actor and an MLP critic; settings: `SymbolicPPOConfig`."""

    @classmethod
    @override(PPO)
    def get_default_config(cls) -> SymbolicPPOConfig:
        """The default settings."""
        return SymbolicPPOConfig()
