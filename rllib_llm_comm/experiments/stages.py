"""Stages of an experiment file: their kinds, references to each other, and fingerprints of finished results."""

from __future__ import annotations

import contextlib
import graphlib
import hashlib
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from rllib_llm_comm.core.errors import UserError, names_and_hint, within
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.core.trust import placed_texts
from rllib_llm_comm.experiments.experiment_file import Experiment
from rllib_llm_comm.experiments.search_space import BY_SEED, has_search
from rllib_llm_comm.language.prompts import SHIPPED, SLOTS, read_prompts
from rllib_llm_comm.policies.stage_record import MARKER, StageRecord, read_record

STAGE_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
"""The result of another stage, by its name."""
GAME_MANUAL, TRANSLATION, SUBGOALS, REWARDS = "a manual", "a translation", "a data set of subgoals", "reward code"
FIGURES, PAGE, POLICY, OFFICER_GAMES = "figures", "a page", "a checkpoint", "demonstrations of officers"
"""Kinds of results, as errors call them."""
# Keys that change how a run is kept or where it lies, not what comes out of it.
_WITHOUT_EFFECT = {"storage_path", "checkpoint_config", "max_failures"}
_Used = TypeVar("_Used")  # a `Stage`, or its experiment


@dataclass
class StageResult:
    """The results of a stage: absolute paths that `${stage}` stands for, further files by name, and key figures."""

    outputs: list[Path]
    files: dict[str, Path] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)


@dataclass
class Stage:
    """One experiment of a file and its place on disk.

    Attributes:
        name: Key in the file.
        experiment: Its settings; values may hold `${other}`.
        folder: Folder of its results.
        uses: Names of the stages it refers to.
        fingerprint: Digest of everything that decides its result.
        trust: True if the user trusts what it goes on from or plays, wherever that was written.
        track: Names of trackers that its results are written to.
        stand_ins: What stands in for what the papers use (`evaluation.stand_ins`).
        to_come: Paths of results of stages before it, at which nothing is yet.
    """

    name: str
    experiment: Experiment
    folder: Path
    uses: tuple[str, ...] = ()
    fingerprint: str = ""
    trust: bool = False
    track: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()
    to_come: tuple[str, ...] = ()

    def awaits(self, value: object) -> bool:
        """True if a setting holds such a path; one that *is* one is equal to it."""
        return any(path in str(value) for path in self.to_come)

    def record(self) -> StageRecord | None:
        """The content of `stage.json`, or `None` if there is none (or none that can be read)."""
        return read_record(self.folder)

    def finished(self) -> StageRecord | None:
        """The record, if the stage has ended with exactly these settings and its outputs are still there."""
        record = self.record()
        if record is None or record.status != "finished" or record.fingerprint != self.fingerprint:
            return None
        return record if all((self.folder / path).exists() for path in record.outputs) else None

    def write(self, result: StageResult | None = None, seconds: float = 0.0) -> StageRecord:
        """Writes `stage.json`, without a result when the stage starts."""
        record = StageRecord(
            stage=self.name,
            run=self.experiment.run,
            status="running" if result is None else "finished",
            fingerprint=self.fingerprint,
            settings=_plain(self.experiment.model_dump()),
            stand_ins=list(self.stand_ins),
        )
        if result is not None:
            record.outputs = [os.path.relpath(path, self.folder) for path in result.outputs]
            record.files = {name: os.path.relpath(path, self.folder) for name, path in result.files.items()}
            record.summary = _plain(result.summary)
            record.seconds = round(seconds, 1)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / MARKER, record.model_dump_json(indent=2) + "\n")
        return record


