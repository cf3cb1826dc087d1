"""The record of a game: everything that the package knows of it, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
            its own actions in the environment, like `envs.overcooked_ai.own_actions.OwnActions`, or `None` if they are
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
