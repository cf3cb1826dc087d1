"""All games by name, the game that an object belongs to, and environments by id."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.core.registry import Registry
from rllib_llm_comm.envs.game_record import GameRecord

if TYPE_CHECKING:
    from pettingzoo.env_registry.spec import EnvSpec

_PACKAGE = "rllib_llm_comm.envs"
GAMES: Registry[GameRecord] = Registry(
    "game",
    {
        "overcooked_text": f"{_PACKAGE}.overcooked_text:GAME",
        "overcooked_ai": f"{_PACKAGE}.overcooked_ai:GAME",
        "minirts": f"{_PACKAGE}.minirts:GAME",
        "door": f"{_PACKAGE}.door:GAME",
        "referential": f"{_PACKAGE}.referential:GAME",
        "frozen_lake": f"{_PACKAGE}.frozen_lake:GAME",
    },
    "`register_game` adds one.",
)
"""The record of each game. A message that two games know belongs to the first of them."""


def register_game(record: GameRecord) -> None:
    """Makes a game of one's own known: to PettingZoo, and to teachers, planners and tools by what its record names.

    Args:
        record: The game; one of the same name is replaced.
    """
    from pettingzoo.env_registry import registration

    GAMES.register(record.name, record)
    for env_id, entry_point in record.entry_points.items():
        registration.parallel_registry.pop(env_id, None)
        registration.aec_registry.pop(env_id, None)
        _register(env_id, entry_point)


def register_games() -> None:
    """Puts all games into PettingZoo's registries of parallel and AEC environments; may be called again."""
    from pettingzoo.env_registry import registration

    for record in GAMES.values():
        for env_id, entry_point in record.entry_points.items():
            if env_id not in registration.parallel_registry:
                _register(env_id, entry_point)


def _register(env_id: str, entry_point: str | Callable[..., Any]) -> None:
    from pettingzoo.env_registry import registration

    registration.register("parallel", env_id, entry_point)
    registration.register("aec", env_id, partial(_in_turns, entry_point))


def _in_turns(entry_point: str | Callable[..., Any], **settings: Any) -> Any:
    """The AEC form of an environment; its game is imported when one is made."""
    from pettingzoo.utils.conversions import parallel_to_aec

    make = load(entry_point) if isinstance(entry_point, str) else entry_point
    return parallel_to_aec(make(**settings))


def env_ids() -> tuple[str, ...]:
    """Ids of the environments of all games."""
    return tuple(env_id for record in GAMES.values() for env_id in record.entry_points)


def scripted_player_of(thing: Any) -> Any:
    """The scripted player of the game that a state or an environment belongs to, or `None`.

    Args:
        thing: As of `game_of`.
    """
    record = game_of(thing)
    return load(record.scripted_player) if record and record.scripted_player else None


def game_of(thing: Any) -> GameRecord | None:
    """The game whose package defines an object's class, or the nearest of its base classes; `None` if there is none.

    Args:
        thing: An environment or a state of a game.
    """
    for kind in type(thing).__mro__:
        for record in GAMES.values():
            if f"{kind.__module__}.".startswith(f"{record.package}."):
                return record
    return None


def env_spec(env_id: str) -> EnvSpec:
    """The entry of an id in PettingZoo's registry of parallel environments.

    Args:
        env_id: The id; of several versions the latest may be named without its version.

    Raises:
        UserError: If there is none.
    """
    from pettingzoo.env_registry import registration

    try:
        return registration.spec("parallel", env_id)
    except Exception as error:  # PettingZoo raises several kinds for names that it does not know
        raise UserError(
            f"`env` is {env_id!r}, which is not in PettingZoo's registry of parallel environments; import the module "
            f"that registers it first.{did_you_mean(env_id, registration.parallel_registry)}"
        ) from error


def own_id(entry: Any) -> str | None:
    """The id of the package's environment that an entry makes; `None` if there is none.

    An environment of ours may go by another id, too. Settings of ours are known to reach nothing outside
    (`rllib_llm_comm.policies.recorded_settings`), those of others are not.

    Args:
        entry: A maker of environments, or "module:name" of one.
    """
    wanted = load(entry) if isinstance(entry, str) else entry
    for record in GAMES.values():
        for env_id, point in record.entry_points.items():
            if (load(point) if isinstance(point, str) else point) is wanted:
                return env_id
    return None


def make_env(env_id: str, **settings: Any) -> Any:
    """Makes an environment, one of ours or any other in PettingZoo's registry of parallel environments.

    Args:
        env_id: Its id, such as "rllib_llm_comm/overcooked_text-v0".
        **settings: Its settings.

    Raises:
        UserError: If the id is unknown, or one of our games refuses a setting.
    """
    from pettingzoo.env_registry import registration

    env_spec(env_id)
    return registration.make("parallel", env_id, **settings)


def without_subgoals(env_id: str, settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Id and settings of the same game in an environment that gives no subgoals itself, for planners to give them.

    Args:
        env_id: Id of an environment.
        settings: Its settings.
    """
    for record in GAMES.values():
        if env_id in record.without_subgoals:
            found: tuple[str, dict[str, Any]] = load(record.without_subgoals[env_id])(settings)
            return found
    return env_id, settings
