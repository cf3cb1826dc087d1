"""What every trained policy can do, without Ray: be loaded, act in many episodes at once, be published."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Self

from rllib_llm_comm.policies.decision import Decision, Heard, Judge, Policy, Request
from rllib_llm_comm.policies.policy_env import make_environment
from rllib_llm_comm.policies.policy_manifest import PolicyManifest

Spoken = tuple[str, "str | None"]
"""A message, and the true one where a control put it in its place."""


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

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, manifest: PolicyManifest, **options: Any) -> Self:
        """The policy of a folder.

        Args:
            folder: The policy folder.
            manifest: Its manifest.
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

    @abstractmethod
    def act(self, observations: Mapping[Any, Mapping[str, Any]], explore: bool = True) -> dict[Any, Decision]:
        """Lets agents of the game that `reset` has begun choose.

        Args:
            observations: The environment's observations of the agents that are asked now, and only of these.
            explore: True if actions are sampled; otherwise the most likely one is taken.

        Returns:
            One decision per given agent.

        Raises:
            UserError: If an observation lacks what the policy acts on.
        """

    def require_readable(self, observations: Mapping[Any, Mapping[str, Any]]) -> None:  # noqa: B027
        """Refuses observations on which it cannot act, where that is known without acting.

        Args:
            observations: By agent.

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
    def probabilities(self, heard: Sequence[Heard]) -> np.ndarray:
        """The chances of each candidate behind messages that are given, not written.

        Args:
            heard: Per row an agent, its observation, and the messages that it hears, by speaker.

        Returns:
            (B, K) probabilities; 0 where forbidden.
        """

    @property
    def judge(self) -> Judge:
        """As `probabilities`."""
        return self.probabilities
