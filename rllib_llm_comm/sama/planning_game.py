"""The adapter between planners and a game: the one small part that has to be written for each game."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.registry import Registry
from rllib_llm_comm.envs.games import GAMES, game_of
from rllib_llm_comm.envs.interface import GameInfo
from rllib_llm_comm.language.prompts import template
from rllib_llm_comm.policies.decision import Decision, OneGamePolicy, unweighed
from rllib_llm_comm.sama.skill_graph import SkillProblem


class SubgoalStarts:
    """Starts of the agents' subgoals, as far as they are looked at step by step.

    Args:
        same: Tells whether two states are of one moment, by which steps follow on each other.
    """

    def __init__(self, same: Callable[[Any, Any], bool]) -> None:
        self._same = same
        self._begun: dict[str, tuple[str, Any, Any]] = {}  # by agent its subgoal, its first moment and its last one

    def of(self, before: Any, after: Any, agent: str, subgoal: str) -> Any:
        """The moment at which an agent began with a subgoal: before the first of the steps in a row that are looked at.

        Args:
            before: The moment before a game step.
        """
        begun, start, last = self._begun.get(agent, (None, None, None))
        if begun != subgoal or not self._same(last, before):
            start = before
        self._begun[agent] = subgoal, start, after
        return start

    def end(self, agent: str) -> None:
        """Ends an agent's subgoal: the same one begins anew when it is looked at again."""
        self._begun.pop(agent, None)

    def clear(self) -> None:
        """Forgets all."""
        self._begun.clear()


@dataclass(frozen=True)
class RulePlayer(OneGamePolicy, ABC):
    """Follows subgoals by rules; looks at the game itself and remembers nothing, as what is random is in the game."""

    game: Any

    def act(self, observations: Mapping[Any, Mapping[str, Any]], explore: bool = True) -> dict[Any, Decision]:
        """`actions` as decisions."""
        return {agent: unweighed(action) for agent, action in self.actions(observations).items()}

    def actions(self, observations: Mapping[Any, Mapping[str, Any]]) -> dict[Any, int]:
        """The next action of each agent that is asked, by the `subgoal` in its observation."""
        return {agent: self.action(str(agent), seen) for agent, seen in observations.items()}

    @abstractmethod
    def action(self, agent: str, seen: Mapping[str, Any]) -> int:
        """An agent's next action."""


State = Any
"""A moment of a game, as its adapter gives it; never changed, so that a planner may think while the game goes on."""

PHASES = ("goal", "decomposition", "assignment")
_SHOWN_FORMS = 20
OURS: Final = "ours"
PAPER: Final = "paper"
PromptsOf = Literal["ours", "paper"]
"""Sets of prompts: our own, or SAMA's listings in our words: their roles, slots and order."""


def worded(prompts: str, name: str) -> str:
    """The name of a template in a set of prompts.

    Args:
        prompts: As of `PromptsOf`.
        name: Its name in our own set.
    """
    return f"{PAPER}_{name}" if prompts == PAPER else name


def examples_in(package: str, name: str) -> list[str]:
    """The worked examples of a template file, between which stands a line `---`."""
    return [part.strip() for part in template(package, name).split("\n---\n")]


