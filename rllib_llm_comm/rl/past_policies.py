"""Policies as they were at some time of their training: kept in memory, written as policy folders, met as partners."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS

from rllib_llm_comm.core.errors import LARGEST
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.policy_folder import PolicyExport, write_policy
from rllib_llm_comm.policies.policy_manifest import POLICY_FOLDER, POLICY_KINDS, PolicyManifest
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin

if TYPE_CHECKING:
    from rllib_llm_comm.policies.policy import TrainedPolicy

AGES = INITIAL, HALF_WAY, FINAL = "initial", "half_way", "final"
PAST_FOLDER = "past"


class PastSettings(Settings):
    """Past policies."""

    keep_policy_every: int | None = Field(None, ge=1, le=LARGEST)
    """Iterations between two policies that are kept in memory; None: none is kept. The first is the one before the
    first update. Checkpoints then also hold `past/initial` and `past/half_way` (`past_policies.half_way`), for FCP."""


@dataclass(frozen=True)
class PastPolicy:
    """A policy as it was at some time.

    Attributes:
        iteration: Training iterations behind it; 0: before the first update.
        game_steps: Game steps behind it.
        score: Mean score of the last games then; NaN where none had ended.
        policy: The policy itself, small and without pickles.
        manifest: Fields of its `PolicyManifest`, with which it is a policy folder.
    """

    iteration: int
    game_steps: int
    score: float
    policy: PolicyExport
    manifest: Mapping[str, Any] = field(default_factory=dict)

    def to_state(self) -> dict[str, Any]:
        """Plain values for an algorithm's state."""
        policy = {**vars(self.policy), "files": dict(self.policy.files)}
        return {**vars(self), "policy": policy, "manifest": dict(self.manifest)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PastPolicy:
        """The policy of `to_state`."""
        return cls(**{**state, "policy": PolicyExport(**state["policy"])})

    def write(self, folder: Path) -> Path:
        """Writes it as a policy folder, which `load_policy` and pools take."""
        return write_policy(folder, self.policy.files, PolicyManifest(**self.manifest))

    def load(self, **options: Any) -> TrainedPolicy:
        """The policy, to act with; language models of one base share it in this process.

        Args:
            **options: Arguments of `load_policy`, such as `base_model` and `device`, if not as in its training.
        """
        with tempfile.TemporaryDirectory() as scratch:
            folder = self.write(Path(scratch) / POLICY_FOLDER)
            manifest = PolicyManifest(**self.manifest)
            policy: TrainedPolicy = POLICY_KINDS[manifest.kind].load(folder, manifest, **options)
        return policy


def half_way(scores: Sequence[float]) -> int | None:
    """The place of the policy whose mean score is nearest to half of the last one's; of two the earlier.

    FCP takes the checkpoint with half of the final reward; of those that were kept this is the nearest.

    Args:
        scores: Mean scores in the order of time, the final policy's last; NaN where none is known, as before the first
            update: such policies are not chosen.

    Returns:
        The place, or `None` if the last score is not known.
    """
    if not scores or math.isnan(scores[-1]):
        return None
    goal = scores[-1] / 2
    distances = [math.inf if math.isnan(score) else abs(score - goal) for score in scores]
    return distances.index(min(distances))


def milestones(past: Sequence[PastPolicy]) -> dict[str, PastPolicy]:
    """The initial, the half-way and the final policy, of those that are there.

    Args:
        past: In the order of time, the final policy last.
    """
    found = {}
    if past and past[0].iteration == 0:
        found[INITIAL] = past[0]
    place = half_way([one.score for one in past])
    if place is not None:
        found[HALF_WAY] = past[place]
    if past:
        found[FINAL] = past[-1]
    return found


class KeepsPastPolicies(PolicyCheckpointMixin, Algorithm):
    """Keeps policies of earlier iterations where `keep_policy_every` is set; all agents act by one policy.

    Attributes:
        kept_as: Name of the algorithm in the folders of past policies, if not this one's.
    """

    kept_as: ClassVar[str | None] = None
    _past: Sequence[PastPolicy] = ()
    _latest_score = math.nan

    def keep_initial(self) -> None:
        """Keeps the policy before the first update, if past ones are to be kept; call it at the end of `setup`."""
        if self.config.keep_policy_every:
            self._past = [self.policy_now(0, math.nan)]

    @override(Algorithm)
    def step(self) -> dict[str, Any]:
        """An iteration; then the policy is kept if it is its turn."""
        results: dict[str, Any] = super().step()
        score = self.score_of(results.get(ENV_RUNNER_RESULTS, {}))
        self._latest_score = self._latest_score if math.isnan(score) else score
        every, iteration = self.config.keep_policy_every, self.iteration + 1
        if every and iteration % every == 0:
            self._past = [*self._past, self.policy_now(iteration, self._latest_score)]
        return results

    def score_of(self, found: Mapping[str, Any]) -> float:
        """The score: the mean over agents of their mean returns; NaN where no game has ended."""
        returns = [float(mean) for mean in found.get("agent_episode_returns_mean", {}).values()]
        return sum(returns) / len(returns) if returns else math.nan

    def past_policies(self) -> list[PastPolicy]:
        """The policies that were kept, in the order of time, and the one of now."""
        past = list(self._past)
        if not past or past[-1].iteration != self.iteration:
            past.append(self.policy_now(self.iteration, self._latest_score))
        return past

    def policy_now(self, iteration: int, score: float, exports: Mapping[str, PolicyExport] | None = None) -> PastPolicy:
        """The policy as it is.

        Args:
            iteration: Training iterations behind it.
            score: As of `PastPolicy`.
            exports: The policy, as of `policy_exports`, if not what that gives.
        """
        exports, steps = self.policy_exports() if exports is None else exports, self._game_steps()
        known = None if math.isnan(score) else score
        origin = {"training_iteration": iteration, "game_steps": steps, "score": known}
        manifest = vars(self.manifest_of(exports, self.kept_as, **origin))
        return PastPolicy(iteration, steps, score, next(iter(exports.values())), manifest)

    @override(PolicyCheckpointMixin)
    def save_to_path(self, path: Any = None, **kwargs: Any) -> str:
        """Saves with the policy folder, and with those of the initial and the half-way policy if past ones are kept."""
        where = super().save_to_path(path, **kwargs)
        if self.config.keep_policy_every and Path(where).is_dir():
            for name, one in milestones(self.past_policies()).items():
                if name != FINAL:
                    one.write(Path(where) / PAST_FOLDER / name)
        return where

    @override(Algorithm)
    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state with the past policies."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        state[PAST_FOLDER] = {"policies": [one.to_state() for one in self._past], "score": self._latest_score}
        return state

    @override(Algorithm)
    def set_state(self, state: Any) -> None:
        """Sets RLlib's state and the past policies."""
        super().set_state(state)
        past = state.get(PAST_FOLDER, {})
        self._past = [PastPolicy.from_state(one) for one in past.get("policies", ())]
        self._latest_score = past.get("score", math.nan)
