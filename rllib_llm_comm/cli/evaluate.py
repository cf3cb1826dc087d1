"""`rllib evaluate`: episodes of a checkpoint, as a table and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from rllib_llm_comm.cli.play_options import PlayOptions, takes_play_options
from rllib_llm_comm.experiments.evaluation_run import run_evaluation
from rllib_llm_comm.experiments.outputs import require_writable
from rllib_llm_comm.experiments.ray_session import quiet_libraries


@takes_play_options
def command(
    checkpoint: Annotated[str, Argument(help="Checkpoint, trial, stage or run folder, or zoo:NAME.")],
    settings: PlayOptions,
    episodes: Annotated[int, Option(min=1, help="Episodes to play.")] = 50,
    seed: Annotated[int, Option(min=0, help="Seed of the first episode; the others count up.")] = 0,
    json_file: Annotated[Path | None, Option("--json", help="Write the figures to this file.")] = None,
    num_envs: Annotated[int, Option(min=1, help="Episodes played at once.")] = 16,
    communication: Annotated[
        bool, Option("--communication", help="Measure what messages tell and whether they are listened to.")
    ] = False,
    reference: Annotated[
        str | None,
        Option(
            metavar="PATH",
            help="With --communication: whose message adapter the drift of messages is measured from, if the "
            "checkpoint carries none.",
        ),
    ] = None,
    log: Annotated[
        Path | None, Option(help="Write all plans, attempts and reflections to this file (JSON lines).")
    ] = None,
) -> None:
    """Play episodes with a trained checkpoint and print what came out (no Ray needed).

    Examples:

        rllib evaluate results/verco/verco --episodes 50 --json evaluation.json

        rllib evaluate CHECKPOINT --greedy --env-config '{"map_name": "A"}'

        rllib evaluate CHECKPOINT --planner scripted --trials 3 --log plans.jsonl
    """
    quiet_libraries(0)
    require_writable({"--json": json_file, "--log": log})
    run_evaluation(
        [checkpoint],
        settings.settings(reference, num_envs),
        episodes=episodes,
        seed=seed,
        communication=communication,
        json_path=json_file,
        log_path=log,
    )
