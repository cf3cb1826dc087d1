"""# Referential

Both agents see the same few things, each in an order of its own. Alice is told which one is meant; Bob has to take it.
The others are distractors, alike in colour or shape. After the signalling game of Lewis, as Lazaridou et al. (arXiv
1612.07182) play it. One step; silent agents get 1 / objects on average.

| Import             | `from rllib_llm_comm.envs import referential`                                 |
|--------------------|-------------------------------------------------------------------------------|
| Constructor        | `referential.parallel_env(**settings)`                                        |
| Registered id      | `rllib_llm_comm/referential-v0` (PettingZoo's parallel registry)              |
| Actions            | Discrete                                                                      |
| Parallel API       | Yes (`aec_env` gives the AEC form)                                            |
| Manual control     | No                                                                            |
| Agents             | `agents= ["alice", "bob"]`                                                    |
| Action shape       | (1,)                                                                          |
| Action values      | Discrete(objects + 1)                                                         |
| Observation shape  | Dict: vector (7 objects + 2,), text, candidates, subgoal, action_mask         |
| Observation values | vector in {0, 1}, mask in {0, 1}, texts in printable ASCII                    |

### Observation space

* `vector`: float32. Per thing, in the agent's own order: colour one-hot (3), shape one-hot (3), 1 if it is meant (0 for
  who is not told). Then 1 for alice, 1 for bob.
* `text`: the same in sentences.
* `candidates`: one phrase per action. `action_mask`: what is allowed. `subgoal`: empty.

### Actions

0 wait, then "take the orange bowl" and so on in the agent's own order. Alice only waits, Bob only takes.

### Rewards

1 for taking the thing that is meant, else 0. With `reward="shared"` both get it, with `"listener"` bob alone. The
episode terminates after one step.

### Infos

`needs_action` (True), `step_rewards`, `game_step`, `events` ("took the right one", "took a wrong one"), `task_success`,
`private` (such as "orange bowl", or None for who is not told).

### Arguments

Those of `ReferentialSettings`.

``` python
referential.parallel_env(objects=3, distractors="near", told_to=["alice"], reward="shared")
```

### Version history

* v0: first version.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from rllib_llm_comm.envs.base_env import constructor, in_turns
from rllib_llm_comm.envs.games import GameRecord
from rllib_llm_comm.envs.telling_game import LISTENER_NAME, SPEAKER_NAME, Seen, TellingGame, TellingSettings, understood
from rllib_llm_comm.envs.telling_game import messages as messages

ENV_ID = "rllib_llm_comm/referential-v0"
GAME = GameRecord(
    name="referential",
    package=__name__,
    entry_points={ENV_ID: f"{__name__}:parallel_env"},
    scripted_player=__name__,
    wait="rllib_llm_comm.envs.interface:wait_action",
    sayings=f"{__name__}:understand",
)
COLOURS = ("orange", "lime", "plum")
SHAPES = ("bowl", "pot", "board")
"""Colours and shapes of the things; each is one token of the embedded model."""
THINGS = tuple((colour, shape) for colour in COLOURS for shape in SHAPES)
TELL = ("take the {}", "the {}", "it is the {}")
ASK = ("which one", "tell me which one")
NEAR, RANDOM = "near", "random"
_RIGHT, _WRONG = "took the right one", "took a wrong one"


class ReferentialSettings(TellingSettings):
    """Settings of the referential game."""

    objects: int = Field(3, ge=2, le=len(THINGS))
    """Number of things. Any of them is as likely to be meant, so that the things alone tell nothing."""
    distractors: Literal["near", "random"] = "near"
    """"near": each thing shares colour or shape with another one, so that one word often does not do; or "random"."""


class Referential(TellingGame):
    """The game as a PettingZoo parallel environment; the module's docstring is its page."""

    shows_copies = keeps_contract = True
    metadata: ClassVar[dict[str, Any]] = {**TellingGame.metadata, "name": "referential_v0"}
    env_id = ENV_ID
    settings_model = ReferentialSettings
    chosen: ReferentialSettings
    steps = 1
    tell, ask = TELL, ASK
    task = "Bob takes the thing that is meant."

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        objects = self.chosen.objects
        self.brief = "Both see the same things. One of them is meant. Alice waits, Bob takes one."
        self._things = THINGS[:objects]
        self._orders = {agent: list(range(objects)) for agent in (SPEAKER_NAME, LISTENER_NAME)}
        self._meant, self._taken = 0, -1
        self.build(objects + 1, 7 * objects + 2)

    @property
    def fact(self) -> str:
        """The thing that is meant, such as "orange bowl"."""
        return " ".join(self._things[self._meant])

    @property
    def success(self) -> bool:
        """True once it was taken."""
        return self._taken == self._meant

    @property
    def facts(self) -> tuple[str, ...]:
        """All things that can be meant."""
        return tuple(" ".join(thing) for thing in THINGS)

    def meaning(self, message: str) -> str | None:
        """The thing that a message names, if it names one."""
        return meaning(message)

    def seen_by(self, agent: str) -> Seen:
        """An agent's side of the game."""
        order = self._orders[agent]
        names = [" ".join(self._things[index]) for index in order]
        fact = self.told(agent)
        words = [f"the {fact} is meant" if fact else "one thing is meant", f"i am {agent}", "i see " + ", ".join(names)]
        listens = agent == LISTENER_NAME
        mask = [int(not listens), *[int(listens)] * len(order)]
        vector: list[float] = []
        for index in order:
            colour, shape = self._things[index]
            vector += [float(colour == c) for c in COLOURS] + [float(shape == s) for s in SHAPES]
            vector.append(float(bool(fact) and index == self._meant))
        candidates = ("wait", *(f"take the {name}" for name in names))
        return Seen(". ".join(words) + ".", candidates, mask, [*vector, float(not listens), float(listens)])

    def begin(self, rng: np.random.Generator) -> None:
        """Draws the things, the one that is meant, and in which order each agent sees them."""
        count = self.chosen.objects
        things = [THINGS[rng.integers(len(THINGS))]]
        while len(things) < count:
            others = [thing for thing in THINGS if thing not in things]
            if self.chosen.distractors == NEAR:
                others = [thing for thing in others if any(_alike(thing, other) for other in things)]
            things.append(others[rng.integers(len(others))])
        # Drawn last, so that the things alone do not tell which is meant.
        self._things, self._meant, self._taken = tuple(things), int(rng.integers(count)), -1
        self._orders = {agent: rng.permutation(count).tolist() for agent in self.possible_agents}

    def choose(self, action: int) -> tuple[float, list[str]]:
        """Bob takes a thing, or waits."""
        if action == 0:
            return 0.0, []
        self._taken = self._orders[LISTENER_NAME][action - 1]
        return (1.0, [_RIGHT]) if self.success else (0.0, [_WRONG])

    def draw_ansi(self) -> str:
        """The game in characters."""
        lines = [f"{agent}: {', '.join(self.seen_by(agent).candidates[1:])}" for agent in self.possible_agents]
        told = ", ".join(agent for agent in self.possible_agents if self.told(agent))
        taken = f", taken: {' '.join(self._things[self._taken])}" if self._taken >= 0 else ""
        return "\n".join([*lines, f"meant: {self.fact} (told to {told}){taken}"])


def _alike(one: tuple[str, str], other: tuple[str, str]) -> bool:
    return one[0] == other[0] or one[1] == other[1]


parallel_env = constructor(Referential)
"""Makes the environment from the arguments of this page."""
aec_env = in_turns(parallel_env)
"""The same in PettingZoo's AEC form, in which agents act one after the other."""


def meaning(message: str) -> str | None:
    """The only thing that a message names by colour and shape, such as "orange bowl"; `None` for any other message."""
    words = set(message.lower().split())
    colours, shapes = words & set(COLOURS), words & set(SHAPES)
    return f"{colours.pop()} {shapes.pop()}" if len(colours) == len(shapes) == 1 else None


def understand(message: str) -> tuple[str, str] | None:
    """A message in one of the game's wordings as ("tell", thing) or ("ask", ""); `None` for any other."""
    return understood(message, TELL, ASK, meaning)


def advise(env: Any, agent: str) -> int | None:
    """Action of a player that knows the thing."""
    return env.seen_by(agent).candidates.index(f"take the {env.fact}") if agent == LISTENER_NAME else 0
