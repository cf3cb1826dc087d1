"""Recorded settings of policy folders and sessions that reach beyond this program, used only where the caller says so.

A checkpoint or a session may come from anybody. Its settings could send the content of any environment variable to any
address, make folders anywhere, or have models fetched. So addresses, names of keys, paths of files, hub ids, and
settings of which nobody here knows what they do are withheld when a policy is loaded or a session played again, and
asked for where they would be used. A folder with a model is only read, as safetensors, and may be named.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.core.trust import leaves
from rllib_llm_comm.policies.find_checkpoint import is_shipped
from rllib_llm_comm.policies.policy_manifest import PolicyManifest

_Value = TypeVar("_Value")

# Who plans, and with which settings that stays inside, is known where planners are.
_PLANNER = "rllib_llm_comm.sama.planners:stays_inside"
_TRUSTING = "rllib_llm_comm.sama.planners:trusting"
_OWN_GAMES = "rllib_llm_comm/"
# Settings of our own games that are paths, and those that say how long an episode may last, which end no evaluation.
_PATHS = ("subgoal_file",)
_DURATIONS = ("horizon", "max_game_steps", "max_tick")
_MOST_STEPS = 10**6
_LAYOUT_FILE = ".layout"  # a kitchen of this name is read from a file
_HAS_OPTION = ("base_model", "teacher", "message_server", "planner")
_LONGEST = 300


@dataclass(frozen=True)
class Withheld:
    """Takes the place of a recorded setting that the caller has not allowed.

    It is no text, mapping or number, so that nothing can be made of it by mistake.

    Attributes:
        setting: Its name as a user writes it.
        value: The recorded value.
        session: True if a session recorded it, not a checkpoint.
    """

    setting: str
    value: Any
    session: bool = False

    def refusal(self) -> UserError:
        """One sentence that shows what was recorded and asks for it."""
        text = json.dumps(self.value, default=str)
        shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
        if self.session:
            return UserError(
                f"this session recorded `{self.setting}` {shown}, which reaches beyond this program; only "
                "`rllib replay --trust` uses it, if you know where the session comes from."
            )
        option = "--" + self.setting.split(".")[0].replace("_", "-")
        own = f"give your own (`{option}`), or " if self.setting in _HAS_OPTION or "." in self.setting else ""
        return UserError(
            f"this checkpoint recorded `{self.setting}` {shown}, which reaches beyond this program; {own}take what was "
            "recorded with `--trust` (in Python `trust=True`) if you know where the checkpoint comes from."
        )


def granted(value: _Value | Withheld) -> _Value:
    """A recorded setting that is about to be used.

    Raises:
        UserError: If it is withheld.
    """
    if isinstance(value, Withheld):
        raise value.refusal()
    return value


def withhold(manifest: PolicyManifest) -> PolicyManifest:
    """The manifest with a `Withheld` in place of each setting that reaches beyond this program."""
    model = {
        name: value if _model_setting_stays_inside(name, value) else Withheld(name, value)
        for name, value in manifest.model_config.items()
    }
    talk, planning = dict(manifest.communication), manifest.planning
    if talk.get("message_server") is not None:
        talk["message_server"] = Withheld("message_server", talk["message_server"])
    if planning is not None and not load(_PLANNER)(planning.get("planner")):
        planning = {**planning, "planner": Withheld("planner", planning["planner"])}
    inside = _teacher_stays_inside(manifest.teacher)
    return dataclasses.replace(
        manifest,
        model_config=model,
        communication=talk,
        planning=planning,
        teacher=manifest.teacher if inside else Withheld("teacher", manifest.teacher),
        env_config=withhold_game(manifest.env, manifest.env_config),
    )


def vouched_for(manifest: PolicyManifest) -> PolicyManifest:
    """The manifest of a checkpoint that the user trusts: the checkpoints that it names are trusted, too."""
    planning = manifest.planning
    if planning is not None and planning.get("planner") is not None:
        planning = {**planning, "planner": load(_TRUSTING)(planning["planner"])}
    return dataclasses.replace(manifest, planning=planning, env_config=vouched_for_game(manifest.env_config))


def vouched_for_game(env_config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of planner seats in which what the checkpoint of `executor` recorded is trusted; others unchanged."""
    seats = "game" in env_config and "executor" in env_config
    return {**env_config, **({"trust": True} if seats else {})}


