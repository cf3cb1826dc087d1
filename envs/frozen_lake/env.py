"""# Frozen Lake

Two walkers on a frozen lake should each reach a target and not fall into a hole. They see neither holes nor targets:
all that each knows is where both of them are. What is where can only be found out by going there. After the two-agent
FrozenLake of SAMA (Appendix I), its negative control: words and common sense do not help here, experience does.

| Import             | `from rllib_llm_comm.envs import frozen_lake`                                 |
|--------------------|-------------------------------------------------------------------------------|
| Constructor        | `frozen_lake.parallel_env(**settings)`                                        |
| Registered id      | `rllib_llm_comm/frozen_lake-v0` (PettingZoo's parallel registry)              |
| Actions            | Discrete                                                                      |
| Parallel API       | Yes (`aec_env` gives the AEC form)                                            |
| Manual control     | No                                                                            |
| Agents             | `agents= ["alice", "bob"]`                                                    |
| Action shape       | (1,)                                                                          |
| Action values      | Discrete(5)                                                                   |
| Observation shape  | Dict: vector (4,), text, candidates (5 texts), subgoal, action_mask (5,)      |
| Observation values | vector in [0, 31], texts in printable ASCII                                   |

### Observation space

A dictionary of the parts named in `observe`, and `action_mask`.

* `vector`: float32 (4,), whole numbers: own column and row, the other's column and row, counted from 0 at the upper
  left corner.
* `text`: `text` (the same numbers in two sentences), `candidates` (one phrase per action) and `subgoal` (empty;
  wrappers may fill it).

### Actions

0 stay, 1 left, 2 down, 3 right, 4 up; both walkers move at once. A step off the lake leaves one where it is. With
probability `slip` a step goes to its left or right side instead. If both want one cell, or each other's cells, nobody
moves. Who has arrived or fallen is out: it stays where it is, is in nobody's way, and `action_mask` allows it only to
stay.

### Rewards

1 for the agent that reaches a target of its own, in the step in which it does; else 0. An episode terminates when
nobody walks any more, and is truncated after `horizon` steps.

### Infos

`needs_action` (True), `step_rewards` (the reward of this `step`, as a list), `game_step` (int), `events` (list of
"slipped", "blocked", "arrived", "fell"), `task_success` (whether both have arrived), `episode_metrics` (`score`,
`arrived`, `fallen`: both agents', so far).

### Arguments

Those of `FrozenLakeSettings`.

``` python
frozen_lake.parallel_env(layout="8x8", slip=0.1, assignment="either", horizon=100)
```

### Version history

* v0: first version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from pydantic import Field

from rllib_llm_comm.core.errors import LARGEST
from rllib_llm_comm.core.settings import Several
from rllib_llm_comm.envs.base_env import Game, GameSettings, Observation, Reset, Step, constructor, in_turns
from rllib_llm_comm.envs.frozen_lake import render, text
from rllib_llm_comm.envs.frozen_lake.rules import (
    ACTION_NAMES,
    ARRIVED,
    FELL,
    HORIZON,
    LEAST,
    MOST,
    MOST_HOLES,
    NUM_ACTIONS,
    RANDOM,
    WALKS,
    Cell,
    Lake,
    LakeMap,
    get_layout,
    random_layout,
)
from rllib_llm_comm.envs.interface import EPISODE_METRICS, check_actions, text_spaces
from rllib_llm_comm.envs.told_to import Distinct


class FrozenLakeSettings(GameSettings):
    """Settings of the frozen lake."""

    layout: Literal["4x4", "8x8", "random"] | Several[str] = "4x4"
    """A lake by name, or rows of one's own such as ["1.2", ".H.", "b.a"]: `.` ice, `H` hole, `1` and `2` the starts of
    alice and bob, `a` and `b` the targets."""
    slip: float = Field(0.0, ge=0, le=1)
    """Probability of a step to the side; the one-agent game of Gymnasium has 2/3."""
    assignment: Literal["fixed", "either", "drawn"] = "fixed"
    """"fixed": target a is alice's and b is bob's. "either": a target counts for who comes first, and the other needs
    the other one. "drawn": at each reset it is drawn whose is which, and nobody is told."""
    horizon: int = Field(HORIZON, ge=1, le=LARGEST)
    """Length of an episode in steps."""
    size: int = Field(8, ge=LEAST, le=MOST)
    """For "random": columns and rows."""
    holes: float = Field(0.2, ge=0, le=MOST_HOLES)
    """For "random": share of the cells that are holes. Each walker has a way to each target."""
    layout_seed: int | None = Field(None, ge=0, le=2**32 - 1)
    """For "random": a number fixes one lake for all episodes; None draws a new one at each reset, so that nothing can
    be remembered from one episode to the next."""
    observe: Distinct[Literal["vector", "text"]] = ("vector", "text")
    """Parts of the observation."""


class FrozenLake(Game):
    """The frozen lake as a PettingZoo parallel environment; the module's docstring is its page.

    Attributes:
        lake: The game.
        score: Points of both agents so far in this episode.
        trail: Cells and fates of both walkers, at the start of the episode and after each step.
        task: The goal in words.
        brief: The game in a few sentences.
    """

    shows_copies = keeps_contract = True
    metadata: ClassVar[dict[str, Any]] = {**Game.metadata, "name": "frozen_lake_v0"}
    env_id = "rllib_llm_comm/frozen_lake-v0"

    settings_model = FrozenLakeSettings
    chosen: FrozenLakeSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        chosen = self.chosen
        self._anew = chosen.layout == RANDOM and chosen.layout_seed is None
        # For a lake drawn anew, one to begin with: it has the right size and shows early whether `holes` can be.
        drawn = self._draw(np.random.default_rng(chosen.layout_seed or 0)) if chosen.layout == RANDOM else None
        self.lake = Lake(drawn or get_layout(chosen.layout), chosen.slip, chosen.assignment, chosen.horizon)
        self.task, self.brief = text.task(self.lake), text.brief(self.lake)
        self.possible_agents = list(text.WALKERS)
        self.score = 0
        self.trail: list[tuple[tuple[Cell, ...], tuple[str, ...]]] = []
        parts: dict[str, dict[str, spaces.Space[Any]]] = {
            "vector": {"vector": spaces.Box(0, MOST - 1, (4,), np.float32)},
            "text": text_spaces(NUM_ACTIONS),
        }
        shown = {name: space for part in self.chosen.observe for name, space in parts[part].items()}
        space = spaces.Dict({**shown, "action_mask": spaces.Box(0, 1, (NUM_ACTIONS,), np.int8)})
        self.observation_spaces = dict.fromkeys(self.possible_agents, space)
        self.action_spaces = {agent: spaces.Discrete(NUM_ACTIONS) for agent in self.possible_agents}

    def _draw(self, rng: np.random.Generator) -> LakeMap:
        return random_layout(self.chosen.size, self.chosen.holes, rng)

    # ---- episodes ----------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Starts an episode; the seed fixes slips, drawn targets and drawn lakes."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.lake.reset(self._rng, self._draw(self._rng) if self._anew else None)
        self.agents = list(self.possible_agents)
        self.score = 0
        self.trail = [(tuple(self.lake.cells), tuple(self.lake.fates))]
        return self._observations(), self._infos([[], []], [[], []])

    def step(self, actions: Mapping[str, int]) -> Step:
        """Runs one step; the actions of agents that are out do nothing."""
        if not self.agents:
            return {}, {}, {}, {}, {}
        chosen = check_actions(actions, self.agents, [True, True], NUM_ACTIONS)
        result = self.lake.step([action or 0 for action in chosen])
        self.score += sum(result.rewards)
        self.trail.append((tuple(self.lake.cells), tuple(self.lake.fates)))
        names, out = self.agents, self.lake.out
        observed = self._observations()
        infos = self._infos([[float(reward)] for reward in result.rewards], [list(names) for names in result.events])
        truncated = self.lake.over and not out
        if self.lake.over:
            self.agents = []
        rewards = {agent: float(reward) for agent, reward in zip(names, result.rewards, strict=True)}
        return observed, rewards, dict.fromkeys(names, out), dict.fromkeys(names, truncated), infos

    def _observations(self) -> dict[str, Observation]:
        seen: dict[str, Observation] = {}
        for i, agent in enumerate(self.possible_agents):
            mine: Observation = {}
            if "vector" in self.chosen.observe:
                mine["vector"] = np.array([*self.lake.cells[i], *self.lake.cells[1 - i]], np.float32)
            if "text" in self.chosen.observe:
                mine["text"] = text.observation_text(self.lake, i)
                mine["candidates"] = text.PHRASES
                mine["subgoal"] = ""
            mask = np.ones(NUM_ACTIONS, np.int8)
            mask[1:] = self.lake.fates[i] == WALKS
            seen[agent] = {**mine, "action_mask": mask}
        return seen

    def _infos(self, rewards: list[list[float]], events: list[list[str]]) -> dict[str, dict[str, Any]]:
        fates = self.lake.fates
        return {
            agent: {
                "needs_action": True,
                "step_rewards": rewards[i],
                "game_step": self.lake.time,
                "events": events[i],
                "task_success": self.lake.solved,
                EPISODE_METRICS: {
                    "score": float(self.score),
                    "arrived": float(fates.count(ARRIVED)),
                    "fallen": float(fates.count(FELL)),
                },
            }
            for i, agent in enumerate(self.possible_agents)
        }

    def whole(self) -> Sequence[float]:
        """Share of the time; per walker its cell as shares of the lake, and whether it walks, has arrived, has fallen;
        per cell, row by row, a hole, and a target that counts for alice, for bob."""
        return self.lake.numbers()

    # ---- pictures ----------------------------------------------------------------------------------------

    def draw_rgb(self) -> np.ndarray:
        """The lake as pixels, uint8 (height, width, 3)."""
        return render.rgb_array(self.lake, self.score)

    def draw_ansi(self) -> str:
        """The lake in characters."""
        return render.ansi(self.lake, self.score)


parallel_env = constructor(FrozenLake)
"""Makes the environment from the arguments of this page."""
aec_env = in_turns(parallel_env)
"""The same in PettingZoo's AEC form, in which agents act one after the other."""


_HAPPENED = {"slipped": "slips", "blocked": "is blocked", "arrived": "arrives", "fell": "falls into a hole"}


def event_words(event: str) -> str:
    """What a player reads of an event of the infos, such as "slipped"."""
    return _HAPPENED.get(event, event)


_KEYS = {"ArrowLeft": "left", "ArrowDown": "down", "ArrowRight": "right", "ArrowUp": "up", ".": "stay"}


def keys(env: Any, agent: str) -> dict[str, int]:
    """Key of the keyboard -> action."""
    return {key: ACTION_NAMES.index(name) for key, name in _KEYS.items()}


def picture(env: Any, agent: str) -> np.ndarray:
    """The walkers on plain ice as pixels, uint8 (height, width, 3): nobody sees holes and targets."""
    return render.places_alone(env.lake)
