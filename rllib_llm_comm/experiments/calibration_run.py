"""Language model and game of a calibration, from an experiment file or from options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.core.settings import InGames, Several, left_out
from rllib_llm_comm.experiments.experiment_file import Experiment, read_experiment_file
from rllib_llm_comm.experiments.search_space import search_kind
from rllib_llm_comm.language.prompts import DEFAULT, read_prompts
from rllib_llm_comm.verco.settings import BaseModelSettings, LanguageModelSettings

if TYPE_CHECKING:
    from rllib_llm_comm.language.base_model import BaseModel

_TUNED = ("score_normalization", "temperature")


@dataclass(frozen=True)
class CalibrationSettings:
    """Subjects of a calibration: a game, a language model and its prompts.

    Attributes:
        prompts: The sets of prompts that are compared, by name or folder; the first is that of all other figures.
        tuned: `score_normalization` and `temperature` that the file has so far; empty without a file.
    """

    env: str
    model: BaseModelSettings
    prompts: dict[str, dict[str, str]]
    env_config: dict[str, Any] = field(default_factory=dict)
    tuned: dict[str, Any] = field(default_factory=dict)

    @property
    def present(self) -> tuple[str, float] | None:
        """The file's normalisation and temperature; None without a file."""
        return (str(self.tuned[_TUNED[0]]), float(self.tuned[_TUNED[1]])) if self.tuned else None

    def to_json(self) -> dict[str, Any]:
        """All settings as plain values."""
        told = asdict(self)
        return {**told.pop("model").to_dict(), **told}


_OF_MODEL = {name: field for name, field in BaseModelSettings.model_fields.items() if name != "prompts"}
_Model: Any = left_out(_OF_MODEL)


class CalibrationOptions(_Model, InGames):
    """What `rllib calibrate` is told beside a file; it stands above the file."""

    stage: str | None = None
    """Stage of the file, if several train a language model."""
    env: str | None = None
    """Environment id, in place of the file's, whose settings are then not taken over."""
    decisions: int = Field(200, ge=1)
    """Decisions that are looked at."""
    entropy: float = Field(0.5, gt=0, lt=1)
    """Aimed entropy of the untrained policy, as a share of the greatest."""
    prompts: Several[str] = ()
    """Sets of prompts to compare, in place of the file's: names or folders."""


def read_settings(file: Path | None, options: CalibrationOptions | None = None) -> CalibrationSettings:
    """The subjects of a calibration: those of an experiment file, if there is one, with options above it.

    Args:
        file: Experiment file, or None.
        options: What stands above the file; `None` for nothing.

    Raises:
        UserError: If neither names a game, the stage is unclear, or prompts cannot be used.
    """
    asked = options or CalibrationOptions()
    held: dict[str, Any] = {}
    env: str | type | None = asked.env
    env_config, tuned = dict[str, Any](), dict[str, Any]()
    if file is not None:
        experiment = _stage_of(file, asked.stage)
        defaults = {**LanguageModelSettings().to_dict(), **_defaults(experiment)}
        names = (*BaseModelSettings.model_fields, *_TUNED)
        held = {name: _plain(file, experiment, name, defaults[name]) for name in names}
        tuned = {name: held.pop(name) for name in _TUNED}
        env = experiment.env if env is None else env
        env_config = dict(experiment.config.get("env_config") or {}) if env == experiment.env else {}
    told = held.get("prompts", DEFAULT)
    prompts = _texts([told]) if isinstance(told, str) else {"the file's": read_prompts(told)}
    if asked.prompts:
        prompts = _texts(asked.prompts, "--prompts")
    if "env_config" in asked.model_fields_set:
        env_config = asked.env_config
    if not isinstance(env, str):
        raise UserError(
            "no game is named; give an experiment file whose stage has an `env` id, or `--env`, such as "
            "`rllib calibrate --env rllib_llm_comm/overcooked_text-v0`."
        )
    model = BaseModelSettings(**{**held, **asked.model_dump(include={*_OF_MODEL}, exclude_none=True)})
    return CalibrationSettings(env, model, prompts, env_config, tuned)


def _texts(prompts: Sequence[str], setting: str = "prompts") -> dict[str, dict[str, str]]:
    return {one: read_prompts(one, setting=setting) for one in prompts}


def open_both(settings: CalibrationSettings) -> tuple[BaseModel, Any]:
    """The language model, and the game as a PettingZoo parallel environment.

    Raises:
        UserError: If one of them is not there.
    """
    from rllib_llm_comm.envs.games import make_env
    from rllib_llm_comm.language.base_model import check_base_model, load_base_model, resolve_device

    model = settings.model
    check_base_model(model.base_model)
    game = make_env(settings.env, **settings.env_config)
    base = load_base_model(model.base_model, model.dtype, resolve_device(model.device), model.quantization)
    return base.in_format(model.prompt_format, model.prompt_date), game


def _stage_of(file: Path, stage: str | None) -> Experiment:
    """The stage of a file that trains a language model to act."""
    from rllib_llm_comm.experiments.pipeline import with_model
    from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS

    found = {
        name: experiment
        for name, experiment in with_model(read_experiment_file(file)).experiments.items()
        if experiment.run not in STAGE_KINDS and experiment.env is not None and "temperature" in _defaults(experiment)
    }
    listed = ", ".join(found) or "none"
    if stage is not None and stage not in found:
        raise UserError(
            f"`--stage` is {stage!r} but must be a stage of {str(file)!r} that trains a language model to act "
            f"({listed}).{did_you_mean(stage, found)}"
        )
    if stage is None and len({_subject(experiment) for experiment in found.values()}) != 1:
        raise UserError(
            f"{str(file)!r} has {len(found)} different stages that train a language model to act ({listed}); name one "
            "with `--stage`, or give `--base-model` and `--env` without a file."
        )
    return found[stage or next(iter(found))]


def _subject(experiment: Experiment) -> str:
    """A text that is equal for stages with the same game, language model and scores."""
    own = {name: experiment.config.get(name, default) for name, default in _defaults(experiment).items()}
    return repr((experiment.env, experiment.config.get("env_config"), own))


def _defaults(experiment: Experiment) -> dict[str, Any]:
    """Defaults of the algorithm's settings about language models; empty if it has none."""
    from rllib_llm_comm.experiments.algorithm_settings import find_algorithm
    from rllib_llm_comm.verco.module import LanguageModelConfigMixin

    config = find_algorithm(experiment.run).get_default_config()
    if not isinstance(config, LanguageModelConfigMixin):
        return {}
    return {name: getattr(config, name) for name in (*BaseModelSettings.model_fields, *_TUNED)}


def _plain(file: Path, experiment: Experiment, name: str, default: Any) -> Any:
    value = experiment.config.get(name, default)
    if search_kind(value):
        raise UserError(
            f"`{name}` of {str(file)!r} is a search ({value!r}), so it is unclear what to calibrate; give "
            "`--base-model` and `--env` without a file, or a file with one value."
        )
    return value
