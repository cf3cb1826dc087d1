"""Episodes played with a trained policy: figures, and full traces for replays. No Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from rllib_llm_comm.envs.game_contract import GameContract
from rllib_llm_comm.envs.interface import EPISODE_METRICS, NEUTRAL_WORDS, asked, secret_of, solved, success_words
from rllib_llm_comm.evaluation.counterfactuals import Counterfactuals
from rllib_llm_comm.evaluation.frames import frame_of
from rllib_llm_comm.evaluation.replay_schema import Frame
from rllib_llm_comm.policies.decision import Decision, draws_actions
from rllib_llm_comm.verco.message_protocol import changes_messages, idle_control

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
        collisions: Number of times that an agent was blocked by another one.
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
        no_silence: The reason why no frame has `silent`; empty if frames may have it.
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
    control: str = ""
    replaced: list[tuple[str, str]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    rounds: list[list[dict[str, Any]]] = field(default_factory=list)
    words: tuple[str, str] = NEUTRAL_WORDS
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
        collisions_mean: Mean number of collisions per episode, where the game tells of them (event `blocked`).
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
    collisions_mean: float
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


Watch = Callable[[int, Mapping[Any, Any], Mapping[Any, Any], Mapping[Any, Decision]], None]
"""Called before every step with the episode's seed, all observations, all infos and the decisions."""
Progress = Callable[[int, int], None]
"""Called with the number of finished episodes and that of all."""


