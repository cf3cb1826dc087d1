"""The environment that a policy was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.envs.games import env_spec, make_env, without_subgoals
from rllib_llm_comm.policies.policy_manifest import NUMERIC, PolicyManifest, require_bounded
from rllib_llm_comm.policies.recorded_settings import granted, withhold_game

_PLANNED = "rllib_llm_comm.sama.planned_env:PlannedSubgoals"


def make_environment(
    manifest: PolicyManifest, settings: Mapping[str, Any], planning: Mapping[str, Any] | None = None
) -> Any:
    """Makes the PettingZoo environment that a policy was trained on.

    Args:
        manifest: Of the policy.
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
        manifest: Of the policy.
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
            "know of no subgoals; train them with `planner`, or leave it away."
        )
    return by
