"""Study files: systems x scenarios x seeds, written down once and expanded into the stages of an experiment file."""

from __future__ import annotations

import copy
import fnmatch
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError, did_you_mean, names_and_hint, require_choice
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.evaluation.play_settings import Episodes
from rllib_llm_comm.experiments.experiment_file import (
    NAME_PATTERN,
    CheckpointSettings,
    Experiment,
    ExperimentFile,
    load_file,
    make_experiment,
)
from rllib_llm_comm.experiments.search_space import BY_SEED, GRID, search_kind
from rllib_llm_comm.experiments.stages import references, references_in
from rllib_llm_comm.verco.settings import MessageMode

STRANGERS = "strangers"
_ENV, _SCENARIO, _SEEDS = "${env}", "${scenario}", "${seeds}"
# Settings that the study gives to every system -> how it is told them.
_GIVEN = {
    "env": "write it as `env` of the study",
    "env_config": "write the settings of the environment in `scenarios`",
    "seed": "write all seeds in `seeds`",
}


def _different(values: list[Any]) -> list[Any]:
    for value in values:
        if values.count(value) > 1:
            raise UserError(f"{value!r} is given twice; leave one out.")
    return values


_Different = AfterValidator(_different)


class StudyEvaluation(Episodes):
    """The evaluation of every trained policy; `env_config` may leave out shaped rewards, for example."""

    episodes: int = Field(default=100, ge=1, le=1_000_000)
    """Episodes per checkpoint and mode."""
    seed: int = Field(default=1000, ge=0, le=2**31 - 1)
    """Seed of the first episode; the others count up."""
    communication: bool = False
    """True if talk is measured (`evaluation.communication`), with sampled actions."""
    modes: Annotated[list[Literal["sampled", "greedy"]], _Different] = Field(
        default=["sampled", "greedy"], min_length=1
    )
    """Actions that are sampled, the most likely ones, or both, one after the other."""
    strangers: dict[str, list[Any] | str] = Field(default_factory=dict)
    """Group -> partners that no system has met in training; `${stage}` is the result of a shared stage. The seeds of
    each system play with each other and with these, in every seat (`run: crossplay`)."""
    stranger_episodes: int = Field(default=10, ge=1, le=1_000_000)
    """Episodes per pair and seat."""

    @model_validator(mode="after")
    def _somebody_to_meet(self) -> Self:
        remedy = "give groups of partners such as {rules: [scripted]}, or leave it out."
        if "stranger_episodes" in self.model_fields_set and not self.strangers:
            number = self.stranger_episodes
            raise UserError(f"`stranger_episodes` is {number} but no `strangers` are there to play with; {remedy}")
        if "strangers" in self.model_fields_set and not self.strangers:
            raise UserError(f"`strangers` is empty; {remedy}")
        return self


class StudySystem(Settings):
    """One system that is compared: an experiment without `env`, `env_config` and `seed`, which the study gives."""

    run: str = Field(min_length=1, examples=["run: Verco"])
    """A registered algorithm."""
    label: str = ""
    """Its name in the report, on one line and without "|", which parts columns there."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Its settings; `${stage}` is the result of a shared stage."""
    stop: dict[str, Any] = Field(min_length=1, examples=["stop: {training_iteration: 16}"])
    """Stop criteria of a trial; at least one."""
    checkpoint_config: CheckpointSettings = CheckpointSettings(checkpoint_frequency=10, num_to_keep=1)
    """Settings of its checkpoints; by default the newest stays, and there is one every ten iterations."""
    interventions: Annotated[list[MessageMode], _Different] = Field(default_factory=list)
    """Message modes with which its trained policies are played as well, to see whether they listen."""
    scenarios: Annotated[list[str], _Different] | None = Field(default=None, min_length=1)
    """The scenarios in which it is compared; all by default."""
    baseline: str | None = None
    """The system with which it is compared; that of the study by default."""

    @field_validator("checkpoint_config", mode="before")
    @classmethod
    def _others_as_by_default(cls, given: Any) -> Any:
        return {"checkpoint_frequency": 10, "num_to_keep": 1, **given} if isinstance(given, Mapping) else given

    @field_validator("checkpoint_config")
    @classmethod
    def _something_to_play(cls, how: CheckpointSettings) -> CheckpointSettings:
        if not how.checkpoint_at_end:
            raise UserError("`checkpoint_at_end` is false but a study plays what a training ends with; omit it.")
        return how

    @field_validator("config")
    @classmethod
    def _nothing_that_is_given(cls, config: dict[str, Any]) -> dict[str, Any]:
        for key, remedy in _GIVEN.items():
            if key in config:
                raise UserError(f"`{key}` is given by the study; remove it here and {remedy}.")
        _refuse_search(config)
        return config

    @field_validator("label")
    @classmethod
    def _fits_a_table(cls, label: str) -> str:
        if "|" in label or "\n" in label:
            raise PydanticCustomError("value_error", "a text on one line without '|', which parts columns")
        return label


