"""`rllib replay`: episodes of a checkpoint as one page to open in a browser."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rllib_llm_comm.checkpoints.find_checkpoint import find_checkpoint
from rllib_llm_comm.checkpoints.loading import (
    AS_RECORDED,
    BaseModelOption,
    Loading,
    MessagesOption,
    ServerOption,
    TeacherOption,
)
from rllib_llm_comm.cli.options import TrustRecorded
from rllib_llm_comm.cli.play_options import (
    PatienceOption,
    PlannerOption,
    RecoverOption,
    TrialsOption,
    planning_of_options,
)
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.experiments.console import out, say, short_path
from rllib_llm_comm.experiments.experiment_file import load_json_option
from rllib_llm_comm.experiments.outputs import require_writable
from rllib_llm_comm.experiments.ray_session import quiet_libraries


def replay_checkpoint(
    checkpoint: str | Path,
    page: Path,
    *,
    episodes: int = 1,
    seed: int = 0,
    greedy: bool = False,
    env_config: Mapping[str, Any] | None = None,
    loading: Loading = AS_RECORDED,
    beside: str | Path | None = None,
    planning: Mapping[str, Any] | None = None,
    trials: int | None = None,
    recover: str | None = None,
    counterfactuals: bool = True,
    animation: Path | None = None,
) -> Path:
    """Plays episodes and writes them as a self-contained HTML page.

    Args:
        checkpoint: A path that `find_checkpoint` understands.
        page: The file to write.
        episodes: How many episodes, >= 1.
        seed: Seed of the first; the others count up.
        greedy: Whether the most likely action is taken instead of a sampled one.
        env_config: Settings of the environment that differ from training.
        loading: How checkpoints are loaded, such as with another message mode than in training.
        beside: Another checkpoint, whose episodes with the same seeds are shown beside these.
        planning: Who gives subgoals, if not as in training: `planner` and maybe `patience`, `replan`.
        trials: Plays with reflection, with at most so many trials per round; `None`: without.
        recover: How failed rounds are put back, "snapshot" (if `None`) or "replay"; only with `trials`.
        counterfactuals: Whether decisions with something heard are scored without it, too.
        animation: A GIF of the first episode, written beside the page; `None` for none.

    Returns:
        The page's path.

    Raises:
        UserError: If the checkpoint cannot be loaded or played.
    """
    from rllib_llm_comm.evaluation.animation import write_animation
    from rllib_llm_comm.evaluation.planned_play import play_planned
    from rllib_llm_comm.evaluation.replay import write_comparison, write_replay
    from rllib_llm_comm.evaluation.rollout import Episode

    def play(path: str | Path, how: Loading) -> list[Episode]:
        return play_planned(
            how.load(path),
            planning=planning,
            trials=trials,
            recover=recover,
            episodes=episodes,
            seed=seed,
            explore=not greedy,
            env_config=env_config,
            keep_frames=True,
            counterfactuals=counterfactuals,
        )

    with out.status("playing and drawing"):
        played = play(checkpoint, loading)
        if animation is not None:
            write_animation(played[0], animation)
        if beside is None:
            return write_replay(played, page)
        one, two = find_checkpoint(checkpoint), find_checkpoint(beside)
        names = name_apart(str(one), str(two))
        other = play(beside, dataclasses.replace(loading, messages=None))
        return write_comparison(dict(zip(names, (played, other), strict=True)), page, title="Side by side")


def name_apart(one: str, two: str) -> tuple[str, str]:
    """Names of two runs: where their paths begin to differ, or whole."""
    parts, others = Path(one).parts, Path(two).parts
    for part, other in zip(parts, others, strict=False):
        if part != other:
            return part, other
    return (one, two) if one != two else ("one", "the same once more")


def command(
    checkpoint: Annotated[str, typer.Argument(help="Checkpoint, trial, stage or run folder.")],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to record.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first episode; the others count up.")] = 0,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="The page; by default replay_SEED.html beside the checkpoint."),
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the most likely action instead of sampling.")] = False,
    env_config: Annotated[
        str | None, typer.Option(help="Environment settings that differ from training, as JSON.")
    ] = None,
    messages: MessagesOption = None,
    teacher: TeacherOption = None,
    message_server: ServerOption = None,
    base_model: BaseModelOption = None,
    trust: TrustRecorded = False,
    beside: Annotated[
        str | None, typer.Option(help="Another checkpoint: its episodes with the same seeds are shown beside.")
    ] = None,
    planner: PlannerOption = None,
    trials: TrialsOption = None,
    recover: RecoverOption = None,
    patience: PatienceOption = None,
    counterfactuals: Annotated[
        bool,
        typer.Option(
            "--counterfactuals/--no-counterfactuals",
            help="Score decisions with something heard once more, as if nothing had been heard.",
        ),
    ] = True,
    animation: Annotated[
        Path | None, typer.Option(help="Write the first episode as an animated picture to this file, too (.gif).")
    ] = None,
) -> None:
    """Record episodes as one HTML page: the game, what everyone saw, said, heard and thought.

    Examples:

        rllib replay results/verco/verco

        rllib replay CHECKPOINT --seed 7 --out episode.html --animation episode.gif

        rllib replay CHECKPOINT --planner scripted --trials 3

        rllib replay results/verco/verco --beside results/silent/verco --out both.html
    """
    quiet_libraries(0)
    settings = load_json_option("--env-config", env_config) if env_config else None
    if animation is not None and animation.suffix.lower() != ".gif":
        raise UserError(f"--animation is {str(animation)!r} but must be the name of a .gif file.")
    require_writable({"--out": out_file, "--animation": animation})
    page = out_file or find_checkpoint(checkpoint).parent / f"replay_{seed}.html"
    loading = Loading.of_options(messages, teacher, message_server, base_model, trust)
    replay_checkpoint(
        checkpoint, page, episodes=episodes, seed=seed, greedy=greedy, env_config=settings, loading=loading,
        beside=beside, planning=planning_of_options(planner, patience), trials=trials, recover=recover,
        counterfactuals=counterfactuals, animation=animation,
    )  # fmt: skip
    if animation is not None:
        say(f"The animated picture is {short_path(animation)}")
    say(f"Open {short_path(page)} in a browser.")
