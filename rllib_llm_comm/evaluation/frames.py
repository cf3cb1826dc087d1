"""Moments of a played episode, as replays show them, and what listeners would have weighed in silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.core.session_files import AgentFrame
from rllib_llm_comm.envs.base_env import Game
from rllib_llm_comm.envs.games import GAMES
from rllib_llm_comm.envs.interface import EPISODE_METRICS, PRIVATE, GameInfo, parts_of
from rllib_llm_comm.evaluation.replay_schema import Frame
from rllib_llm_comm.policies.decision import Decision, Hearing, Policy


def frame_of(env: Any, observations: Any, infos: Any, decisions: Any, rewards: Any, *, drawn: bool = True) -> Frame:
    """A moment of a recorded episode.

    Args:
        env: The environment in this moment.
        observations: Observations of all agents.
        infos: Their infos.
        decisions: Decisions of the agents that are asked.
        rewards: Rewards since the frame before.
        drawn: False to leave out the drawings, in characters and in pixels.
    """
    game = env.unwrapped
    cards: dict[str, AgentFrame] = {}
    secret = any(info.get(PRIVATE, "") is None for info in infos.values())
    for agent, seen in observations.items():
        observation = parts_of(seen)
        card: AgentFrame = {
            "text": str(observation.get("text", "")),
            "subgoal": str(observation.get("subgoal", "")),
            "reward": float(rewards.get(agent, 0.0)),
            "events": [str(event) for event in infos.get(agent, {}).get("events", [])],
            "busy": agent not in decisions,
        }
        if secret:
            card["told"] = infos.get(agent, {}).get(PRIVATE) or ""
        decision = decisions.get(agent)
        if decision is not None:
            phrases = phrases_of(game, agent, observation, decision.candidates)
            card["said"] = decision.said
            card["heard"] = dict(decision.heard)
            card["candidates"] = phrases
            card["probabilities"] = [round(float(p), 4) for p in decision.probabilities]
            card["action"] = decision.choice
            card["phrase"] = phrases[decision.choice] if phrases else str(decision.choice)  # of an unweighed one
            if np.isfinite(decision.value):  # JSON knows no NaN
                card["value"] = round(float(decision.value), 4)
        cards[str(agent)] = card
    step = max((int(info.get("game_step", 0)) for info in infos.values()), default=0)
    counted = {name: float(v) for info in infos.values() for name, v in info.get(EPISODE_METRICS, {}).items()}
    return {
        "game_step": step,
        "ansi": ansi_of(game) if drawn else "",
        "image": image_of(game) if drawn else None,
        "places": game.places() if isinstance(game, Game) else {},
        "metrics": counted,
        "agents": cards,
    }


def phrases_of(game: Any, agent: Any, observation: Any, numbered: Sequence[str]) -> list[str]:
    """The actions in words: as the agent reads them, or else as the (unwrapped) game tells them, if it can.

    `numbered` are the phrases of observations that have `candidates`, and of games that have no words.
    """
    told = [] if "candidates" in observation or not isinstance(game, Game) else game.action_phrases(agent)
    return told or list(numbered)


def event_words(game: str, events: Sequence[str]) -> list[str]:
    """What a player reads of events, in the words of a game of `envs.games`; of others as in the infos."""
    record = GAMES.get(game)
    if record is None or not record.event_words:
        return [event.replace("_", " ") for event in events]
    words = record.code("event_words")
    return [told for event in events if (told := words(event))]


def image_of(game: Any) -> np.ndarray | None:
    """The whole (unwrapped) game as pixels; `None` if it draws none."""
    return _render(game, "rgb_array")


def ansi_of(game: Any) -> str:
    """The whole (unwrapped) game in characters; empty if it has no such drawing."""
    return _render(game, "ansi") or ""


def _render(game: Any, mode: str) -> Any:
    """The game's rendering in a mode, whatever its own mode is; `None` if it cannot."""
    if mode not in GameInfo(game).metadata.get("render_modes", ()):
        return None
    before = game.render_mode
    try:
        game.render_mode = mode
        return game.render()
    finally:
        game.render_mode = before


LEFT_OUT = "what agents would have done in silence was not computed (`counterfactuals` is off)"
NOT_SCORED = "what agents would have done in silence is not known: these agents cannot be asked with other messages"
_TIE = 1e-6


class Counterfactuals:
    """Scores the candidates of agents that heard something once more, as if they had heard nothing.

    Each moment costs one more batch of at most one row per agent. Random numbers are not touched: the episode is the
    same with and without.

    Args:
        policy: The policy that plays; policies without a `judge` are not scored.
        wanted: True to score at all.

    Attributes:
        missing: The reason why there are no scores; empty if there are.
    """

    def __init__(self, policy: Policy, wanted: bool = True) -> None:
        self._judge = policy.judge
        self.missing = LEFT_OUT if not wanted else "" if self._judge is not None else NOT_SCORED

    def add_to(
        self,
        frame: Frame,
        observations: Mapping[Any, Mapping[str, Any]],
        decisions: Mapping[Any, Decision],
    ) -> None:
        """Adds `silent`, `influence` and `changed` to the parts of a moment's listeners (`AgentFrame`)."""
        listeners = [agent for agent, decision in decisions.items() if decision.heard]
        if self.missing or self._judge is None or not listeners:
            return
        rows = self._judge([Hearing(agent, observations[agent], {}) for agent in listeners])
        for agent, silent in zip(listeners, rows, strict=True):
            given = np.asarray(decisions[agent].probabilities, np.float64)
            card = frame["agents"][str(agent)]
            card["silent"] = [round(float(p), 4) for p in silent]
            card["influence"] = round(total_variation(given, silent), 4)
            card["changed"] = _changed(given, silent)


def total_variation(one: np.ndarray, other: np.ndarray) -> float:
    """Half the sum of absolute differences of two (K,) probabilities: the share that moves, 0 (nothing) to 1."""
    return float(0.5 * np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)).sum())


def _changed(given: np.ndarray, silent: np.ndarray) -> bool:
    """True if each side's most likely candidate is a less likely one on the other side; a tie changes nothing."""
    first, second = int(given.argmax()), int(silent.argmax())
    return bool(given[second] < given[first] - _TIE and silent[first] < silent[second] - _TIE)