class Study(Settings):
    """The content of a study file."""

    title: str = "Study"
    """Heading of the report."""
    model: dict[str, Any] = Field(default_factory=dict)
    """Settings of the language model of all stages that load one (`pipeline.with_model`)."""
    env: str = Field(min_length=1, examples=["env: rllib_llm_comm/overcooked_text-v0"])
    """Environment id of all runs."""
    scenarios: dict[str, dict[str, Any]] = Field(min_length=1, examples=["scenarios: {B: {map_name: B}}"])
    """Name -> settings of the environment."""
    shared: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Stages that run once per scenario in which a system uses them, before the systems, such as labels. `${env}` and
    `${scenario}` stand for the environment's id and its settings. With `seed: ${seeds}` a stage is trained once per
    seed, and a trial of a system takes the result of its own seed."""
    systems: dict[str, StudySystem] = Field(
        min_length=1, examples=["systems: {verco: {run: Verco, stop: {training_iteration: 16}}}"]
    )
    """Name -> system."""
    baseline: str | None = None
    """The system with which those are compared that name no `baseline` themselves; the first by default. A system that
    is anyone's baseline and names none is compared with nothing."""
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], _Different] = Field(default=[0, 1, 2, 3], min_length=1)
    """One trial each; different, >= 0."""
    evaluation: StudyEvaluation = Field(default_factory=StudyEvaluation)
    """The evaluation of the trained policies."""

    def label(self, system: str) -> str:
        """A system's name in the report."""
        return self.systems[system].label or system

    def compared_in(self, scenario: str) -> list[str]:
        """The systems that are compared in a scenario."""
        return [key for key, system in self.systems.items() if system.scenarios is None or scenario in system.scenarios]


def stage_name(scenario: str, system: str, *more: str) -> str:
    """The stage (and folder) of a system in a scenario, or of one of its evaluations."""
    return ".".join((scenario, system, *more))


def is_study(path: Path) -> bool:
    """True if a file that can be read holds a study, not experiments."""
    data = load_file(path) if path.suffix.lower() in (".yaml", ".yml", ".json") else None
    return isinstance(data, Mapping) and {"systems", "scenarios"} <= set(data)


def read_study(path: Path) -> Study:
    """Reads a YAML or JSON file.

    Raises:
        UserError: If the file is missing or damaged, holds no study, or an unknown key or bad value.
    """
    data = load_file(path)
    if not isinstance(data, Mapping):
        raise UserError(f"{path} must hold the keys of a study (`env`, `scenarios`, `systems`, ...) but does not.")
    if "systems" not in data and any(isinstance(one, Mapping) and "run" in one for one in data.values()):
        raise UserError(f"{str(path)!r} holds experiments; run it with `rllib train file {shlex.quote(str(path))}`.")
    study = Study.checked(path.name, data)
    for kind in ("scenarios", "shared", "systems"):
        for name in getattr(study, kind):
            if not NAME_PATTERN.fullmatch(name) or "." in name:
                raise UserError(f"`{kind}.{name}` cannot name a folder; use letters, digits, '_' and '-'.")
    both = set(study.shared) & set(study.systems)
    if both:
        raise UserError(f"`{min(both)}` is among `shared` and among `systems`; give one of them another name.")
    _check_baselines(study)
    for name in study.shared:
        if f"${{{name}}}" in (_ENV, _SCENARIO, _SEEDS):
            raise UserError(f"`shared.{name}` cannot be referred to, as `${{{name}}}` is given; choose another name.")
    _check_scenarios(study)
    _check_references(study)
    return study


