"""# Overcooked-AI with subgoals

The onion-soup kitchen where each cook is told what to do: its observation says a subgoal, such as "put the onion into
the upper pot". For agents that learn to follow words (SAMA's lower level), and for playing under a planner. A thin
layer over Overcooked-AI; what is not told here is as there.

| Import             | `from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env`       |
|--------------------|-------------------------------------------------------------------------------|
| Constructor        | `subgoal_env(**settings)`                                                     |
| Registered id      | `rllib_llm_comm/overcooked_ai_subgoals-v0` (PettingZoo's parallel registry)   |
| Actions            | Discrete (single steps, or cells of the map)                                  |
| Parallel API       | Yes                                                                           |
| Manual control     | No                                                                            |
| Agents             | `agents= ["alice", "bob"]`                                                    |

### Observation space

As in Overcooked-AI. The `subgoal` that comes with the part `text` is the agent's subgoal in words, and each observation
has one more part:

* `subgoal_id`: Discrete(S), the subgoal's index in `subgoals.all_subgoals`, a list for both players; S is 42 to 118 in
  the five kitchens.

### Sources of subgoals

`subgoals="sampled"`, for training: an agent whose subgoal is done, or that has had it for `patience` game steps, gets a
new one, drawn among those that are possible now: first the verb, then one with this verb, each as likely as the others,
so that the many cells to go to and counters do not crowd out pots. One of the verbs is to wait, which says to "go"
where the cook is and is done by a game step in which it stays as it is. With `subgoal_file` only subgoals of that data
set are drawn, in the same way; a cook for which none of them is possible now is told to wait, and the game's own test
says when that is done, whoever judges the others.

`subgoals="planner"`: what the scripted planner wants now, asked at each game step. A subgoal changes when it is done or
when the planner wants something else. To wait is to "go" to a cell, where the cook may be already. For
`dynamics="old"` only.

### Rewards

"sampled": 1 in the game step in which the agent's subgoal is done (`subgoals.completed`), else 0; plus `soup_reward`
times what the team's soups bring; plus `shaping` times its own shaped reward, as in Overcooked-AI. "planner": those of
Overcooked-AI, so the score.

### Starts

"sampled" with `random_starts`: cooks anywhere in their rooms with anything in their hands, pots empty, partly filled,
cooking or ready, and something on some of the counters; only things that could get there in play. Else, and with
"planner", the game's own start.

### Infos

In addition: `subgoal_completed` (whether a subgoal of the agent was done in this `step`), and in `episode_metrics`, of
both cooks together: `subgoals_completed`, `subgoals_given` (those of the start included, and those that the planner
takes back) and `subgoals_share`, the one by the other.

### Arguments

Those of `SubgoalSettings`.

``` python
subgoal_env(layout="forced_coordination", subgoals="sampled", patience=40)
```

All settings of Overcooked-AI but those of the wanted pot, and `action_level` is "primitive" or "goal_cell". With
`commit` a cook that goes to a cell gets there first, also when its subgoal changes on the way.

### Version history

* v0: first version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from pydantic import Field, model_validator
from typing_extensions import Self

from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.envs.base_env import Observation, Reset, constructor
from rllib_llm_comm.envs.interface import EPISODE_METRICS
from rllib_llm_comm.envs.overcooked_ai.env import OvercookedAI, OvercookedAISettings
from rllib_llm_comm.envs.overcooked_ai.kernel import IDLE
from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, FLOOR, POT, Cell, Layout
from rllib_llm_comm.envs.overcooked_ai.places import places_of
from rllib_llm_comm.envs.overcooked_ai.planner import plan
from rllib_llm_comm.envs.overcooked_ai.recipes import COOK_TIME, FULL
from rllib_llm_comm.envs.overcooked_ai.subgoals import (
    GO,
    SOUP,
    Subgoal,
    all_subgoals,
    can_be_fed,
    completed,
    holdable,
    parse_subgoal,
    possible_subgoals,
    read_subgoal_file,
    subgoal_number,
    subgoal_text,
    task_subgoal,
    waited,
)

WAIT = "wait"
_EMPTY_HANDS = 0.4
_MOST_OCCUPIED = 0.4


class SubgoalSettings(OvercookedAISettings):
    """Settings of the kitchen with subgoals, beside those of the kitchen."""

    subgoals: Literal["sampled", "planner"] = "sampled"
    """Where subgoals come from."""
    patience: int = Field(40, ge=1, le=LARGEST)
    """For "sampled": game steps after which an agent gets another subgoal."""
    soup_reward: float = Field(0.0, ge=0, le=LARGEST)
    """For "sampled": factor of the team's reward for soups."""
    random_starts: bool = True
    """For "sampled": whether episodes begin in random states."""
    subgoal_file: str | Path | None = None
    """For "sampled": path of a data set of this kitchen, as `rllib planning subgoals` makes it from a planner's plans;
    only its subgoals are drawn. None: all subgoals."""
    # Cooks that choose among goals in words have subgoals for actions already.
    action_level: Literal["primitive", "goal_cell"] = "primitive"
    """What an action is."""

    @model_validator(mode="after")
    def _fit_with_subgoals(self) -> Self:
        if self.wanted is not None:
            raise UserError(
                f"`wanted` is {self.wanted!r}, but no subgoal tells where a soup is from; omit it, or take "
                f"{OvercookedAI.env_id!r}."
            )
        if self.subgoals == "planner" and self.dynamics == "new":
            raise UserError(
                "`subgoals` is 'planner' but `dynamics` is 'new', where the planner does not know that pots must be "
                "started; use `dynamics='old'`."
            )
        return self