def evaluate(
    policy: Any,
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
        policy: The policy that `load_policy` gives, or anything with its `reset` and `act`.
        episodes: Number of episodes, >= 1.
        seed: Seed of the first; the others count up. Fixes everything that is random.
        explore: True if actions are sampled.
        env: The environment, or a function that makes one; by default the one that the policy was trained on.
        num_envs: Episodes that are played at once, >= 1, if `env` can be made several times and the policy has
            `begin` and `act_together`; otherwise they are played one after the other. Messages that are sampled or
            drawn from other moments depend on it, all else does not.
        progress: Called with the number of finished episodes and `episodes`.

    Raises:
        UserError: If messages are a control that did nothing, or cannot be one in this game.
    """
    played = play(policy, episodes=episodes, seed=seed, explore=explore, env=env, num_envs=num_envs, progress=progress)
    return figures_of(played, draws_actions(policy, explore))


def play(
    policy: Any,
    *,
    episodes: int,
    seed: int = 0,
    explore: bool = True,
    env: Any = None,
    num_envs: int = 16,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> list[Episode]:
    """Plays episodes and gives them without their frames, in the order of their seeds.

    Arguments as in `evaluate`, and `watch`, which sees every step before it is played.
    """
    make_env = policy.env if env is None else env if callable(env) else lambda: env
    together = hasattr(policy, "act_together") and (env is None or callable(env))
    seeds = range(seed, seed + episodes)
    at_once = min(num_envs, episodes) if together else 1
    return require_control(_play_all(policy, make_env, seeds, explore, at_once, progress, watch))


def figures_of(played: Sequence[Episode], explore: bool) -> EvaluationResult:
    """The figures of episodes.

    Args:
        played: At least one, with seeds that count up.
        explore: True if actions were sampled.
    """
    returns = [float(np.mean(list(e.returns.values()))) for e in played]
    said = [message for episode in played for message in episode.messages]
    replaced = [pair for episode in played for pair in episode.replaced]
    return EvaluationResult(
        return_mean=round(float(np.mean(returns)), 4),
        return_std=round(float(np.std(returns)), 4),
        success_rate=round(float(np.mean([e.success for e in played])), 4),
        length_mean=round(float(np.mean([e.length for e in played])), 2),
        episodes=len(played),
        sampled=explore,
        seed=played[0].seed,
        collisions_mean=round(float(np.mean([e.collisions for e in played])), 4),
        message_words_mean=round(float(np.mean([len(m.split()) for m in said])), 3) if said else 0.0,
        vocabulary=len({word for message in said for word in message.split()}),
        common_messages=[(m, round(n / len(said), 4)) for m, n in Counter(said).most_common(_COMMON)],
        shuffled_same_share=_share(said == true for true, said in replaced),
        shuffled_silent_share=_share(not said for _, said in replaced),
        metrics={name: round(float(np.mean([e.metrics[name] for e in played])), 4) for name in played[0].metrics},
        returns=[round(r, 4) for r in returns],
        lengths=[e.length for e in played],
        successes=[e.success for e in played],
    )


def _share(flags: Iterable[bool]) -> float | None:
    found = list(flags)
    return round(float(np.mean(found)), 4) if found else None


def record(
    policy: Any,
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
    env = env if env is not None else policy.env()
    silence = Counterfactuals(policy, counterfactuals)
    forget_messages(policy)
    return require_control(
        [play_episode(policy, env, seed + number, explore, silence=silence) for number in range(episodes)]
    )


def forget_messages(policy: Any) -> None:
    """Empties what controls draw messages from, so that the same episodes give the same figures once more.

    Args:
        policy: A policy; only those with messages have something to forget.
    """
    if hasattr(policy, "forget"):
        policy.forget()


def require_control(played: list[Episode]) -> list[Episode]:
    """The episodes, unless their messages are a control that did nothing.

    Args:
        played: Episodes of one policy.

    Raises:
        UserError: If all messages that a control put in the place of the true ones are equal to these, or silence.
    """
    replaced = [pair for episode in played for pair in episode.replaced]
    if replaced and not changes_messages(replaced):
        raise idle_control(played[0].control, replaced)
    return played


def _play_all(
    policy: Any,
    make_env: Callable[[], Any],
    seeds: range,
    explore: bool,
    num_envs: int,
    progress: Progress | None,
    watch: Watch | None,
) -> list[Episode]:
    """Episodes in the order of their seeds; a kitchen that is done takes the next seed."""
    forget_messages(policy)
    if num_envs == 1:
        env = make_env()
        return [
            counted(play_episode(policy, env, seed, explore, watch=watch), number, len(seeds), progress)
            for number, seed in enumerate(seeds, 1)
        ]
    policy.reset(seed=seeds[0])
    waiting, finished = list(reversed(seeds)), {}
    free = [make_env() for _ in range(num_envs)]
    live: list[tuple[PlayedGame, Any]] = []
    while waiting or live:
        while waiting and free:
            seed = waiting.pop()
            live.append((PlayedGame(policy, free.pop(), seed, watch), policy.begin(seed)))
        for game, memory in live:
            game.tell(memory)
        decisions = policy.act_together([(memory, game.asked()) for game, memory in live], explore=explore)
        for (game, _), decided in zip(live, decisions, strict=True):
            game.step(decided)
        for game, _ in live:
            if not game.env.agents:
                game.finish()
                free.append(game.env)
                finished[game.episode.seed] = game.episode
                counted(game.episode, len(finished), len(seeds), progress)
        live = [entry for entry in live if entry[0].env.agents]
    return [finished[seed] for seed in seeds]


def counted(episode: Episode, number: int, total: int, progress: Progress | None) -> Episode:
    """The episode, after its end was reported.

    Args:
        episode: An episode that has ended.
        number: Number of episodes that have ended.
        total: Number of all episodes.
        progress: Called with both; `None` for none.
    """
    if progress:
        progress(number, total)
    return episode


def play_episode(
    policy: Any,
    env: Any,
    seed: int,
    explore: bool = True,
    watch: Watch | None = None,
    silence: Counterfactuals | None = None,
) -> Episode:
    """Plays an episode.

    Args:
        policy: A policy with `reset` and `act`.
        env: The environment.
        seed: Seed of the episode.
        explore: True if actions are sampled.
        watch: Called before every step.
        silence: Scores of listeners in silence; frames are kept if it is given.
    """
    game = PlayedGame(policy, env, seed, watch, silence)
    policy.reset(seed=seed)
    if hasattr(policy, "meet"):
        policy.meet(env)
    while env.agents:
        if hasattr(policy, "note"):
            policy.note(game.infos)
        decisions = policy.act(game.asked(), explore=explore)
        game.keep_frame(decisions)
        game.step(decisions)
    game.keep_frame({})
    game.finish()
    return game.episode


class PlayedGame:
    """An episode while it is played; arguments as of `play_episode`, and `reads` of `GameContract`.

    Attributes:
        env: The environment; it is reset.
        episode: The counts so far.
        observations, infos, rewards: The latest ones, by agent; no rewards before the first step.
    """

    def __init__(
        self,
        policy: Any,
        env: Any,
        seed: int,
        watch: Watch | None = None,
        silence: Counterfactuals | None = None,
        reads: bool = True,
    ) -> None:
        self.env = env
        self._watch, self._silence = watch, silence
        self._contract = GameContract(env, reads)
        self.observations, self.infos = self._contract.reset(seed=seed)
        self.rewards: dict[str, float] = {}
        self.episode = new_episode(policy, env, seed)
        self.episode.no_silence = silence.missing if silence is not None else ""

    def asked(self) -> dict[Any, Any]:
        """The observations of the agents that are asked now."""
        return {agent: self.observations[agent] for agent in asked(self.env.agents, self.infos)}

    def tell(self, memory: Any) -> None:
        """Tells a policy's memory of the episode what it asks for: all private facts at the moment, or the game."""
        if hasattr(memory, "secret"):
            memory.secret = secret_of(self.infos)
        if hasattr(memory, "env"):
            memory.env = self.env

    def step(self, decisions: dict[Any, Any]) -> None:
        """Plays a step of the game and counts."""
        episode = self.episode
        if self._watch:
            self._watch(episode.seed, self.observations, self.infos, decisions)
        episode.messages += [decision.said for decision in decisions.values() if decision.said]
        episode.replaced += replaced_messages(decisions)
        actions = {agent: decision.action for agent, decision in decisions.items()}
        self.observations, self.rewards, terminations, _, infos = self._contract.step(actions)
        self.infos = infos
        for agent, reward in self.rewards.items():
            episode.returns[str(agent)] = episode.returns.get(str(agent), 0.0) + reward
        episode.collisions += sum(list(info.get("events", ())).count(COLLISION) for info in infos.values())
        steps = max((int(info.get("game_step", 0)) for info in infos.values()), default=0)
        episode.length = steps or episode.length + 1
        episode.success = solved(any(terminations.values()), infos)
        for info in infos.values():
            episode.metrics.update(info.get(EPISODE_METRICS, {}))

    def keep_frame(self, decisions: dict[Any, Any]) -> None:
        """Keeps what is seen now and decided, where frames are kept."""
        if self._silence is None:
            return
        frame = frame_of(self.env, self.observations, self.infos, decisions, self.rewards)
        self._silence.add_to(frame, self.observations, decisions)
        self.episode.frames.append(frame)

    def finish(self) -> None:
        """Keeps what was planned, if anything was: each plan stood, and began at the frame of its step.

        Raises:
            UserError: If a planner should have planned but could not at all.
        """
        if hasattr(self.env, "require_plan"):
            self.env.require_plan()
        attempts = getattr(self.env, "attempts", [])
        self.episode.rounds = [[{**attempt.to_json(), "frame": attempt.start}] for attempt in attempts]


def replaced_messages(decisions: Mapping[Any, Decision]) -> list[tuple[str, str]]:
    """Per message of a control that changes them the true one and the one in its place.

    Args:
        decisions: Decisions of all agents that were asked.
    """
    return [(one.replaced, one.said) for one in decisions.values() if one.replaced is not None]


def new_episode(policy: Any, env: Any, seed: int) -> Episode:
    """An episode that begins.

    Args:
        policy: The policy that plays it.
        env: The environment; it is reset.
        seed: Its seed.
    """
    manifest = getattr(policy, "manifest", None)
    agents = [str(agent) for agent in getattr(env, "possible_agents", None) or env.agents]
    return Episode(
        env_id=str(getattr(manifest, "env", None) or getattr(env, "metadata", {}).get("name", "")),
        settings=dict(getattr(env.unwrapped, "settings", {})),
        agents=agents,
        seed=seed,
        control=str(getattr(getattr(policy, "communication", None), "messages", "")),
        returns=dict.fromkeys(agents, 0.0),
        words=success_words(env),
    )
