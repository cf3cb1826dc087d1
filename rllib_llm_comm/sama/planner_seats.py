"""# Planner seats

A planned game from where its planner sits: each agent is the planner of one player, its actions are the subgoals that
this player can be given now, and a choice lasts until the subgoal has ended (semi-Markov). Whoever trains agents with
words therefore trains planners: Verco, TWOSOME, RLOO, GRPO, ActionSFT. `planner: trained:CHECKPOINT` plans with them.

| Import             | `from rllib_llm_comm.sama import planner_seats`                               |
|--------------------|-------------------------------------------------------------------------------|
| Registered ids     | `rllib_llm_comm/GAME_planner-v0`; GAME: overcooked_ai, overcooked_text, frozen_lake, minirts |
| Actions            | Discrete: an index of the game's subgoals                                     |
| Parallel API       | Yes                                                                           |
| Agents             | those of the game                                                             |
| Observation shape  | Dict: text, candidates, subgoal, action_mask                                  |

### Observation space

* `text`: the moment in the words that planners read, the player, and how its last subgoal ended if it was not done.
  With `seats: central` also all other players, and the subgoals that they follow.
* `candidates`: all subgoals of the game. `action_mask`: those that the player can set about now. `subgoal`: empty.

### Rewards

Those of the game times `reward_scale`, summed over its steps. `step_rewards` has each of them.

### Infos

`needs_action`, `step_rewards`, what the game tells (`private`, `task_success`, `events`), and in `episode_metrics`
beside the game's own: `subgoals_given`, `subgoals_completed`, their share `subgoals_share`, `subgoals_waited`,
`subgoals_stuck` (not done for `patience` game steps, or no longer possible), `subgoals_lost` (no longer possible).

### Arguments

`game`: settings of the game. `seats`: "central": one seat after the other, each knows what the others have chosen;
"apart": all whose players are free choose at once, and each knows of its own player and of the shared situation only,
so that others have to tell it the rest. `view`: "fog": what the team sees or remembers; "truth": all units of the
enemy, too (MiniRTS). `executor`: who carries subgoals out: "scripted" (the game's own player by rules) or
"trained:CHECKPOINT" (EMMA, or what was trained under a planner; a path or `zoo:NAME`). Officers of MiniRTS obey
commands, not subgoals: theirs is `executor` in `game`. `greedy`: whether a checkpoint takes its likeliest action.
`base_model`: where its base model lies, if not where it lay in its training. `max_prompt_tokens`: its longest prompt,
if texts are longer than in its training. `trust`: whether what it recorded is used where it reaches beyond this
program. `patience`: game steps after which a subgoal ends. `reward_scale`: factor of rewards; scores stay.

### Version history

* v0: first version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError, within
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.core.settings import settings_of
from rllib_llm_comm.envs.base_env import Game, GameSettings, Infos, Observation, Reset, Step, constructor
from rllib_llm_comm.envs.games import env_spec, make_env, scripted_player_of, without_subgoals
from rllib_llm_comm.envs.interface import (
    NEEDS_ACTION,
    STEP_REWARDS,
    TASK_SUCCESS,
    GameInfo,
    check_actions,
    joined_info,
    teacher_state,
    text_spaces,
    with_figures,
)
from rllib_llm_comm.policies.decision import Policy, Request
from rllib_llm_comm.policies.load_policy import Elsewhere, Loading
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.policies.recorded_settings import granted
from rllib_llm_comm.sama.planned_env import PATIENCE, SubgoalTeller, SubgoalTracker
from rllib_llm_comm.sama.planners.baselines import ScriptedPlanner
from rllib_llm_comm.sama.planning_game import PlanningGame, State, planning_game
from rllib_llm_comm.sama.plans import (
    LOST,
    STUCK,
    AssignedSubgoal,
    Outcome,
    Plan,
    PlanRequest,
    made_plan,
    subgoal_figures,
)

if TYPE_CHECKING:
    from rllib_llm_comm.policies.policy import TrainedPolicy

CENTRAL, APART = "central", "apart"
FOG, TRUTH = "fog", "truth"
SCRIPTED, TRAINED = "scripted", "trained:"


class ActingCheckpoint(Elsewhere):
    """How a checkpoint acts that is loaded for a game; another setting names it."""

    greedy: bool = False
    """Whether the checkpoint takes its likeliest action instead of a sampled one."""
    trust: bool = False
    """Whether what it recorded is used where it reaches beyond this program. What this user's own training wrote here
    needs none; a file cannot say so (`--trust`)."""

    def load(self, path: str | Path) -> TrainedPolicy:
        """The policy of the checkpoint."""
        room = self.max_prompt_tokens
        return Loading(base_model=self.base_model, max_prompt_tokens=room, trust=self.trust, trust_own=True).load(path)


class SeatSettings(GameSettings, ActingCheckpoint):
    """Settings of `PlannerSeats`."""

    game: dict[str, Any] = {}
    """Settings of the game."""
    seats: Literal["central", "apart"] = "central"
    """"central": one seat after the other, each knows what the others have chosen; "apart": each knows its own player
    and the shared situation."""
    view: Literal["fog", "truth"] = "fog"
    """What the seats read of a game with fog (MiniRTS). "fog" (ours): what the team sees or remembers. "truth" (as the
    planner of SAMA): all units of the enemy, too."""
    executor: str = SCRIPTED
    """Who carries subgoals out: "scripted" or "trained:CHECKPOINT". Officers of MiniRTS obey commands, not subgoals:
    theirs is `executor` in `game`."""
    patience: Annotated[int, Field(ge=1)] = PATIENCE
    """Game steps after which a subgoal that is not done ends (ours)."""
    reward_scale: Annotated[float, Field(gt=0)] = 1.0
    """Rewards are multiplied by it; scores are not (ours)."""

    @model_validator(mode="before")
    @classmethod
    def _no_settings_of_games(cls, given: Any) -> Any:
        for key in given if isinstance(given, Mapping) else ():
            if key not in cls.model_fields and any(key in _settings_of_game(seats.game_id) for seats in SEATS.values()):
                raise UserError(
                    f"`{key}` is a setting of games, not of planners' seats; write it under `game`, as in "
                    f"`game: {{{key}: ...}}`.",
                    "unknown",
                )
        return given

    @field_validator("executor")
    @classmethod
    def _named(cls, value: str) -> str:
        if value != SCRIPTED and not re.fullmatch(f"{TRAINED}.+", value):
            raise PydanticCustomError("value_error", f"{SCRIPTED!r} or '{TRAINED}CHECKPOINT'")
        return value

    @model_validator(mode="after")
    def _of_a_checkpoint(self) -> Self:
        for name in ("greedy", "base_model", "max_prompt_tokens"):
            if self.executor == SCRIPTED and getattr(self, name):
                raise UserError(
                    f"`{name}` is {getattr(self, name)!r} but `executor` is {SCRIPTED!r}, to whom it means nothing; "
                    f"omit it, or set `executor` to '{TRAINED}CHECKPOINT'."
                )
        return self


def _settings_of_game(game_id: str) -> Collection[str]:
    entry: Any = env_spec(game_id).entry_point
    return settings_of((load(entry) if isinstance(entry, str) else entry).game).model_fields


def subgoals_of(game: PlanningGame) -> tuple[str, ...]:
    """All subgoals of a game, of all players: the candidates of a seat."""
    return tuple(dict.fromkeys(subgoal for agent in game.agents for subgoal in game.library(agent)))


def seat_observation(
    game: PlanningGame,
    state: State,
    agent: str,
    current: Mapping[str, str],
    outcomes: Sequence[Outcome],
    central: bool,
    candidates: tuple[str, ...],
    view: str = FOG,
) -> Observation:
    """What the planner of a player sees; `PlannerSeats` shows it in training, `TrainedPlanner` afterwards.

    Args:
        current: Per player the subgoal that it follows; empty words for none.
        outcomes: How the last subgoals have ended, the latest last.
        central: Whether the other players are shown, too.
        candidates: Of `subgoals_of`.
        view: "truth" adds what the rules hide from the team.

    Raises:
        UserError: If the player can be given nothing.
    """
    shown = game.agents if central else (agent,)
    words = [game.situation_for(state, shown), *(game.situation_of(state, one) for one in shown)]
    words += [game.truth(state)] if view == TRUTH else []
    words += [f"{one} is told to {current[one]}." for one in shown if one != agent and current.get(one)]
    latest = next((one for one in reversed(outcomes) if one.agent == agent), None)
    if latest is not None and latest.how in (STUCK, LOST):
        words.append(latest.sentence())
    possible = frozenset(game.possible(state, agent))
    mask = np.array([candidate in possible for candidate in candidates], np.int8)
    if not mask.any():
        raise UserError(
            f"{agent} can be given no subgoal here ({type(game).__name__}), so that its planner has nothing to choose; "
            "let `possible` of the game always list one, such as to wait."
        )
    following = current.get(agent)
    words.append(f"{agent} is told to {following}." if following else f"{agent} needs a subgoal.")
    return {"text": " ".join(words), "candidates": candidates, "subgoal": "", "action_mask": mask}


class PlannerSeats(Game):
    """A planned game as its planners see it; the module's docstring is its page.

    Attributes:
        told: The subgoal of each player, also after it has ended.
    """

    settings_model = SeatSettings
    game_id: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """The seats of "rllib_llm_comm/door_planner-v0" are those of "rllib_llm_comm/door-v0"."""
        super().__init_subclass__(**kwargs)
        cls.game_id = cls.env_id.replace("_planner-", "-")
        cls.metadata = {**cls.metadata, "name": cls.env_id.partition("/")[2].replace("-", "_")}

    def __init__(self, **settings: Any) -> None:
        """Builds the environment; call `reset` before `step`.

        Raises:
            UserError: For a setting that is not allowed, a checkpoint of another game, or `view: truth` without fog.
        """
        super().__init__(**settings)
        own: SeatSettings = self.chosen
        self._own = own
        self._policy = executor_of(own, self.game_id)
        with within("game"):
            self.inner = make_env(self.game_id, **self._game_settings())
        self.inner.observes_busy = False
        self.game = planning_game(self.inner)
        self.game.check_view(own.view)
        if self.facts and not self.game.tells_facts:
            raise UserError(
                f"`game.told_to` is {own.game.get('told_to')!r}, but the words of {self.game_id!r} for planners do not "
                "hold what is told; omit it."
            )
        self._player: Policy = self.game.player() if self._policy is None else self._policy
        self._tracker = SubgoalTracker(self.game, own.patience)
        trained = {} if self._policy is None else self._policy.manifest.planning or {}
        self._teller = SubgoalTeller(self.game, bool(trained.get("in_vector")))
        self._candidates = subgoals_of(self.game)
        self.possible_agents = list(self.game.agents)
        mask = spaces.Box(0, 1, (len(self._candidates),), np.int8)
        self.observation_spaces = {
            agent: spaces.Dict({**text_spaces(len(self._candidates)), "action_mask": mask})
            for agent in self.possible_agents
        }
        self.action_spaces = {agent: spaces.Discrete(len(self._candidates)) for agent in self.possible_agents}
        self._due: list[str] = []
        self._infos: Infos = {}
        self.task = "choose what each player does next, so that the team does well"
        if self._policy is not None:
            self._try_executor()

    def _game_settings(self) -> dict[str, Any]:
        """Those that the user gives, else those with which whoever carries subgoals out can play."""
        given = self._own.game
        if self._policy is None:
            return {**planning_game(make_env(self.game_id, **given)).played_with, **given}
        _, trained = without_subgoals(str(self._policy.manifest.env), dict(self._policy.manifest.env_config))
        return {key: granted(value) for key, value in {**trained, **given}.items()}

    def _try_executor(self) -> None:
        """Lets a checkpoint act once: it refuses a game that it cannot play before anything is trained in it."""
        played = PlayedGame(self.inner, 0)
        seen = self._teller.told({agent: played.observations[agent] for agent in played.asked}, self._tracker.told)
        with within("executor"):
            self._player.act_together([Request(self._player.begin(0), seen)], not self._own.greedy)

    @property
    def unwrapped_game(self) -> Any:
        """The game that is played, without wrappers."""
        return self.inner.unwrapped

    @property
    def brief(self) -> str:
        """The rules, as planners read them."""
        return self.game.manual()

    @property
    def teacher_state(self) -> PlannerSeats:
        """For the scripted teacher."""
        return self

    @property
    def told(self) -> dict[str, str]:
        """The subgoal of each player, also after it has ended."""
        return dict(self._tracker.told)

    @property
    def facts(self) -> tuple[str, ...]:
        """Those of the game."""
        return GameInfo(self.unwrapped_game).facts

    def meaning(self, message: str) -> str | None:
        """As of the game."""
        return self.unwrapped_game.meaning(message)  # type: ignore[no-any-return]

    def understands(self, message: str) -> bool | None:
        """As of the game."""
        return self.unwrapped_game.understands(message)  # type: ignore[no-any-return]

    def request(self, message: str) -> str | None:
        """As of the game."""
        return self.unwrapped_game.request(message)  # type: ignore[no-any-return]

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of the game."""
        return GameInfo(self.unwrapped_game).notes

    def places(self) -> dict[str, tuple[float, float]]:
        """As of the game."""
        return self.unwrapped_game.places()  # type: ignore[no-any-return]

    def draw_rgb(self) -> np.ndarray:
        """The game as pixels."""
        return self.unwrapped_game.draw_rgb()  # type: ignore[no-any-return]

    def draw_ansi(self) -> str:
        """The game in characters, and what each player is told."""
        told = [f"{agent}: {subgoal or '-'}" for agent, subgoal in self.told.items()]
        return "\n".join([self.unwrapped_game.draw_ansi(), *told])

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Starts an episode; all players need subgoals."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        else:
            seed = int(self._rng.integers(2**31))
        self._player.reset(seed)
        self._memory = self._player.begin(seed)
        self._played = PlayedGame(self.inner, seed)
        self._tracker.begin()
        self.agents = list(self.possible_agents)
        self._due = list(self.agents)
        self._infos = {agent: dict(info) for agent, info in self._played.infos.items()}
        return self._seen(self.agents), self._told_infos()

    def step(self, actions: Mapping[str, Any]) -> Step:
        """Gives subgoals to the players whose seats were asked; then the game goes on until a player needs another one.

        With `seats: central` no game step is played before all who need one have a subgoal. A subgoal that a player
        cannot set about is lost after one game step.

        Args:
            actions: Per seat that was asked the index of a subgoal.

        Raises:
            UserError: For an action that is missing, or none.
        """
        if not self.agents:
            return {}, {}, {}, {}, {}
        asked = self.asked
        needs = [agent in asked for agent in self.possible_agents]
        chosen = check_actions(actions, self.possible_agents, needs, len(self._candidates))
        for agent, action in zip(self.possible_agents, chosen, strict=True):
            if action is not None:
                given = AssignedSubgoal(agent=agent, subgoal=self._candidates[action])
                self._tracker.give(Plan(goal="", subgoals=[given]))
                self._due.remove(agent)
        rewards = dict.fromkeys(self.agents, 0.0)
        self._infos = {agent: _emptied(info) for agent, info in self._infos.items()}
        if not self._due:
            self._carry_out(rewards)
        over = self._played.over
        ended = {agent: over and bool(self._played.terminations.get(agent, False)) for agent in self.agents}
        limited = {agent: over and not ended[agent] for agent in self.agents}
        shown = self.agents if self.observes_busy or over else self.asked
        result = (self._seen(shown), rewards, ended, limited, self._told_infos())
        if over:
            self.agents = []
        return result

    def _carry_out(self, rewards: dict[str, float]) -> None:
        """Plays the game until a subgoal has ended or the game is over."""
        played, scale = self._played, self._own.reward_scale
        while not played.over:
            seen = self._teller.told({a: played.observations[a] for a in played.asked}, self._tracker.told)
            asks = [Request(self._memory, seen)]
            played.step(self._player.act_together(asks, not self._own.greedy)[0] if seen else {})
            for agent, reward in played.rewards.items():
                info = played.infos.get(agent, {})
                steps = [scale * one for one in info.get(STEP_REWARDS) or [reward]]
                self._infos[agent] = joined_info(self._infos[agent], {**info, STEP_REWARDS: steps})
                rewards[agent] += scale * float(reward)
            self._tracker.watch(self.game.passed())
            self._due = [agent for agent in self.inner.agents if agent in self._tracker.ended]
            if self._due:
                return

    @property
    def asked(self) -> list[str]:
        """The seats that have to choose now."""
        return self._due[:1] if self._own.seats == CENTRAL else list(self._due)

    def _seen(self, shown: Sequence[str]) -> dict[str, Observation]:
        state, current = self.game.state(), self._tracker.current()
        outcomes, central, view = self._tracker.outcomes, self._own.seats == CENTRAL, self._own.view
        return {
            agent: seat_observation(self.game, state, agent, current, outcomes, central, self._candidates, view)
            for agent in shown
        }

    def _told_infos(self) -> Infos:
        asked, over = self.asked, self._played.over
        own = subgoal_figures(self._tracker.given, self._tracker.ends)
        infos = {agent: {**info, NEEDS_ACTION: agent in asked or over} for agent, info in self._infos.items()}
        return with_figures(infos, own)

    def close(self) -> None:
        """Closes the game."""
        self.inner.close()


