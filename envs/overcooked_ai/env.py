"""# Overcooked-AI

Two cooks make onion soups: three onions into a pot, twenty steps of cooking, a dish, and off to the serving counter.
The kitchens are narrow, so that cooks stand in each other's way, and in one of them neither can do it alone. An exact
re-implementation of the five kitchens of Carroll et al. 2019 (same states, rewards, events, encodings), and of the
original package's other kitchens for two, which have tomatoes and orders, cook times and points of their own.

| Import             | `from rllib_llm_comm.envs import overcooked_ai`                               |
|--------------------|-------------------------------------------------------------------------------|
| Constructor        | `overcooked_ai.parallel_env(**settings)`                                      |
| Registered id      | `rllib_llm_comm/overcooked_ai-v0` (PettingZoo's parallel registry)            |
| Actions            | Discrete (single steps, cells of the map, or goals in words)                  |
| Parallel API       | Yes (`aec_env` gives the AEC form)                                            |
| Manual control     | No                                                                            |
| Agents             | `agents= ["alice", "bob"]`                                                    |
| Action shape       | (1,)                                                                          |
| Action values      | Discrete(6); Discrete(H * W) for goal cells; Discrete(11 to 23) for goals     |
| Observation shape  | Dict: vector (96,), text, candidates (K texts), subgoal, action_mask (K,) |
| Observation values | vector in [-64, 64], planes and state in [0, 64], texts in printable ASCII    |

### Observation space

A dictionary of the parts named in `observe`, and `action_mask`.

* `vector`: float32 (96,), the features of Overcooked-AI: own block of 46 (where it faces, what it holds, ways to the
  nearest crate, stack and serving counter, two pots, walls), the partner's block, the partner's place, the own place.
  Loose objects are not in it, as in the original with its default planner.
* `text`: `text` (what the cook knows, in sentences), `candidates` (one phrase per action, what it would do now) and
  `subgoal` (empty; wrappers may fill it).
* `planes`: uint8 (W, H, 26), the original's lossless encoding, the cook itself first; `encoding.CHANNELS` names them.
* `state`: float32, the planes of player 0 as a vector: the whole game, the same for both, for central critics.
* `entities`: `entities`, int16 (H, W, 5), symbols of each cell (terrain with what is in a pot, object, other cook,
  place, the cook itself; 0 for none; `observations.symbol_names` tells them), `manual`, the rules, the map and what the
  symbols mean in sentences, and `subgoal`. For EMMA.

With `wanted` more comes on top, of the same shape for both cooks and whichever of the n pots is wanted. The wanted pot
itself is in it only for who is told; `state` has it always, so a critic that reads it is a centralised one.

* `vector` ("features"): 3 n numbers: one-hot the wanted pot (zeros for who is not told), the pot of the soup in the own
  hands, and of the soup in the other's.
* `text`: which pot's soups pay, or that one's do; the pot of each soup that is held or lies on a counter.
* `planes`, `state` and `vector` ("planes"): two planes more: 1 at the wanted pot; 1 to n, the number of its pot, where
  a soup outside of pots is.
* `entities`: one slot more before the last: the symbol of the wanted pot at that pot, and one of n symbols where a soup
  outside of pots is. `manual` tells the rule and what they mean.

### Actions

`action_level="primitive"`: north, south, east, west, stay, interact. `"goal_cell"`: a cell, numbered y * W + x; the
cook takes one primitive step towards it (SAMA's "targeted relocation"; beside a cell that is no floor it faces and uses
it). It chooses anew at each step, or, with `commit`, when it is done. `"goal"`: wait, or one of the cells that can be
used, in words; cooks commit. A cook that has committed is busy (`infos[agent]["needs_action"]` is False): its
action is ignored, and one `step` runs game steps until somebody is free. Goals are for `dynamics="old"` only.

### Rewards

Each agent gets all of the team's reward for soups (20 each, or as ordered; with `wanted` only those from the wanted
pot), and `shaping` times its own shaped reward: onion into a pot 3, useful dish 3, soup from a pot 5. The episode is
truncated after `horizon` game steps, never terminated.

### Infos

`needs_action` (bool), `step_rewards` (the reward of each game step of this `step`), `game_step` (int), `events` (list
of names, as in the original), `episode_metrics` (`score`, `soups`, `shaped`: so far). With `wanted` also `private` (the
wanted pot, such as "upper pot", or None for who is not told it), and `unpaid_soups` in `episode_metrics`; `soups` are
those that paid.

### Arguments

Those of `OvercookedAISettings`.

``` python
overcooked_ai.parallel_env(layout="coordination_ring", horizon=400, action_level="goal", observe=["text"])
```

### Version history

* v0: first version; later with the original's other kitchens, which changed nothing in the five.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from pydantic import Field, model_validator
from typing_extensions import Self

from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.core.settings import Several
from rllib_llm_comm.envs.base_env import Game, GameSettings, Observation, Reset, Step, constructor, in_turns
from rllib_llm_comm.envs.interface import EPISODE_METRICS, PRIVATE, check_actions
from rllib_llm_comm.envs.overcooked_ai import render, text
from rllib_llm_comm.envs.overcooked_ai.actions import make_level
from rllib_llm_comm.envs.overcooked_ai.kernel import EAST, INTERACT, NORTH, SOUTH, STAY, WEST
from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout, name_note, portable
from rllib_llm_comm.envs.overcooked_ai.observations import (
    observation_space,
    observations,
    whole,
    whole_space,
)
from rllib_llm_comm.envs.overcooked_ai.rules import HORIZON, QUIET, SoupKitchen
from rllib_llm_comm.envs.overcooked_ai.sayings import meaning
from rllib_llm_comm.envs.overcooked_ai.subgoals import pots_in_use
from rllib_llm_comm.envs.overcooked_ai.text import wanted_rules
from rllib_llm_comm.envs.overcooked_ai.wanted import WantedPot
from rllib_llm_comm.envs.told_to import ALL, Distinct, Told


class OvercookedAISettings(GameSettings):
    """Settings of the onion-soup kitchen."""

    layout: str | Several[str] | dict[str, Any] = "cramped_room"
    """"cramped_room", "asymmetric_advantages", "coordination_ring", "forced_coordination", "counter_circuit" (or the
    names that other code bases give them), or rows of one's own such as ["XXPXX", "O1 2O", "XDXSX"]. Or any other
    kitchen of the original package by its rules: its name ("cramped_room_tomato"), the path of a `.layout` file, or a
    dictionary with the same keys ("grid", "start_all_orders", "onion_time", ...; `original`). "counter_circuit" is
    what the original calls "counter_circuit_o_1order", which is taken, too; its own one is "original:counter_circuit"
    here. The rows alone of its kitchens with other cook times or points are refused."""
    dynamics: Literal["old", "new"] = "old"
    """"old": a pot with three ingredients starts by itself. "new": somebody with empty hands starts it. "old" is
    refused where soups of fewer ingredients are ordered, as in the original."""
    horizon: int = Field(HORIZON, ge=1, le=2**15 - 1)
    """Length of an episode in game steps."""
    action_level: Literal["primitive", "goal_cell", "goal"] = "primitive"
    """What an action is."""
    commit: bool = False
    """For "goal_cell": whether a cook keeps its goal until it is done."""
    mask_useless: bool = True
    """For "goal": whether `action_mask` excludes what would do nothing now."""
    observe: Distinct[Literal["vector", "text", "planes", "state", "entities"]] = ("vector", "text")
    """Parts of the observation."""
    vector: Literal["features", "planes"] = "features"
    """What the part `vector` is: "features", or "planes": the cook's planes as one row of numbers, for networks that
    read nothing else."""
    shaping: float = Field(0.0, ge=0, le=LARGEST)
    """Factor of the shaped rewards. The environment's attribute of the same name may be changed during training."""
    swap_roles: bool = False
    """Whether at each reset it is drawn which agent is which player; not with text, in which player 0 is alice."""
    wanted: Literal["pot"] | None = None
    """None: soups from every pot pay. "pot": only soups from one pot pay, drawn for each episode among the pots that
    can be used; for kitchens with at least two (all of the five but "cramped_room"). The pot counts that is wanted
    when a soup is delivered; a soup from another pot is gone and pays nothing. Events and shaped rewards are as
    ever."""
    wanted_anew: bool = False
    """With `wanted`: whether the pot is drawn anew after each soup that pays (it may be the same again)."""
    told_to: Told[Literal["all", "one"], Literal["alice", "bob"]] = "all"
    """With `wanted`: who is told the pot: "all", a list of agents, or "one" (drawn for each episode). The others do
    not find it in their observations, but for `state`."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        for name, only in (("wanted_anew", False), ("told_to", ALL)) if self.wanted is None else ():
            if (value := getattr(self, name)) != only:
                raise UserError(
                    f"`{name}` is {value!r} but `wanted` is None, so that there is nothing to tell; set `wanted='pot'`."
                )
        if self.swap_roles and "text" in self.observe:
            raise UserError(
                "`swap_roles` is True but `observe` has 'text', in which player 0 is called alice and player 1 bob; "
                "omit one of them."
            )
        if self.action_level != "primitive" and self.dynamics == "new":
            raise UserError(
                "`action_level` is not 'primitive' but `dynamics` is 'new': there a cook that goes to a pot with "
                "empty hands starts it too early; use `dynamics='old'`."
            )
        return self


class OvercookedAI(Game):
    """The onion-soup kitchen as a PettingZoo parallel environment; the module's docstring is its page.

    Attributes:
        kitchen: The game.
        level: Converter of actions into primitive ones.
        players: The player (0 or 1) that each agent is in this episode.
        score: Reward for soups so far in this episode.
        soups: Soups so far that brought points.
        passed: `SoupKitchen.state` before the last `step` and after each of its game steps; after `reset` the start.
        shaping: Factor of the shaped rewards.
        parts: Parts of observations that are made, `observe` at first; who plays without them may omit some.
        task: The goal in words.
        brief: The game in a few sentences.
    """

    shows_copies = keeps_contract = True
    metadata: ClassVar[dict[str, Any]] = {**Game.metadata, "name": "overcooked_ai_v0", "render_fps": 8}
    env_id = "rllib_llm_comm/overcooked_ai-v0"

    settings_model: ClassVar[type[OvercookedAISettings]] = OvercookedAISettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        now = self.chosen
        self.possible_agents = ["alice", "bob"]
        self.kitchen = SoupKitchen(now.layout, now.dynamics, now.horizon)
        layout = self.kitchen.layout
        if now.wanted is not None:
            self.kitchen.wanted = WantedPot(
                layout, pots_in_use(layout), self.possible_agents, now.told_to, now.wanted_anew
            )
        self.level = make_level(self.kitchen, now.action_level, now.commit, now.mask_useless)
        self.settings["layout"] = portable(now.layout)
        self.shaping = now.shaping
        rules = [] if self.kitchen.wanted is None else wanted_rules(self.kitchen.wanted)
        self.task = text.task(layout, now.wanted is not None)
        self.brief = " ".join([text.brief(layout, now.dynamics), *rules])
        self.players = {"alice": 0, "bob": 1}
        self.parts: tuple[str, ...] = now.observe
        self.passed: list[np.ndarray] = [self.kitchen.state.copy()]
        self._clear()
        space = observation_space(self.kitchen, self.parts, now.vector, self.level.num_actions)
        self.observation_spaces = dict.fromkeys(self.possible_agents, space)
        self.action_spaces = {agent: spaces.Discrete(self.level.num_actions) for agent in self.possible_agents}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the kitchen's name, which stands for another one elsewhere."""
        layout = self.settings["layout"]
        note = name_note(layout) if isinstance(layout, str) else ""
        return (note,) if note else ()

    # ---- episodes ----------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Starts an episode; the seed fixes roles (`swap_roles`), steps of cooks that block each other, the wanted pot
        and who is told it.
        """
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        swapped = bool(self.settings["swap_roles"] and self._rng.integers(2))
        self.players = {"alice": int(swapped), "bob": 1 - int(swapped)}
        self.kitchen.reset()
        self.level.reset(self._rng)
        if self.kitchen.wanted is not None:
            drawn = int(self._rng.integers(2**31)) if seed is None else seed
            self.kitchen.wanted.begin(drawn, self.players)
        self.agents = list(self.possible_agents)
        self._clear()
        self.passed = [self.kitchen.state.copy()]
        return self._observations(), self._infos([[], []], [[], []])

    def step(self, actions: Mapping[str, int]) -> Step:
        """Runs one game step, or game steps until an agent needs a new action."""
        if not self.agents:
            return {}, {}, {}, {}, {}
        level, kitchen, names = self.level, self.kitchen, self.agents
        one, two = self.players[names[0]], self.players[names[1]]
        free = (level.needs_action(one), level.needs_action(two))
        for player, action in zip((one, two), check_actions(actions, names, free, level.num_actions), strict=True):
            if action is not None:
                level.choose(player, action)
        rewards: list[list[float]] = [[], []]
        events: list[list[str]] = [[], []]
        self.passed = [kitchen.state.copy()]
        while True:
            self._game_step(rewards, events)
            self.passed.append(kitchen.state.copy())
            over = kitchen.over
            if over or level.needs_action(0) or level.needs_action(1):
                break
        observed, infos = self._observations(), self._infos(rewards, events)
        if over:
            self.agents = []
        earned = {names[0]: float(sum(rewards[one])), names[1]: float(sum(rewards[two]))}
        return observed, earned, dict.fromkeys(names, False), dict.fromkeys(names, over), infos

    def _game_step(self, rewards: list[list[float]], events: list[list[str]]) -> None:
        level = self.level
        result = self.kitchen.step((level.primitive(0), level.primitive(1)))
        level.after_step(0)
        level.after_step(1)
        if result is QUIET:  # as most steps are
            rewards[0].append(0.0)
            rewards[1].append(0.0)
            return
        served = sum(result.sparse)
        self.score += served
        self.soups += sum(paid > 0 for paid in result.sparse)
        for player in range(2):
            self._shaped[player] += result.shaped[player]
            rewards[player].append(served + self.shaping * result.shaped[player])
            events[player] += result.events[player]

    def _clear(self) -> None:
        self.score: float = 0
        self.soups, self._shaped = 0, [0.0, 0.0]

    def _observations(self) -> dict[str, Observation]:
        masks, vector = (self.level.mask(0), self.level.mask(1)), self.settings["vector"]
        seen = observations(self.kitchen, self.parts, vector, self.soups, masks, self.level.phrases)
        first, second = self.possible_agents
        return {first: seen[self.players[first]], second: seen[self.players[second]]}

    def _infos(self, rewards: list[list[float]], events: list[list[str]]) -> dict[str, dict[str, Any]]:
        infos: dict[str, dict[str, Any]] = {}
        time, wanted = self.kitchen.time, self.kitchen.wanted
        score, soups, shaped = float(self.score), float(self.soups), float(sum(self._shaped))
        for agent in self.possible_agents:
            player = self.players[agent]
            metrics = {"score": score, "soups": soups, "shaped": shaped}
            infos[agent] = info = {
                "needs_action": self.level.needs_action(player),
                "step_rewards": rewards[player],
                "game_step": time,
                "events": events[player],
                EPISODE_METRICS: metrics,
            }
            if wanted is not None:
                info[PRIVATE] = wanted.private(player)
                metrics["unpaid_soups"] = float(wanted.unpaid)
        return infos

    @property
    def facts(self) -> tuple[str, ...]:
        """The pots that can be wanted, such as "upper pot"; none where all pay."""
        return () if self.kitchen.wanted is None else tuple(self.kitchen.wanted.names)

    def meaning(self, message: str) -> str | None:
        """The pots that a message names, spelt as in the infos' `private`; None where no pot is wanted."""
        wanted = self.kitchen.wanted
        return None if wanted is None else meaning(message, wanted.names)

    def action_phrases(self, agent: str) -> list[str]:
        """Effect of each action now, in words; also where agents do not read."""
        return self.level.phrases(self.players[agent])

    @property
    def state_space(self) -> spaces.Box:
        """The space of `state`."""
        return whole_space(self.kitchen)

    def whole(self) -> np.ndarray:
        """The part `state` of observations, whether or not `observe` names it."""
        return whole(self.kitchen)

    # ---- pictures ----------------------------------------------------------------------------------------

    def draw_rgb(self) -> np.ndarray:
        """The kitchen as pixels, uint8 (height, width, 3)."""
        return render.rgb_array(self.kitchen, self.score, self._names())

    def draw_ansi(self) -> str:
        """The kitchen in characters."""
        return render.ansi(self.kitchen, self.score, self._names())

    def _names(self) -> list[str]:
        """The agent that each player is."""
        return sorted(self.players, key=self.players.__getitem__)