class SubgoalKitchen(OvercookedAI):
    """The onion-soup kitchen where each cook has a subgoal; the module's docstring is its page.

    Attributes:
        subgoals: The subgoal of each player now.
        subgoal_test: Says whether a player has done a subgoal in a game step: `subgoals.completed`, or what takes its
            place. It gets `SoupKitchen.state` before and after the step, the player and the subgoal.
    """

    metadata: ClassVar[dict[str, Any]] = {**OvercookedAI.metadata, "name": "overcooked_ai_subgoals_v0"}
    env_id = "rllib_llm_comm/overcooked_ai_subgoals-v0"

    settings_model = SubgoalSettings
    chosen: SubgoalSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        layout, file = self.kitchen.layout, self.chosen.subgoal_file
        layout.require_classic("Subgoals")
        self.subgoal_test: Callable[[np.ndarray, np.ndarray, int, Subgoal], bool] = completed
        self._sampled = self.chosen.subgoals == "sampled"
        self._drawn: frozenset[Subgoal] | None = None  # all
        if file is not None:
            self.settings["subgoal_file"] = str(file)
            # A planner's game goes without, so that an evaluation need not have the file of the training.
            self._drawn = read_subgoal_file(file, layout) if self._sampled else None
        self.subgoals = [Subgoal(GO, "", start) for start in layout.starts]
        number: spaces.Discrete[Any] = spaces.Discrete(len(all_subgoals(layout)))
        for agent, space in self.observation_spaces.items():
            self.observation_spaces[agent] = spaces.Dict({**space.spaces, "subgoal_id": number})

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Starts an episode; the seed fixes the start and the subgoals, too."""
        super().reset(seed, options)
        if self.chosen.random_starts and self._sampled:
            self.kitchen.restore(random_snapshot(self.kitchen.layout, self.kitchen.dynamics, self._rng))
            self.level.reset(self._rng)  # it remembers where the cooks stood
        self._assign(range(2))
        return self._observations(), self._infos([[], []], [[], []])

    def draw_also(self, texts: Iterable[str]) -> None:
        """Draws further subgoals, in words, from now on, beside those of `subgoal_file`.

        Raises:
            UserError: If one is no subgoal of this kitchen.
        """
        layout = self.kitchen.layout
        found = {text: parse_subgoal(layout, text) for text in texts}
        if unknown := [text for text, subgoal in found.items() if subgoal is None]:
            raise UserError(f"{unknown[0]!r} is no subgoal of {layout.name!r}, so it cannot be drawn; omit it.")
        if self._drawn is not None:
            self._drawn |= {subgoal for subgoal in found.values() if subgoal is not None}

    def _clear(self) -> None:
        super()._clear()
        self._given, self._completed = 0, 0
        self._age = [0, 0]
        self._done = [False, False]

    def _game_step(self, rewards: list[list[float]], events: list[list[str]]) -> None:
        if not rewards[0]:  # the first game step of a `step`
            self._done = [False, False]
        before, score = self.kitchen.state.copy(), self.score
        super()._game_step(rewards, events)
        after, due = self.kitchen.state.copy(), []
        for player in range(2):
            # Who waits, as nothing of the data set is possible, has a subgoal that no other judge was made for.
            test = self.subgoal_test if self._draws(self.subgoals[player]) else completed
            done = test(before, after, player, self.subgoals[player])
            if self._sampled:
                done = done or waited(before, after, player, self.subgoals[player])
            self._completed += done
            self._done[player] |= done
            self._age[player] += 1
            if self._sampled:
                rewards[player][-1] += done + (self.chosen.soup_reward - 1) * (self.score - score)
            if done or not self._sampled or self._age[player] >= self.chosen.patience:
                due.append(player)
        self._assign(due)

    def _assign(self, players: Sequence[int]) -> None:
        """Gives players subgoals; a planner that still wants the same gives nothing new."""
        wanted: Sequence[Subgoal]
        if self._sampled:
            wanted = [self._sample(player) for player in players]
        else:
            tasks = plan(self.kitchen)
            wanted = [task_subgoal(tasks[player]) for player in players]
        for player, subgoal in zip(players, wanted, strict=True):
            if self._sampled or self.kitchen.time == 0 or subgoal != self.subgoals[player]:
                self.subgoals[player], self._age[player] = subgoal, 0
                self._given += 1

    def _sample(self, player: int) -> Subgoal:
        here = Subgoal(GO, "", self.kitchen.cook(player).cell)
        by_verb: dict[str, list[Subgoal]] = {WAIT: [here]} if self._draws(here) else {}
        for subgoal in possible_subgoals(self.kitchen, player):
            if self._draws(subgoal):
                by_verb.setdefault(subgoal.verb, []).append(subgoal)
        verbs = list(by_verb)
        if not verbs:
            return here
        choices = by_verb[verbs[int(self._rng.integers(len(verbs)))]]
        return choices[int(self._rng.integers(len(choices)))]

    def _draws(self, subgoal: Subgoal) -> bool:
        return self._drawn is None or subgoal in self._drawn

    def _observations(self) -> dict[str, Observation]:
        seen, layout = super()._observations(), self.kitchen.layout
        for agent, observation in seen.items():
            subgoal = self.subgoals[self.players[agent]]
            if "subgoal" in observation:
                observation["subgoal"] = subgoal_text(layout, subgoal)
            observation["subgoal_id"] = np.int64(subgoal_number(layout, subgoal))
        return seen

    def _infos(self, rewards: list[list[float]], events: list[list[str]]) -> dict[str, dict[str, Any]]:
        infos = super()._infos(rewards, events)
        for agent, info in infos.items():
            info["subgoal_completed"] = self._done[self.players[agent]]
            info[EPISODE_METRICS] |= {
                "subgoals_completed": float(self._completed),
                "subgoals_given": float(self._given),
                "subgoals_share": self._completed / max(1, self._given),
            }
        return infos


def without_subgoals(settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Id and settings of the kitchen without subgoals of its own."""
    own = set(SubgoalSettings.model_fields).difference(OvercookedAISettings.model_fields)
    return OvercookedAI.env_id, {name: value for name, value in settings.items() if name not in own}


