"""CPUs and GPUs that a trial asks Ray for, and the settings that ask for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.errors import UserError, require_number
from rllib_llm_comm.experiments.search_space import first_point

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

# Ray Data reads labels in tasks of their own, beside the trial.
_CPUS_FOR_DATA = 2
# Processes, and what each of them takes.
_SETTINGS = {
    "CPU": {
        "num_cpus_for_main_process": "",
        "num_env_runners": "num_cpus_per_env_runner",
        "evaluation_num_env_runners": "num_cpus_per_env_runner",
        "num_learners": "num_cpus_per_learner",
    },
    "GPU": {
        "num_gpus_per_learner": "",
        "num_learners": "num_gpus_per_learner",
        "num_env_runners": "num_gpus_per_env_runner",
        "evaluation_num_env_runners": "num_gpus_per_env_runner",
    },
}


@dataclass(frozen=True)
class Demand:
    """CPUs and GPUs of one trial, with the reasons.

    Attributes:
        cpus: Logical CPUs of the trial.
        cpus_for_data: Logical CPUs beside it, for reading data.
        gpus: GPUs of the trial.
        reasons: "CPU" and "GPU" -> the settings that ask for them, as the part of a sentence.
    """

    cpus: float
    cpus_for_data: float
    gpus: float
    reasons: Mapping[str, str]

    def require(self, stage: str, have: Mapping[str, float], address: str | None = None) -> None:
        """Checks that Ray has room for the trial, for which Tune would wait for ever.

        Args:
            stage: Name of the stage.
            have: Ray's resources by name, as `ray.cluster_resources` tells them.
            address: Address of a cluster; `None` for a local Ray.

        Raises:
            UserError: If there are too few CPUs or GPUs.
        """
        for name, needed, option in (
            ("CPU", self.cpus + self.cpus_for_data, "--ray-num-cpus"),
            ("GPU", self.gpus, "--ray-num-gpus"),
        ):
            if needed > have.get(name, 0):
                larger = "join a larger cluster" if address else f"give `{option} {math.ceil(needed)}`"
                raise UserError(
                    f"A trial of `{stage}` needs {needed:g} {name}s but Ray has {have.get(name, 0):g}: "
                    f"{self.reasons[name]}; set less in its `config:` or `resources_per_trial:`, or {larger}."
                )


def check_resources(stage: str, resources: Mapping[str, Any]) -> None:
    """Checks `resources_per_trial` of a stage.

    Args:
        stage: Name of the stage.
        resources: Numbers of CPUs and GPUs.

    Raises:
        UserError: If a key is unknown, or a value is no number of at least 0.
    """
    for key, value in resources.items():
        if key not in ("cpu", "gpu"):
            raise UserError(f"`{stage}.resources_per_trial.{key}` is no known key; known are cpu, gpu.")
        require_number(f"{stage}.resources_per_trial.{key}", value, 0)


def demand(algorithm: type[Algorithm], config: Mapping[str, Any]) -> Demand:
    """The CPUs and GPUs of the first trial of a config.

    Args:
        algorithm: Class of the algorithm.
        config: Its settings, with search spaces.
    """
    values = first_point(dict(config))
    request = algorithm.default_resource_request(values)
    filled = algorithm.get_default_config().update_from_dict(values)
    data = _data(filled)
    return Demand(
        cpus=sum(bundle.get("CPU", 0) for bundle in request.bundles),
        cpus_for_data=data,
        gpus=sum(bundle.get("GPU", 0) for bundle in request.bundles),
        reasons={"CPU": _reasons(filled, "CPU", data), "GPU": _reasons(filled, "GPU", 0)},
    )


def works_alone(algorithm: type[Algorithm], config: Mapping[str, Any]) -> bool:
    """True if a trial is one process, without EnvRunners or Learners of its own.

    Args:
        algorithm: Class of the algorithm.
        config: Its settings, with search spaces.
    """
    default = algorithm.get_default_config()
    return all(not config.get(key, getattr(default, key)) for key in ("num_env_runners", "num_learners"))


def cpus_alone(algorithm: type[Algorithm], config: Mapping[str, Any], cores: int, most: int | None) -> int:
    """Logical CPUs for the only trial, if it works in one process: all cores, but what Ray Data takes beside it.

    Args:
        algorithm: Class of the algorithm.
        config: Its settings, with search spaces.
        cores: Of this machine.
        most: Logical CPUs of a local Ray; `None` if they are not known.
    """
    if most is None:
        return cores
    filled = algorithm.get_default_config().update_from_dict(first_point(dict(config)))
    return min(cores, max(1, most - _data(filled)))


def _data(config: AlgorithmConfig) -> int:
    return _CPUS_FOR_DATA if config.is_offline else 0


def _reasons(config: AlgorithmConfig, resource: str, data: int) -> str:
    """The settings that ask for a resource, with their numbers."""
    told: dict[str, str] = {}
    for setting, size in _SETTINGS[resource].items():
        number, each = getattr(config, setting), getattr(config, size) if size else 1
        if number and each:
            told[setting] = f"`{setting}` is {number}"
        if number and size and each not in (0, 1, "auto"):
            told[size] = f"`{size}` is {each}"
    return " and ".join([*told.values(), *([f"reading its data takes {data}"] if data else [])])
