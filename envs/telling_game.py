"""Small games in which somebody is told what somebody else must know: settings, spaces, observations and messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from gymnasium import spaces

from rllib_llm_comm.envs.base_env import Game, GameSettings, Observation, Reset, Step
from rllib_llm_comm.envs.interface import PRIVATE, check_actions, text_spaces
from rllib_llm_comm.envs.told_to import ALL, Told, fact_generators

SHARED = "shared"
SPEAKER_NAME, LISTENER_NAME = AGENTS = ("alice", "bob")


class TellingSettings(GameSettings):
    """Settings of these games beside their sizes."""

    told_to: Told[Literal["all"], Literal["alice", "bob"]] = ("alice",)
    """Who is told the fact: "all" (the control in which talk must not help) or a list of agents."""
    reward: Literal["shared", "listener"] = "shared"
    """"shared": both get what bob's choice pays; "listener": bob alone."""


class Seen(NamedTuple):
    """One agent's side of the game.

    Attributes:
        text: In sentences.
        candidates: One phrase per action.
        mask: Mask of the allowed actions.
        vector: In numbers.
    """

    text: str
    candidates: tuple[str, ...]
    mask: Sequence[int]
    vector: Sequence[float]


class TellingGame(Game):
    """A game of two agents: alice waits and may speak, bob chooses; a fact is told to some of them.

    Attributes:
        steps: Steps of an episode.
        tell: Wordings in which the fact is told.
        ask: Wordings in which it is asked for.
        task: The goal in words.
        brief: The game in a few sentences.
        time: Steps of this episode so far.
    """

    metadata: ClassVar[dict[str, Any]] = {**Game.metadata, "render_fps": 1}
    task: str
    brief: str
    steps: ClassVar[int]
    tell: ClassVar[tuple[str, ...]]
    ask: ClassVar[tuple[str, ...]]

    def build(self, num_actions: int, vector_size: int) -> None:
        """Builds the spaces.

        Args:
            num_actions: Number of actions of either agent.
            vector_size: Numbers of an observation.
        """
        self._told = set(AGENTS if self.chosen.told_to == ALL else self.chosen.told_to)
        self.possible_agents = list(AGENTS)
        self.time = 0
        self._num_actions = num_actions
        space = spaces.Dict(
            {
                "vector": spaces.Box(0, 1, (vector_size,), np.float32),
                **text_spaces(num_actions),
                "action_mask": spaces.Box(0, 1, (num_actions,), np.int8),
            }
        )
        self.observation_spaces = dict.fromkeys(self.possible_agents, space)
        self.action_spaces = {agent: spaces.Discrete(num_actions) for agent in self.possible_agents}

    @property
    def teacher_state(self) -> TellingGame:
        """State that a scripted teacher sees: everything."""
        return self

    @property
    @abstractmethod
    def fact(self) -> str:
        """The private fact of this episode, a short text."""

    @abstractmethod
    def seen_by(self, agent: str) -> Seen:
        """An agent's side of the game."""

    @abstractmethod
    def begin(self, rng: np.random.Generator) -> None:
        """Draws the fact and all else with which an episode begins."""

    @abstractmethod
    def choose(self, action: int) -> tuple[float, list[str]]:
        """Carries out bob's choice.

        Args:
            action: An allowed one; 0 is waiting.

        Returns:
            What it pays, and what happened, in words.
        """

    @property
    @abstractmethod
    def success(self) -> bool:
        """True once the task is done."""

    def told(self, agent: str) -> str:
        """The private fact if an agent is told it, else the empty text."""
        return self.fact if agent in self._told else ""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Starts an episode; the seed fixes the fact."""
        if seed is not None:
            (self._rng,) = fact_generators(seed, 1)
        self.time = 0
        self.agents = list(self.possible_agents)
        self.begin(self._rng)
        return self._observations(), self._infos([], dict.fromkeys(AGENTS, 0.0), first=True)

    def step(self, actions: Mapping[str, int]) -> Step:
        """Plays one step; a forbidden action counts as waiting."""
        if not self.agents:
            return {}, {}, {}, {}, {}
        chosen = check_actions(actions, self.agents, [True, True], self._num_actions)[1] or 0
        paid, events = self.choose(chosen if self.seen_by(LISTENER_NAME).mask[chosen] else 0)
        self.time += 1
        over = self.time >= self.steps
        speaker_pay = paid if self.chosen.reward == SHARED else 0.0
        rewards = {SPEAKER_NAME: speaker_pay, LISTENER_NAME: paid}
        observed, infos = self._observations(), self._infos(events, rewards)
        if over:
            self.agents = []
        return observed, rewards, dict.fromkeys(AGENTS, over), dict.fromkeys(AGENTS, False), infos

    def whole(self) -> list[float]:
        """Share of the time, then what an agent sees who is told, in the order of bob."""
        told, self._told = self._told, set(AGENTS)
        try:
            return [self.time / self.steps, *self.seen_by(LISTENER_NAME).vector]
        finally:
            self._told = told

    def _observations(self) -> dict[str, Observation]:
        observed = {}
        for agent in self.possible_agents:
            seen = self.seen_by(agent)
            observed[agent] = {
                "vector": np.array(seen.vector, np.float32),
                "text": seen.text,
                "candidates": seen.candidates,
                "subgoal": "",
                "action_mask": np.array(seen.mask, np.int8),
            }
        return observed

    def _infos(self, events: list[str], rewards: Mapping[str, float], first: bool = False) -> dict[str, dict[str, Any]]:
        return {
            agent: {
                "needs_action": True,
                "step_rewards": [] if first else [rewards[agent]],
                "game_step": self.time,
                "events": list(events) if agent == LISTENER_NAME else [],
                "task_success": self.success,
                PRIVATE: self.told(agent) or None,
            }
            for agent in self.possible_agents
        }

    def draw_rgb(self) -> np.ndarray:
        """The game's words as pixels, uint8 (height, width, 3)."""
        from PIL import Image, ImageDraw

        lines = self.draw_ansi().split("\n")
        image = Image.new("RGB", (360, 20 * len(lines) + 12), (250, 248, 240))
        draw = ImageDraw.Draw(image)
        for row, line in enumerate(lines):
            draw.text((10, 6 + 20 * row), line, fill=(30, 30, 30))
        return np.asarray(image, np.uint8).copy()


def messages(state: Any, agents: Sequence[str], rng: np.random.Generator) -> dict[str, str]:
    """Messages of scripted players in wordings that `rng` chooses: who is told the fact tells it, who is not asks."""
    return {
        agent: str(rng.choice(state.tell)).format(fact) if (fact := state.told(agent)) else str(rng.choice(state.ask))
        for agent in agents
    }


def understood(
    message: str, tell: Sequence[str], ask: Sequence[str], meaning: Callable[[str], str | None]
) -> tuple[str, str] | None:
    """A message in one of a game's wordings as ("tell", fact) or ("ask", ""); `None` for any other.

    Args:
        message: Any text; capitals, spaces and signs at its end make no difference.
        tell: Wordings in which the fact is told.
        ask: Wordings in which it is asked for.
        meaning: Gives the fact that a message names.
    """
    plain = " ".join(message.lower().split()).rstrip(".!? ")
    if plain in ask:
        return "ask", ""
    fact = meaning(plain)
    return ("tell", fact) if fact and plain in [wording.format(fact) for wording in tell] else None
