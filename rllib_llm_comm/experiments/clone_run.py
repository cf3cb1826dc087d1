"""A clone of a player on a language model: the stages of demonstrations and of their training, from options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.experiment_file import ExperimentFile, make_experiment
from rllib_llm_comm.experiments.run_experiments import run_experiments
from rllib_llm_comm.experiments.train_settings import TrainSettings

_ROWS, _CLONE = "demonstrations", "clone"


@dataclass(frozen=True)
class LanguageClone:
    """Settings of a clone.

    Attributes:
        player: A session's folder, a checkpoint, "scripted", or another name of `collect_demonstrations`.
        base_model: The language model.
        env: Id of the game; `None` for that of the session or checkpoint.
        env_config: Settings of the game; of a session its own are taken.
        messages: As of `collect_demonstrations`.
        demonstrations: Rows to collect; of a session all of them, up to so many.
        random_share: As of `collect_demonstrations`.
        epochs: Passes over the rows.
        lr: As of `ActionSFT`.
        held_out: As `held_out_share` of `ActionSFT`.
        seed: Of both stages.
    """

    player: str
    base_model: str
    env: str | None = None
    env_config: Mapping[str, Any] = field(default_factory=dict)
    messages: str = "none"
    demonstrations: int = 2000
    random_share: float = 0.25
    epochs: int = 8
    lr: float = 3e-3
    held_out: float = 0.1
    seed: int = 0


def clone_language_agents(clone: LanguageClone, folder: Path) -> None:
    """Collects demonstrations and trains the action adapter; a killed call goes on.

    Args:
        clone: The settings.
        folder: The run's folder, with the stages `demonstrations` and `clone`; `find_policy` takes that of the latter.

    Raises:
        UserError: If a setting is not allowed, or the folder holds something else.
    """
    if folder.exists() and not (folder / _ROWS).is_dir() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{str(folder)!r} is there and is no run of such a clone; give a new folder.")
    env, env_config, player = _game(clone)
    rows = {
        "env_config": env_config,
        "player": player,
        "messages": clone.messages,
        "target_demonstrations": clone.demonstrations,
        "random_share": clone.random_share,
        "seed": clone.seed,
    }
    training = {
        "input_": f"${{{_ROWS}}}",
        "base_model": clone.base_model,
        "lr": clone.lr,
        "anneal": clone.epochs,
        "held_out_share": clone.held_out,
        "seed": clone.seed,
    }
    stages: dict[str, dict[str, Any]] = {
        _ROWS: {"run": "collect_demonstrations", "env": env, "config": rows},
        _CLONE: {"run": "ActionSFT", "stop": {"training_iteration": clone.epochs}, "config": training},
    }
    file = ExperimentFile(folder.name, {name: make_experiment(name, spec) for name, spec in stages.items()})
    run_experiments(file, TrainSettings(storage_path=str(folder.absolute().parent), experiment_name=folder.name))


def _game(clone: LanguageClone) -> tuple[str, dict[str, Any], Any]:
    """Id and settings of the game, and the player as of `collect_demonstrations`."""
    from rllib_llm_comm.core.session_files import is_session, read_session
    from rllib_llm_comm.policies.partner_settings import CHECKPOINT, PartnerSettings
    from rllib_llm_comm.policies.policy_folder import find_policy
    from rllib_llm_comm.policies.policy_manifest import read_manifest
    from rllib_llm_comm.policies.recorded_settings import granted, withhold

    env, env_config, player = clone.env, dict(clone.env_config), clone.player
    if is_session(player):
        session = read_session(player)
        return env or session.env, env_config or session.env_config, {"sessions": [player]}
    if env is None and PartnerSettings(player).kind == CHECKPOINT:
        manifest = withhold(read_manifest(find_policy(player)))
        env = manifest.env
        env_config = {**{name: granted(value) for name, value in manifest.env_config.items()}, **env_config}
    if env is None:
        raise UserError(f"`--env` is missing; say which game the player {player!r} plays.")
    return env, env_config, player
