"""# Overcooked Text

Cooks in a small kitchen chop vegetables, collect them in a bowl and deliver the salad that was ordered. Each
cook sees only what is near, as numbers and as text, and chooses among phrases that say what each action would
do now. On map B a counter divides the kitchen, so nobody can do it alone.

| Import             | `from rllib_llm_comm.envs import overcooked_text`                             |
|--------------------|-------------------------------------------------------------------------------|
| Constructor        | `overcooked_text.parallel_env(**settings)`                                    |
| Registered id      | `rllib_llm_comm/overcooked_text-v0` (PettingZoo's parallel registry)          |
| Actions            | Discrete (macro-actions such as "get tomato", or single steps)                |
| Parallel API       | Yes (`aec_env` gives the AEC form)                                            |
| Manual control     | No                                                                            |
| Agents             | `agents= ["alice", "bob", "carol"]` (the first `num_agents`)                  |
| Action shape       | (1,)                                                                          |
| Action values      | Discrete(11) on maps B and C, Discrete(10) on A (defaults); 5 if primitive    |
| Observation shape  | Dict: vector (30,), text, candidates (K texts), action_mask (K,), subgoal     |
| Observation values | vector in [0, 1], mask in {0, 1}, texts in printable ASCII                    |

### Observation space

A dictionary of the parts named in `observe`, and `action_mask`. The part `text` of `observe` stands for `text`,
`candidates`, `subgoal` and `critic_text`.

* `vector`: float32 (n,). Row / 7 and column / 7 of every object in sight, in the order tomato, lettuce,
  onion, plates, cutting boards, delivery, agents; after the two numbers of a food the share of its three cuts
  done; 0 for what is out of sight; at the end the order one-hot (7), all 0 for a cook that is not told it. n is 30 with
  two agents in layout "full". What somebody holds has its holder's place. There is no memory in it. (With
  `legacy=True` it is the original's vector: with memory for primitive actions; as of the agent's last decision
  for macro-actions.)
* `text`: what the agent sees and holds, in sentences. It begins with the order ("make a lettuce tomato salad."), or
  with "make a salad." for a cook that is not told it.
* `candidates`: one phrase per action, what it would really do now.
* `action_mask`: int8 (K,), 0 for an action that would do nothing (or the same as an earlier one).
* `subgoal`: empty; wrappers may fill it.
* `critic_text` (only with `central_critic`): `text` with the order, also for a cook that is not told it. The critic of
  language agents reads it in place of `text`.

### Actions

Macro-actions, of which those whose object does not exist are left out: stay, get tomato, get lettuce, get
onion, get plate 1, get plate 2, go to knife 1, go to knife 2, deliver, chop, go to counter (maps B and C
only), and with `include_moves` right, down, left, up. A macro-action takes as many game steps as it needs;
agents get free at different times. Primitive: right, down, left, up, stay; walking into something touches it.

With `advance="decision"` one `step` runs game steps until at least one agent needs a new action; with
`"game_step"` it runs one. Actions of agents that are busy (`infos[agent]["needs_action"]` is False) are
ignored and may be left out.

### Rewards

Shared by all: `chop` when a food that the recipe needs gets chopped (once per food and episode if
`chop_pays_once`), `correct_delivery`, `wrong_delivery` and `step` for each game step. Charged to one agent:
`collision` when it chose a move into a floor cell and stayed where it was (exchanging places is no
collision); with `shared_collision` to all.

The episode terminates for all at the correct delivery of the last order. After `max_game_steps` game steps it is
truncated, never terminated.

### Infos

`needs_action` (bool), `step_rewards` (the reward of each game step of this `step`), `game_step` (int),
`events` (list of texts such as "chopped tomato"), `blocked` (bool: at least one collision), `task_success`
(bool: all orders served), `private` (the order that the agent is told, such as "tomato salad", or None), with
`told_to="planner"` `hidden` (the order, for measures), and with several orders `episode_metrics` (`orders_served`).

`env.meaning(message)` gives the food or dish that a message names, in the spelling of `private`.

### Arguments

Those of `OvercookedTextSettings`.

``` python
overcooked_text.parallel_env(map_name="B", recipe=["tomato salad", "onion salad"], told_to=["alice"])
```

### Version history

* v0: first version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.envs.base_env import Game, GameSettings, Observation, Reset, Step, constructor, in_turns
from rllib_llm_comm.envs.interface import (
    CRITIC_TEXT,
    EPISODE_METRICS,
    HIDDEN,
    PRIVATE,
    check_actions,
    text_spaces,
)
from rllib_llm_comm.envs.overcooked_text import observation_text, render
from rllib_llm_comm.envs.overcooked_text.actions import MacroRunner, PrimitiveRunner, advance
from rllib_llm_comm.envs.overcooked_text.cooks import meaning
from rllib_llm_comm.envs.overcooked_text.layouts import MAP, MOST_ORDERS, SIZE, Draws, Recipe, Rewards
from rllib_llm_comm.envs.overcooked_text.observation_text import wording
from rllib_llm_comm.envs.overcooked_text.rules import KitchenMoment, TextKitchen
from rllib_llm_comm.envs.told_to import ALL, NAMES, PLANNER, Distinct, Name, Nonempty, Told, each_once, require_agents


class OvercookedTextSettings(GameSettings):
    """Settings of the textual kitchen."""

    map_name: Literal["A", "B", "C"] = "B"
    """"A" (one room), "B" (two rooms with a counter between them) or "C" (as B, with a gap)."""
    layout: Literal["full", "oneplate", "tomato"] = "full"
    """"full", "oneplate" (one plate) or "tomato" (one plate, one cutting board, tomato only)."""
    recipe: Annotated[Recipe | Nonempty[Recipe], AfterValidator(each_once)] = "lettuce-tomato salad"
    """A dish. Of a list each order is drawn by the seed of the episode, all as likely."""
    num_agents: int = Field(2, ge=1, le=len(NAMES))
    """Number of cooks."""
    view_radius: int = Field(2, ge=0, le=SIZE)
    """Sight in cells in each direction; 0 means everything."""
    action_level: Literal["macro", "primitive"] = "macro"
    """Actions that take as many game steps as they need, or single steps."""
    max_game_steps: int = Field(200, ge=1, le=LARGEST)
    """Time limit in game steps."""
    rewards: Rewards | None = None
    """Overrides of some of the rewards."""
    shared_collision: bool = False
    """Whether every agent pays for every collision."""
    chop_pays_once: bool = True
    """Whether a food pays its chop only once per episode."""
    legacy: bool = False
    """Behave exactly like the original game (no collision reward, chops pay again and again)."""
    advance: Literal["decision", "game_step"] = "decision"
    """One `step` runs until an agent needs a new action, or one game step."""
    mask_useless: bool = True
    """Whether `action_mask` excludes useless actions; otherwise it is all ones."""
    include_moves: bool = False
    """Whether single steps are offered among the macro-actions."""
    wait_steps: int = Field(4, ge=1, le=LARGEST)
    """Longest duration of the macro-action stay in game steps; it ends earlier when the agent sees another one do
    something. Always 1 with `legacy`."""
    blocked_steps: int | None = Field(3, ge=1, le=LARGEST)
    """A macro-action ends when its cook was in another one's way for so many game steps in a row; None for never.
    Never with `legacy`."""
    told_to: Told[Literal["all", "one", "planner"], Name] = "all"
    """Who is told the order: "all", a list of agents, "one" (drawn for each episode), or "planner" (no agent; planners
    see it in any case). The others do not find it in their text, vector, phrases, mask, nor (language agents) in their
    critic's prompt."""
    orders: int = Field(1, ge=1, le=MOST_ORDERS)
    """Number of orders of an episode. After a correct delivery with orders left, the bowl and its foods go back to
    their start (foods raw, the bowl empty; to the nearest free counter along the walls if something lies there), the
    next order counts at once, and chops pay once more. Everything else stays as it is."""
    start: Literal["map", "random"] = "map"
    """"random": cooks and things stand elsewhere in each episode. Things stand on counters along the walls, no two of
    them in front of the same floor cell; on maps B and C all stay on their side of the middle counter."""
    central_critic: bool = False
    """Whether observations have `critic_text`: a centralised critic, which knows the order."""
    observe: Distinct[Literal["vector", "text"]] = ("vector", "text")
    """Parts of the observation."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        require_agents(self.told_to, NAMES[: self.num_agents])
        if self.central_critic and "text" not in self.observe:
            raise UserError("`central_critic` is True but `observe` has no 'text'; add it, or omit `central_critic`.")
        for name, only in (("told_to", ALL), ("orders", 1), ("start", MAP)) if self.legacy else ():
            if (value := getattr(self, name)) != only:
                raise UserError(
                    f"`{name}` is {value!r}, but `legacy` plays the original game, which has only {only!r}; "
                    "omit one of the two."
                )
        return self


class OvercookedText(Game):
    """The textual kitchen as a PettingZoo parallel environment; the module's docstring is its page.

    Attributes:
        kitchen: The game's state with everything in it (for teachers, tests and replays).
        runner: Runner of the actions; offers `names`, `preview(agent, action)` and `snapshot()`.
        task: The goal in words.
        brief: The game in a few sentences.
        watched: True if `passed` is kept; planners set it, as it takes time.
        passed: Moment before the last `step` and those after each of its game steps; empty after `reset`.
    """

    shows_copies = keeps_contract = True
    metadata: ClassVar[dict[str, Any]] = {**Game.metadata, "name": "overcooked_text_v0"}
    env_id = "rllib_llm_comm/overcooked_text-v0"

    settings_model = OvercookedTextSettings
    chosen: OvercookedTextSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        now = self.chosen
        self.possible_agents: list[str] = list(NAMES[: now.num_agents])
        self._draws = Draws(
            now.map_name, now.layout, self.possible_agents, now.recipe, now.told_to, now.orders, now.start
        )
        self.kitchen = TextKitchen(
            now.map_name, now.layout, self._draws.recipes[0], now.num_agents, now.view_radius,
            now.rewards.to_dict() if now.rewards else None, now.chop_pays_once, now.legacy, now.shared_collision,
        )  # fmt: skip
        self.runner: MacroRunner | PrimitiveRunner
        if now.action_level == "macro":
            self.runner = MacroRunner(self.kitchen, now.include_moves, now.wait_steps, now.blocked_steps)
        else:
            self.runner = PrimitiveRunner(self.kitchen)
        self.settings["rewards"] = dict(self.kitchen.rewards)
        self.max_game_steps, self.mask_useless = now.max_game_steps, now.mask_useless
        self.task = observation_text.task(self._draws.recipes, now.orders)
        self.brief = observation_text.brief(self.kitchen, self._draws.recipes, now.told_to)
        self.watched = False
        self.passed: list[KitchenMoment] = []
        self._index = {name: i for i, name in enumerate(self.possible_agents)}
        self._vectors: list[list[float]] = [[] for _ in self.possible_agents]
        count = self.runner.num_actions
        parts: dict[str, spaces.Space[Any]] = {"action_mask": spaces.Box(0, 1, (count,), np.int8)}
        if "vector" in now.observe:
            parts["vector"] = spaces.Box(0.0, 1.0, (len(self.kitchen.seen_vector(0)),), np.float32)
        if "text" in now.observe:
            parts |= text_spaces(count, now.central_critic)
        self.observation_spaces = dict.fromkeys(self.possible_agents, spaces.Dict(parts))
        self.action_spaces: dict[str, spaces.Discrete] = {a: spaces.Discrete(count) for a in self.possible_agents}

    # ---- episodes ----------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Starts an episode."""
        self._rng = self._rng if seed is None else np.random.default_rng(seed)
        self.runner.reset(self._draws.draw(int(self._rng.integers(2**31)) if seed is None else seed))
        self.agents = list(self.possible_agents)
        self.passed = []
        self._vectors = [[] for _ in self.agents]
        infos = {agent: self._info(i, [], [], False) for i, agent in enumerate(self.agents)}
        return self._observations(), infos

    def step(self, actions: Mapping[str, int]) -> Step:
        """Runs one game step, or game steps until an agent needs a new action (`advance`)."""
        if not self.agents:
            return {}, {}, {}, {}, {}
        chosen = check_actions(actions, self.possible_agents, self.runner.finished, self.runner.num_actions)
        passed = advance(self.runner, chosen, self.settings["advance"], self.max_game_steps, self.watched)
        self.passed = passed.moments
        names = self.agents
        rewards = {agent: float(sum(passed.rewards[i])) for i, agent in enumerate(names)}
        infos = {
            a: self._info(i, passed.rewards[i], passed.events[i], i in passed.blocked) for i, a in enumerate(names)
        }
        observations = self._observations(busy=self.observes_busy or passed.over)
        if passed.over:
            self.agents = []
        ends = dict.fromkeys(names, passed.done), dict.fromkeys(names, passed.over and not passed.done)
        return observations, rewards, *ends, infos

    def _observations(self, busy: bool = True) -> dict[str, Observation]:
        """Observations of all agents, or of those that need an action."""
        agents = zip(self.possible_agents, self.runner.finished, strict=True)
        return {agent: self.observe(agent) for agent, free in agents if free or busy}

    def observe(self, agent: str) -> Observation:
        """Present observation of an agent."""
        i = self._index[agent]
        words, parts = wording(self.runner, i), self.settings["observe"]
        seen: Observation = {}
        if self.settings["central_critic"]:
            seen[CRITIC_TEXT] = observation_text.describe(self.kitchen, i, order=True)
        if "vector" in parts:
            seen["vector"] = np.array(self._old_vector(i), np.float32) if self.kitchen.legacy else words.vector.copy()
        if "text" in parts:
            seen["text"], seen["candidates"], seen["subgoal"] = words.text, words.candidates, ""
        seen["action_mask"] = words.mask.copy() if self.mask_useless else np.ones_like(words.mask)
        return seen

    def _old_vector(self, i: int) -> list[float]:
        """The numbers of a cook as in the original: of primitive steps from memory, else as of its last decision."""
        if self.runner.level == "primitive":
            return self.kitchen.memory_vector(i)
        if self.runner.finished[i] or not self._vectors[i]:
            self._vectors[i] = self.kitchen.seen_vector(i)
        return self._vectors[i]

    def _info(self, i: int, step_rewards: list[float], events: list[str], blocked: bool) -> dict[str, Any]:
        info = {
            "needs_action": self.runner.finished[i],
            "step_rewards": step_rewards,
            "game_step": self.kitchen.game_step,
            "events": events,
            "blocked": blocked,
            "task_success": self.kitchen.delivered,
            PRIVATE: self.kitchen.told(i),
        }
        if self.settings["told_to"] == PLANNER:
            info[HIDDEN] = self.kitchen.recipe
        if self.settings["orders"] > 1:
            info[EPISODE_METRICS] = {"orders_served": float(self.kitchen.served)}
        return info

    @property
    def facts(self) -> tuple[str, ...]:
        """All orders that can be drawn, spelt as in the infos' `private`, such as "onion-tomato salad"."""
        return self._draws.recipes

    def meaning(self, message: str) -> str:
        """The food or dish that a message names; a dish is spelt as in the infos' `private`."""
        return meaning(message)

    def whole(self) -> list[float]:
        """Share of the time, everything in the kitchen as in `vector`, the order one-hot (7), the share of orders
        delivered, and per cook whether it is told the order."""
        kitchen = self.kitchen
        return [kitchen.game_step / self.max_game_steps, *kitchen.whole_vector(), *kitchen.secret()]

    # ---- pictures ----------------------------------------------------------------------------------------

    def draw_rgb(self) -> np.ndarray:
        """The kitchen as pixels, uint8 (height, width, 3)."""
        return render.rgb_array(self.kitchen)

    def places(self) -> dict[str, tuple[float, float]]:
        """Heads of the cooks in the picture, (x, y) in pixels."""
        cooks = zip(self.possible_agents, self.kitchen.agents, strict=True)
        return {name: ((cook.y + 0.5) * render.CELL, (cook.x + 0.1) * render.CELL) for name, cook in cooks}

    def draw_ansi(self) -> str:
        """The kitchen in characters."""
        return render.ansi(self.kitchen)


