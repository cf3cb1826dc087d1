"""Checks of stages that play a checkpoint against its game, which may be that of a stage that is still to run."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rllib_llm_comm.envs.games import make_env, without_subgoals
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.experiments import tune_stage
from rllib_llm_comm.experiments.env_settings import check_guesses
from rllib_llm_comm.experiments.search_space import first_point
from rllib_llm_comm.experiments.stages import Stage

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")


def check_played_games(stages: Sequence[Stage], finished: Collection[str] = ()) -> None:
    """Refuses stages whose planner guesses in a game that hides nothing, or whose messages tell another fact in a
    game that tells at most one.

    Args:
        stages: All stages of a file, with the references between them.
        finished: Names of those that need not run.

    Raises:
        UserError: At the first such stage.
    """
    from rllib_llm_comm.agents.message_protocol import require_possible
    from rllib_llm_comm.agents.settings import OTHER_FACT, SWAPPED
    from rllib_llm_comm.planning.planners import guesses

    named = {stage.name: stage for stage in stages}
    for stage in stages:
        config = stage.experiment.config
        telling = config.get("messages") in (OTHER_FACT, SWAPPED)
        if stage.name in finished or "checkpoint" not in config or not (telling or guesses(config.get("planner"))):
            continue
        given = config["checkpoint"] if isinstance(config["checkpoint"], list) else [config["checkpoint"]]
        for env, settings in filter(None, (_game(str(one), named) for one in given)):
            env, settings = without_subgoals(env, first_point({**settings, **(config.get("env_config") or {})}))
            settings = {key: value for key, value in settings.items() if not _REFERENCE.search(str(value))}
            try:
                made = make_env(env, **settings)
                check_guesses(config.get("planner"), made)
                require_possible(str(config.get("messages")), made)
            except UserError as error:
                raise UserError(f"In `{stage.name}.config`: {error}") from None


def _game(checkpoint: str, named: Mapping[str, Stage]) -> tuple[str, dict[str, Any]] | None:
    """Id and settings of the environment in which a checkpoint was or will be trained; `None` if it tells none.

    Args:
        checkpoint: A path, or the reference to a stage.
        named: All stages by their names.
    """
    from rllib_llm_comm.agents.policy_folder import find_policy
    from rllib_llm_comm.agents.policy_manifest import read_manifest

    reference = _REFERENCE.fullmatch(checkpoint)
    if reference is None:
        manifest = read_manifest(find_policy(checkpoint))
        return (manifest.env, dict(manifest.env_config)) if manifest.env else None
    trained = named[reference.group(1)]
    env = trained.experiment.env or getattr(tune_stage.default_config(trained), "env", None)
    return (env, dict(trained.experiment.config.get("env_config") or {})) if isinstance(env, str) else None