def expand(study: Study, name: str) -> ExperimentFile:
    """The stages of a study, as an experiment file; `name` is the default one of the results' folder.

    A shared stage that systems use runs in those scenarios alone in which one does: none labels where all are silent.
    """
    experiments: dict[str, Experiment] = {}

    def add(stage: str, spec: Mapping[str, Any]) -> None:
        experiments[stage] = make_experiment(stage, spec)

    for scenario, env_config in study.scenarios.items():
        stages = {f"${{{other}}}": f"${{{stage_name(scenario, other)}}}" for other in study.shared}
        places = {**stages, _ENV: study.env, _SCENARIO: env_config, _SEEDS: {GRID: study.seeds}}
        for shared, spec in study.shared.items():
            add(stage_name(scenario, shared), _filled(spec, places))
        for key in study.compared_in(scenario):
            add(stage_name(scenario, key), _system(study, study.systems[key], places))
            for suffix, settings in evaluations(study, key).items():
                checkpoint = f"${{{stage_name(scenario, key)}}}"
                add(
                    stage_name(scenario, key, suffix),
                    {"run": "evaluate", "config": {"checkpoint": checkpoint, **settings}},
                )
            if study.evaluation.strangers:
                add(stage_name(scenario, key, STRANGERS), _with_strangers(study, scenario, key, places))

    for shared in reversed(study.shared):  # what a stage uses comes before it
        used = {stage for one in experiments.values() for stage in references(one)}
        unused = [stage for one in study.scenarios if (stage := stage_name(one, shared)) not in used]
        if len(unused) < len(study.scenarios):  # what nobody uses, such as games of rules, is wanted everywhere
            for stage in unused:
                del experiments[stage]
    return ExperimentFile(name, experiments, model=study.model)


def part_of(
    study: Study, file: ExperimentFile, scenarios: Sequence[str] = (), systems: Sequence[str] = ()
) -> ExperimentFile:
    """The stages of some scenarios and systems, with the shared stages that they use, and those that no system uses.

    Args:
        study: The study.
        file: Its stages, as of `expand`.
        scenarios: Names or patterns such as `*_embedded`; empty for all.
        systems: The same.

    Raises:
        UserError: If a name is none of the study's, or no system is compared in such a scenario.
    """
    scenarios, systems = _named("scenario", scenarios, study.scenarios), _named("system", systems, study.systems)
    wanted = [
        stage_name(scenario, system)
        for scenario in scenarios or study.scenarios
        for system in study.compared_in(scenario)
        if not systems or system in systems
    ]
    if not wanted:
        told = f"`--system` is {', '.join(systems)}, but none of these is compared in {', '.join(scenarios)}"
        raise UserError(f"{told}; see `scenarios` of the systems in the file.")
    kept = {name for name in file.experiments if any(name == one or name.startswith(f"{one}.") for one in wanted)}
    used = {stage for one in file.experiments.values() for stage in references(one)}
    for stage in (stage_name(scenario, one) for scenario in scenarios or study.scenarios for one in study.shared):
        if stage in file.experiments and stage not in used:  # nobody takes anything from it, such as games of rules
            kept.add(stage)
    for name in reversed(file.experiments):  # what a stage uses comes before it
        if any(name in references(file.experiments[other]) for other in kept):
            kept.add(name)
    return replace(file, experiments={name: one for name, one in file.experiments.items() if name in kept})