parallel_env = constructor(OvercookedAI)
"""Makes the environment from the arguments of this page."""
aec_env = in_turns(parallel_env)
"""The same in PettingZoo's AEC form, in which agents act one after the other."""


# ---- for the record of the game -----------------------------------------------------------------------

_KEYS = {"ArrowUp": NORTH, "ArrowDown": SOUTH, "ArrowRight": EAST, "ArrowLeft": WEST, " ": INTERACT, ".": STAY}


def keys(env: Any, agent: str) -> dict[str, int]:
    """Key of the keyboard -> action; empty unless actions are single steps."""
    return dict(_KEYS) if env.settings["action_level"] == "primitive" else {}


def picture(env: Any, agent: str) -> np.ndarray:
    """The kitchen as pixels, uint8 (height, width, 3): both cooks see all of it; a wanted pot is not drawn."""
    drawn: np.ndarray = env.draw_rgb()
    return drawn


_DONE = {
    "onion_pickup": "picks up an onion",
    "tomato_pickup": "picks up a tomato",
    "dish_pickup": "picks up a dish",
    "soup_pickup": "takes a soup out of the pot",
    "onion_drop": "puts an onion on a counter",
    "tomato_drop": "puts a tomato on a counter",
    "dish_drop": "puts a dish on a counter",
    "soup_drop": "puts a soup on a counter",
    "potting_onion": "puts an onion into a pot",
    "potting_tomato": "puts a tomato into a pot",
    "soup_delivery": "serves a soup",
}
_JUDGED = ("useful_", "optimal_", "viable_", "catastrophic_", "useless_")


def event_words(event: str) -> str:
    """An event of the infos in words; empty for the original's judgements, such as "useful_onion_pickup"."""
    return "" if event.startswith(_JUDGED) else _DONE.get(event, event)


def difference(played: Mapping[str, Any], learned: Mapping[str, Any]) -> str:
    """The reason why a policy cannot play, as the end of a sentence; empty if it can.

    Args:
        played: Settings of the kitchen in which it is to play.
        learned: Those of its training.
    """
    layout, theirs = (get_layout(one.get("layout", "cramped_room")) for one in (played, learned))
    if (theirs.rows, theirs.starts) != (layout.rows, layout.starts):
        return (
            f"was trained in the kitchen {theirs.name!r} but `env_config.layout` is {layout.name!r}; take partners of "
            "the same kitchen."
        )
    now, then = (one.get("dynamics", "old") for one in (played, learned))
    if now != then:
        return (
            f"was trained with `env_config.dynamics` {then!r} but here it is {now!r}, in which pots start in another "
            "way; take partners of the same dynamics."
        )
    return ""