def make_stages(
    experiments: Mapping[str, Experiment],
    folder: Callable[[str, Experiment], Path],
    digest: str = "",
    config_identity: Callable[[Experiment], Mapping[str, Any]] = lambda experiment: experiment.config,
) -> list[Stage]:
    """Puts experiments in order and links them.

    Args:
        experiments: Name -> experiment, in the order in which they run.
        folder: Gives each stage's folder.
        digest: Stands for settings that have no text of their own (Python files).
        config_identity: Gives the part of a stage's `config:` that decides its result.

    Raises:
        UserError: If a reference is unknown, points forwards, or stages wait for each other.
    """
    places = {name: dict(reversed([*references_in(one.model_dump(), name)])) for name, one in experiments.items()}
    _check_references(places)
    uses = {name: references(experiment) for name, experiment in experiments.items()}
    stages: list[Stage] = []
    fingerprints: dict[str, str] = {}
    for name, experiment in experiments.items():
        settings = experiment.model_dump(exclude=_WITHOUT_EFFECT | {"config"})
        with within(f"{name}.config"):
            settings["config"] = {} if digest else _with_prompts(dict(config_identity(experiment)))
        upstream = {used: fingerprints[used] for used in uses[name]}
        told = {"settings": settings, "uses": upstream, "digest": digest}
        text = json.dumps(told, sort_keys=True, default=str)  # the same for the same settings, whatever their order
        fingerprints[name] = hashlib.sha256(text.encode()).hexdigest()[:16]
        stages.append(Stage(name, experiment, folder(name, experiment), uses[name], fingerprints[name]))
    return stages


def _with_prompts(value: Any) -> Any:
    """Settings with the texts of prompts in place of their folder: the texts decide the result, not the path."""
    if isinstance(value, list):
        return [_with_prompts(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _with_prompts(item) for key, item in value.items()}
    if isinstance(prompts := found.get("prompts"), str) and prompts not in SHIPPED:
        with contextlib.suppress(UserError):  # told by the stage's check
            found["prompts"] = read_prompts(prompts, SLOTS)
    return found


def resolve(value: Any, outputs: Mapping[str, list[str]], many: bool = False, same_seeds: Collection[str] = ()) -> Any:
    """Replaces `${stage}` by the stage's output path.

    Args:
        value: A config value: text, list, dict or anything else (left alone).
        outputs: Stage -> its output paths.
        many: True if a text that is nothing but a reference may become a list of several paths.
        same_seeds: Stages that sweep over the same seeds as this one: each trial takes the result of its own seed.

    Raises:
        UserError: If a stage has several outputs where one is needed.
    """
    if isinstance(value, dict):
        return {key: resolve(item, outputs, many, same_seeds) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item, outputs, many, same_seeds) for item in value]
    if not isinstance(value, str):
        return value
    whole = STAGE_REFERENCE.fullmatch(value)
    if whole and many and len(outputs[whole.group(1)]) > 1:
        return list(outputs[whole.group(1)])
    if whole and whole.group(1) in same_seeds:
        return {BY_SEED: list(outputs[whole.group(1)])}

    def path_of(match: re.Match[str]) -> str:
        """The path that a reference stands for; one to a sweep has several."""
        paths = outputs[match.group(1)]
        if len(paths) != 1:
            raise UserError(
                f"`{match.group(0)}` stands for {len(paths)} results (a sweep), but {value!r} needs one; "
                "name the one you want by its path."
            )
        return paths[0]

    return STAGE_REFERENCE.sub(path_of, value)


def source_of(value: Any, stages: Mapping[str, _Used]) -> _Used | None:
    """The stage whose result a setting is (`${stage}`); `None` of anything else, such as a place below a result."""
    whole = STAGE_REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return None if whole is None else stages[whole.group(1)]


def references(experiment: Experiment) -> tuple[str, ...]:
    """The names of the stages whose results an experiment uses, in the order of its settings."""
    return tuple(dict.fromkeys(name for name, _ in references_in(experiment.model_dump())))