def _named(kind: str, asked: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    """The names that are asked for, each as it is or by a pattern."""
    for name in asked:
        if not fnmatch.filter(known, name):
            names = names_and_hint(name, known)
            raise UserError(f"`--{kind}` is {name!r} but must be one (or a pattern) of {names}")
    return [name for name in known if any(fnmatch.fnmatchcase(name, one) for one in asked)]


def evaluations(study: Study, system: str) -> dict[str, dict[str, Any]]:
    """Suffix -> settings of the evaluations of a system: per mode, and per intervention with sampled actions."""
    how = study.evaluation
    common: dict[str, Any] = {"episodes": how.episodes, "seed": how.seed}
    if how.env_config:
        common["env_config"] = how.env_config
    found: dict[str, dict[str, Any]] = {mode: {**common, "greedy": mode == "greedy"} for mode in how.modes}
    if how.communication and "sampled" in found:
        found["sampled"]["communication"] = True
    for messages in study.systems[system].interventions:
        found[f"messages_{messages}"] = {**common, "greedy": False, "messages": messages}
    return found


def _with_strangers(study: Study, scenario: str, system: str, places: Mapping[str, Any]) -> dict[str, Any]:
    how = study.evaluation
    config: dict[str, Any] = {
        "players": f"${{{stage_name(scenario, system)}}}",
        "partners": _filled(how.strangers, places),
        "episodes": how.stranger_episodes,
        "seed": how.seed,
    }
    if how.env_config:
        config["env_config"] = how.env_config
    return {"run": "crossplay", "config": config}


def _system(study: Study, system: StudySystem, places: Mapping[str, Any]) -> dict[str, Any]:
    given = {"env_config": places[_SCENARIO], **system.config, "seed": places[_SEEDS]}
    return {
        "run": system.run,
        "env": study.env,
        "stop": dict(system.stop),
        "checkpoint_config": system.checkpoint_config.model_dump(),
        "config": _filled(given, places),
    }


def _filled(value: Any, places: Mapping[str, Any]) -> Any:
    """A copy of a value with the placeholders of one scenario filled in."""
    if isinstance(value, Mapping):
        return {key: _filled(item, places) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, places) for item in value]
    if not isinstance(value, str):
        return value
    if value not in places and "${" in value:  # within a longer text: a folder below a stage's result
        for name, place in places.items():
            value = value.replace(name, place) if isinstance(place, str) else value
    return copy.deepcopy(places.get(value, value))


def _refuse_search(value: Any, place: str = "") -> None:
    """Refuses search spaces: a report takes every trial of a system for another seed of the same system."""
    if search_kind(value) not in (None, BY_SEED) or value == _SEEDS:
        raise UserError(
            f"`{place}` is searched through, but every trial of a system counts as a seed of it; give one value, and "
            "compare several as several systems."
        )
    if isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_search(item, f"{place}.{key}" if place else str(key))


def _check_baselines(study: Study) -> None:
    named = {"baseline": study.baseline} | {f"systems.{k}.baseline": one.baseline for k, one in study.systems.items()}
    for place, baseline in named.items():
        if baseline is None:
            continue
        require_choice(place, baseline, study.systems)
        if place == f"systems.{baseline}.baseline":
            raise UserError(f"`{place}` is the system itself; leave it out, or name another system.")


def _check_references(study: Study) -> None:
    """Refuses a reference to nothing here, where it has the name that was written, not those of all stages."""
    filled = {"shared": study.shared, "evaluation.strangers": study.evaluation.strangers}
    filled |= {f"systems.{key}.config": system.config for key, system in study.systems.items()}
    known = [*(place[2:-1] for place in (_ENV, _SCENARIO, _SEEDS)), *study.shared]
    for whole, settings in filled.items():
        for name, place in references_in(settings, whole):
            # A stage's full name has that of its scenario in front.
            if name not in known and name.partition(".")[0] not in study.scenarios:
                raise UserError(
                    f"`{place}` uses `${{{name}}}`, which the study lacks; known are {names_and_hint(name, known)}",
                    "unknown",
                )


def _check_scenarios(study: Study) -> None:
    for key, system in study.systems.items():
        for scenario in system.scenarios or ():
            if scenario not in study.scenarios:
                raise UserError(
                    f"`systems.{key}.scenarios` names {scenario!r} but must name some of {', '.join(study.scenarios)}."
                    f"{did_you_mean(scenario, study.scenarios)}"
                )
    baseline = study.baseline or next(iter(study.systems))
    if lacking := [scenario for scenario in study.scenarios if baseline not in study.compared_in(scenario)]:
        raise UserError(
            f"`systems.{baseline}.scenarios` lacks {lacking[0]!r}, but {baseline!r} is the baseline, with which all "
            "others are compared in every scenario; leave `scenarios` out there or name another `baseline`."
        )
    for key, system in study.systems.items():
        for scenario in study.scenarios:
            there = study.compared_in(scenario)
            if system.baseline and key in there and system.baseline not in there:
                raise UserError(
                    f"`systems.{system.baseline}.scenarios` lacks {scenario!r}, in which {key!r} is compared with "
                    f"{system.baseline!r}; add it there, or name another `systems.{key}.baseline`."
                )
