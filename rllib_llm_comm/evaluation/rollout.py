"""Episodes played with a trained policy: figures, and full traces for replays. No Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

COLLISION = "blocked"
_COMMON = 12


@dataclass
class Episode:
    """A played episode, frame by frame.

    Attributes:
        env_id: The environment's id.
        settings: The environment's settings.
        agents: The agents' names.
        seed: Seed of the episode.
        returns: Undiscounted sum of rewards per agent.
        success: Whether it ended by a termination (the dish was served), not by the time limit.
        length: Game steps.
        collisions: How often an agent was blocked by another one.
        messages: Everything that was said, in order; silence is left out.
        frames: One dict per decision: `game_step`, `ansi`, `image` (RGB array, or `None`) and `agents`, for each
            agent its `text`, `said`, `heard`, `candidates`, `probabilities`, `action`, `phrase`, `value`, `reward`
            (earned since the frame before), `busy` and `events`. The last frame shows the end.
    """

    env_id: str
    settings: dict[str, Any]
    agents: list[str]
    seed: int
    returns: dict[str, float] = field(default_factory=dict)
    success: bool = False
    length: int = 0
    collisions: int = 0
    messages: list[str] = field(default_factory=list)
    frames: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class EvaluationResult:
    """Figures of several episodes.

    Attributes:
        return_mean: Mean of the team return: undiscounted rewards summed over time, averaged over agents.
        return_std: Its standard deviation over episodes.
        success_rate: Share of episodes that ended by a termination.
        length_mean: Mean length in game steps.
        episodes: Number of episodes.
        sampled: Whether actions were sampled (else the most likely ones).
        seed: Seed of the first episode; the others count up.
        collisions_mean: Mean number of collisions per episode, where the game tells of them (event `blocked`).
        message_words_mean: Mean words per message; 0 if nobody said anything.
        vocabulary: Number of different words in all messages.
        common_messages: The most frequent messages with their shares of all that was said.
        returns: Team return per episode.
        lengths: Length per episode.
        successes: Success per episode.
    """

    return_mean: float
    return_std: float
    success_rate: float
    length_mean: float
    episodes: int
    sampled: bool
    seed: int
    collisions_mean: float
    message_words_mean: float
    vocabulary: int
    common_messages: list[tuple[str, float]]
    returns: list[float]
    lengths: list[int]
    successes: list[bool]

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values."""
        return asdict(self)


Progress = Callable[[int, int], None]


def evaluate(
    policy: Any,
    *,
    episodes: int,
    seed: int = 0,
    explore: bool = True,
    env: Any = None,
    progress: Progress | None = None,
) -> EvaluationResult:
    """Plays episodes and gives their figures.

    Args:
        policy: What `load_policy` gives, or anything with its `reset` and `act`.
        episodes: How many, >= 1.
        seed: Seed of the first; the others count up. Fixes everything that is random.
        explore: Whether actions are sampled.
        env: The environment; by default the one that the policy was trained on.
        progress: Called with the number of finished episodes and `episodes`.
    """
    env = env if env is not None else policy.env()
    played = []
    for number in range(episodes):
        played.append(_play(policy, env, seed + number, explore, keep_frames=False))
        if progress:
            progress(number + 1, episodes)
    returns = [float(np.mean(list(e.returns.values()))) for e in played]
    said = [message for episode in played for message in episode.messages]
    return EvaluationResult(
        return_mean=round(float(np.mean(returns)), 4),
        return_std=round(float(np.std(returns)), 4),
        success_rate=round(float(np.mean([e.success for e in played])), 4),
        length_mean=round(float(np.mean([e.length for e in played])), 2),
        episodes=episodes,
        sampled=explore,
        seed=seed,
        collisions_mean=round(float(np.mean([e.collisions for e in played])), 4),
        message_words_mean=round(float(np.mean([len(m.split()) for m in said])), 3) if said else 0.0,
        vocabulary=len({word for message in said for word in message.split()}),
        common_messages=[(m, round(n / len(said), 4)) for m, n in Counter(said).most_common(_COMMON)],
        returns=[round(r, 4) for r in returns],
        lengths=[e.length for e in played],
        successes=[e.success for e in played],
    )


def record(policy: Any, *, episodes: int = 1, seed: int = 0, explore: bool = True, env: Any = None) -> list[Episode]:
    """Plays episodes and keeps all that was seen, said, heard and weighed.

    Arguments as in `evaluate`.
    """
    env = env if env is not None else policy.env()
    return [_play(policy, env, seed + number, explore, keep_frames=True) for number in range(episodes)]


def _play(policy: Any, env: Any, seed: int, explore: bool, keep_frames: bool) -> Episode:
    observations, infos = env.reset(seed=seed)
    policy.reset(seed=seed)
    game = env.unwrapped
    manifest = getattr(policy, "manifest", None)
    agents = [str(agent) for agent in env.possible_agents]
    episode = Episode(
        env_id=str(getattr(manifest, "env", None) or getattr(env, "metadata", {}).get("name", "")),
        settings=dict(getattr(game, "settings", {})),
        agents=agents,
        seed=seed,
        returns=dict.fromkeys(agents, 0.0),
    )
    rewards: dict[str, float] = {}
    terminated = False
    while env.agents:
        asked = {a: observations[a] for a in env.agents if infos.get(a, {}).get("needs_action", True)}
        decisions = policy.act(asked, explore=explore)
        if keep_frames:
            episode.frames.append(_frame(env, observations, infos, decisions, rewards))
        episode.messages += [decision.said for decision in decisions.values() if decision.said]
        actions = {agent: decision.action for agent, decision in decisions.items()}
        observations, rewards, terminations, _, infos = env.step(actions)
        terminated = any(terminations.values())
        for agent, reward in rewards.items():
            episode.returns[str(agent)] += float(reward)
        episode.collisions += sum(list(info.get("events", ())).count(COLLISION) for info in infos.values())
        steps = max((int(info.get("game_step", 0)) for info in infos.values()), default=0)
        episode.length = steps or episode.length + 1
    episode.success = terminated
    if keep_frames:
        episode.frames.append(_frame(env, observations, infos, {}, rewards))
    return episode


def _frame(env: Any, observations: Any, infos: Any, decisions: Any, rewards: Any) -> dict[str, Any]:
    game = env.unwrapped
    cards = {}
    for agent, observation in observations.items():
        card: dict[str, Any] = {
            "text": str(observation["text"]),
            "reward": float(rewards.get(agent, 0.0)),
            "events": [str(event) for event in infos.get(agent, {}).get("events", [])],
            "busy": agent not in decisions,
        }
        decision = decisions.get(agent)
        if decision is not None:
            card.update(
                said=decision.said,
                heard=dict(decision.heard),
                candidates=list(decision.candidates),
                probabilities=[round(float(p), 4) for p in decision.probabilities],
                action=int(decision.action),
                phrase=decision.candidates[decision.action],
                value=round(float(decision.value), 4),
            )
        cards[str(agent)] = card
    step = max((int(info.get("game_step", 0)) for info in infos.values()), default=0)
    return {"game_step": step, "ansi": _ansi(game), "image": _image(game), "agents": cards}


def _image(game: Any) -> np.ndarray | None:
    return _render(game, "rgb_array")


def _ansi(game: Any) -> str:
    return _render(game, "ansi") or ""


def _render(game: Any, mode: str) -> Any:
    """What the game draws in a mode, whatever its own mode is; `None` if it cannot."""
    if mode not in getattr(game, "metadata", {}).get("render_modes", []):
        return None
    before = game.render_mode
    try:
        game.render_mode = mode
        return game.render()
    finally:
        game.render_mode = before
