"""What every trained policy can do, without Ray: be loaded, act in many episodes at once, be published."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.envs.games import env_spec, make_env, without_subgoals
from rllib_llm_comm.policies.decision import Decision, Hearing, Judge, Policy, Request
from rllib_llm_comm.policies.policy_manifest import NUMERIC, PolicyManifest, require_bounded
from rllib_llm_comm.policies.recorded_settings import granted, withhold_game

_PLANNED = "rllib_llm_comm.sama.planned_env:PlannedSubgoals"
Spoken = tuple[str, "str | None"]
"""A message, and the true one where a control put it in its place."""


def make_environment(
    manifest: PolicyManifest, settings: Mapping[str, Any], planning: Mapping[str, Any] | None = None
) -> Any:
    """Makes the PettingZoo environment that a policy was trained on.

    Args:
        settings: Settings that differ from those of the training, such as `render_mode`.
        planning: Arguments of `PlannedSubgoals` that differ from those of the training, such as `planner`; of a game
            that gives subgoals itself, the one without them is taken then. A `planner` of `None` leaves the subgoals
            empty. By default who planned in the training plans here. The game waits for its plans, and pays nothing
            for subgoals.

    Raises:
        UserError: If the checkpoint names none, PettingZoo does not know it in this process, or planners do not; or if
            a recorded setting is withheld that the caller does not give (`rllib_llm_comm.policies.recorded_settings`).
    """
    env_id, merged = manifest.env, {**manifest.env_config, **settings}
    if not env_id:
        raise UserError("this checkpoint names no environment; make the environment yourself.")
    if "planner" in (planning or {}):
        env_id, merged = without_subgoals(env_id, merged)
    try:
        env_spec(env_id)
    except UserError as error:
        raise UserError(
            f"environment {env_id!r} of this checkpoint is not registered with PettingZoo here; import "
            "the module that registers it first (`--import MODULE` on the command line)."
        ) from error
    env = _made(env_id, merged, "give settings of the right kind with `--env-config` (`env_config:` in a file)")
    by = planning_of(manifest, planning)
    # Who plans is known where planners are.
    return env if by is None else load(_PLANNED)(env, **{"subgoal_reward": 0.0, "wait": True, **by})


def make_recorded_game(env_id: str, recorded: Mapping[str, Any], *, trust: bool = False, **settings: Any) -> Any:
    """Makes the PettingZoo environment of a recorded session, which may come from anybody.

    Args:
        env_id: Its id, as recorded.
        recorded: Its recorded settings.
        trust: True if settings that reach beyond this program are used as they were recorded.
        **settings: Settings that take the place of recorded ones.

    Raises:
        UserError: If PettingZoo does not know it in this process, a number is none that a setting can have, or a
            setting is withheld (`rllib_llm_comm.policies.recorded_settings`).
    """
    require_bounded("env_config", recorded)
    held = recorded if trust else withhold_game(env_id, recorded, session=True)
    return _made(env_id, {**held, **settings}, "replay the session with the version that recorded it")


def _made(env_id: str, settings: Mapping[str, Any], remedy: str) -> Any:
    plain = {name: granted(value) for name, value in settings.items()}
    try:
        return make_env(env_id, **plain)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"environment {env_id!r} cannot be made with {str(plain)[:300]} ({type(error).__name__}: {error}); "
            f"{remedy}."
        ) from error


def planning_of(manifest: PolicyManifest, planning: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Planning settings of a policy: arguments of `PlannedSubgoals`, or `None` if nobody plans.

    Args:
        planning: Settings that differ from those of the training.

    Raises:
        UserError: If its agents read no subgoals, or the recorded planner is withheld.
    """
    by = {**(manifest.planning or {}), **(planning or {})}
    if granted(by.get("planner")) is None:
        return None
    if manifest.kind == NUMERIC and not by.get("in_vector"):
        raise UserError(
            f"`planner` is {by['planner']!r} but these agents of {manifest.algorithm} were trained without one and "
            "know of no subgoals; train them with `planner`, or omit it."
        )
    return by


