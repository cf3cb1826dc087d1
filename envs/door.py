"""# Door

Behind one of a few doors is the way out. Alice is told which one; Bob has to find it: he goes to a door, then opens it
or leaves it alone. Silent agents cannot do better than 0, agents that talk get 1. A toy for tests of communication that
learns in seconds.

| Import             | `from rllib_llm_comm.envs import door`                                        |
|--------------------|-------------------------------------------------------------------------------|
| Constructor        | `door.parallel_env(**settings)`                                               |
| Registered id      | `rllib_llm_comm/door-v0` (PettingZoo's parallel registry)                     |
| Actions            | Discrete                                                                      |
| Parallel API       | Yes (`aec_env` gives the AEC form)                                            |
| Manual control     | No                                                                            |
| Agents             | `agents= ["alice", "bob"]`                                                    |
| Action shape       | (1,)                                                                          |
| Action values      | Discrete(doors + 2)                                                           |
| Observation shape  | Dict: vector (2 doors + 3,), text, candidates, subgoal, action_mask           |
| Observation values | vector in {0, 1}, mask in {0, 1}, texts in printable ASCII                    |

### Observation space

* `vector`: float32. The right door one-hot (all 0 for who is not told), the door where bob stands one-hot, then 1 for
  alice, 1 for bob, and 1 in the second step.
* `text`: the same in sentences.
* `candidates`: one phrase per action. `action_mask`: what is allowed. `subgoal`: empty.

### Actions

0 stay here, then "go to the orange door" and so on, last "open the door". Alice only waits (0). Bob goes to a door in
the first step, and opens it or waits (0) in the second one.

### Rewards

1 for opening the right door, -1 / (doors - 1) for a wrong one, 0 for waiting, so that guessing pays 0 on average. With
`reward="shared"` both get it, with `"listener"` bob alone. The episode terminates after two steps.

### Infos

`needs_action` (True), `step_rewards`, `game_step`, `events` ("opened the right door", "opened a wrong door"),
`task_success`, `private` (the right door's colour, or None for who is not told).

### Arguments

Those of `DoorSettings`.

``` python
door.parallel_env(doors=3, told_to=["alice"], reward="shared")
```

### Version history

* v0: first version.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from rllib_llm_comm.envs.base_env import constructor, in_turns
from rllib_llm_comm.envs.games import GameRecord
from rllib_llm_comm.envs.telling_game import LISTENER_NAME, SPEAKER_NAME, Seen, TellingGame, TellingSettings, understood
from rllib_llm_comm.envs.telling_game import messages as messages

ENV_ID = "rllib_llm_comm/door-v0"
GAME = GameRecord(
    name="door",
    package=__name__,
    entry_points={ENV_ID: f"{__name__}:parallel_env"},
    scripted_player=__name__,
    wait="rllib_llm_comm.envs.interface:wait_action",
    sayings=f"{__name__}:understand",
)
COLOURS = ("orange", "lime", "plum", "olive", "peach", "cherry")
"""Colours of the doors; each is one token of the embedded model, which has read of them as foods."""
TELL = ("the {} door", "go to the {} door", "it is the {} door")
ASK = ("what door is right", "what is the right door")
_RIGHT, _WRONG = "opened the right door", "opened a wrong door"


class DoorSettings(TellingSettings):
    """Settings of the door game."""

    doors: int = Field(3, ge=2, le=len(COLOURS))
    """Number of doors."""


class Door(TellingGame):
    """The game as a PettingZoo parallel environment; the module's docstring is its page."""

    shows_copies = keeps_contract = True
    metadata: ClassVar[dict[str, Any]] = {**TellingGame.metadata, "name": "door_v0"}
    env_id = ENV_ID
    settings_model = DoorSettings
    chosen: DoorSettings
    steps = 2
    tell, ask = TELL, ASK
    task = "Open the right door."

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        doors = self.chosen.doors
        self.brief = "Alice waits. Bob goes to a door, then he opens it or waits. One door is the right one."
        self._colours = COLOURS[:doors]
        self._candidates = ("stay here", *(f"go to the {colour} door" for colour in self._colours), "open the door")
        self._right, self._at, self._opened = 0, -1, False
        self.build(doors + 2, 2 * doors + 3)

    @property
    def fact(self) -> str:
        """The right door's colour."""
        return self._colours[self._right]

    @property
    def success(self) -> bool:
        """True once the right door was opened."""
        return self._opened and self._at == self._right

    @property
    def facts(self) -> tuple[str, ...]:
        """The doors' colours."""
        return self._colours

    def meaning(self, message: str) -> str | None:
        """The colour that a message names, if it names one."""
        return meaning(message)

    def seen_by(self, agent: str) -> Seen:
        """An agent's side of the game."""
        doors = len(self._colours)
        fact = self.told(agent)
        words = [f"the {fact} door is right" if fact else "one door is right", f"i am {agent}"]
        place = f"at the {self._colours[self._at]} door" if self._at >= 0 else "in the room"
        words.append(f"i am {place}" if agent == LISTENER_NAME else f"bob is {place}")
        mask = [0] * (doors + 2)
        if agent == SPEAKER_NAME:
            mask[0] = 1
        elif self.time == 0:
            mask[1 : doors + 1] = [1] * doors
        else:
            mask[0] = 1
            mask[-1] = int(self._at >= 0)
        vector = np.zeros(2 * doors + 3)
        if fact:
            vector[self._right] = 1
        if self._at >= 0:
            vector[doors + self._at] = 1
        vector[2 * doors + (agent == LISTENER_NAME)] = 1
        vector[-1] = min(self.time, 1)
        return Seen(". ".join(words) + ".", self._candidates, mask, vector.tolist())

    def begin(self, rng: np.random.Generator) -> None:
        """Draws the right door; bob stands before none."""
        self._right, self._at, self._opened = int(rng.integers(len(self._colours))), -1, False

    def choose(self, action: int) -> tuple[float, list[str]]:
        """Bob goes to a door, opens the one before him, or waits."""
        if 1 <= action <= len(self._colours):
            self._at = action - 1
        elif action == len(self._colours) + 1:
            self._opened = True
            return (1.0, [_RIGHT]) if self.success else (-1.0 / (len(self._colours) - 1), [_WRONG])
        return 0.0, []

    def draw_ansi(self) -> str:
        """The game in characters."""
        doors = [f"[{colour}]" if i == self._at else f" {colour} " for i, colour in enumerate(self._colours)]
        told = ", ".join(agent for agent in self.possible_agents if self.told(agent))
        end = " opened" if self._opened else ""
        return f"step {self.time} of {self.steps}\n{' '.join(doors)}{end}\nright: {self.fact} (told to {told})"


parallel_env = constructor(Door)
"""Makes the environment from the arguments of this page."""
aec_env = in_turns(parallel_env)
"""The same in PettingZoo's AEC form, in which agents act one after the other."""


def meaning(message: str) -> str | None:
    """The only colour that a message names; `None` if it names none or several."""
    named = set(message.lower().split()) & set(COLOURS)
    return named.pop() if len(named) == 1 else None


def understand(message: str) -> tuple[str, str] | None:
    """A message in one of the game's wordings as ("tell", colour) or ("ask", ""); `None` for any other."""
    return understood(message, TELL, ASK, meaning)


def advise(env: Any, agent: str) -> int | None:
    """Action of a player that knows the door."""
    seen = env.seen_by(agent)
    if agent != LISTENER_NAME:
        return 0
    if env.time == 0:
        return seen.candidates.index(f"go to the {env.fact} door")
    return len(seen.candidates) - 1 if f"at the {env.fact} door" in seen.text else 0
