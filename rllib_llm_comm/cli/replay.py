"""`rllib replay`: episodes of a checkpoint as one page to open in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from rllib_llm_comm.cli.play_options import PlayOptions, takes_play_options
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.session_files import is_session
from rllib_llm_comm.experiments.console import out, say, say_stand_ins, short_path
from rllib_llm_comm.experiments.outputs import require_writable
from rllib_llm_comm.experiments.ray_session import quiet_libraries
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint, is_named


@takes_play_options
def command(
    checkpoint: Annotated[
        str, Argument(help="Checkpoint, trial, stage or run folder, zoo:NAME, or a recorded session.")
    ],
    settings: PlayOptions,
    episodes: Annotated[int, Option(min=1, help="Episodes to record.")] = 1,
    seed: Annotated[int, Option(min=0, help="Seed of the first episode; the others count up.")] = 0,
    out_file: Annotated[
        Path | None,
        Option("--out", help="The page; by default replay_SEED.html beside the checkpoint, of a shipped policy here."),
    ] = None,
    beside: Annotated[
        str | None, Option(help="Another checkpoint: its episodes with the same seeds are shown beside.")
    ] = None,
    counterfactuals: Annotated[
        bool,
        Option(
            "--counterfactuals/--no-counterfactuals",
            help="Score decisions with something heard once more, as if nothing had been heard.",
        ),
    ] = True,
    animation: Annotated[
        Path | None, Option(help="Write the first episode as an animated picture to this file, too (.gif).")
    ] = None,
) -> None:
    """Record episodes as one HTML page: the game, what everyone saw, said, heard and thought.

    Examples:

        rllib replay results/verco/verco

        rllib replay CHECKPOINT --seed 7 --out episode.html --animation episode.gif

        rllib replay CHECKPOINT --planner scripted --trials 3

        rllib replay results/verco/verco --beside results/silent/verco --out both.html

        rllib replay sessions/p01
    """
    quiet_libraries(0)
    if is_session(checkpoint):
        _replay_session(checkpoint, settings, out_file, beside or animation)
        return
    if animation is not None and animation.suffix.lower() != ".gif":
        raise UserError(f"--animation is {str(animation)!r} but must be the name of a .gif file.")
    require_writable({"--out": out_file, "--animation": animation})
    page = out_file or _beside(checkpoint) / f"replay_{seed}.html"
    from rllib_llm_comm.evaluation.replay_checkpoint import replay_checkpoint

    with out.status("playing and drawing"):
        replay_checkpoint(
            checkpoint, page, episodes=episodes, seed=seed, settings=settings.settings(), beside=beside,
            counterfactuals=counterfactuals, animation=animation, tell=say_stand_ins,
        )  # fmt: skip
    if animation is not None:
        say(f"The animated picture is {short_path(animation)}")
    say(f"Open {short_path(page)} in a browser.")


def _replay_session(folder: str, settings: PlayOptions, out_file: Path | None, other: object) -> None:
    """A recorded session as a page; options of play have nothing to change in what is past."""
    if other is not None or settings != PlayOptions(modules=settings.modules, trust=settings.trust):
        raise UserError(
            f"{folder!r} is a recorded session, which is shown as it was; leave everything away but --out, --import "
            "and --trust."
        )
    require_writable({"--out": out_file})
    from rllib_llm_comm.evaluation.session_replay import replay_session
    from rllib_llm_comm.experiments.import_modules import import_modules

    import_modules(settings.modules)
    path = Path(folder)
    page = out_file or (path if path.is_dir() else path.parent) / "replay.html"
    with out.status("drawing"):
        replay_session(folder, page, trust=settings.trust)
    say(f"Open {short_path(page)} in a browser.")


def _beside(checkpoint: str) -> Path:
    """The folder of a page that has no place of its own: beside the checkpoint, or here if that has only a name."""
    return Path() if is_named(checkpoint) else find_checkpoint(checkpoint).parent