def references_in(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """The stages whose results plain data uses, each with the full name of the setting that holds the reference.

    Args:
        value: Texts, numbers, lists and mappings of such.
        place: Full name of the whole; empty for none.
    """
    return ((name, own) for own, text in placed_texts(value, place) for name in STAGE_REFERENCE.findall(text))


def _check_references(places: Mapping[str, Mapping[str, str]]) -> None:
    """Refuses references that cannot be followed; `places` are stage -> stage that it uses -> setting that says so."""
    names = list(places)
    for name, used in places.items():
        for reference, place in used.items():
            if reference not in places:
                others = [other for other in names if other != name]
                raise UserError(
                    f"`{place}` uses `${{{reference}}}`, but no other stage of the file has this name; there are "
                    f"{names_and_hint(reference, others)}",
                    "unknown",
                )
    try:
        graphlib.TopologicalSorter(places).prepare()
    except graphlib.CycleError as error:
        circle = [*reversed(error.args[1])]  # each uses the next
        first, second = circle[:2]
        told = " uses ".join(f"`{stage}`" for stage in circle)
        raise UserError(
            f"`{places[first][second]}` uses `${{{second}}}`, but then stages wait for each other ({told}); name a "
            "stage above it, or the path of an earlier result."
        ) from None
    for position, name in enumerate(names):
        for reference, place in places[name].items():
            if names.index(reference) > position:
                raise UserError(f"`{place}` uses `${{{reference}}}`, which comes later in the file; move it up.")


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """The value with objects that JSON cannot hold as their texts."""
    return dict(json.loads(json.dumps(value, default=str)))


# Experiment keys that mean something to stages that need no Ray.
_USED = {"run", "env", "config", "storage_path"}


def as_list(value: Any) -> list[Any]:
    """The values of a setting that may have several; the result of a stage with one trial is one path."""
    return list(value) if isinstance(value, list | tuple) else [value]


class StageKind(ABC):
    """One kind of stage, named in `run:`: its settings, their check, and what it writes into its folder."""

    name: ClassVar[str]
    settings_class: ClassVar[type[Settings] | None] = None
    """The model of `config:`; a subclass may make it in `model` instead."""
    takes_env: ClassVar[bool] = False
    stands_in: ClassVar[str] = ""
    """What it is, with a name, if it stands in for what a paper uses."""
    gives: ClassVar[Mapping[str, str]] = {}
    """Place below its result, or "" for the result itself -> what lies there; empty: not told, so that all takes it."""
    wants: ClassVar[Mapping[str, str]] = {}
    """Setting of `config:` -> what a stage must give that is named there."""

    def model(self) -> type[Settings]:
        """The model of `config:`."""
        assert self.settings_class is not None
        return self.settings_class

    def settings(self, stage: Stage) -> Any:
        """The checked `config:`; a value of none is one that is not given."""
        given = {key: value for key, value in stage.experiment.config.items() if value is not None}
        return self.model().checked(f"{stage.name}.config", given)

    def check(self, stage: Stage) -> None:
        """Checks the stage, its references replaced, before anything runs.

        Raises:
            UserError: At the first unknown key or impossible value.
        """
        for key in stage.experiment.model_fields_set - _USED:
            if getattr(stage.experiment, key) != Experiment.model_fields[key].get_default(call_default_factory=True):
                raise UserError(f"`{stage.name}.{key}` means nothing to `run: {self.name}`; remove it.")
        if stage.experiment.env is not None and not self.takes_env:
            raise UserError(
                f"`{stage.name}.env` means nothing to `run: {self.name}` (the checkpoint has it); remove it."
            )
        for key, value in stage.experiment.config.items():
            if has_search(value):
                raise UserError(
                    f"`{stage.name}.config.{key}` holds a search, but `run: {self.name}` trains nothing that could be "
                    "searched; write one stage per value."
                )
        self.check_config(stage)

    @abstractmethod
    def check_config(self, stage: Stage) -> None:
        """Checks `config:`."""

    def config_identity(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The part of `config:` that decides the result; all of it, if a stage knows no better."""
        return config

    def loads(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings of what it loads, as of `evaluation.stand_ins`: `config:`, with defaults that stand in."""
        return config

    @abstractmethod
    def run(self, stage: Stage) -> StageResult:
        """Does the work; what lies in the stage's folder from a killed call is used or overwritten."""
