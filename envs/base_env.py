"""Base class of the PettingZoo environments: settings, spaces by agent, rendering, the meaning of messages."""

from __future__ import annotations

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.core.settings import Settings, settings_of
from rllib_llm_comm.envs.games import game_of
from rllib_llm_comm.envs.games import in_turns as in_turns
from rllib_llm_comm.envs.wrappers import MaxCycles

Observation = dict[str, Any]
"""An agent's observation: its parts by name."""

Infos = dict[str, dict[str, Any]]
"""Info by agent."""

Reset = tuple[dict[str, Observation], Infos]
"""Result of `reset`: observations and infos of all agents."""

Step = tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], Infos]
"""Result of `step`: observations, rewards, terminations, truncations and infos of all agents."""


class GameSettings(Settings):
    """Settings that every game has; each game declares its own beside them."""

    render_mode: Literal["human", "ansi", "rgb_array"] | None = None
    """Default mode of `render`; "human" writes ANSI to the terminal."""


class Game(ParallelEnv, ABC):
    """A parallel environment of ours.

    Args:
        **settings: Those that `settings_model` declares. A game of one's own may have a constructor with arguments
            instead, whose types are the settings'.

    Raises:
        UserError: For an unknown setting or a value that is not allowed.

    Attributes:
        env_id: The registered id.
        settings_model: The game's settings.
        chosen: The settings of this environment.
        settings: The same as JSON-able values, without `render_mode`.
        observation_spaces: The space of each agent's observations.
        action_spaces: The space of each agent's actions.
        render_mode: Default mode of `render`.
        state_bounds: Least and largest number of `state`.
        observes_busy: Whether `step` makes observations for agents that need no action, too, as PettingZoo demands;
            False from who would drop them. All agents get their last one either way. A game may disregard it.
        shows_copies: Whether nothing writes into an observation that was shown, so that who keeps it need not copy it.
            It counts where a class itself says so: who inherits from a game may do otherwise.
        keeps_contract: Whether the game's tests show that it gives what `GameContract` demands, so that observations
            need not be checked in each step. It counts as `shows_copies` does.
    """

    observes_busy: bool = True
    shows_copies: ClassVar[bool] = False
    keeps_contract: ClassVar[bool] = False
    env_id: ClassVar[str]
    state_bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    _rng: np.random.Generator
    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": ["human", "ansi", "rgb_array"],
        "is_parallelizable": True,
        "render_fps": 4,
    }
    observation_spaces: dict[str, spaces.Dict]
    action_spaces: Mapping[str, spaces.Space[Any]]
    render_mode: str | None = None
    settings_model: ClassVar[type[GameSettings]] = GameSettings
    chosen: Any

    def __init__(self, **settings: Any) -> None:
        self.chosen = self.settings_model(**settings)
        self.settings: dict[str, Any] = self.chosen.to_dict()
        self.render_mode = self.settings.pop("render_mode")
        self.agents: list[str] = []
        self._rng = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Dict:
        """The space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """The space of an agent's actions."""
        return self.action_spaces[agent]

    @property
    def np_random(self) -> np.random.Generator:
        """The generator that resets without a seed and chance within episodes draw from."""
        return self._rng

    @np_random.setter
    def np_random(self, generator: np.random.Generator) -> None:
        self._rng = generator

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Starts an episode.

        Args:
            seed: Of all that the settings leave to be drawn; `None` goes on with the random numbers at hand.
            options: Accepted; there are none.

        Returns:
            Observations and infos of all agents.
        """
        raise NotImplementedError

    def step(self, actions: Mapping[str, Any]) -> Step:
        """Plays one step, or until an agent has to choose.

        Args:
            actions: Action per agent; those of agents that need none do not count and may be left out.

        Returns:
            Observations, rewards, terminations, truncations and infos of all agents; empty after the end.

        Raises:
            UserError: For an unknown agent, or a missing or impossible action.
        """
        raise NotImplementedError

    def whole(self) -> Sequence[float] | np.ndarray:
        """The whole game in numbers, private facts included; a game that does not define it has no `state`.

        Raises:
            NotImplementedError: If the game does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no `whole`, so that it has no `state`.")

    def state(self) -> np.ndarray:
        """The whole game for central critics, float32 (n,): what any agent sees, and what nobody is told."""
        return np.array(self.whole(), np.float32)

    @property
    def state_space(self) -> spaces.Box:
        """The space of `state`.

        Raises:
            AttributeError: If the game has no `state`.
        """
        if type(self).whole is Game.whole:
            raise AttributeError(f"{type(self).__name__} has no `state`.")
        return spaces.Box(*self.state_bounds, self.state().shape, np.float32)

    @property
    def facts(self) -> tuple[str, ...]:
        """All private facts that agents can be told, in the spelling of the infos' `private`; empty for none."""
        return ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the settings that a user should read before a run: a name that means something else too."""
        return ()

    def meaning(self, message: str) -> str | None:
        """Content of a message as a short text, comparable with the infos' `private`; None if the game cannot tell.

        Args:
            message: Any text, also one that is none of the game's own sentences.
        """
        return None

    def understands(self, message: str) -> bool | None:
        """True if a message is one of the game's own sentences, as its record knows them; None if it has none."""
        record = game_of(self)
        known = record.code("sayings") if record else None
        return known(message) is not None if known else None

    def request(self, message: str) -> str | None:
        """Request that a message makes of its listener, in words of actions; its meaning if the game does not tell."""
        return self.meaning(message)

    def action_phrases(self, agent: str) -> list[str]:
        """Each action of an agent in words now, also where agents do not read; empty if the game has none."""
        return []

    def draw_rgb(self) -> np.ndarray:
        """The game as pixels, uint8 (height, width, 3); needed only of games with the render mode "rgb_array".

        Raises:
            UserError: If the game does not define it.
        """
        raise UserError(
            f"`{type(self).__name__}` has the render mode 'rgb_array' but no `draw_rgb`; define it, or omit the mode "
            "from `metadata`."
        )

    @abstractmethod
    def draw_ansi(self) -> str:
        """The game in characters."""

    def places(self) -> dict[str, tuple[float, float]]:
        """Heads of the agents in the picture of `draw_rgb`, (x, y) in pixels; empty if unknown."""
        return {}

    def render(self, mode: str | None = None) -> Any:
        """Draws the game.

        Args:
            mode: "ansi", "rgb_array" or "human"; None takes `render_mode`.

        Returns:
            A string, an array (height, width, 3) of uint8, or None ("human" writes to the terminal).

        Raises:
            UserError: If there is no such mode.
        """
        mode = mode or self.render_mode
        if mode is None:
            gymnasium.logger.warn("`render` was called without a `render_mode`; nothing is drawn.")
            return None
        require_choice("mode", mode, self.metadata["render_modes"])
        if mode == "rgb_array":
            return self.draw_rgb()
        drawing = self.draw_ansi()
        if mode == "ansi":
            return drawing
        sys.stdout.write(drawing + "\n")
        return None

    def close(self) -> None:
        """Nothing has to be closed."""


Made = TypeVar("Made", bound=Game)


def constructor(game: type[Made], name: str = "parallel_env") -> Callable[..., Made]:
    """The function that makes a game from settings, all of them checked, under its name in the module of the class.

    Its attribute `game` is the class.
    """

    model = settings_of(game)

    def make(*, max_cycles: int | None = None, **settings: Any) -> Made:
        """Makes the environment.

        Args:
            max_cycles: Calls of `step` after which the episode is truncated, >= 1, on top of the game's own time
                limit; None for no more. A wrapper counts them, so that `unwrapped` is the game.
            **settings: Those of the game.

        Raises:
            UserError: For an unknown setting or a value that is not allowed.
        """
        model.from_mapping(settings)
        made = game(**settings)
        return made if max_cycles is None else cast(Made, MaxCycles(made, max_cycles))

    make.__name__ = make.__qualname__ = name
    make.__module__ = game.__module__  # so that it can be pickled
    make.game = game  # type: ignore[attr-defined]
    limit = inspect.Parameter("max_cycles", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=int | None)
    own = [one for one in inspect.signature(model).parameters.values() if one.name != limit.name]
    make.__signature__ = inspect.Signature([*own, limit])  # type: ignore[attr-defined]
    return make