def _emptied(info: Mapping[str, Any]) -> dict[str, Any]:
    """The info of a moment at which nothing has been played since: lists are empty, flags of steps are off."""
    standing = (NEEDS_ACTION, TASK_SUCCESS)
    return {
        key: [] if isinstance(value, list) else False if isinstance(value, bool) and key not in standing else value
        for key, value in info.items()
    }


def executor_of(own: SeatSettings, game_id: str) -> Any:
    """The policy that carries subgoals out; `None` for the game's player by rules.

    Raises:
        UserError: If the checkpoint follows no subgoals, or was trained in another game.
    """
    if own.executor == SCRIPTED:
        return None
    with within("executor"):
        policy = own.load(own.executor.removeprefix(TRAINED))
    refuse_controls(policy, f"`executor` {own.executor!r}")
    manifest = policy.manifest
    require_executor(own.executor, str(manifest.env), manifest.env_config, manifest.planning is not None, game_id)
    return policy


def require_executor(executor: str, env: str, env_config: Mapping[str, Any], planned: bool, game_id: str) -> None:
    """Refuses a checkpoint that follows no subgoals, or was trained in another game than that of the seats.

    Args:
        executor: The setting.
        env: Environment of the checkpoint's training.
        env_config: Its settings.
        planned: Whether a planner gave it subgoals there.
        game_id: Environment of the game that is planned.

    Raises:
        UserError: If it is such.
    """
    if not planned and without_subgoals(env, {})[0] == env:
        raise UserError(
            f"`executor` is {executor!r}, which was trained without subgoals and would not follow any; give a "
            "checkpoint of EMMA or of a training under a planner, or 'scripted' (officers of MiniRTS belong in "
            "`game.executor`)."
        )
    if without_subgoals(env, dict(env_config))[0] != game_id:
        raise UserError(
            f"`executor` is {executor!r}, which was trained in {env!r} and not in {game_id!r}; give a checkpoint of "
            "this game, or 'scripted'."
        )


