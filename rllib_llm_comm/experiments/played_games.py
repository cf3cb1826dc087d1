"""Checks of stages that play a checkpoint against its training, which may be that of a stage that is still to run."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env, without_subgoals
from rllib_llm_comm.experiments import tune_stage
from rllib_llm_comm.experiments.algorithm_settings import algorithm_names, find_algorithm
from rllib_llm_comm.experiments.env_settings import check_guesses
from rllib_llm_comm.experiments.search_space import first_point
from rllib_llm_comm.experiments.stages import Stage
from rllib_llm_comm.verco.settings import CommunicationSettings

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_PLAYING = ("evaluate", "replay")
_CLONING = "clone_officer"
_TALK = ("messages", "message_server", "base_model", "reference")


@dataclass(frozen=True)
class _Trained:
    """What a stage that plays a checkpoint has to fit.

    Attributes:
        algorithm: Name of its algorithm.
        env: Id of its environment; `None` if it tells none.
        env_config: Settings of the environment.
        talk: Its `CommunicationSettings`; `None` if its agents say nothing.
        teacher: Its teacher.
    """

    algorithm: str
    env: str | None
    env_config: Mapping[str, Any]
    talk: Mapping[str, Any] | None
    teacher: Any


def check_played_games(stages: Sequence[Stage], finished: Collection[str] = ()) -> None:
    """Refuses stages that cannot play what they name: no policy, messages that it has not, settings of another game.

    Args:
        stages: All stages of a file, with the references between them; each is right by itself.
        finished: Names of those that need not run.

    Raises:
        UserError: At the first such stage.
    """
    named = {stage.name: stage for stage in stages}
    for stage in stages:
        if stage.name in finished or stage.experiment.run not in _PLAYING:
            continue
        given = stage.experiment.config["checkpoint"]
        for one in given if isinstance(given, list) else [given]:
            try:
                trained = _trained(str(one), named)
                if trained is not None:
                    _check_talk(stage.experiment.config, trained)
                    _check_game(stage.experiment.config, trained)
            except UserError as error:
                raise UserError(f"In `{stage.name}.config`: {error}") from None


def _check_talk(config: Mapping[str, Any], trained: _Trained) -> None:
    if trained.talk is None:
        for name in _TALK:
            if config.get(name) not in (None, "none"):
                raise UserError(
                    f"`{name}` is {config[name]!r} but agents of {trained.algorithm} say nothing; leave it away."
                )
        return
    given = {name: config[name] for name in ("messages", "message_server") if config.get(name) is not None}
    if given.get("message_server") == "none":
        given["message_server"] = None
    messages = CommunicationSettings.from_mapping({**trained.talk, **given, "train_messages": False}).messages
    if messages == "teacher" and not (config.get("teacher") or trained.teacher):
        raise UserError("`messages` is 'teacher' but no `teacher` is set; give one, for example 'scripted'.")


def _check_game(config: Mapping[str, Any], trained: _Trained) -> None:
    from rllib_llm_comm.sama.planners import guesses
    from rllib_llm_comm.verco.message_protocol import require_possible
    from rllib_llm_comm.verco.settings import OTHER_FACT, SWAPPED

    guessing, telling = guesses(config.get("planner")), config.get("messages") in (OTHER_FACT, SWAPPED)
    if trained.env is None or not (guessing or telling or config.get("env_config")):
        return
    settings = first_point({**trained.env_config, **(config.get("env_config") or {})})
    settings = {key: value for key, value in settings.items() if not _REFERENCE.search(str(value))}
    if config.get("planner") is not None:
        env, settings = without_subgoals(trained.env, settings)
    else:
        env = trained.env
    made = make_env(env, **settings)
    if guessing:
        check_guesses(config["planner"], made)
    require_possible(str(config.get("messages")), made)
    made.close()


def _trained(checkpoint: str, named: Mapping[str, Stage]) -> _Trained | None:
    """What is known of a checkpoint; `None` of an officer, which has no game of its own.

    Args:
        checkpoint: A path, or the reference to a stage.
        named: All stages by their names.
    """
    reference = _REFERENCE.fullmatch(checkpoint)
    return _of_folder(checkpoint) if reference is None else _of_stage(named[reference.group(1)])


def _of_folder(checkpoint: str) -> _Trained:
    from rllib_llm_comm.policies.policy_folder import LANGUAGE, find_policy
    from rllib_llm_comm.policies.policy_manifest import read_manifest

    manifest = read_manifest(find_policy(checkpoint))
    talk = manifest.communication if manifest.kind == LANGUAGE else None
    return _Trained(manifest.algorithm, manifest.env, manifest.env_config, talk, manifest.teacher)


def _of_stage(stage: Stage) -> _Trained | None:
    experiment = stage.experiment
    default = tune_stage.default_config(stage)
    if experiment.run == _CLONING:
        return None
    if default is None or not (hasattr(find_algorithm(experiment.run), "save_policy") or _is_of_users(experiment.run)):
        raise UserError(f"`checkpoint` is `${{{stage.name}}}`, but `run: {experiment.run}` leaves no policy to play.")
    given = first_point(dict(experiment.config))

    def setting(name: str) -> Any:
        return given.get(name, getattr(default, name, None))

    env = experiment.env or getattr(default, "env", None)
    talk = {name: setting(name) for name in CommunicationSettings.names()} if hasattr(default, "messages") else None
    return _Trained(
        experiment.run,
        env if isinstance(env, str) else None,
        dict(given.get("env_config") or {}),
        talk,
        setting("teacher"),
    )


def _is_of_users(algorithm: str) -> bool:
    """True for an algorithm that the user has registered, whose module may be one of ours."""
    return algorithm not in algorithm_names()
