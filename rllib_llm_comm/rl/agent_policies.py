"""One policy for all agents, or one for each on the same base model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.utils.annotations import override

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.policies.policy_manifest import names_a_folder
from rllib_llm_comm.rl.env_registration import agents_of, ensure_registered
from rllib_llm_comm.rl.strict_config import SHARED_POLICY, StrictConfigMixin, shared_policy

if TYPE_CHECKING:
    from typing_extensions import Self

SHARED, PER_AGENT = "shared", "per_agent"
ROLES = (SHARED, PER_AGENT)


def own_policy(agent_id: Any, episode: Any = None, **kwargs: Any) -> str:
    """Maps every agent to the policy of its name."""
    return str(agent_id)


def agents_apart(config: Any) -> list[str]:
    """The agents that have a policy of their own under a config; none where they share one.

    Args:
        config: Of an algorithm that was built.
    """
    return sorted(config.policies) if getattr(config, "policy_mapping_fn", None) is own_policy else []


class AgentPoliciesMixin(StrictConfigMixin):
    """Adds `policies: shared | per_agent` to `.multi_agent(...)`, and so to a YAML file's `config:`."""

    @override(AlgorithmConfig)
    def multi_agent(
        self,
        *,
        policies: str | Collection[str] | Mapping[str, Any] | None = NotProvided,
        policy_mapping_fn: Callable[..., str] | None = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets who acts by which policy.

        Args:
            policies: `"shared"` (default; Verco): all agents act by one message adapter, one action adapter and one
                critic. `"per_agent"` (ours): each agent has its own three on the one base model; the agents are those
                of the environment. Or policies as RLlib takes them, with a `policy_mapping_fn`.
            policy_mapping_fn: As of RLlib.
            **kwargs: RLlib's other settings.

        Returns:
            This config.
        """
        if isinstance(policies, str):
            require_choice("policies", policies, ROLES)
            self.policies = policies  # type: ignore[assignment]  # until validate() knows the agents
            policies = NotProvided
        super().multi_agent(policies=policies, policy_mapping_fn=policy_mapping_fn, **kwargs)
        return self

    @override(AlgorithmConfig)
    def validate(self) -> None:
        """Finds the agents where each has a policy of its own.

        Raises:
            UserError: If they are unknown.
        """
        if isinstance(self.policies, str):
            require_choice("policies", self.policies, ROLES)
            if self.policies == SHARED:
                self._set_shared_policy()
            else:
                self.policies = self._agents()
                self.policy_mapping_fn = own_policy
        if self.policy_mapping_fn is shared_policy and SHARED_POLICY not in self.policies:
            raise UserError(
                f"`policies` is {sorted(map(str, self.policies))!r} but no `policy_mapping_fn` tells which agent acts "
                "by which; set it, or use 'shared' or 'per_agent'."
            )
        super().validate()

    def _agents(self) -> set[str]:
        ensure_registered(self.env)
        agents = agents_of(self.env, self.env_config)
        odd = [agent for agent in agents if not names_a_folder(agent)]
        if odd or not agents:
            raise UserError(
                f"`policies` is 'per_agent' but the agents of `env` {self.env!r} are {list(agents)!r}; each must have "
                "a name of letters, digits, '_' and '-', since its policy is saved in a folder of that name."
            )
        return set(agents)
