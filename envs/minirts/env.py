"""# MiniRTS

A real-time strategy game in small: one to three commanders share one side against a scripted opponent. They dig gold,
put up buildings, train fighters that beat each other in a circle, and must destroy the enemy's town hall, which lies in
fog.

| Import             | `from rllib_llm_comm.envs import minirts`                                     |
|--------------------|-------------------------------------------------------------------------------|
| Constructor        | `minirts.parallel_env(**settings)`                                            |
| Registered id      | `rllib_llm_comm/minirts-v0` (PettingZoo's parallel registry)                  |
| Actions            | Discrete (commands in words) or MultiDiscrete (RED's)                         |
| Parallel API       | Yes (`aec_env` gives the AEC form)                                            |
| Manual control     | No                                                                            |
| Agents             | `agents= ["alice", "bob", "carol"]` (the first `num_agents`)                  |
| Action values      | Discrete(32) with the default `numbers`; MultiDiscrete of 58 parts            |
| Observation shape  | Dict of the parts in `observe`, and a mask                                    |

### Ownership

Commanders share gold and sight. Each finished unit belongs to one of them for life: units go round by creation, each
type of mobile units, guard towers, and all other buildings for themselves. With two commanders alice has the town hall
and two of three peasants at the start, bob the other peasant, and the first building that trains fighters. See
`rllib_llm_comm.envs.minirts.side`.

### Observation space

* `text`: `text` (what the commander has, what is in force, what is seen of the enemy), `candidates` (one phrase per
  action) and `subgoal` (empty; wrappers may fill it). Only with `action_level="command"`.
* `vector`: float32 (65,), with `told_to` (71,): the last six are 1 for each army type that the enemy trains, zeros for
  who is not told; `planes`: float32 (43, 32, 32), `lists`: `own` (50, 12), `enemies` (50, 5), `resources`
  (50, 5); see `rllib_llm_comm.envs.minirts.observations`. `officer`: the same in small whole numbers, see
  `rllib_llm_comm.envs.minirts.officer_view`.
* `action_mask`: int8 (number of actions,) with "command"; `head_mask`: int8, the masks of the 58 parts one after the
  other, with "red".

### Actions

A decision is due every `decision_ticks` (50), for all commanders at once.

`action_level="command"`: wait; mine with idle peasants; build one of six buildings; train some of seven types; attack,
defend, scout with the army. A command stays in force: a scripted officer per commander carries it out over the next
decisions, see `rllib_llm_comm.envs.minirts.executor`. `wait` changes nothing.

`action_level="red"`: RED's action, one collective command with its arguments, a flag for going on, and one flag per own
unit; see `rllib_llm_comm.envs.minirts.collective_command`.

### Rewards

1 for all commanders when they win, -1 when they lose, 0 at a draw; 0 before. `shaping` times the change of what the own
side's units and buildings cost, minus the enemy's, in thousands, comes on top. An episode terminates when somebody has
won (and when the game breaks in a jam, with 0), and is truncated at `max_tick`, unless `truncate_draws` is false.

### Infos

`needs_action` (True), `step_rewards` (the reward of this decision, as a list), `game_step` (the tick), `events`
(commands that ended), `task_success` (whether the side has won), `episode_metrics`: `won`, `lost` (0 or 1), `gold`,
`units_made`, `buildings_made`, `army`, `enemies_left`. With `told_to` also `private`: the army types that the enemy
trains, such as "spearmen" or "swordmen and archers", or None for who is not told them.

### Arguments

Those of `MiniRTSSettings`.

``` python
minirts.parallel_env(num_agents=2, opponent="medium2", told_to=["alice"], producers="bob")
```

### Version history

* v0: first version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from pydantic import Field, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from rllib_llm_comm.core.errors import LARGEST, UserError, require_choice
from rllib_llm_comm.envs.base_env import Game, GameSettings, Observation, Reset, Step, constructor, in_turns
from rllib_llm_comm.envs.interface import EPISODE_METRICS, PRIVATE, check_actions, text_spaces
from rllib_llm_comm.envs.minirts import collective_command, observations, officer_view, render, sayings, text
from rllib_llm_comm.envs.minirts.engine import opponents
from rllib_llm_comm.envs.minirts.engine.mapgen import MapSettings
from rllib_llm_comm.envs.minirts.engine.rts_game import Economy, Order, RTSGame, RTSSettings, Snapshot
from rllib_llm_comm.envs.minirts.engine.units import IS_ARMY, IS_BUILDING
from rllib_llm_comm.envs.minirts.executor import Done, Executor
from rllib_llm_comm.envs.minirts.officers import SCRIPTED, check_executor, make_executor
from rllib_llm_comm.envs.minirts.side import (
    TOLD_NUMBERS,
    Side,
    SideSnapshot,
    told_facts,
    told_numbers,
    told_rules,
    told_types,
    types_of,
)
from rllib_llm_comm.envs.minirts.words import COMMANDERS, MOST, all_commands, phrase
from rllib_llm_comm.envs.told_to import NAMES, Distinct, Name, Told, draw_told, require_agents

DECISION_TICKS = 50
"""Ticks between two orders of an officer; commanders decide as often, or less often (`decision_ticks`)."""
MAX_TICK = 12_800
FIRST_DECISION = 49
"""Tick of the first decision."""
_MAX_SEED = 2**31 - 1
_VALUE_UNIT = 1000.0
_IN_WORDS = ("told_to", "producers", "executor", "decision_ticks")
Part = Literal["text", "vector", "planes", "lists", "officer"]


class MiniRTSSettings(Economy, GameSettings):
    """Settings of the strategy game."""

    num_agents: int = Field(2, ge=1, le=len(NAMES))
    """Number of commanders."""
    opponent: str = "medium"
    """"simple", "medium", "medium2", "medium3" (mix two or three types, as SAMA's) or "strong"; with "_tower" at the
    end guard towers as well, with types after a colon those instead of drawn ones: "medium_tower:DRAGON"."""
    action_level: Literal["command", "red"] = "command"
    """Commands in words, or RED's actions."""
    numbers: Distinct[Annotated[int, Field(ge=1, le=MOST)]] = (1, 3, 5)
    """For "command": how many units one command may ask for."""
    max_buildings: int = Field(1, ge=1, le=LARGEST)
    """For "command": most buildings of a type that the side may ask for."""
    max_tick: int = Field(MAX_TICK, ge=2 * DECISION_TICKS, le=LARGEST)
    """When the game is a draw."""
    truncate_draws: bool = True
    """Whether learners count what would have come after `max_tick`; else 0."""
    decision_ticks: int = Field(DECISION_TICKS, ge=DECISION_TICKS, le=LARGEST, multiple_of=DECISION_TICKS)
    """Ticks from one decision of the commanders to the next. Officers and opponents act every 50 ticks in any case.
    Other values than 50 with "command" only."""
    fair: bool = False
    """Whether resources lie at the same distances for both sides."""
    side: Literal[0, 1] = 0
    """Which of the map's two sides is played."""
    shaping: float = Field(0.0, ge=0, le=LARGEST)
    """Factor of the shaped reward."""
    told_to: Told[Literal["all", "one"], Name] | None = None
    """None: nobody is told what the enemy trains, as in the papers. "all", a list of commanders, or "one" (drawn for
    each game): who is told the army types that the opponent drew for this game, in `text` and `vector`; the others
    find them out when they meet them. Not with "strong", which has no types of its own; with "command" only."""
    producers: Name | None = None
    """None: buildings go round. The name of a commander: only this one puts up barracks, blacksmiths, stables and
    workshops, and all of them are its own; town halls alone go round. With "command" only."""
    executor: str = SCRIPTED
    """Who carries out commands: "scripted" officers; "trained:CHECKPOINT", a network that was trained to; or
    "switch:TOLD:UNTOLD", the first of two networks for commanders with a command in force, else the second. With
    "command" only."""
    observe: Distinct[Part] | None = None
    """Parts of the observation; None is text and vector with "command", planes and lists with "red"."""

    @field_validator("opponent", "executor")
    @classmethod
    def _known(cls, value: str, info: ValidationInfo) -> str:
        (opponents.parse if info.field_name == "opponent" else check_executor)(value)
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        names = NAMES[: self.num_agents]
        require_choice("producers", self.producers, (None, *names))
        require_agents(self.told_to, names)
        for name in () if self.action_level == "command" else _IN_WORDS:
            if (value := getattr(self, name)) != type(self).model_fields[name].default:
                raise UserError(
                    f"`{name}` is {value!r} but `action_level` is 'red', whose actions are orders already, every "
                    f"{DECISION_TICKS} ticks; use `action_level='command'`, or omit `{name}`."
                )
        if self.action_level != "command" and "text" in self.parts:
            raise UserError(
                "`observe` has 'text' but `action_level` is 'red', whose actions have no phrases; omit 'text' or "
                "use `action_level='command'`."
            )
        if self.told_to is not None:
            if opponents.parse(self.opponent).level == "strong":
                raise UserError(
                    "`told_to` is set but `opponent` is 'strong', which answers what it sees and has no army types to "
                    "tell; use another one, such as 'medium', or omit `told_to`."
                )
            if not {"text", "vector"} & set(self.parts):
                raise UserError(
                    "`told_to` is set but `observe` has neither 'text' nor 'vector', which alone show what is told; "
                    "add one, or omit `told_to`."
                )
        return self

    @property
    def parts(self) -> tuple[Part, ...]:
        """Parts of the observation, those by default included."""
        return self.observe or (("text", "vector") if self.action_level == "command" else ("planes", "lists"))

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values, with the parts of the observation."""
        return {**super().to_dict(), "observe": list(self.parts)}

    def rules(self) -> RTSSettings:
        """The game's rules."""
        names: list[str | None] = [None, None]
        names[1 - self.side] = self.opponent
        kept = {name: getattr(self, name) for name in ("money", "unit_cap", "max_tick")}
        return RTSSettings(
            map=MapSettings(fair=self.fair), opponents=(names[0], names[1]), frame_skip=DECISION_TICKS, **kept
        )


@dataclass(frozen=True)
class EnvSnapshot:
    """All that an environment remembers; see `rllib_llm_comm.envs.minirts.env.MiniRTS.snapshot`."""

    game: Snapshot
    side: SideSnapshot
    executor: Any
    rng: dict[str, Any]
    agents: list[str]
    worth: float


def _metrics(team: Side) -> dict[str, float]:
    game = team.game
    made = [(kind, number) for own in team.made for kind, number in own.items()]
    return {
        "won": float(game.winner == team.player),
        "lost": float(game.winner == 1 - team.player),
        "gold": float(team.money),
        "units_made": float(sum(number for kind, number in made if not IS_BUILDING[kind])),
        "buildings_made": float(sum(number for kind, number in made if IS_BUILDING[kind])),
        "army": float(sum(bool(IS_ARMY[unit.type]) for unit in team.own)),
        "enemies_left": float(len(types_of(game, 1 - team.player))),
    }


class MiniRTS(Game):
    """The strategy game as a PettingZoo parallel environment; the module's docstring is its page.

    Attributes:
        game: The game, without fog (for teachers, tests and replays).
        team: The commanders' side.
        executor: The officers who carry out commands; idle with "red".
        commands: Commands of the actions, with "command".
        ended: Commands that ended in the last `step`.
        task: The goal in words.
        brief: The game in a few sentences.
    """

    metadata: ClassVar[dict[str, Any]] = {**Game.metadata, "name": "minirts_v0", "render_fps": 8}
    env_id = "rllib_llm_comm/minirts-v0"
    shows_copies = keeps_contract = True
    state_bounds = observations.BOUNDS

    settings_model = MiniRTSSettings
    chosen: MiniRTSSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        chosen = self.chosen
        self.game = RTSGame(0, chosen.rules())
        producers = None if chosen.producers is None else COMMANDERS.index(chosen.producers)
        self.team = Side(self.game, chosen.side, chosen.num_agents, producers)
        self.executor = make_executor(chosen.executor, self.team, chosen.max_buildings)
        self.commands = all_commands(chosen.numbers)
        self.ended: list[Done] = []
        secret = told_rules(chosen.told_to, chosen.producers, chosen.num_agents)
        self.task, self.brief = text.task(), text.brief(chosen.num_agents, secret)
        self.possible_agents = list(COMMANDERS[: chosen.num_agents])
        self._in_words = chosen.action_level == "command"
        self._worth = 0.0
        self._phrases = tuple(phrase(command) for command in self.commands)
        self.observation_spaces = dict.fromkeys(self.possible_agents, self._space())
        self.action_spaces = {
            agent: spaces.Discrete(len(self.commands))
            if self._in_words
            else spaces.MultiDiscrete(collective_command.SIZES)
            for agent in self.possible_agents
        }

    # ---- episodes ----------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Starts an episode, up to the first decision; the seed fixes the map and the opponent's draws."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        first, second = self._rng.integers(_MAX_SEED, size=2).tolist()
        self.game.reset(first, (second, second))
        self.game.run(FIRST_DECISION - self.game.tick)
        if (told_to := self.settings["told_to"]) is not None:
            self.team.told = draw_told(told_to, self.possible_agents, np.random.default_rng([second, 1]))
        self.team.begin()
        self.executor.begin(second)
        self.agents = list(self.possible_agents)
        self.ended = []
        self._worth = self._balance()
        return self._observations(), self._infos([])

    def step(self, actions: Mapping[str, Any]) -> Step:
        """Takes a decision and runs `decision_ticks`, or fewer if the game ends."""
        if not self.agents:
            return {}, {}, {}, {}, {}
        self._run(self._orders(actions))
        reward = self._reward()
        names, over = self.agents, self.game.over
        truncated = over and self.game.winner < 0 and not self.game.broken and self.settings["truncate_draws"]
        observed, infos = self._observations(), self._infos([reward])
        if over:
            self.agents = []
        ends = dict.fromkeys(names, over and not truncated), dict.fromkeys(names, truncated)
        return observed, dict.fromkeys(names, reward), *ends, infos

    def _run(self, orders: Sequence[Order]) -> None:
        self.advance(orders)
        ended = list(self.ended)
        for _ in range(self.settings["decision_ticks"] // DECISION_TICKS - 1):
            if self.game.over:
                break
            self.advance(self.executor.give_orders())
            ended += self.ended
        self.ended = ended

    def advance(self, orders: Sequence[Order]) -> None:
        """Carries out orders and runs 50 ticks, or fewer if the game ends; nobody observes or is rewarded."""
        self.game.step(orders, DECISION_TICKS)
        self.team.look()
        self.ended = self.executor.settle()

    def _orders(self, actions: Mapping[str, Any]) -> list[Order]:
        if not self._in_words:
            return collective_command.orders_of(self.team, collective_command.checked_actions(actions, self.agents))
        chosen = check_actions(actions, self.agents, [True] * len(self.agents), len(self.commands))
        for commander, action in enumerate(chosen):
            self.executor.command(commander, self.commands[action or 0])
        return self.executor.give_orders()

    def _reward(self) -> float:
        before, self._worth = self._worth, self._balance()
        winner = self.game.winner
        won = 0.0 if winner < 0 else 1.0 if winner == self.team.player else -1.0
        return won + float(self.settings["shaping"]) * (self._worth - before)

    def _balance(self) -> float:
        """Own material minus that of the enemy, in thousands of gold."""
        own = self.team.player
        return (self.team.value(own) - self.team.value(1 - own)) / _VALUE_UNIT

    def _space(self) -> spaces.Dict:
        fields: dict[str, spaces.Space[Any]] = {}
        for part in self.chosen.parts:
            if part == "text":
                fields |= text_spaces(len(self.commands))
            else:
                fields |= officer_view.officer_spaces() if part == "officer" else observations.spaces_of(part)
        if "vector" in fields and self.chosen.told_to is not None:
            fields["vector"] = observations.vector_space(TOLD_NUMBERS)
        if self._in_words:
            fields["action_mask"] = spaces.Box(0, 1, (len(self.commands),), np.int8)
        else:
            fields["head_mask"] = spaces.Box(0, 1, (sum(collective_command.SIZES),), np.int8)
        return spaces.Dict(fields)

    def _observations(self) -> dict[str, Observation]:
        return {agent: self._observe(i) for i, agent in enumerate(self.possible_agents)}

    def _observe(self, commander: int) -> Observation:
        seen: Observation = {}
        team, executor, parts, max_tick = self.team, self.executor, self.chosen.parts, self.chosen.max_tick
        if "text" in parts:
            seen["text"] = text.observation_text(executor, commander, max_tick)
            seen["candidates"], seen["subgoal"] = self._phrases, ""
        if "vector" in parts:
            seen["vector"] = observations.vector(team, commander, max_tick)
            if team.told is not None:
                seen["vector"] = np.concatenate([seen["vector"], told_numbers(team, commander)])
        if "planes" in parts:
            seen["planes"] = observations.planes(team, commander)
        if "lists" in parts:
            seen |= observations.lists(team, commander)
        if "officer" in parts:
            seen |= officer_view.observe(team, commander)
        if self._in_words:
            allowed = [not executor.refusal(commander, command) for command in self.commands]
            seen["action_mask"] = np.array(allowed, np.int8)
        else:
            seen["head_mask"] = collective_command.masks(team, commander)
        return seen

    def _infos(self, rewards: list[float]) -> dict[str, dict[str, Any]]:
        metrics, infos = _metrics(self.team), {}
        for commander, agent in enumerate(self.possible_agents):
            ended = [done for done in self.ended if done.commander == commander]
            infos[agent] = {
                "needs_action": True,
                "step_rewards": list(rewards),
                "game_step": self.game.tick,
                "events": [text.event_text(done.commander, done.command, done.success) for done in ended],
                "task_success": self.game.winner == self.team.player,
                EPISODE_METRICS: dict(metrics),
            }
            if self.team.told is not None:
                infos[agent][PRIVATE] = told_types(self.team, commander)
        return infos

    def action_phrases(self, agent: str) -> list[str]:
        """Each action in words; with "red" each kind of command."""
        return list(self._phrases if self._in_words else collective_command.KIND_WORDS)

    @property
    def facts(self) -> tuple[str, ...]:
        """All army types that the opponent can have, such as "spearmen"; none where `told_to` is not set."""
        return () if self.settings["told_to"] is None else told_facts(self.settings["opponent"])

    def meaning(self, message: str) -> str | None:
        """The enemy's army types that a message names, or what it asks for; None where `told_to` is not set."""
        return None if self.settings["told_to"] is None else sayings.meaning(message)

    def request(self, message: str) -> str | None:
        """Unit that a message asks its listener to make; the counter of the types that it tells of."""
        return sayings.request(message)

    @property
    def teacher_state(self) -> Executor:
        """State that scripted teachers look at."""
        return self.executor

    def whole(self) -> list[float]:
        """Numbers of both sides without fog; see `rllib_llm_comm.envs.minirts.observations.whole`."""
        return observations.whole(self.team, self.settings["max_tick"])

    # ---- to and fro --------------------------------------------------------------------------------------

    def snapshot(self) -> EnvSnapshot:
        """All that the environment remembers, exactly."""
        state = self._rng.bit_generator.state
        parts = self.game.snapshot(), self.team.snapshot(), self.executor.snapshot()
        return EnvSnapshot(*parts, dict(state), list(self.agents), self._worth)

    def restore(self, snapshot: EnvSnapshot) -> None:
        """Goes back to a moment of this environment, or of another one with the same settings."""
        self.game.restore(snapshot.game)
        self.team.restore(snapshot.side)
        self.executor.restore(snapshot.executor)
        self._rng.bit_generator.state = snapshot.rng
        self.agents, self._worth, self.ended = list(snapshot.agents), snapshot.worth, []

    def draw_rgb(self) -> np.ndarray:
        """The game as pixels, uint8 (height, width, 3)."""
        return render.rgb_array(self.game, self.team, self.executor if self._in_words else None)

    def draw_ansi(self) -> str:
        """The game in characters."""
        return render.ansi(self.game, self.team, self.executor if self._in_words else None)


parallel_env = constructor(MiniRTS)
"""Makes the environment from the arguments of this page."""
aec_env = in_turns(parallel_env)
"""The same in PettingZoo's AEC form, in which agents act one after the other."""


# ---- for the record of the game -----------------------------------------------------------------------


def picture(env: Any, agent: str) -> np.ndarray:
    """The map as the agent's side knows it as pixels, uint8 (height, width, 3): own units, and enemies in sight."""
    return render.known_map(env.game, env.team)
