"""PPO for agents that see numbers instead of words: what `SymbolicPPO`, `CommNet` and `MAPPO` share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.annotations import override

from rllib_llm_comm.core.errors import UserError, space_text
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.policies.numeric_network import (
    AUTO,
    BY_OWN,
    BY_STATE,
    BY_TEAM,
    CRITIC_STATE,
    STATE,
    TEAM_VECTORS,
    VECTOR,
    NumericNetwork,
    NumericSettings,
    team_vectors,
)
from rllib_llm_comm.policies.policy_folder import PolicyExport, network_file
from rllib_llm_comm.policies.policy_manifest import NUMERIC
from rllib_llm_comm.rl.actor_critic import ActorCriticModule
from rllib_llm_comm.rl.connectors import LATEST_VECTORS, AddObservationsInOrder, ReplaceObservations
from rllib_llm_comm.rl.multi_agent_ppo import MultiAgentPPOConfig, PPOTraining
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin
from rllib_llm_comm.rl.strict_config import SHARED_POLICY, select_fields, with_defaults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from rllib_llm_comm.core.settings import Settings


class NumericObservations(ReplaceObservations):
    """Keeps `vector` and `action_mask` of every new observation and drops the rest.

    Input: multi-agent episodes whose newest observations are dicts with `vector` and, optionally, `action_mask`.
    With `team` the vector becomes `team_vectors` (agents, size): the agent's own, then those of the others as they
    were when they were asked last, as long as messages of a busy agent last, too. They travel in the episode's
    `custom_data` and so survive the cuts between roll-out fragments.

    A central critic may see more than the actor: with `critic="team"` the `team_vectors` come beside the vector; with
    `"state"` the observation's Box `state`, flat, as `critic_state`; `"auto"` is `"state"` where all agents have one,
    otherwise `"team"`. With `"own"` the critic sees what the actor sees.

    Args:
        team: True if agents hear the others.
        critic: Input of the critic: `"own"`, `"team"`, `"state"` or `"auto"`.

    Raises:
        UserError: If the spaces do not hold what is asked for.
    """

    def __init__(
        self,
        input_observation_space: gym.Space | None = None,
        input_action_space: gym.Space | None = None,
        *,
        team: bool = False,
        critic: str = BY_OWN,
        **kwargs: Any,
    ) -> None:
        self._team = team
        self._critic = critic
        super().__init__(input_observation_space, input_action_space, **kwargs)

    @override(ReplaceObservations)
    def spaces(self, agents: Mapping[str, gym.Space], actions: Any) -> Mapping[str, gym.Space]:
        """The agents' observation spaces without words."""
        told = self._critic == BY_STATE or (self._critic == AUTO and all(map(_tells_state, agents.values())))
        spaces = {
            agent: self._space(agent, space, actions[agent], len(agents), told) for agent, space in agents.items()
        }
        shapes = {agent: space[TEAM_VECTORS].shape for agent, space in spaces.items() if TEAM_VECTORS in space.spaces}
        if len(set(shapes.values())) > 1:
            lengths = {agent: shape[1:] for agent, shape in shapes.items() if shape}
            raise UserError(
                f"the agents' `vector`s have the shapes {lengths}, but those of a team must have the same; fill up the "
                "shorter ones with zeros."
            )
        return spaces

    def _space(self, agent: str, space: gym.Space, actions: gym.Space, agents: int, told: bool) -> gym.spaces.Dict:
        inner = space.spaces if isinstance(space, gym.spaces.Dict) else {}
        if not isinstance(inner.get(VECTOR), gym.spaces.Box):
            raise UserError(
                f"the observation space of agent {agent!r} is {space_text(space)}, but must be a Dict with a Box "
                f"`{VECTOR}`; make the environment tell its observation in numbers."
            )
        if not isinstance(actions, gym.spaces.Discrete):
            raise UserError(f"the action space of agent {agent!r} is {actions}, but must be Discrete.")
        shape = (math.prod(inner[VECTOR].shape or ()),)  # images, too, are read as vectors
        seen: dict[str, tuple[int, ...]] = {TEAM_VECTORS: (agents, *shape)} if self._team else {VECTOR: shape}
        if told:
            if not _tells_state(space):
                raise UserError(
                    f"`critic_observation` is 'state' but the observation space of agent {agent!r} has no Box "
                    f"`{STATE}`; make the environment tell its state, or use 'team'."
                )
            seen[CRITIC_STATE] = (math.prod(inner[STATE].shape or ()),)
        elif self._critic in (AUTO, BY_TEAM):
            seen[TEAM_VECTORS] = (agents, *shape)
        boxes = {name: gym.spaces.Box(-np.inf, np.inf, form, np.float32) for name, form in seen.items()}
        return gym.spaces.Dict({**boxes, ACTION_MASK: gym.spaces.Box(0, 1, (int(actions.n),), np.int8)})

    @override(ReplaceObservations)
    def write(self, episode: MultiAgentEpisode, newest: list[tuple[Any, SingleAgentEpisode, Any]]) -> None:
        """Writes the numbers into an episode."""
        waiting = sorted((one for one in newest if self._is_new(one[0], one[2])), key=lambda one: str(one[0]))
        latest = episode.custom_data.setdefault(LATEST_VECTORS, {})
        latest.update({str(agent): np.array(seen[VECTOR], np.float32).reshape(-1) for agent, _, seen in waiting})
        for agent, single, seen in waiting:
            single.set_observations(at_indices=-1, new_data=self._numbers(str(agent), seen, latest))
            space = self.observation_space[agent]
            if single.observation_space is not space or single.observations.space is not space:
                single.observation_space = space  # which takes its time

    def _numbers(self, agent: str, seen: dict[str, Any], latest: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        space = self.observation_space[agent]
        allowed = seen.get(ACTION_MASK, np.ones(space[ACTION_MASK].shape))
        # Copies, as of the vectors: an environment may write into its last observation again.
        numbers: dict[str, np.ndarray] = {ACTION_MASK: np.array(allowed, np.int8)}
        if TEAM_VECTORS in space.spaces:
            team = sorted(map(str, self.observation_space.spaces))
            numbers[TEAM_VECTORS] = team_vectors(agent, team, latest)
        if VECTOR in space.spaces:
            numbers[VECTOR] = latest[agent]
        if CRITIC_STATE in space.spaces:
            numbers[CRITIC_STATE] = np.array(seen[STATE], np.float32).reshape(-1)
        return numbers

    def _is_new(self, agent: Any, observation: Any) -> bool:
        """True if this is an observation as the game gives it, not yet one that this connector has left."""
        if VECTOR not in observation:
            return False
        parts = self.observation_space[agent].spaces
        # A game may show the very parts that are wanted, but as lists, images or numbers of another kind.
        return observation.keys() != parts.keys() or any(
            getattr(seen, "dtype", None) != parts[name].dtype or seen.shape != parts[name].shape
            for name, seen in observation.items()
        )


def _tells_state(space: gym.Space) -> bool:
    return isinstance(space, gym.spaces.Dict) and isinstance(space.spaces.get(STATE), gym.spaces.Box)


class NumericModule(ActorCriticModule):
    """One policy that chooses among actions by an agent's numeric vector, alone or with the team's.

    `model_config` holds the fields of `NumericSettings`. Observations are those of the `NumericObservations`
    connector.
    """

    @override(ActorCriticModule)
    def build_network(self, config: dict[str, Any]) -> NumericNetwork:
        """Actor and critic."""
        settings = _resolved(NumericSettings.from_mapping(config), self.observation_space)
        return NumericNetwork(settings, *self._sizes(settings))

    def _sizes(self, settings: NumericSettings) -> tuple[int, int, int | None]:
        """Lengths of an agent's vector, of the actions and of what a central critic reads."""
        spaces = self.observation_space.spaces
        size = int(spaces[settings.inputs[0]].shape[-1])
        central = settings.critic_input != settings.inputs[0]
        return size, int(self.action_space.n), math.prod(spaces[settings.critic_input].shape) if central else None

    def narrow(self, observations: dict[str, Any]) -> dict[str, Any]:
        """Observations without the columns that are zero in all rows of an update (`NumericNetwork.narrow`)."""
        return self.network.narrow(observations)

    @override(ActorCriticModule)
    def export_policy(self) -> PolicyExport:
        """Settings, sizes and weights."""
        settings = self.network.settings
        sizes = dict(zip(("size", "actions", "critic_size"), self._sizes(settings), strict=True))
        return PolicyExport(NUMERIC, network_file(self.network), {**settings.to_dict(), **sizes})


def _resolved(settings: NumericSettings, space: gym.Space) -> NumericSettings:
    """The settings without `"auto"`, after a check that observations have what they ask for."""
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
    if settings.critic_observation == AUTO:
        seen = BY_STATE if CRITIC_STATE in parts else BY_TEAM
        settings = settings.replace(critic_observation=seen)
    for name in (settings.inputs[0], settings.critic_input):
        if name not in parts:
            raise UserError(
                f"the observation space is {space}, but a numeric policy needs a Dict with `{name}`; put the "
                "connector `NumericObservations` in front of it."
            )
    return settings


@with_defaults(lr=1e-3, minibatch_size=256, num_epochs=4)
class NumericTraining(PPOTraining):
    """The optimisation; defaults of rates, passes and minibatches are ours."""


class NumericPPOConfig(MultiAgentPPOConfig):
    """Settings of algorithms whose agents observe numbers: the parts `vector` and `action_mask`."""

    settings_models = {
        **MultiAgentPPOConfig.settings_models,
        "training": NumericTraining,
        "policy_network": select_fields(NumericSettings, "hiddens"),
    }
    network: ClassVar[str]
    acts_by_vectors: ClassVar[bool] = True
    subgoals_in_vector: ClassVar[bool] = True
    own_env: ClassVar[str | None] = None
    """Id of the game that an algorithm is made for."""
    env_defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings that the game has with this algorithm unless `env_config` says otherwise."""

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the algorithm's own game."""
        super().__init__(algo_class=algo_class)
        if self.own_env is not None:
            self.env = self.own_env

    def _fill_env_config(self) -> None:
        """Fills `env_config` up with `env_defaults` in the algorithm's own game; not sooner, as it may get another."""
        if self.own_env is not None and self.env == self.own_env:
            config: Any = self  # RLlib does not type it
            config.env_config = {**self.env_defaults, **(config.env_config or {})}

    def policy_network(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets the network; the settings are those of `settings_models["policy_network"]`."""
        return self.assign("policy_network", settings, values)

    def network_settings(self) -> Any:
        """The module's `model_config` as checked settings (`NumericSettings`).

        Raises:
            UserError: If a value is not allowed.
        """
        return NumericSettings.from_attributes(self, init_seed=self.seed)

    @override(PPOConfig)
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The shared module."""
        return RLModuleSpec(module_class=NumericModule, model_config=self.network_settings().to_dict())

    @override(AlgorithmConfig)
    def build_env_to_module_connector(self, env: Any = None, spaces: Any = None, device: Any = None) -> ConnectorV2:
        """RLlib's pipeline with the network's own piece behind the user's pieces."""
        pipeline = super().build_env_to_module_connector(env=env, spaces=spaces, device=device)
        following = "AddObservationsFromEpisodesToBatch"
        pipeline.insert_before(following, self.observations_connector())
        pipeline.insert_before(following, AddObservationsInOrder())
        return pipeline

    def observations_connector(self) -> ConnectorV2:
        """The connector from the environment's observations to those of the module: its own, if it names one.

        A module of one's own, given to `rl_module`, names it as its class's `observations_connector`.
        """
        spec: Any = self.rl_module_spec
        if isinstance(spec, MultiRLModuleSpec):
            spec = spec.rl_module_specs.get(SHARED_POLICY)
        own = getattr(getattr(spec, "module_class", None), "observations_connector", None)
        if own is not None:
            connector: ConnectorV2 = own()
            return connector
        settings = self.network_settings()
        return NumericObservations(team=settings.hears, critic=settings.critic_observation)

    @override(MultiAgentPPOConfig)
    def validate(self) -> None:
        """Checks all settings; a `UserError` names one that is not allowed or does not fit the others."""
        self._fill_env_config()
        self.network_settings()
        super().validate()


class NumericPPO(PolicyCheckpointMixin, PPO):
    """PPO of agents that observe numbers; its settings are those of `config_class`."""

    config_class: ClassVar[type[NumericPPOConfig]]