subgoal_env = constructor(SubgoalKitchen, name="subgoal_env")
"""Makes the environment from the arguments of this page."""


# ---- random starts -----------------------------------------------------------------------------------------


def random_snapshot(layout: Layout, dynamics: str, rng: np.random.Generator) -> dict[str, Any]:
    """A random legal state at the beginning of an episode, for `SoupKitchen.restore`.

    Args:
        layout: The kitchen.
        dynamics: "old" or "new": soups of fewer than three onions, and full pots that wait, are for "new" only.
        rng: Draws.
    """
    reach = [places_of(layout).reachable(start) for start in layout.starts]
    kinds = [sorted(player_kinds) for player_kinds in holdable(layout)]
    players, taken = [], set[Cell]()
    for cells, own in zip(reach, kinds, strict=True):
        floor = [cell for cell in layout.cells(FLOOR) if cell in cells and cell not in taken]
        x, y = floor[rng.integers(len(floor))]
        taken.add((x, y))
        held = None if not own or rng.random() < _EMPTY_HANDS else _random_thing(own, dynamics, rng)
        players.append([x, y, int(rng.integers(4)), held])
    objects: list[list[Any]] = []
    occupied = rng.random() * _MOST_OCCUPIED
    for cell in layout.cells(COUNTER):
        here = sorted({kind for cells, own in zip(reach, kinds, strict=True) if cell in cells for kind in own})
        if here and rng.random() < occupied:
            objects.append([*cell, *_random_thing(here, dynamics, rng)])
    for pot in layout.cells(POT):
        if can_be_fed(layout, pot) and (content := _random_content(dynamics, rng)):
            objects.append([*pot, *content])
    return {"t": 0, "players": players, "objects": objects}


def _random_thing(kinds: list[str], dynamics: str, rng: np.random.Generator) -> list[Any]:
    """Something to hold or to lie on a counter, as in a snapshot."""
    kind = kinds[rng.integers(len(kinds))]
    return [SOUP, _onions(dynamics, rng), 0, COOK_TIME] if kind == SOUP else [kind]


def _random_content(dynamics: str, rng: np.random.Generator) -> list[Any]:
    """Random content of a pot: nothing, onions, a cooking soup or a ready one, each as likely."""
    content = ("nothing", "onions", "cooking", "ready")[rng.integers(4)]
    if content == "nothing":
        return []
    if content == "onions":
        return [SOUP, int(rng.integers(1, FULL + (dynamics == "new"))), 0, IDLE]
    return [SOUP, _onions(dynamics, rng), 0, COOK_TIME if content == "ready" else int(rng.integers(1, COOK_TIME))]


def _onions(dynamics: str, rng: np.random.Generator) -> int:
    """Of how many onions a started soup is."""
    return FULL if dynamics == "old" else int(rng.integers(1, FULL + 1))