class PlanningGame(ABC):
    """Shows planners one running game. Subgoals are words everywhere: those that `parse` gives.

    Attributes:
        judged_starts: Starts of the subgoals that rewards judge in place of `done`.
        scenarios: Games in which a planner is evaluated: settings by name.
        played_with: Settings with which `player` can play.
        tells_facts: True if `situation_for` tells what agents are told, or they are told nothing.
        counts_since: True if tests of subgoals need the moment at which a subgoal began, as counts since then do.
    """

    scenarios: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}
    played_with: ClassVar[Mapping[str, Any]] = {}
    counts_since: ClassVar[bool] = False
    tells_facts: ClassVar[bool] = True

    def __init__(self, env: Any) -> None:
        self.env = env
        self.judged_starts = SubgoalStarts(self.same_moment)

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of all agents."""
        return tuple(str(agent) for agent in self.env.possible_agents)

    # ---- moments -----------------------------------------------------------------------------------------

    @abstractmethod
    def state(self) -> State:
        """The moment that the game is in."""

    @abstractmethod
    def passed(self) -> list[State]:
        """The moments of the last `step`: the one before it and the one after each of its game steps."""

    def same_moment(self, one: State, other: State) -> bool:
        """True if two states are of one moment of one game."""
        return one is other

    # ---- words -------------------------------------------------------------------------------------------

    @abstractmethod
    def manual(self) -> str:
        """The rules and what does not change, for somebody who does not know the game."""

    def scenario(self) -> str:
        """The part of the manual for this scenario only, such as a map; for planners with a manual from a file."""
        return ""

    @abstractmethod
    def situation(self, state: State) -> str:
        """A moment in sentences, the agents left out."""

    def situation_for(self, state: State, agents: Sequence[str]) -> str:
        """The same for who plans for some of the agents and sees what these are told; for all of them: everything."""
        return self.situation(state)

    def truth(self, state: State) -> str:
        """What the rules hide from the team, in sentences, for a planner with `view: truth`.

        Raises:
            UserError: If this game hides nothing that could be told.
        """
        raise UserError(
            f"`view` is 'truth' but the rules of this game hide nothing from planners; set `view` to 'fog' (a game of "
            f"your own tells more by `truth` of its {type(self).__name__})."
        )

    def check_view(self, view: str) -> None:
        """Refuses `view: truth` in a game that hides nothing that could be told.

        Raises:
            UserError: If it is such.
        """
        if view == "truth" and type(self).truth is PlanningGame.truth:
            self.truth(None)  # says so

    @abstractmethod
    def situation_of(self, state: State, agent: str) -> str:
        """An agent at a moment, in sentences."""

    @abstractmethod
    def plain(self, state: State) -> Mapping[str, Any]:
        """A moment as JSON-able values, as rewards and translators read it."""

    def holds(self, state: State, sentence: str) -> bool | None:
        """True if a sentence is true of a moment; `None` if that cannot be told, as in games without a checker."""
        return None

    def examples(self, phase: str) -> Sequence[str]:
        """Up to three worked examples for one of `PHASES`."""
        return ()

    def paper_examples(self, phase: str) -> Sequence[str]:
        """The same, as SAMA's listings have them, in our words; by default those of `examples`.

        Args:
            phase: "goal" (with the subgoals), "assignment" or "reflection".
        """
        return self.examples(phase) if phase in PHASES else ()

    def advice(self) -> str:
        """What SAMA's question for this game asks to be kept to, beside the manual; empty for nothing."""
        return ""

    # ---- subgoals ----------------------------------------------------------------------------------------

    @abstractmethod
    def library(self, agent: str) -> list[str]:
        """All subgoals that an agent could ever reach."""

    @abstractmethod
    def parse(self, text: str) -> str | None:
        """The subgoal that a text names, in the library's words; `None` if it names none, or several."""

    def resolve(self, state: State, agent: str, text: str) -> str | None:
        """The subgoal that a text means for an agent now; more than `parse` where the game knows words for several.

        Returns:
            In the library's words, possible or not; `None` if the text means none.
        """
        return self.parse(text)

    def forms(self) -> str:
        """The forms of subgoals in one line, for models that get no list of those that are possible now."""
        library = dict.fromkeys(subgoal for agent in self.agents for subgoal in self.library(agent))
        return "; ".join(list(library)[:_SHOWN_FORMS])

    @abstractmethod
    def refusal(self, state: State, agent: str, subgoal: str) -> str:
        """The reason why an agent cannot set about a subgoal now, in a sentence; empty if it can.

        Args:
            subgoal: A subgoal of any agent's library.
        """

    @abstractmethod
    def done(self, before: State, after: State, agent: str, subgoal: str) -> bool:
        """True if an agent has done a subgoal in one game step."""

    def waits(self, state: State, agent: str, subgoal: str) -> bool:
        """True if a subgoal asks an agent to stay as it is, so that it is never done."""
        return False

    def effort(self, state: State, agent: str, subgoal: str) -> float:
        """About how many game steps a subgoal takes an agent; used to choose among equals."""
        return 0.0

    def possible(self, state: State, agent: str) -> list[str]:
        """All subgoals that an agent can set about now."""
        return [subgoal for subgoal in self.library(agent) if not self.refusal(state, agent, subgoal)]

    def judge_own_subgoals(self, done: Callable[[State, State, str, str], bool]) -> None:
        """Lets somebody else say when the subgoals are done that the environment gives itself.

        Args:
            done: In place of this class's `done`.

        Raises:
            UserError: If the environment gives none.
        """
        raise UserError(
            "`subgoal_rewards` is set without a `planner`, but the environment gives no subgoals itself; set "
            "`planner`, or use an environment such as 'rllib_llm_comm/overcooked_ai_subgoals-v0'."
        )

    def supposed(self, state: State) -> Sequence[State]:
        """Moments that this one may be, all as likely, for who knows nothing of what agents are not told.

        It is alone where nothing is hidden from an agent.
        """
        return [state]

    # ---- planners without language models ----------------------------------------------------------------

    def scripted(self, state: State) -> tuple[str, dict[str, str]]:
        """The plan of the game's own rules: the goal in words, and a subgoal per agent.

        Raises:
            UserError: If the game has no such rules.
        """
        raise UserError(
            f"`planner` is 'scripted' but {type(self).__name__} has no rules to plan by; write its `scripted`, or use "
            "another planner."
        )

    def skills(self, state: State) -> SkillProblem:
        """The game as a skill graph, with what there is at a moment.

        Raises:
            UserError: If the game has none.
        """
        raise UserError(
            f"`planner` is 'plan4mc' but {type(self).__name__} has no skill graph; write its `skills`, or use another "
            "planner."
        )

    @property
    def has_skills(self) -> bool:
        """True if the game has a skill graph."""
        return type(self).skills is not PlanningGame.skills

    def player(self) -> RulePlayer:
        """Somebody who carries out any subgoal of the library by rules, to judge planners apart from trained policies.

        Raises:
            UserError: If the game has nobody.
        """
        raise UserError(
            f"`executor` is 'scripted' but {type(self).__name__} has no player who follows subgoals by rules; write "
            "its `player`, or give a checkpoint."
        )

    # ---- to and fro --------------------------------------------------------------------------------------

    def save(self) -> Any:
        """All that the game remembers, random numbers included, for `load`; what it will never change is shared."""
        game = self.env.unwrapped
        memo = {id(thing): thing for thing in self.shared()}
        changing = {name: value for name, value in vars(game).items() if not name.endswith(("_space", "_spaces"))}
        return copy.deepcopy(changing, memo)

    def load(self, saved: Any) -> None:
        """Puts the game back to where it was at `save`, as often as wanted."""
        vars(self.env.unwrapped).update(copy.deepcopy(saved, {id(thing): thing for thing in self.shared()}))

    def shared(self) -> Sequence[Any]:
        """Things of the game that never change and would be slow to copy."""
        return ()