class TrainedPolicy(Policy, ABC):
    """Acts for all agents of one episode (`reset`, `act`), or of many at once (`begin`, `act_together`).

    .. code-block:: python

        policy = load_policy("results/verco/checkpoint_000010")
        env = policy.env()
        observations, infos = env.reset(seed=0)
        policy.reset(seed=0)
        decisions = policy.act(observations)

    Attributes:
        manifest: Origin of the policy.
    """

    manifest: PolicyManifest
    _memory: Any

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, manifest: PolicyManifest, **options: Any) -> Self:
        """The policy of a folder.

        Args:
            **options: The other arguments of `load_policy`.

        Raises:
            UserError: If files are missing or damaged, or an option is not for such a policy.
        """

    @abstractmethod
    def files(self) -> dict[str, bytes]:
        """The files of its folder but the manifest: contents by relative path."""

    @property
    def needs_the_team(self) -> bool:
        """True if its agents exchange vectors inside of one network, which therefore has to hold all seats."""
        return False

    def act(self, observations: Mapping[Any, Mapping[str, Any]], explore: bool = True) -> dict[Any, Decision]:
        """Lets agents of the game that `reset` has begun choose; those that talk speak and listen before.

        Args:
            observations: The environment's observations of the agents that are asked now, and only of these; of numeric
                agents that hear each other those of all agents in the first call of an episode.
            explore: True if actions are sampled; otherwise the most likely one is taken.

        Returns:
            One decision per given agent.

        Raises:
            UserError: If an observation lacks what the policy acts on, or a prompt is longer than in training.
        """
        return self.act_together([Request(self._memory, observations)], explore)[0]

    def require_readable(self, observations: Mapping[Any, Mapping[str, Any]]) -> None:  # noqa: B027
        """Refuses observations on which it cannot act, where that is known without acting.

        Raises:
            UserError: For the first one.
        """

    def env(self, *, planning: Mapping[str, Any] | None = None, **settings: Any) -> Any:
        """Makes the PettingZoo environment that the policy was trained on.

        Args:
            planning: Source of subgoals, if not as in training, as of `make_environment`.
            **settings: Settings that differ from those of the training, such as `render_mode`.

        Raises:
            UserError: As of `make_environment`.
        """
        return make_environment(self.manifest, settings, planning)

    def push_to_hub(
        self, repo: str, *, private: bool = False, figures: Mapping[str, float] | None = None, licence: str = ""
    ) -> str:
        """Publishes the policy on the Hugging Face hub; `load_policy("hf:user/name")` loads it.

        Args:
            repo: `user/name`.
            private: As of `push_policy`.
            figures: As of `push_policy`.
            licence: As of `push_policy`.

        Returns:
            The address of the commit.

        Raises:
            UserError: As of `push_policy`.
        """
        from rllib_llm_comm.policies.publish import push_policy

        return push_policy(self, repo, private=private, figures=figures, licence=licence)


class TalkingPolicy(TrainedPolicy):
    """A policy whose agents say something to each other before they act."""

    @abstractmethod
    def speak_together(self, requests: Sequence[Request], explore: bool = True) -> list[dict[Any, Spoken]]:
        """Lets the agents of several episodes speak, as `act_together` does before they choose.

        Args:
            requests: As for `act_together`; the mailboxes of the memories take in the messages.
            explore: As for `act`.

        Returns:
            Per episode and given agent its message and, where a control changes it, the true one.
        """

    @abstractmethod
    def act_together(
        self,
        requests: Sequence[Request],
        explore: bool = True,
        spoken: Sequence[Mapping[Any, Spoken]] | None = None,
    ) -> list[dict[Any, Decision]]:
        """As of `Policy`.

        Args:
            requests: As of `Policy`.
            explore: As of `Policy`.
            spoken: The messages of these agents, where they have spoken before this call (`speak_together`) beside
                agents of other policies.
        """

    @abstractmethod
    def probabilities(self, heard: Sequence[Hearing]) -> np.ndarray:
        """The probabilities of each candidate behind messages that are given, not written.

        Returns:
            (B, K) probabilities; 0 where forbidden.
        """

    def write_ahead(self, asked: Sequence[tuple[TalkingPolicy, Sequence[Request]]], explore: bool = True) -> None:  # noqa: B027
        """Computes in one batch what several policies are going to say, where that is quicker. They say the same.

        Args:
            asked: Policies, with what `speak_together` of each is going to be given.
            explore: As for `act`.
        """

    def judge_ahead(self, asked: Sequence[tuple[TalkingPolicy, Sequence[Request]]]) -> None:  # noqa: B027
        """Computes in one batch the probabilities by which several policies are going to choose, where that is quicker.

        Args:
            asked: As for `write_ahead`; all agents have spoken.
        """

    @property
    def judge(self) -> Judge:
        """As `probabilities`."""
        return self.probabilities
