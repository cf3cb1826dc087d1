"""The games: the record of each, the game that an object belongs to, and environments by id."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.errors import UserError, shown
from rllib_llm_comm.core.lazy import load, load_setting
from rllib_llm_comm.core.registry import Registry

if TYPE_CHECKING:
    from pettingzoo import AECEnv, ParallelEnv
    from pettingzoo.env_registry.spec import EnvSpec


@dataclass(frozen=True)
class GoldenFormat:
    """Golden episodes of a game: recordings of the original that are replayed through ours.

    Attributes:
        keys: The keys by which an episode of this game is known.
        replay: "module:function" of (episode, report), which replays one episode and notes differences.
        name: Its name in reports, if it is not the game's.
        settings: True if `replay` takes settings that the file does not tell.
    """

    keys: frozenset[str]
    replay: str
    name: str = ""
    settings: bool = False


@dataclass(frozen=True)
class GameRecord:
    """A game. Everything but `name`, `package` and `entry_points` is optional; names of code are "module:attribute".

    Attributes:
        name: Its name in messages, such as "door".
        package: The package or module that defines the classes of its environments and states.
        entry_points: Id of each environment -> the function or class that makes it (PettingZoo's parallel form).
        scripted_player: A module or object with `messages(state, agents, rng)` and `advise(env, agent)`; the scripted
            teacher labels with it. For the teacher's settings `repeat_fact` and `ask_to_wait` it also has
            `facts(state, agents, rng)`, and `messages` takes `ask_to_wait`.
        partner: A function of (env, agent, habit, rng) that makes a scripted player of one agent for one episode: a
            function without arguments that gives its action. Without it, and with the habit "", `advise` plays.
        wait: A function of (env, agent) that gives the action of doing nothing, or `None` where there is none.
        pose: A function of (env, agent) that gives an agent's place and direction as one value that can be compared,
            for partners that notice that they stand still.
        view: A function of (env, agent, observation, settings) that gives what an agent would see in the same moment
            if the environment had these settings; partners that were trained with others are shown that.
        actions: A function of (env, agent, settings, rng) that gives a partner that was trained with these settings
            its own actions in the environment, like `envs.overcooked_ai.actions.OwnActions`, or `None` if they are
            the environment's.
        difference: A function of (settings, settings of a training) that gives what keeps a policy of that training
            from playing with the settings, as the end of a sentence after its name; empty if nothing does.
        tables: A class like `evaluation.kitchen_tables.KitchenTables`, which plays games of many seatings in arrays,
            with the scores of games played one by one; cross-play takes it for the seatings that it can play.
        keys: A function of (env, agent) that gives, for people who take a seat, the action of each key of the keyboard
            by which one walks ("ArrowUp", " ", ...); empty where one chooses among phrases only.
        picture: A function of (env, agent) that gives what an agent sees as pixels, uint8 (H, W, 3), and nothing else
            of the game; without it people who take a seat read.
        sayings: A function from a message to its meaning, or `None` if it is in none of the game's own wordings.
        golden: Formats of its golden episodes.
        planning: A `PlanningGame`, the adapter by which planners play it.
        preparation: A `GamePreparation`, by which the stages in which a language model prepares a game know it.
        event_words: A function that gives what a player reads of an event ("puts the onion on the board"), empty for
            one that tells a player nothing; without it the event's own name is shown, with spaces for underscores.
        success_words: Replays' words for an episode that was solved, and for one that was not; `None`: neutral ones.
        without_subgoals: Id of each environment that gives its agents subgoals itself -> a function from its settings
            to id and settings of the same game without subgoals, for planners.
        counts_collisions: True if `events` in its infos has "blocked" for each agent that another one blocked;
            evaluations count these as collisions.
        derived: True if it is made of other games, such as their planners' seats; `env_ids` leaves it out if not asked.
    """

    name: str
    package: str
    entry_points: Mapping[str, str]
    scripted_player: str = ""
    partner: str = ""
    wait: str = ""
    pose: str = ""
    view: str = ""
    actions: str = ""
    difference: str = ""
    tables: str = ""
    keys: str = ""
    picture: str = ""
    sayings: str = ""
    golden: tuple[GoldenFormat, ...] = ()
    planning: str = ""
    preparation: str = ""
    event_words: str = ""
    success_words: tuple[str, str] | None = None
    without_subgoals: Mapping[str, str] = field(default_factory=dict)
    counts_collisions: bool = False
    derived: bool = False

    def code(self, part: str, env_id: str = "") -> Any:
        """What the record names, imported on first use.

        Args:
            part: One of the attributes that name code, such as "sayings".
            env_id: The environment, for a part that names code of each, such as "entry_points".

        Returns:
            The thing, or `None` if the record names none.

        Raises:
            UserError: If the name leads nowhere.
        """
        where = getattr(self, part)
        if isinstance(where, Mapping):
            part, where = f"{part}[{env_id!r}]", where.get(env_id)
        if not where or not isinstance(where, str):
            return where or None
        return load_setting(f"`{part}` of the game {self.name!r}", where)


_PACKAGE = "rllib_llm_comm.envs"
_OURS = {
    "overcooked_text": f"{_PACKAGE}.overcooked_text:GAME",
    "overcooked_ai": f"{_PACKAGE}.overcooked_ai:GAME",
    "minirts": f"{_PACKAGE}.minirts:GAME",
    "door": f"{_PACKAGE}.door:GAME",
    "referential": f"{_PACKAGE}.referential:GAME",
    "frozen_lake": f"{_PACKAGE}.frozen_lake:GAME",
    "planner_seats": f"{_PACKAGE}.planner_seats:GAME",
}
GAMES: Registry[GameRecord] = Registry("game", _OURS, "`register_game` adds one, in a module that `--import` names.")
"""The record of each game. A message that two games know belongs to the first of them."""


def record_of(env: Any) -> GameRecord | None:
    """The record that has an environment of this id among its `entry_points`; `None` if none has."""
    return next((record for record in GAMES.values() if env in record.entry_points), None)


def register_game(record: GameRecord) -> None:
    """Makes a game of one's own known: to PettingZoo, and to teachers, planners and tools by what its record names.

    Args:
        record: The game; one of your own of the same name is replaced, and so is one whose classes are defined anew,
            also under another name, as in a cell of a notebook that is run again.

    Raises:
        UserError: If its name or an id is that of another game, or its parts are not what a record holds.
    """
    from pettingzoo.env_registry import registration

    if not isinstance(record.entry_points, Mapping):
        raise UserError(
            f"`entry_points` of the game {record.name!r} is {shown(record.entry_points)} but must be a mapping from "
            "ids, such as 'mine/coin-v0', to the functions that make the environments."
        )
    if record.name in _OURS:
        raise UserError(f"`name` is {record.name!r}, which is a game already; take another name.")
    makers = _makers(record)
    replaced = [
        name
        for name in GAMES
        if name not in _OURS and (name == record.name or _defined_anew(_makers(GAMES[name]), makers))
    ]
    for name, other in GAMES.items():
        if name not in replaced and (taken := set(other.entry_points) & set(record.entry_points)):
            raise UserError(f"`entry_points` has {min(taken)!r}, the id of the game {name!r}; take another id.")
    words = record.success_words
    if words is not None and not (isinstance(words, tuple) and [type(one) for one in words] == [str, str]):
        raise UserError(
            f"`success_words` of the game {record.name!r} is {words!r} but must be a tuple of two texts, such as "
            "('open', 'shut')."
        )
    old = [env_id for name in replaced for env_id in GAMES[name].entry_points]
    GAMES.register(record.name, record)
    for name in replaced:
        if name != record.name:
            GAMES.forget(name)
    for env_id in (*old, *record.entry_points):
        registration.parallel_registry.pop(env_id, None)
        registration.aec_registry.pop(env_id, None)
    for env_id, entry_point in record.entry_points.items():
        _register(env_id, entry_point)


def _makers(record: GameRecord) -> dict[str, Any]:
    """The classes or functions behind the entry points of a game, by the places where they are defined."""
    found: dict[str, Any] = {}
    for entry in record.entry_points.values():
        game = getattr(entry, "game", None)
        made = game if isinstance(game, type) else entry
        name = made if isinstance(made, str) else getattr(made, "__qualname__", "<")
        if not isinstance(made, str) and "<" not in name:  # a lambda has no name of its own
            found[f"{made.__module__}:{name}"] = made
    return found


def _defined_anew(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """True if all classes of a game have been defined once more, and that in another game."""
    return bool(before) and all(name in now and now[name] is not made for name, made in before.items())


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
    registration.register("aec", env_id, in_turns(entry_point))


def in_turns(make: str | Callable[..., ParallelEnv]) -> Callable[..., AECEnv]:
    """The constructor of a game in PettingZoo's AEC form, in which agents act one after the other.

    Args:
        make: The constructor of the parallel form, or "module:name" of it, which is imported when a game is made.
    """

    def aec_env(**settings: Any) -> AECEnv:
        """Makes the AEC form; the arguments are those of the parallel form."""
        from pettingzoo.utils.conversions import parallel_to_aec

        return parallel_to_aec((load(make) if isinstance(make, str) else make)(**settings))

    return aec_env


def env_ids(derived: bool = False) -> tuple[str, ...]:
    """Ids of the environments of all games, perhaps with those that are made of others."""
    return tuple(env_id for record in GAMES.values() if derived or not record.derived for env_id in record.entry_points)


def scripted_player_of(thing: Any) -> Any:
    """The scripted player of the game that a state or an environment belongs to, or `None`."""
    record = game_of(thing)
    return record.code("scripted_player") if record else None


def game_of(thing: Any) -> GameRecord | None:
    """The game whose package defines the class of an environment or a state, or the nearest of its base classes."""
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
        UserError: If there is none, or what makes it cannot be imported.
    """
    from pettingzoo.env_registry import registration

    try:
        spec = registration.spec("parallel", env_id)
    except Exception as error:  # PettingZoo raises several kinds for names that it does not know
        ids = {one.rpartition("/")[2]: one for one in registration.parallel_registry}
        near = difflib.get_close_matches(env_id.rpartition("/")[2].lower(), ids, n=1)
        raise UserError(
            f"`env` is {env_id!r}, which is not in PettingZoo's registry of parallel environments; import the module "
            f"that registers it first (`--import`).{f' Did you mean {ids[near[0]]!r}?' if near else ''}",
            "unknown",
        ) from error
    if isinstance(spec.entry_point, str):
        load_setting(f"the entry point of the environment {env_id!r}", spec.entry_point)
    return spec


def own_id(entry: Any) -> str | None:
    """The id of the package's environment that an entry makes; `None` if there is none.

    An environment of ours may go by another id, too. Settings of ours are known to reach nothing outside
    (`rllib_llm_comm.policies.recorded_settings`), those of others are not.

    Args:
        entry: A maker of environments, or "module:name" of one.
    """
    wanted = load(entry) if isinstance(entry, str) else entry
    for record in GAMES.values():
        for env_id in record.entry_points:
            if record.code("entry_points", env_id) is wanted:
                return env_id
    return None


def make_env(env_id: str, **settings: Any) -> Any:
    """Makes an environment, one of ours or any other in PettingZoo's registry of parallel environments.

    Args:
        env_id: Its id, such as "rllib_llm_comm/overcooked_text-v0".
        **settings: Its settings.

    Raises:
        UserError: If the id is unknown, what makes it cannot be imported, or one of our games refuses a setting.
    """
    from pettingzoo.env_registry import registration

    env_spec(env_id)
    return registration.make("parallel", env_id, **settings)


def without_subgoals(env_id: str, settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Id and settings of the same game in an environment that gives no subgoals itself, for planners to give them."""
    for record in GAMES.values():
        if env_id in record.without_subgoals:
            found: tuple[str, dict[str, Any]] = record.code("without_subgoals", env_id)(settings)
            return found
    return env_id, settings


# ---- what messages mean -----------------------------------------------------------------------------------------


def same_request(one: str, other: str) -> bool:
    """True if two messages mean the same, whatever their wording.

    Messages in the scripted teacher's wordings are compared by what they mean ("please bring the tomato" and "i need
    the tomato" are the same); any other message only equals itself, up to case, blanks and the full stop.
    """
    first, second = _meaning(one), _meaning(other)
    if first is not None and second is not None:
        return first == second
    return _plain(one) == _plain(other)


def is_understood(message: str) -> bool:
    """True if a message is a saying of a known game, in a wording of its scripted player."""
    return _is_understood(message, tuple(GAMES))


@functools.lru_cache(maxsize=65536)
def _is_understood(message: str, games: tuple[str, ...]) -> bool:
    """For the games known now; one may be registered later."""
    return _meaning(message) is not None


def _meaning(message: str) -> Any:
    """The meaning in the first game that knows the wording, with the game, as tuples of two games may be equal."""
    for name, record in GAMES.items():
        if record.sayings and (meant := record.code("sayings")(message)) is not None:
            return name, meant
    return None


def _plain(message: str) -> str:
    return " ".join(message.lower().split()).rstrip(".! ")
