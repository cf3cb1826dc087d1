"""Ray for one command: started when the first stage needs it, always shut down; what a trial asks it for."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError, one_line
from rllib_llm_comm.experiments.console import import_modules, out, require_writable
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


def demand(algorithm: type[Algorithm], config: Mapping[str, Any]) -> Demand:
    """The CPUs and GPUs of the first trial of a config with search spaces."""
    values = first_point(dict(config))
    try:
        request = algorithm.default_resource_request(values)
    except ValueError:  # it misses a result of an earlier stage, which is not there yet
        algorithm = _unchecked(algorithm)
        request = algorithm.default_resource_request(values)
    filled = algorithm.get_default_config().update_from_dict(values)
    data = _data(filled)
    return Demand(
        cpus=sum(bundle.get("CPU", 0) for bundle in request.bundles),
        cpus_for_data=data,
        gpus=sum(bundle.get("GPU", 0) for bundle in request.bundles),
        reasons={"CPU": _reasons(filled, "CPU", data), "GPU": _reasons(filled, "GPU", 0)},
    )


def _unchecked(algorithm: type[Algorithm]) -> type[Algorithm]:
    """An algorithm that asks for the same resources, and does not validate its settings."""

    def get_default_config(cls: type[Algorithm]) -> AlgorithmConfig:
        config = algorithm.get_default_config()
        kind = type(config)
        config.__class__ = type(kind.__name__, (kind,), {"validate": lambda self: None})
        return config

    return type(algorithm.__name__, (algorithm,), {"get_default_config": classmethod(get_default_config)})


def gpus_here() -> int:
    """GPUs that a local Ray finds, if nobody tells it how many it has."""
    from ray._private.accelerators import get_accelerator_manager_for_resource

    manager = get_accelerator_manager_for_resource("GPU")
    visible = manager.get_current_process_visible_accelerator_ids()
    found = int(manager.get_current_node_num_accelerators())
    return found if visible is None else min(found, len(visible))


def works_alone(algorithm: type[Algorithm], config: Mapping[str, Any]) -> bool:
    """True if a trial is one process, without EnvRunners or Learners of its own."""
    default = algorithm.get_default_config()
    return all(not config.get(key, getattr(default, key)) for key in ("num_env_runners", "num_learners"))


def cpus_alone(algorithm: type[Algorithm], config: Mapping[str, Any], cores: int, most: int | None) -> int:
    """Logical CPUs for the only trial, if it works in one process: all cores, but what Ray Data takes beside it.

    `most` are the logical CPUs of a local Ray; `None` if they are not known.
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


OBJECT_STORE_BYTES = 300_000_000
# Read by Ray and Tune in this process and, by inheritance, in all that a local Ray starts.
_QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
# Paths in a config mean the folder where the command was typed, not Tune's working folder of a trial.
# A state of the experiment that is seconds old is what a killed run continues from.
# Some metrics are missing in the first results (no episode has ended yet); schedulers then wait, Tune would give up.
_NEEDED = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "2",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
}


def available_cpus() -> int:
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quiet_libraries(verbosity: int) -> None:
    """Silences deprecation and progress noise of Ray and its dependencies; call before they are imported.

    At verbosity 0 nothing is told, at 2 everything.
    """
    for name, value in {**_QUIET, **_NEEDED}.items():
        os.environ.setdefault(name, value)
    if verbosity == 0:
        os.environ.setdefault("PYTHONWARNINGS", "ignore")
        warnings.filterwarnings("ignore")
    elif verbosity >= 2:
        logging.basicConfig(level=logging.INFO)


def begin_command(files: Mapping[str, Path | None] | None = None, modules: Sequence[str] | None = None) -> None:
    """The begin of a command: libraries are silent, its files can be written, the user's modules are imported.

    Args:
        files: See `require_writable`.
        modules: See `import_modules`.

    Raises:
        UserError: As of these.
    """
    quiet_libraries(0)
    require_writable(files or {})
    import_modules(modules)


def quiet_loggers(verbosity: int) -> None:
    """Sets the levels of Ray's loggers; call after Ray was imported, which sets them too.

    Verbosity 0: nothing below critical; 1: warnings; 2: everything.
    """
    level = {0: logging.CRITICAL, 1: logging.WARNING}.get(verbosity, logging.INFO)
    for library in ("ray", "ray.rllib", "ray.tune", "ray.train", "ray.data"):
        if (logger := logging.getLogger(library)).level != level:  # to set it costs much where there are many loggers
            logger.setLevel(level)


@dataclass
class RaySession:
    """Starts Ray when first asked and shuts it down at the end of a `with` block.

    Attributes:
        cpus: Logical CPUs that Ray may hand out; more than there are cores is allowed.
        gpus: GPUs, or `None` to let Ray look.
        address: Address of a running cluster, or `None` for a local Ray.
        verbosity: 0, 1 or 2.
        modules: Modules that every worker imports first, since names are registered per process.
    """

    cpus: int
    gpus: int | None = None
    address: str | None = None
    verbosity: int = 0
    modules: Sequence[str] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts or joins Ray, if that has not happened yet; raises a `UserError` if no cluster is at the address."""
        import ray

        if ray.is_initialized():
            return
        level = {0: "CRITICAL", 1: "WARNING"}.get(self.verbosity, "INFO")
        on_termination = signal.getsignal(signal.SIGTERM)
        common: dict[str, Any] = {
            "log_to_driver": self.verbosity > 0,
            "logging_level": level,
            "ignore_reinit_error": True,
        }
        if self.modules:
            common["runtime_env"] = {"worker_process_setup_hook": _importing(self.modules)}
        with out.status("starting Ray"):
            if self.address:
                _require_server(self.address)
                try:
                    ray.init(address=self.address, **common)
                except (ConnectionError, ValueError, RuntimeError) as error:
                    raise UserError(_no_cluster(self.address, error)) from error
            else:
                ray.init(
                    num_cpus=self.cpus,
                    num_gpus=self.gpus,
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    **common,
                )
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_termination)  # Ray's own handler ends the process at once
        quiet_loggers(self.verbosity)
        if self.verbosity == 0:
            from ray._private.ray_logging import global_worker_stdstream_dispatcher

            # Of workers' tracebacks `log_to_driver=False` leaves some.
            global_worker_stdstream_dispatcher.remove_handler("ray_print_logs")

    def stop(self) -> None:
        """Shuts Ray down, if it runs; its idle processes would take cores from what follows."""
        if "ray" in sys.modules:
            import ray

            if ray.is_initialized():
                ray.shutdown()


def trials_at_once(cpus: float) -> int:
    """Trials that run at once on this machine: Ray may have more logical CPUs than there are cores to share."""
    return max(1, int(available_cpus() // max(cpus, 1)))


def ray_is_local() -> bool:
    """True if all of Ray runs on this machine."""
    import ray

    return len(ray.nodes()) == 1


def ray_runs() -> bool:
    """True if this process has started or joined Ray already."""
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


def _importing(modules: Sequence[str]) -> Callable[[], None]:
    """Imports modules from the folder of this process, too; for other processes."""
    folder = str(Path.cwd())

    def import_here() -> None:
        """Imports the modules as this process does."""
        if folder not in sys.path:
            sys.path.insert(0, folder)
        import_modules(modules)

    return import_here


def _require_server(address: str) -> None:
    """Raises a `UserError` if nothing answers at `[ray://]host:port`; Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise UserError(_no_cluster(address, error)) from None


def _no_cluster(address: str, error: Exception) -> str:
    return f"`--ray-address` is {address!r} but no Ray cluster answers there: {one_line(str(error))}."
