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
  (50, 5); see `rllib_llm_comm.envs.minirts.view.observations`. `officer`: the same in small whole numbers, see
  `rllib_llm_comm.envs.minirts.view.officer_view`.
* `action_mask`: int8 (number of actions,) with "command"; `head_mask`: int8, the masks of the 58 parts one after the
  other, with "red".

### Actions

A decision is due every `decision_ticks` (50), for all commanders at once.

`action_level="command"`: wait; mine with idle peasants; build one of six buildings; train some of seven types; attack,
defend, scout with the army. A command stays in force: a scripted officer per commander carries it out over the next
decisions, see `rllib_llm_comm.envs.minirts.commanders.executor`. `wait` changes nothing.

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
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from rllib_llm_comm.envs.base_env import Game as ParallelGame
from rllib_llm_comm.envs.base_env import Observation, Reset, Step, constructor, in_turns
from rllib_llm_comm.envs.interface import check_actions
from rllib_llm_comm.envs.minirts import ENV_ID, collective_command, told_army
from rllib_llm_comm.envs.minirts.commanders import sayings
from rllib_llm_comm.envs.minirts.commanders.executor import Done, Executor
from rllib_llm_comm.envs.minirts.commanders.officers import make_executor
from rllib_llm_comm.envs.minirts.commanders.sayings import understand
from rllib_llm_comm.envs.minirts.commanders.tasks import all_commands
from rllib_llm_comm.envs.minirts.engine.rts_game import Game
from rllib_llm_comm.envs.minirts.engine.unit_order import Order
from rllib_llm_comm.envs.minirts.env_settings import DECISION_TICKS, MiniRTSSettings
from rllib_llm_comm.envs.minirts.env_snapshot import EnvSnapshot
from rllib_llm_comm.envs.minirts.infos import infos_of
from rllib_llm_comm.envs.minirts.side import Side
from rllib_llm_comm.envs.minirts.view import observations, render, text
from rllib_llm_comm.envs.minirts.view.commander_view import CommanderView
from rllib_llm_comm.envs.minirts.view.names import COMMANDERS
from rllib_llm_comm.envs.told_to import draw_told

FIRST_DECISION = 49
"""Tick of the first decision."""
_MAX_SEED = 2**31 - 1
_VALUE_UNIT = 1000.0


class MiniRTS(ParallelGame):
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

    metadata: ClassVar[dict[str, Any]] = {
        "name": "minirts_v0",
        "render_modes": ["human", "ansi", "rgb_array"],
        "is_parallelizable": True,
        "render_fps": 8,
    }
    env_id = ENV_ID
    shows_copies = keeps_contract = True
    state_bounds = observations.BOUNDS

    settings_model = MiniRTSSettings
    chosen: MiniRTSSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        now = self.chosen
        self.game = Game(0, now.rules())
        self.team = Side(self.game, now.side, now.num_agents, told_army.number_of(now.producers))
        self.executor = make_executor(now.executor, self.team, now.max_buildings)
        self.commands = all_commands(now.numbers)
        self.ended: list[Done] = []
        secret = told_army.rules(now.told_to, now.producers, now.num_agents)
        self.task, self.brief = text.task(), text.brief(now.num_agents, secret)
        self.possible_agents = list(COMMANDERS[: now.num_agents])
        self.agents: list[str] = []
        self._in_words = now.action_level == "command"
        self._view = CommanderView(self.settings, self.commands)
        self._rng = np.random.default_rng()
        self._worth = 0.0
        self.observation_spaces = dict.fromkeys(self.possible_agents, self._view.space())
        self.action_spaces = {
            agent: spaces.Discrete(len(self.commands))
            if self._in_words
            else spaces.MultiDiscrete(collective_command.SIZES)
            for agent in self.possible_agents
        }

    # ---- episodes ----------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Starts an episode, up to the first decision.

        Args:
            seed: Fixes the map and the opponent's draws; `None` goes on with the random numbers at hand.
            options: Accepted; there are none.

        Returns:
            Observations and infos of all agents.
        """
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
        """Takes a decision and runs `decision_ticks`, or fewer if the game ends.

        Args:
            actions: Action per agent.

        Returns:
            Observations, rewards, terminations, truncations and infos of all agents; empty after the end.

        Raises:
            UserError: For an unknown agent, or a missing or impossible action.
        """
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
        """Carries out orders and runs 50 ticks, or fewer if the game ends; nobody observes or is rewarded.

        Args:
            orders: As `executor.give_orders` gives.
        """
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

    def _observations(self) -> dict[str, Observation]:
        return {agent: self._view.observe(i, self.executor) for i, agent in enumerate(self.possible_agents)}

    def _infos(self, rewards: list[float]) -> dict[str, dict[str, Any]]:
        return infos_of(self.possible_agents, self.team, self.ended, rewards)

    def action_phrases(self, agent: str) -> list[str]:
        """Each action in words; with "red" each kind of command.

        Args:
            agent: The agent that would act.
        """
        return list(self._view.phrases if self._in_words else collective_command.KIND_WORDS)

    @property
    def facts(self) -> tuple[str, ...]:
        """All army types that the opponent can have, such as "spearmen"; none where `told_to` is not set."""
        return () if self.settings["told_to"] is None else told_army.facts(self.settings["opponent"])

    def meaning(self, message: str) -> str | None:
        """The enemy's army types that a message names, or what it asks for; None where `told_to` is not set.

        Args:
            message: Any text; see `rllib_llm_comm.envs.minirts.commanders.sayings.meaning`.
        """
        return None if self.settings["told_to"] is None else sayings.meaning(message)

    def request(self, message: str) -> str | None:
        """Unit that a message asks its listener to make; the counter of the types that it tells of.

        Args:
            message: Any text; see `rllib_llm_comm.envs.minirts.commanders.sayings.request`.
        """
        return sayings.request(message)

    @property
    def teacher_state(self) -> Executor:
        """State that scripted teachers look at."""
        return self.executor

    def understands(self, message: str) -> bool:
        """True if a message is one of the game's own sentences."""
        return understand(message) is not None

    def whole(self) -> list[float]:
        """Numbers of both sides without fog; see `rllib_llm_comm.envs.minirts.view.observations.whole`."""
        return observations.whole(self.team, self.settings["max_tick"])

    # ---- to and fro --------------------------------------------------------------------------------------

    def snapshot(self) -> EnvSnapshot:
        """All that the environment remembers, exactly."""
        state = self._rng.bit_generator.state
        parts = self.game.snapshot(), self.team.snapshot(), self.executor.snapshot()
        return EnvSnapshot(*parts, dict(state), list(self.agents), self._worth)

    def restore(self, snapshot: EnvSnapshot) -> None:
        """Goes back to a moment of this environment, or of another one with the same settings.

        Args:
            snapshot: Result of `snapshot`.
        """
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
    """The map as the side knows it as pixels, uint8 (height, width, 3): own units, and enemies in sight.

    Args:
        env: The (unwrapped) environment.
        agent: The commander; all of a side share their sight.
    """
    return render.known_map(env.game, env.team)