def refuse_controls(policy: Policy, who: str) -> None:
    """Refuses policies whose messages need more of the game than its observations.

    Raises:
        UserError: If it is such.
    """
    talk = policy.communication
    if talk is not None and talk.messages in ("teacher", "other_fact", "other_moments"):
        raise UserError(
            f"{who} was trained with `messages` {talk.messages!r}, which need the game that it was trained in; give a "
            "checkpoint that was trained with others, such as 'student' or 'none'."
        )


# ---- the scripted player of a seat: rules that see the whole game ------------------------------------------


def advise(env: PlannerSeats, agent: str) -> int:
    """The subgoal that the game's rules give a player now."""
    current = {**env._tracker.current(), agent: ""}
    plan = made_plan(ScriptedPlanner(), PlanRequest(env.game, env.game.state(), current))
    return env._candidates.index(plan.of(agent))


def messages(state: PlannerSeats, agents: Sequence[str], rng: np.random.Generator) -> dict[str, str]:
    """What the game's own scripted players would say; nothing in games without talk."""
    player = scripted_player_of(state.unwrapped_game)
    if player is None:
        return dict.fromkeys(agents, "")
    said: dict[str, str] = player.messages(teacher_state(state.unwrapped_game), agents, rng)
    return said


# ---- the seats of each game --------------------------------------------------------------------------------


class KitchenSeats(PlannerSeats):
    """Seats of the onion-soup kitchens."""

    env_id = "rllib_llm_comm/overcooked_ai_planner-v0"


class SaladSeats(PlannerSeats):
    """Seats of the textual kitchen."""

    env_id = "rllib_llm_comm/overcooked_text_planner-v0"


class LakeSeats(PlannerSeats):
    """Seats of the frozen lake."""

    env_id = "rllib_llm_comm/frozen_lake_planner-v0"


class CommanderSeats(PlannerSeats):
    """Seats of the strategy game."""

    env_id = "rllib_llm_comm/minirts_planner-v0"


kitchen_seats = constructor(KitchenSeats, "kitchen_seats")
salad_seats = constructor(SaladSeats, "salad_seats")
lake_seats = constructor(LakeSeats, "lake_seats")
commander_seats = constructor(CommanderSeats, "commander_seats")
SEATS = {seats.env_id: seats for seats in (KitchenSeats, SaladSeats, LakeSeats, CommanderSeats)}
