"""Experiment files (YAML, JSON, Python) in the format of RLlib's old command line, and settings above them."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import runpy
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from rllib_llm_comm.core.errors import UserError, as_in_files, did_you_mean, one_line
from rllib_llm_comm.core.files import read_text
from rllib_llm_comm.core.settings import Settings, Several, left_out

MODEL = "model"
NAME_PATTERN = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}")
# Keys of still older files -> their names in `checkpoint_config`.
OLD_CHECKPOINT_KEYS = {
    "checkpoint_freq": "checkpoint_frequency",
    "checkpoint_at_end": "checkpoint_at_end",
    "keep_checkpoints_num": "num_to_keep",
    "checkpoint_score_attr": "checkpoint_score_attribute",
}
# Result keys of the old API stack, which never appear in results of the new one.
_OLD_RESULTS = {
    "episode_reward_mean": "env_runners/episode_return_mean",
    "episode_len_mean": "env_runners/episode_len_mean",
    "timesteps_total": "num_env_steps_sampled_lifetime",
    "agent_timesteps_total": "num_agent_steps_sampled_lifetime",
    "episodes_total": "env_runners/num_episodes_lifetime",
    "sampler_results/episode_reward_mean": "env_runners/episode_return_mean",
}
# Bounds (ours) far beyond any file of settings.
_LARGEST_FILE = 2**20
_MOST_PARTS, _DEEPEST = 100_000, 50
_RESULT_ROOTS = (
    "training_iteration",
    "decisions",
    "time_total_s",
    "time_this_iter_s",
    "num_env_steps_sampled_lifetime",
    "num_training_step_calls_per_iteration",
    "done",
    "env_runners",
    "learners",
    "evaluation",
    "timers",
    "perf",
    "custom_metrics",
    "red",  # of the algorithm RED
)
# Results that count up from 0, so that another limit is a mistake.
_COUNTERS = (
    "training_iteration",
    "decisions",
    "time_total_s",
    "num_env_steps_sampled_lifetime",
    "env_runners/num_env_steps_sampled_lifetime",
    "env_runners/num_episodes_lifetime",
)


def _of_old_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """`OLD_CHECKPOINT_KEYS` as keys of `checkpoint_config`; "min-KEY" wants a small score."""
    keys = {OLD_CHECKPOINT_KEYS[name]: value for name, value in given.items()}
    score = keys.get("checkpoint_score_attribute")
    if isinstance(score, str):
        order = "min" if score.startswith("min-") else "max"
        keys |= {"checkpoint_score_attribute": score.removeprefix("min-"), "checkpoint_score_order": order}
    return keys


class CheckpointSettings(Settings):
    """The times at which checkpoints are written, and the number that is kept (Ray's `CheckpointConfig`)."""

    checkpoint_frequency: int = Field(default=2, ge=0)
    """Training iterations between two checkpoints; 0 for none. After `kill -9` about this many iterations are done
    again."""
    num_to_keep: int | None = Field(default=3, ge=1)
    """Number of checkpoints that stay on disk, or `None` for all."""
    checkpoint_score_attribute: Annotated[str, Field(min_length=1)] | None = None
    """Result key by which the kept ones are chosen; by default the newest stay."""
    checkpoint_score_order: Literal["max", "min"] = "max"
    """Whether a large or a small score is good."""
    checkpoint_at_end: bool = True
    """True if the end of a run is saved in any case."""


class TrialResources(Settings):
    """What a trial's process with the learner reserves in Ray; `None`: what the algorithm's settings ask for."""

    cpu: int | None = Field(default=None, ge=0)
    """CPUs, RLlib's `num_cpus_for_main_process`."""
    gpu: float | None = Field(default=None, ge=0)
    """GPUs, RLlib's `num_gpus_per_learner`."""

    @model_serializer(mode="wrap")
    def _given(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if value is not None}


class Experiment(Settings):
    """One entry of an experiment file: what runs, on what, until when."""

    run: str = Field(min_length=1, examples=["run: PPO"])
    """An algorithm, or a stage that trains nothing, such as `evaluate`."""
    env: str | type | None = None
    """Environment id, where the thing that runs needs one."""
    stop: dict[str, Any] = Field(default_factory=dict)
    """Result key -> value at which a trial ends, such as {"training_iteration": 10}; the first reached counts."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Settings of the algorithm or stage."""
    checkpoint_config: CheckpointSettings = Field(default_factory=CheckpointSettings)
    """Settings of checkpoints."""
    num_samples: int = Field(default=1, ge=1)
    """Trials per point of the search space."""
    storage_path: str | None = None
    """Folder above the results; ./results by default."""
    scheduler: str = "FIFO"
    """Name of a Tune trial scheduler, such as `ASHA` or `PBT`."""
    scheduler_config: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the scheduler."""
    resources_per_trial: TrialResources = Field(default_factory=TrialResources)
    """CPUs and GPUs of the process that holds the learner, such as {"cpu": 2, "gpu": 1}."""
    restore: str | None = None
    """Checkpoint from which every trial starts."""
    max_failures: int = Field(default=0, ge=-1)
    """Number of times that a crashed trial is started again from its last checkpoint."""
    time_budget_s: float | None = Field(default=None, gt=0)
    """Longest duration of the experiment in seconds."""

    @model_validator(mode="before")
    @classmethod
    def _accept_old_spelling(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        data = {key: value for key, value in data.items() if value is not None}
        old = _of_old_keys({key: data.pop(key) for key in OLD_CHECKPOINT_KEYS if key in data})
        given = data.get("checkpoint_config", {})
        if old and isinstance(given, Mapping):
            if "checkpoint_score_attribute" in given:
                old.pop("checkpoint_score_order", None)
            data["checkpoint_config"] = {**old, **given}
        if isinstance(config := data.get("config"), Mapping) and "env" in config:
            if data.setdefault("env", config["env"]) != config["env"]:
                raise UserError(f"`env` is {data['env']!r} but `config.env` is {config['env']!r}; omit one of them.")
            data["config"] = {key: value for key, value in config.items() if key != "env"}
        if isinstance(stop := data.get("stop"), Mapping):
            # Callbacks may report results of any name.
            given = data.get("config")
            settings = given.items() if isinstance(given, Mapping) else ()
            custom = any(str(key).startswith("callbacks") and value is not None for key, value in settings)
            data["stop"] = check_stop(stop, any_root=custom)
        return data


@dataclass(frozen=True)
class ExperimentFile:
    """The experiments of one file.

    Attributes:
        name: Default name of the results' folder.
        experiments: Name -> experiment, in the order of the file.
        checked_by_python: True if the settings come from an `AlgorithmConfig` object of a Python file.
        model: Settings of the language model of all stages that load one.
        digest: Digest of a Python file's text, which stands for its settings (they may hold objects that have
            no text of their own); empty for YAML and JSON.
    """

    name: str
    experiments: dict[str, Experiment]
    checked_by_python: bool = False
    digest: str = ""
    model: Mapping[str, Any] = field(default_factory=dict)


def read_experiment_file(path: Path) -> ExperimentFile:
    """Reads a YAML, JSON or Python file.

    Raises:
        UserError: If the file is missing, is not what its ending says, or holds an unknown key or bad value.
    """
    _require_file(path)
    if path.suffix.lower() == ".py":
        return _read_python(path)
    data = load_file(path, or_else=".py")
    model: dict[str, Any] = {}
    given = data.get(MODEL) if isinstance(data, Mapping) else None
    is_stage = isinstance(given, Mapping) and "run" in given  # a stage may have this name, too
    if isinstance(data, Mapping) and MODEL in data and not is_stage:
        if not isinstance(given, Mapping):
            raise UserError(
                f"`{MODEL}` in {path} is {as_in_files(given)} but must hold settings of the language model of all "
                "stages, such as `base_model`, `dtype` and `device`."
            )
        model, data = dict(given), {name: spec for name, spec in data.items() if name != MODEL}
    return ExperimentFile(path.stem, parse_experiments(data, str(path)), model=model)


def load_file(path: Path, or_else: str | None = None) -> Any:
    """The content of a YAML or JSON file.

    Args:
        path: The file.
        or_else: Another ending that is allowed where this is called, for the message.

    Raises:
        UserError: If the file is missing or is not what its ending says.
    """
    _require_file(path)
    endings = [".yaml", ".yml", ".json", *([or_else] if or_else else [])]
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        listed = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise UserError(f"{str(path)!r} ends in {path.suffix.lower()!r} but must end in {listed}.")
    return _load_text(path)


def _require_file(path: Path) -> None:
    if not path.exists():
        near = did_you_mean(path.name, [p.name for p in path.parent.glob("*")] if path.parent.is_dir() else [])
        raise UserError(f"There is no file {str(path)!r}; give the path of a YAML, JSON or Python file.{near}")
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder; give the path of a YAML, JSON or Python file in it.")
    if not path.is_file():
        raise UserError(f"{str(path)!r} is no regular file; give the path of a YAML, JSON or Python file.")
    if path.stat().st_size > _LARGEST_FILE:
        raise UserError(
            f"{str(path)!r} has {path.stat().st_size} bytes, but files of settings have at most {_LARGEST_FILE}."
        )


def parse_experiments(data: Any, source: str) -> dict[str, Experiment]:
    """Checks the parsed content of an experiment file.

    Args:
        data: The file's content: name -> experiment.
        source: The file's name, for messages.

    Raises:
        UserError: At the first unknown key or impossible value.
    """
    if not isinstance(data, Mapping) or not data:
        raise UserError(f"{source} must hold `name: {{run: ..., env: ..., stop: ..., config: ...}}` but does not.")
    experiments: dict[str, Experiment] = {}
    for name, spec in data.items():
        if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
            raise UserError(
                f"{as_in_files(name)} in {source} cannot name a folder; use at most 100 letters, digits, '_', '-', "
                "'.', '+'."
            )
        if not isinstance(spec, Mapping):
            hint = (
                did_you_mean(name, Experiment.model_fields) if len(data) > 1 or name in Experiment.model_fields else ""
            )
            raise UserError(
                f"`{name}` in {source} is {one_line(as_in_files(spec), 60)} but must be an experiment with keys "
                f"such as `run` and `config`: the top level of the file holds names of experiments.{hint}"
            )
        experiments[name] = make_experiment(name, spec)
    return experiments


def make_experiment(name: str, spec: Mapping[str, Any]) -> Experiment:
    """Checks one experiment.

    Raises:
        UserError: In one sentence that names the setting as `name.key`.
    """
    if "local_dir" in spec:
        raise UserError(f"`{name}.local_dir` was removed from Ray; write `storage_path` instead.")
    _refuse_nan(name, spec)
    return Experiment.checked(name, dict(spec))


def _refuse_nan(place: str, value: Any) -> None:
    """No setting is nan, whatever its type: comparisons with nan are false, so that it passes most ranges."""
    if isinstance(value, float) and math.isnan(value):
        raise UserError(f"`{place}` is nan, which is no number; give one, or omit it.", "type")
    if isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_nan(f"{place}.{key}", item)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            _refuse_nan(f"{place}[{number}]", item)


def check_stop(stop: Mapping[str, Any], prefix: str = "", any_root: bool = False) -> dict[str, Any]:
    """Flattens and checks stop criteria.

    Args:
        stop: Result key -> number or bool, possibly nested.
        prefix: Path of the outer keys.
        any_root: True if results of any name may occur.

    Raises:
        UserError: If a key belongs to no result of the new API stack or a value is no number.
    """
    flat: dict[str, Any] = {}
    for key, value in stop.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= check_stop(value, f"{path}/", any_root)
            continue
        if path in _OLD_RESULTS:
            raise UserError(
                f"`stop.{path}` is of RLlib's old API stack; write {_OLD_RESULTS[path]!r} instead.", "unknown"
            )
        if not any_root and path.split("/")[0] not in _RESULT_ROOTS:
            known = [*_RESULT_ROOTS, "env_runners/episode_return_mean"]
            raise UserError(
                f"`stop.{path}` is in no result; use for example 'training_iteration', "
                f"'num_env_steps_sampled_lifetime' or 'env_runners/episode_return_mean'.{did_you_mean(path, known)}",
                "unknown",
            )
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise UserError(f"`stop.{path}` is {as_in_files(value)} but must be a finite number or true.", "type")
        if path in _COUNTERS and (isinstance(value, bool) or value <= 0):
            raise UserError(f"`stop.{path}` is {as_in_files(value)} but must be larger than 0.", "range")
        flat[path] = value
    return flat


def load_json_option(option: str, text: str) -> dict[str, Any]:
    """Parses a command-line option that holds a JSON (or YAML flow) mapping.

    Raises:
        UserError: If it is none.
    """
    try:
        value = parse_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UserError(f"`{option}` is {text!r} but must be a JSON object such as '{{\"key\": 1}}'.")
    return value


def _read_python(path: Path) -> ExperimentFile:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

    sys.path.insert(0, str(path.parent.absolute()))
    try:
        content = runpy.run_path(str(path))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} failed with {type(error).__name__}: {one_line(str(error))}.") from error
    config = content.get("config")
    if not isinstance(config, AlgorithmConfig):
        raise UserError(
            f"{path} must define `config`, an AlgorithmConfig such as `PPOConfig().environment(...)`, and "
            f"optionally `stop`; its `config` is {one_line(repr(config), 60)}."
        )
    if config.algo_class is None:
        raise UserError(f"`config` of {path} is a bare AlgorithmConfig; take an algorithm's own, such as PPOConfig.")
    settings = config.to_dict()
    if settings["num_cpus_for_main_process"] == AlgorithmConfig().num_cpus_for_main_process:
        # Not given, so it is for `rllib train` to choose, as with the other kinds of files.
        del settings["num_cpus_for_main_process"]
    spec = {
        "run": config.algo_class.__name__,
        "env": settings.pop("env", None),
        "config": settings,
        "stop": dict(content.get("stop") or {}),
    }
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    name = path.stem if NAME_PATTERN.fullmatch(path.stem) else "experiment"
    return ExperimentFile(path.stem, {name: make_experiment(name, spec)}, checked_by_python=True, digest=digest)


class _Loader(yaml.SafeLoader):
    """YAML with JSON's values, whose `1e-4` is a number (as in YAML 1.2), and whose keys may not be given twice."""

    yaml_constructors = {
        tag: make
        for tag, make in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in ("null", "bool", "int", "float", "str", "seq", "map")
    }
    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        seen: set[str] = set()
        for key in keys:
            if key.tag != "tag:yaml.org,2002:str":
                told = f"the key {key.value!r} is no text; write it in quotes"
                raise yaml.constructor.ConstructorError(None, None, told, key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def _load_text(path: Path) -> Any:
    try:
        text = read_text(path)
    except UnicodeDecodeError:
        raise UserError(f"{path} is no text file (UTF-8).") from None
    kind, parse = ("JSON", _parse_json) if path.suffix.lower() == ".json" else ("YAML", parse_yaml)
    try:
        return parse(text)
    except yaml.MarkedYAMLError as error:
        where = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise UserError(f"{path} is no valid YAML: {error.problem}{where}.") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is no valid JSON: {error.msg} (line {error.lineno}).") from None
    except RecursionError:
        raise UserError(f"{path} is nested too deeply; the most is {_DEEPEST} levels.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path} is no valid {kind}: {one_line(str(error)).rstrip('.')}.") from None


def parse_yaml(text: str) -> Any:
    """The value of a YAML text: of JSON's kinds, of a bounded size, with no key twice.

    Raises:
        yaml.YAMLError: If it is no such text.
        ValueError: If it is too large.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        _require_small(node, lambda node: itertools.chain(*node.value) if node.id == "mapping" else node.value)
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _parse_json(text: str) -> Any:
    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in pairs:
            if key in found:
                raise ValueError(f"key {key!r} is given twice")
            found[key] = item
        return found

    value = json.loads(text, object_pairs_hook=mapping)
    _require_small(value, lambda part: part.values() if isinstance(part, dict) else part)
    return value


def _require_small(top: Any, parts: Callable[[Any], Iterable[Any]]) -> None:
    """Refuses what would be too much when all aliases of YAML are written out.

    Args:
        top: YAML's node or a value.
        parts: Gives the parts of one that is no scalar.

    Raises:
        ValueError: If it has too many parts, is nested too deeply, or is a part of itself.
    """
    measured: dict[int, tuple[int, int] | None] = {}

    def measure(one: Any) -> tuple[int, int]:
        """Number of parts with itself, and levels."""
        if isinstance(one, str | int | float | yaml.ScalarNode | None):
            return 1, 0
        if id(one) not in measured:
            measured[id(one)] = None
            below = [measure(part) for part in parts(one)]
            measured[id(one)] = 1 + sum(size for size, _ in below), 1 + max((height for _, height in below), default=0)
        found = measured[id(one)]
        if found is None:
            raise ValueError("an alias stands in what it stands for")
        if found[0] > _MOST_PARTS or found[1] > _DEEPEST:
            raise ValueError(f"it has more than {_MOST_PARTS} parts or {_DEEPEST} levels, aliases written out")
        return found

    measure(top)


DEFAULT_STORAGE = "results"


class OwnModules(Settings):
    """Settings of a command that runs what users have registered."""

    modules: Several[str] | None = None
    """Import these modules first; they register your own environments, algorithms or teachers."""


OF_ONE_STAGE = ("stop", "num_samples", "restore", "resources_per_trial", "scheduler", "scheduler_config")
"""Keys of an experiment that settings above a file may change in one of its stages."""
_AboveTheFile: Any = left_out(
    {name: Experiment.model_fields[name] for name in (*OF_ONE_STAGE, "storage_path")}
    | {name: CheckpointSettings.model_fields[of] for name, of in OLD_CHECKPOINT_KEYS.items()}
)


class TrainSettings(_AboveTheFile, OwnModules):
    """Settings of `run_experiments`, the options of `rllib train`; what is not given is as the file says."""

    experiment_name: str | None = None
    """Folder of the results, below the storage path."""
    resume: bool = True
    """Skip finished stages and continue unfinished ones, or do all again; old results are kept aside."""
    ray_address: str | None = None
    """Join a running Ray cluster."""
    ray_num_cpus: int | None = Field(None, ge=1)
    """Logical CPUs of a local Ray."""
    ray_num_gpus: int | None = Field(None, ge=0)
    """GPUs of a local Ray."""
    seed: int | None = Field(None, ge=0)
    """Seed of everything that runs."""
    track: Several[str] | None = None
    """Follow it in tensorboard, mlflow or wandb."""
    dry_run: bool = False
    """Check everything, say what chat models will be asked and what that costs, what would run and about how long it
    takes here, and end. Durations that no earlier run shows are measured in short runs, which takes minutes and leaves
    nothing behind."""
    prices: str | None = None
    """With `dry_run`: a price list, a YAML or JSON file of yours, or "example". The costs alone are told, at once."""
    trust: bool = False
    """Go on from checkpoints and unfinished runs that were not written here, which runs what is pickled in them, take
    the addresses, names of keys and paths that played checkpoints recorded, and let the file name code, readers that
    unpickle, and keys of any server."""
    verbose: int = Field(0, ge=0)
    """0: results alone; 1: output of Ray's workers, too; 2: all, with tracebacks."""

    def experiment_keys(self) -> dict[str, Any]:
        """The given settings of one experiment, as its keys."""
        return {name: value for name in OF_ONE_STAGE if (value := getattr(self, name)) is not None}

    def checkpoint_keys(self) -> dict[str, Any]:
        """The given settings of checkpoints, as keys of `checkpoint_config`."""
        given = {name: getattr(self, name) for name in OLD_CHECKPOINT_KEYS}
        return _of_old_keys({name: value for name, value in given.items() if value is not None})
