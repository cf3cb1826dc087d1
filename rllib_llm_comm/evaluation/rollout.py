"""Episodes played with a policy: figures, and full traces for replays. No Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from pettingzoo.utils import BaseParallelWrapper
from typing_extensions import override

from rllib_llm_comm.core.errors import UserError, shown
from rllib_llm_comm.envs.games import game_of
from rllib_llm_comm.envs.interface import EPISODE_METRICS, NEUTRAL_WORDS, GameInfo, solved, success_words
from rllib_llm_comm.evaluation.frames import Counterfactuals, frame_of
from rllib_llm_comm.evaluation.replay_schema import Frame
from rllib_llm_comm.policies.decision import Decision, Policy
from rllib_llm_comm.policies.play_loop import Observer, PlayedGame, play_games
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.verco.message_protocol import changes_messages, idle_control_error

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
        success: True if the task was done (`envs.interface.solved`).
        length: Game steps.
        decisions: Decisions of all agents, those of attempts that were put back included.
        collisions: Number of times that an agent was blocked by another one; `None` if the game does not count them.
        messages: Everything that was said, in order; silence is left out.
        control: The message mode of the policy; empty if it has none.
        replaced: In controls that change messages, per message the true one and the one in its place, silence included;
            otherwise empty.
        metrics: The game's own counts (`episode_metrics` in its last infos), such as the score.
        frames: One per decision (`replay_schema.Frame`), and a last one of the end; empty if frames are not kept.
            Under reflection also the frames of attempts that were put back.
        words: The game's words for an episode that was solved, and for one that was not (`envs.interface`).
        rounds: Under a planner the tree of plans: per round all attempts from the same situation, of which the last
            stands; each is what `Attempt.to_json` gives, and `frame`, the index of its first frame.
        game: Name of its game (`envs.games`), in whose words replays tell events; empty for others.
        no_silence: The reason why no frame has `silent`; empty if frames may have it.
    """

    env_id: str
    settings: dict[str, Any]
    agents: list[str]
    seed: int
    returns: dict[str, float] = field(default_factory=dict)
    success: bool = False
    length: int = 0
    decisions: int = 0
    collisions: int | None = None
    messages: list[str] = field(default_factory=list)
    control: str = ""
    replaced: list[tuple[str, str]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    rounds: list[list[dict[str, Any]]] = field(default_factory=list)
    words: tuple[str, str] = NEUTRAL_WORDS
    game: str = ""
    no_silence: str = ""


@dataclass(frozen=True)
class EvaluationResult:
    """Figures of several episodes.

    Attributes:
        return_mean: Mean of the team return: undiscounted rewards summed over time, averaged over agents.
        return_std: Its standard deviation over episodes.
        success_rate: Share of episodes that were solved (`envs.interface.solved`).
        length_mean: Mean length in game steps.
        episodes: Number of episodes.
        sampled: True if actions were sampled (else the most likely ones).
        seed: Seed of the first episode; the others count up.
        collisions_mean: Mean number of collisions per episode; `None` if the game does not count them.
        message_words_mean: Mean words per message, silence left out; 0 if nobody said anything.
        vocabulary: Number of different words in all messages.
        common_messages: The most frequent messages with their shares of all that was said.
        shuffled_same_share: In controls that change messages (`"other_moments"`, `"other_fact"`, `"swapped"`) the share
            of those that equal the true one, which the speaker would have said itself: where it is high the control
            changes little. `None` elsewhere.
        shuffled_silent_share: In such controls the share of messages that are silence, since there was none to draw.
        metrics: Means of what the game counted itself, such as the score.
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
    collisions_mean: float | None
    message_words_mean: float
    vocabulary: int
    common_messages: list[tuple[str, float]]
    shuffled_same_share: float | None
    shuffled_silent_share: float | None
    metrics: dict[str, float]
    returns: list[float]
    lengths: list[int]
    successes: list[bool]

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values."""
        return asdict(self)


Progress = Callable[[int, int], None]
"""Called with the number of finished episodes and that of all."""


class EpisodeRecorder(Observer):
    """Counts what happens in episodes.

    Args:
        policy: The policy by which episodes are named; `None` if there is none.
        total: Number of episodes that are to be played, for `progress`.
        progress: Called when an episode has ended.

    Attributes:
        episodes: The episodes so far, by seed.
    """

    def __init__(self, policy: Policy | None, total: int = 1, progress: Progress | None = None) -> None:
        self.episodes: dict[int, Episode] = {}
        self._policy, self._total, self._progress, self._finished = policy, total, progress, 0

    @override
    def on_start(self, game: PlayedGame) -> None:
        self.episodes[game.seed] = new_episode(self._policy, game.env, game.seed)

    @override
    def on_decisions(self, game: PlayedGame, decisions: Mapping[Any, Decision]) -> None:
        episode = self.episodes[game.seed]
        episode.decisions += len(decisions)
        episode.messages += [decision.said for decision in decisions.values() if decision.said]
        episode.replaced += replaced_messages(decisions)

    @override
    def on_step(self, game: PlayedGame) -> None:
        episode = self.episodes[game.seed]
        for agent, reward in game.rewards.items():
            episode.returns[str(agent)] = episode.returns.get(str(agent), 0.0) + reward
        if episode.collisions is not None:
            episode.collisions += collisions_in(game.infos)
        steps = max((int(info.get("game_step", 0)) for info in game.infos.values()), default=0)
        episode.length = steps or episode.length + 1
        episode.success = solved(any(game.terminations.values()), game.infos)
        for info in game.infos.values():
            episode.metrics.update(info.get(EPISODE_METRICS, {}))

    def on_end(self, game: PlayedGame) -> None:
        """Keeps what was planned, if anything was: each plan stood, and began at the frame of its step.

        Raises:
            UserError: If a planner should have planned but could not at all.
        """
        env = game.env
        while not isinstance(env, PlannedSubgoals) and isinstance(env, BaseParallelWrapper):
            env = env.env
        if isinstance(env, PlannedSubgoals):
            env.require_plan()
            rounds = [[{**attempt.to_json(), "frame": attempt.start}] for attempt in env.attempts]
            self.episodes[game.seed].rounds = rounds
        self._finished += 1
        if self._progress:
            self._progress(self._finished, self._total)


class FrameRecorder(Observer):
    """Keeps all that is seen, said, heard and weighed, and what listeners would have weighed in silence.

    The episodes of its recorder take the frames; that has to see the games before.
    """

    def __init__(self, recorder: EpisodeRecorder, silence: Counterfactuals) -> None:
        self._recorder, self._silence = recorder, silence

    @override
    def on_start(self, game: PlayedGame) -> None:
        self._recorder.episodes[game.seed].no_silence = self._silence.missing

    @override
    def on_decisions(self, game: PlayedGame, decisions: Mapping[Any, Decision]) -> None:
        frame = frame_of(game.env, game.observations, game.infos, decisions, game.rewards)
        self._silence.add_to(frame, game.observations, decisions)
        self._recorder.episodes[game.seed].frames.append(frame)

    @override
    def on_end(self, game: PlayedGame) -> None:
        self.on_decisions(game, {})


def evaluate(
    policy: Policy,
    *,
    episodes: int,
    seed: int = 0,
    explore: bool = True,
    env: Any = None,
    num_envs: int = 16,
    progress: Progress | None = None,
) -> EvaluationResult:
    """Plays episodes and gives their figures.

    Args:
        policy: The policy that `load_policy` gives, or one of the reader's own (`policies.decision`).
        episodes: Number of episodes, >= 1.
        seed: Seed of the first; the others count up. Fixes everything that is random.
        explore: True if actions are sampled.
        env: The environment, or a function that makes one; by default the one that the policy was trained on.
        num_envs: Episodes that are played at once, >= 1, if `env` can be made several times and the policy plays side
            by side; otherwise they are played one after the other. Messages that are drawn from other moments,
            and those that a server samples, depend on it, all else does not.
        progress: Called with the number of finished episodes and `episodes`.

    Raises:
        UserError: If messages are a control that did nothing, or cannot be one in this game.
    """
    played = play(policy, episodes=episodes, seed=seed, explore=explore, env=env, num_envs=num_envs, progress=progress)
    return figures_of(played, explore and policy.draws)


def play(
    policy: Policy,
    *,
    episodes: int,
    seed: int = 0,
    explore: bool = True,
    env: Any = None,
    num_envs: int = 16,
    progress: Progress | None = None,
    observers: Sequence[Observer] = (),
) -> list[Episode]:
    """Plays episodes and gives them without their frames, in the order of their seeds.

    Arguments as in `evaluate`, and `observers`, which see all games.
    """
    _require_policy(policy)
    recorder = EpisodeRecorder(policy, episodes, progress)
    make_env = policy.env if env is None else env if callable(env) else lambda: env
    together = policy.side_by_side and (env is None or callable(env))
    seeds = range(seed, seed + episodes)
    policy.forget()
    play_games(
        policy,
        make_env,
        seeds,
        observers=[*observers, recorder],
        explore=explore,
        at_once=min(num_envs, episodes) if together else 1,
    )
    return require_control([recorder.episodes[number] for number in seeds])


def record(
    policy: Policy,
    *,
    episodes: int = 1,
    seed: int = 0,
    explore: bool = True,
    env: Any = None,
    counterfactuals: bool = True,
) -> list[Episode]:
    """Plays episodes and keeps all that was seen, said, heard and weighed.

    Arguments as in `evaluate`; episodes are played one after the other. With `counterfactuals` every decision with
    something heard is scored once more, without it.
    """
    _require_policy(policy)
    recorder, seeds = EpisodeRecorder(policy), range(seed, seed + episodes)
    frames = FrameRecorder(recorder, Counterfactuals(policy, counterfactuals))
    policy.forget()
    play_games(
        policy, lambda: policy.env() if env is None else env, seeds, observers=[recorder, frames], explore=explore
    )
    return require_control([recorder.episodes[number] for number in seeds])


def _require_policy(policy: object) -> None:
    if isinstance(policy, type) or not isinstance(policy, Policy):
        raise UserError(
            f"`policy` is {shown(policy)} but must be what `load_policy` gives, or inherit from `OneGamePolicy` or "
            "`Policy` of `rllib_llm_comm.policies.decision`."
        )


def figures_of(played: Sequence[Episode], explore: bool) -> EvaluationResult:
    """The figures of episodes.

    Args:
        played: At least one, with seeds that count up.
        explore: True if actions were sampled.
    """
    returns = [float(np.mean(list(e.returns.values()))) for e in played]
    said = [message for episode in played for message in episode.messages]
    replaced = [pair for episode in played for pair in episode.replaced]
    collided = [episode.collisions for episode in played if episode.collisions is not None]
    return EvaluationResult(
        return_mean=round(float(np.mean(returns)), 4),
        return_std=round(float(np.std(returns)), 4),
        success_rate=round(float(np.mean([e.success for e in played])), 4),
        length_mean=round(float(np.mean([e.length for e in played])), 2),
        episodes=len(played),
        sampled=explore,
        seed=played[0].seed,
        collisions_mean=round(float(np.mean(collided)), 4) if collided else None,
        message_words_mean=round(float(np.mean([len(m.split()) for m in said])), 3) if said else 0.0,
        vocabulary=len({word for message in said for word in message.split()}),
        common_messages=[(m, round(n / len(said), 4)) for m, n in Counter(said).most_common(_COMMON)],
        shuffled_same_share=_share(said == true for true, said in replaced),
        shuffled_silent_share=_share(not said for _, said in replaced),
        metrics={
            # A game may tell a figure in some episodes only, such as a time that not all of them reach.
            name: round(float(np.mean([e.metrics[name] for e in played if name in e.metrics])), 4)
            for name in dict.fromkeys(name for e in played for name in e.metrics)
        },
        returns=[round(r, 4) for r in returns],
        lengths=[e.length for e in played],
        successes=[e.success for e in played],
    )


def _share(flags: Iterable[bool]) -> float | None:
    found = list(flags)
    return round(float(np.mean(found)), 4) if found else None


def require_control(played: list[Episode]) -> list[Episode]:
    """The episodes of one policy, unless their messages are a control that did nothing.

    Raises:
        UserError: If all messages that a control put in the place of the true ones are equal to these, or silence.
    """
    replaced = [pair for episode in played for pair in episode.replaced]
    if replaced and not changes_messages(replaced):
        raise idle_control_error(played[0].control, replaced)
    return played


def collisions_in(infos: Mapping[Any, Mapping[str, Any]]) -> int:
    """Number of agents that were blocked by another one in a step."""
    return sum(list(info.get("events", ())).count(COLLISION) for info in infos.values())


def replaced_messages(decisions: Mapping[Any, Decision]) -> list[tuple[str, str]]:
    """Per message of a control that changes them the true one and the one in its place."""
    return [(one.replaced, one.said) for one in decisions.values() if one.replaced is not None]


def new_episode(policy: Policy | None, env: Any, seed: int) -> Episode:
    """An episode that begins in an environment that is reset, named by its policy, if it has one."""
    manifest, talk = (None, None) if policy is None else (policy.manifest, policy.communication)
    agents = [str(agent) for agent in getattr(env, "possible_agents", None) or env.agents]
    game = game_of(env.unwrapped)
    return Episode(
        env_id=str((manifest and manifest.env) or GameInfo(env).metadata.get("name", "")),
        settings=GameInfo(env).settings,
        agents=agents,
        seed=seed,
        control="" if talk is None else talk.messages,
        returns=dict.fromkeys(agents, 0.0),
        words=success_words(env),
        collisions=0 if game and game.counts_collisions else None,
        game=game.name if game else "",
    )
