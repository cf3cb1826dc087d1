"""The options of `rllib train` and `rllib train file`: texts for the fields of `TrainSettings`."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option

from rllib_llm_comm.cli.options import Imports, Trust, json_of, takes_settings
from rllib_llm_comm.experiments.train_settings import TrainSettings

Name = Annotated[str | None, Option("--experiment-name", "-n", help="Folder of the results, below the storage path.")]
Storage = Annotated[str | None, Option(help="Folder above the results; ./results by default.")]
Address = Annotated[str | None, Option(help="Join a running Ray cluster.")]
Cpus = Annotated[int | None, Option(min=1, help="Logical CPUs of a local Ray.")]
Track = Annotated[
    list[str] | None,
    Option(metavar="NAME", help="Follow it in tensorboard, mlflow or wandb; may be given several times."),
]
Gpus = Annotated[int | None, Option(min=0, help="GPUs of a local Ray.")]

_OPTIONS: dict[str, Any] = {
    "stop": Annotated[
        str | None,
        Option(
            "--stop",
            "-s",
            metavar="JSON",
            help="Stop criteria, such as '{\"training_iteration\": 10}'.",
        ),
    ],
    "experiment_name": Name,
    "num_samples": Annotated[int | None, Option(min=1, help="Trials per point of the search space.")],
    "storage_path": Storage,
    "restore": Annotated[str | None, Option(help="Checkpoint folder from which every trial starts.")],
    "resume": Annotated[
        bool,
        Option(
            "--resume/--no-resume",
            help="Skip finished stages and continue unfinished ones (default), or do all again; old "
            "results are kept aside.",
        ),
    ],
    "resources_per_trial": Annotated[
        str | None,
        Option(
            metavar="JSON",
            help='Of the learner\'s process, such as \'{"cpu": 2, "gpu": 1}\'.',
        ),
    ],
    "checkpoint_freq": Annotated[
        int | None, Option(min=0, help="Training iterations between checkpoints; 0 for none.")
    ],
    "checkpoint_at_end": Annotated[
        bool | None,
        Option("--checkpoint-at-end/--no-checkpoint-at-end", help="Save when a trial ends (default)."),
    ],
    "keep_checkpoints_num": Annotated[int | None, Option(min=1, help="Checkpoints that stay on disk.")],
    "checkpoint_score_attr": Annotated[
        str | None, Option(help="Result key by which checkpoints are kept; 'min-KEY' keeps small ones.")
    ],
    "scheduler": Annotated[str | None, Option(help="Tune's trial scheduler, such as asynchyperband.")],
    "scheduler_config": Annotated[
        str | None,
        Option(metavar="JSON", help="Arguments of the scheduler."),
    ],
    "ray_address": Address,
    "ray_num_cpus": Cpus,
    "ray_num_gpus": Gpus,
    "seed": Annotated[int | None, Option(min=0, help="Seed of everything that runs.")],
    "track": Track,
    "modules": Imports,
    "trust": Trust,
    "verbose": Annotated[
        int,
        Option("--verbose", "-v", count=True, help="-v: workers' output too; -vv: all, with tracebacks."),
    ],
}

_READ = {
    "stop": json_of("--stop"),
    "resources_per_trial": json_of("--resources-per-trial"),
    "scheduler_config": json_of("--scheduler-config"),
}

takes_train_settings = takes_settings(TrainSettings, _OPTIONS, _READ)
