"""`rllib evaluate`, `replay`, `play`, `crossplay`, `export` and `zoo`: what trained policies do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from rllib_llm_comm.cli.options import Imports, TrustRecorded, of_text, takes_settings
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.session_files import is_session
from rllib_llm_comm.evaluation.play_settings import (
    CrossPlaySettings,
    EvaluationSettings,
    HostSettings,
    ReplaySettings,
)
from rllib_llm_comm.experiments.console import out, print_table, say, say_stand_ins, short_path
from rllib_llm_comm.experiments.evaluation_run import run_cross_play, run_evaluation
from rllib_llm_comm.experiments.ray_session import begin_command
from rllib_llm_comm.policies.find_checkpoint import (
    PREFIX,
    card_text,
    find_checkpoint,
    is_named,
    shipped_policies,
    shipped_policy,
)


@takes_settings(EvaluationSettings, ["trust_own"])
def evaluate_command(
    checkpoints: Annotated[
        list[str], Argument(metavar="CHECKPOINT...", help="Checkpoints, trial, stage or run folders, or zoo:NAME.")
    ],
    settings: EvaluationSettings,
    json_file: Annotated[Path | None, Option("--json", help="Write the figures to this file.")] = None,
    log: Annotated[
        Path | None, Option(help="Write all plans, attempts and reflections to this file (JSON lines).")
    ] = None,
    modules: Imports = None,
) -> None:
    """Play episodes with trained checkpoints, a row for each, and print what came out (no Ray needed).

    Examples:

        rllib evaluate results/verco/verco --episodes 50 --json evaluation.json

        rllib evaluate CHECKPOINT --greedy --env-config '{"map_name": "A"}'

        rllib evaluate CHECKPOINT --planner scripted --trials 3 --log plans.jsonl

        rllib evaluate CHECKPOINT/population/* --communication
    """
    begin_command({"--json": json_file, "--log": log}, modules)
    settings.check()
    run_evaluation(checkpoints, settings, json_path=json_file, log_path=log)


@takes_settings(ReplaySettings, ["trust_own"])
def replay_command(
    checkpoint: Annotated[
        str, Argument(help="Checkpoint, trial, stage or run folder, zoo:NAME, or a recorded session.")
    ],
    settings: ReplaySettings,
    out_file: Annotated[
        Path | None,
        Option("--out", help="The page; by default replay_SEED.html beside the checkpoint, of a shipped policy here."),
    ] = None,
    beside: Annotated[
        str | None, Option(help="Another checkpoint: its episodes with the same seeds are shown beside.")
    ] = None,
    animation: Annotated[
        Path | None, Option(help="Write the first episode as an animated picture to this file, too (.gif).")
    ] = None,
    modules: Imports = None,
) -> None:
    """Record episodes as one HTML page: the game, what everyone saw, said, heard and thought.

    Examples:

        rllib replay results/verco/verco

        rllib replay CHECKPOINT --seed 7 --out episode.html --animation episode.gif

        rllib replay CHECKPOINT --planner scripted --trials 3

        rllib replay results/verco/verco --beside results/silent/verco --out both.html

        rllib replay sessions/p01
    """
    if animation is not None and animation.suffix.lower() != ".gif":
        raise UserError(f"`--animation` is {str(animation)!r} but must be the name of a .gif file.")
    begin_command({"--out": out_file, "--animation": animation}, modules)
    if is_session(checkpoint):
        if beside or animation or settings != ReplaySettings(trust=settings.trust):
            raise UserError(
                f"{checkpoint!r} is a recorded session, which is shown as it was; omit everything but --out, "
                "--import and --trust."
            )
        from rllib_llm_comm.evaluation.replay import replay_session

        path = Path(checkpoint)
        page = out_file or (path if path.is_dir() else path.parent) / "replay.html"
        with out.status("drawing"):
            replay_session(checkpoint, page, trust=settings.trust)
    else:
        from rllib_llm_comm.evaluation.replay import replay_checkpoint

        settings.check()
        beside_it = Path() if is_named(checkpoint) else find_checkpoint(checkpoint).parent
        page = out_file or beside_it / f"replay_{settings.seed}.html"
        with out.status("playing and drawing"):
            replay_checkpoint(checkpoint, page, settings, beside=beside, animation=animation, tell=say_stand_ins)
    if animation is not None:
        say(f"The animated picture is {short_path(animation)}")
    say(f"Open {short_path(page)} in a browser.")


@takes_settings(
    HostSettings,
    ["trust_own"],
    partners=Option("--partner", metavar="[AGENT=]PARTNER"),
    record=Option(metavar="FOLDER"),
    consent=Option(metavar="FILE"),
)
def play_command(
    checkpoint: Annotated[str, Argument(help="Checkpoint, trial, stage or run folder, or zoo:NAME.")],
    settings: HostSettings,
    modules: Imports = None,
) -> None:
    """Play with trained agents in a browser: take a seat, act, talk and hear them; or watch them.

    Examples:

        rllib play results/verco/verco

        rllib play CHECKPOINT --partner scripted --seed 7

        rllib play CHECKPOINT --watch

        rllib play CHECKPOINT --record sessions/p01 --consent consent.txt
    """
    begin_command(modules=modules)
    from rllib_llm_comm.play.host import host_table

    settings.check()
    host_table(checkpoint, settings, tell=say)


@takes_settings(CrossPlaySettings, ["planning", "arrays", "trust_own"])
def crossplay_command(
    players: Annotated[
        list[str],
        Argument(help="Policies of one method, one per seed: folders, zoo:NAME, or NAME=FOLDER."),
    ],
    settings: CrossPlaySettings,
    partners: Annotated[
        Path | None,
        Option(metavar="FILE", help="YAML or JSON: groups of partners that the players have not been trained with."),
    ] = None,
    planner: Annotated[
        str | None,
        Option(metavar="NAME|JSON", help="Planner that tells subgoals to those who read them: a name, or settings."),
    ] = None,
    json_file: Annotated[Path | None, Option("--json", help="Write the figures to this file.")] = None,
    html_file: Annotated[Path | None, Option("--html", help="Write a page with heat-maps to this file.")] = None,
    replay: Annotated[
        str | None,
        Option(metavar="A,B", help="Record an episode of these, by name or number, one per seat of the game."),
    ] = None,
    replay_out: Annotated[Path | None, Option(help="With --replay: the page of the replay.")] = None,
    sentences: Annotated[
        Path | None,
        Option(metavar="FILE", help="Write a page (and JSON) of what each player does with sentences of strangers."),
    ] = None,
    modules: Imports = None,
) -> None:
    """Play every policy in every seat with every other one, and print self-play, cross-play and their gap.

    Examples:

        rllib crossplay results/seed_0 results/seed_1 results/seed_2 --episodes 20 --html cross.html

        rllib crossplay a=results/seed_0 b=results/seed_1 --partners partners.json --json cross.json

        rllib crossplay a=results/seed_0 b=results/seed_1 --replay a,b

        rllib crossplay a=results/seed_0 b=results/seed_1 --partners partners.json --sentences sentences.html

        rllib crossplay results/emma --partners partners.json --planner scripted --env-config '{"action_level":
        "primitive"}'
    """
    files = {"--json": json_file, "--html": html_file, "--replay-out": replay_out}
    if sentences is not None:  # two files
        files |= {f"--sentences ({end})": sentences.with_suffix(f".{end}") for end in ("html", "json")}
    begin_command(files, modules)
    if planner is not None:
        settings = settings.replace(planning={"planner": of_text("--planner", planner)})
    run_cross_play(
        players, settings, partners=partners, json_path=json_file, html_path=html_file, replay=replay,
        replay_path=replay_out, sentences=sentences,
    )  # fmt: skip


def export_command(
    checkpoint: Annotated[str, Argument(help="Checkpoint, trial, stage or run folder.")],
    folder: Annotated[Path, Argument(help="Folder to write; it must be empty or new.")],
    merge: Annotated[
        bool, Option("--merge", help="Write a whole model per adapter (message, action) in place of base + adapters.")
    ] = False,
    dtype: Annotated[str | None, Option(help="bfloat16 or float16: write the adapters in half as many bytes.")] = None,
    base_model: Annotated[
        str | None, Option(help="Where the base model lies, if not where it lay in training.")
    ] = None,
    trust: TrustRecorded = False,
) -> None:
    """Write a checkpoint's base model and adapters as folders that transformers and PEFT load by themselves.

    Examples:

        rllib export results/verco/verco models

        rllib export results/verco/verco merged --merge
    """
    begin_command()
    from rllib_llm_comm.verco.export_models import export_models

    with out.status("writing models"):
        written = export_models(checkpoint, folder, merge=merge, dtype=dtype, base_model=base_model, trust=trust)
    for place in written:
        say(f"Written: {short_path(place)}")


zoo_app = Typer(help="Trained policies that come with the package.", no_args_is_help=True)


@zoo_app.command("list")
def list_policies() -> None:
    """Show all shipped policies; `rllib play zoo:NAME`, `rllib evaluate zoo:NAME` and others take them."""
    rows = [
        [
            PREFIX + name,
            card.game.removeprefix("rllib_llm_comm/"),
            f"{card.figures[0].return_mean:.2f}",
            card.figures[0].solved,
            "yes" if card.talks else "no",
        ]
        for name, card in shipped_policies().items()
    ]
    heading = ["policy", "game", "return", "solved", "talks"]
    # A name that is broken over two lines cannot be copied.
    print_table([heading, *rows], "`rllib zoo show NAME` tells more", ["talks", "solved", "game"])


@zoo_app.command("show")
def show_policy(name: Annotated[str, Argument(help="Name of a shipped policy, with or without zoo:.")]) -> None:
    """Show the card of a shipped policy: what it is, how it was trained, its figures and limits."""
    shown = name.removeprefix(PREFIX)
    shipped_policy(shown)
    say(card_text(shipped_policies()[shown]))