parallel_env = constructor(OvercookedText)
"""Makes the environment from the arguments of this page."""
aec_env = in_turns(parallel_env)
"""The same in PettingZoo's AEC form, in which agents act one after the other."""


# ---- for the record of the game -----------------------------------------------------------------------

_KEYS = {"ArrowRight": "right", "ArrowDown": "down", "ArrowLeft": "left", "ArrowUp": "up", ".": "stay"}


def keys(env: Any, agent: str) -> dict[str, int]:
    """Key of the keyboard -> action; empty where no single steps are offered."""
    names = list(env.runner.names)
    found = {key: names.index(name) for key, name in _KEYS.items() if name in names}
    return found if "ArrowRight" in found else {}


def picture(env: Any, agent: str) -> np.ndarray:
    """The kitchen in the eyes of a cook as pixels, uint8 (height, width, 3); cells out of sight are dark and empty."""
    return render.seen_by(env.kitchen, env.possible_agents.index(agent))


_DONE = {
    "pick_up": "picks up the {}",
    "put_down": "puts the {} down",
    "place_on_board": "puts the {} on the board",
    "chop": "cuts the {}",
    "chopped": "has chopped the {}",
    "add_to_plate": "puts the {} into a bowl",
    "correct_delivery": "serves the right dish",
    "wrong_delivery": "serves a wrong dish",
    "blocked": "is blocked",
    "swapped": "changes places with another cook",
}


def event_words(event: str) -> str:
    """An event of the infos in words, such as "pick_up tomato" or "put_down plate1"."""
    kind, _, item = event.partition(" ")
    item = item.rstrip("0123456789").replace("plate", "bowl")  # as observations say
    return _DONE[kind].format(item) if kind in _DONE else event


def difference(played: Mapping[str, Any], learned: Mapping[str, Any]) -> str:
    """The reason why a policy cannot play, as the end of a sentence; empty if it can.

    Args:
        played: Settings of the kitchen in which it is to play.
        learned: Those of its training.
    """
    for name in ("map_name", "layout"):
        now, then = (one.get(name, OvercookedTextSettings.defaults()[name]) for one in (played, learned))
        if now != then:
            return (
                f"was trained with `env_config.{name}` {then!r} but here it is {now!r}; take partners of the same "
                "kitchen."
            )
    return ""
