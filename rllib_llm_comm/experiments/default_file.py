"""An experiment file with every setting at its default and what it means, to be changed and run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from rllib_llm_comm.core.errors import LARGEST, UserError, require_choice
from rllib_llm_comm.core.settings import Settings, describe, settings_of
from rllib_llm_comm.envs.games import env_ids, record_of
from rllib_llm_comm.experiments.algorithm_settings import config_settings, find_algorithm
from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS

_WIDTH = 118  # characters of a comment's line


def default_file(run: str, env: str | None = None) -> str:
    """YAML of one experiment: all settings that this package declares, with their meanings.

    Args:
        run: An algorithm of this package or of one that was imported, or a stage that trains nothing.
        env: A game of the package whose settings are listed, too.

    Raises:
        UserError: If there is none of a name.
    """
    if run in STAGE_KINDS:
        return _file(run, env, {}, _settings(STAGE_KINDS[run].model().model_fields, "    "))

    from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPOConfig
    from rllib_llm_comm.rl.strict_config import StrictConfigMixin
    from rllib_llm_comm.verco.sft import AdapterSFTConfig

    config = find_algorithm(run, STAGE_KINDS).get_default_config()
    if not isinstance(config, StrictConfigMixin):
        raise UserError(f"`run` is {run!r}, an algorithm of RLlib's own; `rllib schema` has its settings.")
    of_game = config.env_defaults if isinstance(config, NumericPPOConfig) and env == config.own_env else {}
    lines = []
    if isinstance(config, AdapterSFTConfig):  # learns from what a stage has collected
        lines.append(f"    # input_: ${{{config.form.name}}} # required")
    own = {name: field for model in config.settings_models.values() for name, field in model.model_fields.items()}
    lines += _settings(own, "    ")
    lines += ["    # Settings of RLlib's own that begin with other values than there.", *_of_rllib(config, own)]
    return _file(run, env, of_game, lines)


def _file(run: str, env: str | None, of_game: Mapping[str, Any], settings: Iterable[str]) -> str:
    """The file of an algorithm or stage with lines of its settings; `of_game` are its own defaults of the game's."""
    lines = [f"# All settings of {run} at their defaults. Change what you like; the others may go.", ""]
    lines += ["experiment:", f"  run: {run}", *([f"  env: {env}"] if env else []), "  config:"]
    if env is not None:
        lines += ["    env_config:", *_settings(_of_game(env), "      ", of_game)]
    return "\n".join([*lines, *settings]) + "\n"


def _of_game(env: str) -> Mapping[str, FieldInfo]:
    record = record_of(env)
    if record is None:
        require_choice("env", env, env_ids(derived=True))
    game: Any = getattr(record.code("entry_points", env), "game", None) if record else None
    return settings_of(game).model_fields if game else {}


def _settings(
    fields: Mapping[str, FieldInfo], indent: str, values: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[str]:
    """Lines of settings, each behind a comment with its meaning and what is allowed; `values` count for defaults."""
    for name, field in fields.items():
        if field.exclude:
            continue
        bounds = [one for one in field.metadata if abs(getattr(one, "le", getattr(one, "ge", 0))) != LARGEST]
        null = " or null" if type(None) in getattr(field.annotation, "__args__", ()) else ""
        about = f"{' '.join((field.description or '').split())} ({describe(field.annotation, bounds)}{null})"
        comment = f"{indent}# "
        yield from textwrap.wrap(
            about, _WIDTH, initial_indent=comment, subsequent_indent=comment, break_on_hyphens=False
        )
        if field.is_required():
            yield f"{indent}# {(field.examples or [f'{name}: ...'])[0]} # required"
        else:
            yield f"{indent}{_entry(name, values.get(name, field.get_default(call_default_factory=True)))}"


def _entry(name: str, value: Any) -> str:
    plain = value.to_dict() if isinstance(value, Settings) else value
    flow = yaml.safe_dump({name: _in_files(plain)}, default_flow_style=True, width=10**6, allow_unicode=True)
    return flow.strip()[1:-1]


def _in_files(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _in_files(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_in_files(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def _of_rllib(config: Any, own: Iterable[str]) -> Iterator[str]:
    rllib = next(base for base in type(config).__mro__ if base.__module__.startswith("ray."))
    known = config_settings(config)
    for name, theirs in vars(rllib()).items():
        ours = getattr(config, name, theirs)
        plain = isinstance(ours, bool | int | float | str)
        if plain and ours != theirs and name in known and name not in (*own, "env"):
            yield f"    {_entry(name, ours)}"