PLANNING_GAMES: Registry[Callable[[Any], PlanningGame]] = Registry("game")
"""Adapters by the environment's `metadata["name"]`; they go before those that the records of games name."""


def register_planning_game(name: str, adapter: Callable[[Any], PlanningGame]) -> None:
    """Lets planners play a game, named by the environment's `metadata["name"]`."""
    PLANNING_GAMES.register(name, adapter)


def planning_game(env: Any) -> PlanningGame:
    """The adapter of an environment.

    Raises:
        UserError: If the game has none.
    """
    name = GameInfo(env).name
    record = game_of(env.unwrapped)
    adapter = PLANNING_GAMES.get(name) or (record.code("planning") if record else None)
    if isinstance(getattr(env.unwrapped, "game", None), PlanningGame):
        raise UserError(
            f"The agents of {name!r} are planners themselves, so that nobody plans for them; omit `planner`, or plan "
            f"the game, {env.unwrapped.game_id!r}."
        )
    if adapter is None:
        known = [*PLANNING_GAMES, *(game for game, record in GAMES.items() if record.planning)]
        raise UserError(
            f"Planners do not know the game {name!r}, only {', '.join(known)}; write a `PlanningGame` for it and name "
            "it in the game's record, or call `register_planning_game`."
        )
    made: PlanningGame = adapter(env)
    return made
