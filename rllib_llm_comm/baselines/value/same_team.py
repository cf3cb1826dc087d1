"""Comparison of a checkpoint of value decomposition with the team that it is restored into."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner import Learner
from ray.rllib.utils.checkpoints import Checkpointable

from rllib_llm_comm.baselines.value.module import TEAM
from rllib_llm_comm.baselines.value.q_settings import QSettings
from rllib_llm_comm.baselines.value.team_episodes import MASK, SEEN, STATE
from rllib_llm_comm.core.errors import UserError, shown

_MODULE = Path(COMPONENT_LEARNER_GROUP, COMPONENT_LEARNER, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID)
_FREE = "init_seed"  # of fresh weights, which a checkpoint replaces


def facts_of(observation_space: Any, model_config: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that weights of a `JointQModule` depend on, by name: the team, sizes, settings of the network.

    Args:
        observation_space: The module's.
        model_config: The module's. Settings that it lacks, as those of older checkpoints may, have their defaults.
    """
    known = {name: model_config[name] for name in QSettings.names() if name in model_config}
    settings = {**QSettings().to_dict(), **known}
    return {
        **model_config.get(TEAM, {}),
        "size": observation_space[SEEN].shape[-1],
        "actions": observation_space[MASK].shape[-1],
        "state_size": observation_space[STATE].shape[-1],
        **{name: value for name, value in settings.items() if name != _FREE},
    }


def facts_of_learner(learner: Learner) -> dict[str, Any]:
    """Those of a Learner's module."""
    module = learner.module[DEFAULT_MODULE_ID].unwrapped()
    return facts_of(module.observation_space, module.model_config)


def facts_of_checkpoint(path: str | Path) -> dict[str, Any] | None:
    """Those of a checkpoint, which RLlib wrote beside the weights; `None` where there are none.

    Unpickles them, as RLlib does with all of a checkpoint.

    Args:
        path: The checkpoint.

    Raises:
        UserError: If they are damaged, or of a module of another kind.
    """
    file = Path(path) / _MODULE / Checkpointable.CLASS_AND_CTOR_ARGS_FILE_NAME
    if not file.is_file():
        return None
    try:
        _, kwargs = pickle.loads(file.read_bytes())["ctor_args_and_kwargs"]
        return facts_of(kwargs["observation_space"], kwargs["model_config"])
    except Exception as error:  # a damaged pickle may raise anything
        raise UserError(
            f"{str(file)!r} is damaged, or not of a team that learns by value decomposition ({type(error).__name__}: "
            f"{error}); restore another checkpoint, or begin anew."
        ) from error


def require_same(theirs: Mapping[str, Any], own: Mapping[str, Any], origin: str) -> None:
    """Raises a `UserError` unless weights of one team can be those of the other.

    Args:
        theirs: Facts of the team that wrote them.
        own: Facts of the team that takes them.
        origin: Their place, for the message.
    """
    for name, wanted in own.items():
        if name in theirs and theirs[name] != wanted:
            raise UserError(
                f"`{name}` is {shown(theirs[name])} in {origin} but {shown(wanted)} in this run; a checkpoint must be "
                "of the same team, game and network, so restore it with the settings of its training or begin anew."
            )
