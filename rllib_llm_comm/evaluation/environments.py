"""The environment that a policy was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.modules.policy_folder import PolicyManifest


def make_environment(manifest: PolicyManifest, settings: Mapping[str, Any]) -> Any:
    """Makes the PettingZoo environment that a policy was trained on.

    Args:
        manifest: Of the policy.
        settings: Settings that differ from those of the training, such as `render_mode`.

    Raises:
        UserError: If the checkpoint names none, or PettingZoo does not know it in this process.
    """
    from pettingzoo.env_registry import registration

    import rllib_llm_comm.envs  # noqa: F401  (registers our games)

    env_id = manifest.env
    if not env_id:
        raise UserError("this checkpoint names no environment; make the environment yourself.")
    try:
        registration.spec("parallel", env_id)
    except Exception as error:
        raise UserError(
            f"environment {env_id!r} of this checkpoint is not registered with PettingZoo here; import "
            "the module that registers it first."
        ) from error
    return registration.make("parallel", env_id, **{**manifest.env_config, **settings})