def withhold_game(env: str | None, env_config: Mapping[str, Any], session: bool = False) -> dict[str, Any]:
    """Recorded settings of an environment with a `Withheld` in place of each that reaches beyond this program.

    Args:
        env: Id of the environment.
        env_config: Its settings.
        session: True if a session recorded them, not a checkpoint.
    """
    return {
        name: value if _game_setting_stays_inside(env, name, value) else Withheld(f"env_config.{name}", value, session)
        for name, value in env_config.items()
    }


def reaches_outside(manifest: PolicyManifest) -> bool:
    """True if anything of a manifest is withheld unless the caller allows it."""
    return withhold(manifest) != manifest


def _model_setting_stays_inside(name: str, value: Any) -> bool:
    if name == "prompts":  # texts, as checkpoints keep them, or the name of a shipped set, but no folder
        from rllib_llm_comm.language.prompts import SHIPPED

        return isinstance(value, Mapping) or value in SHIPPED
    return name not in ("base_model", "text_encoder") or model_stays_inside(value, packaged_models(name))


def packaged_models(setting: str) -> tuple[str, ...]:
    """Names of models that come with the package, or as packages of their own, and that a checkpoint may name.

    Args:
        setting: `base_model` or `text_encoder`.
    """
    from rllib_llm_comm.language.base_model import EMBEDDED, PACKAGED
    from rllib_llm_comm.language.model_sources import SMOLLM2
    from rllib_llm_comm.language.text_encoder import MINILM

    return (*PACKAGED, SMOLLM2) if setting == "base_model" else (EMBEDDED, MINILM)


def model_stays_inside(model: Any, packaged: Collection[str]) -> bool:
    """True if a recorded model is one of the package's or a folder of this machine.

    Args:
        model: As recorded.
        packaged: Names of models that come with the package, or as packages of their own.
    """
    # Reading a folder runs nothing and fetches nothing: only safetensors, no code of the model's own.
    if not isinstance(model, str):
        return False
    try:
        return model in packaged or Path(model).expanduser().is_dir()
    except (OSError, RuntimeError):  # a name that is too long, or the home of a user whom nobody knows
        return False


def _teacher_stays_inside(teacher: Any) -> bool:
    # A bare name stands for what this process has registered under it; the settings of a mapping could be anything.
    if isinstance(teacher, Mapping):
        return set(teacher) == {"name"} and _teacher_stays_inside(teacher["name"])
    return teacher is None or (isinstance(teacher, str) and teacher != "chat")


def _game_setting_stays_inside(env: str | None, name: str, value: Any) -> bool:
    if not str(env).startswith(_OWN_GAMES):
        return has_no_text(value)
    if name == "executor":  # a folder is only read, as safetensors, and may be named
        from rllib_llm_comm.envs.minirts.officers import checkpoints_of

        named = checkpoints_of(value)
        return named is not None and all(is_shipped(one) or model_stays_inside(one, ()) for one in named)
    if name == "game" and isinstance(value, Mapping):  # what planner seats are for
        return all(_game_setting_stays_inside(env, key, one) for key, one in value.items())
    if name == "base_model":  # that of `executor`
        return value is None or model_stays_inside(value, packaged_models(name))
    if name == "trust":
        return not value
    if name == "layout":
        return not (isinstance(value, str) and value.endswith(_LAYOUT_FILE))
    if name in _DURATIONS:
        return not isinstance(value, int | float) or value <= _MOST_STEPS
    return name not in _PATHS or value is None


def has_no_text(value: Any) -> bool:
    """True if plain values are numbers, yes or no, or nothing, however nested."""
    return not any(isinstance(leaf, str) and leaf for _, leaf in leaves(value))
