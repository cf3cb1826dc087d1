"""The judgements of an episode by their authors, and games that give subgoals themselves under other judges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingzoo.utils.wrappers import BaseParallelWrapper

from rllib_llm_comm.envs.interface import EPISODE_METRICS
from rllib_llm_comm.sama.planning_game import PlanningGame, State, planning_game
from rllib_llm_comm.sama.rewards.subgoal_rewards import EXACT, SubgoalRewards


class RewardCounts:
    """Judges the subgoals of one episode and counts who judged.

    Args:
        rewards: Judge of the subgoals.
    """

    def __init__(self, rewards: SubgoalRewards) -> None:
        self._rewards = rewards
        self._differing = 0
        self._by = dict.fromkeys(rewards.judges, 0)

    def done(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> bool:
        """True if the judge says that an agent has done a subgoal in one game step."""
        done, who = self._rewards.judged(game, before, after, agent, subgoal)
        if self._rewards.name != EXACT:
            self._differing += done != game.done(before, after, agent, subgoal)
            self._by[who] = self._by.get(who, 0) + 1
        return done

    def figures(self) -> dict[str, float]:
        """The counts as metrics of an episode; none for the exact tests."""
        if self._rewards.name == EXACT:
            return {}
        return {
            "rewards_differing": float(self._differing),
            "rewards_refused": float(self._rewards.refused),
            **{f"judgements_by_{who}": float(count) for who, count in self._by.items()},
        }


class JudgedSubgoals(BaseParallelWrapper):
    """A game that gives subgoals itself, with somebody else who says when they are done, and who judged in its metrics.

    Args:
        env: The game; changed.
        rewards: Judge of the subgoals. Its code for a subgoal is made when it first occurs, and the game waits for it.

    Attributes:
        learn: Takes code for subgoals that had none, as `SubgoalRewards.learn`.

    Raises:
        UserError: If the game gives no subgoals.
    """

    def __init__(self, env: Any, rewards: SubgoalRewards) -> None:
        super().__init__(env)
        self._rewards, self._counts = rewards, RewardCounts(rewards)
        self.learn = rewards.learn
        game = planning_game(env)

        def done(before: State, after: State, agent: str, subgoal: str) -> bool:
            rewards.prepare(game, before, agent, subgoal)
            return self._counts.done(game, before, after, agent, subgoal)

        game.judge_own_subgoals(done)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins an episode."""
        self._counts = RewardCounts(self._rewards)
        observations, infos = self.env.reset(seed=seed, options=options)
        return observations, self._counted(infos)

    def step(self, actions: dict[Any, Any]) -> Any:
        """One step of the game."""
        *rest, infos = self.env.step(actions)
        return (*rest, self._counted(infos))

    def _counted(self, infos: Mapping[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
        own = self._counts.figures()
        return {
            agent: {**info, EPISODE_METRICS: {**info.get(EPISODE_METRICS, {}), **own}} for agent, info in infos.items()
        }
