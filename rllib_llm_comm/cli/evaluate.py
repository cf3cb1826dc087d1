"""`rllib evaluate`, `replay`, `play`, `crossplay`, `export` and `zoo`: what trained policies do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

from rllib_llm_comm.cli.options import Imports, TrustRecorded, json_of, name_or_json, takes_settings
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.session_files import is_session
from rllib_llm_comm.experiments.console import (
    import_modules,
    out,
    print_table,
    require_writable,
    say,
    say_stand_ins,
    short_path,
)
from rllib_llm_comm.experiments.evaluation_run import run_cross_play, run_evaluation
from rllib_llm_comm.experiments.ray_session import quiet_libraries
from rllib_llm_comm.policies.find_checkpoint import (
    PREFIX,
    card_text,
    find_checkpoint,
    is_named,
    shipped_policies,
    shipped_policy,
)
from rllib_llm_comm.policies.load_policy import Loading

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.play_settings import PlaySettings


@dataclass(frozen=True)
class PlayOptions:
    """Options of play in the words of the command line; `None` stands for the value of the training.

    Attributes:
        greedy: True if the most likely action is taken.
        env_config: Settings of the environment that differ from training.
        messages: Message mode.
        teacher: The teacher's name or settings.
        message_server: Settings of the server of messages; "none": the policy itself.
        base_model: Path of the base model.
        trust: True if recorded settings that reach beyond this program are used.
        planner: A name or settings of `make_planner`; "none": nobody plans.
        trials: Most reflections per round.
        recover: Recovery of failed rounds, "snapshot" or "replay".
        patience: Game steps after which a subgoal counts as not done.
        modules: Modules that are imported first; they register a user's own games, planners or teachers.
    """

    greedy: bool = False
    env_config: Mapping[str, Any] | None = None
    messages: str | None = None
    teacher: str | Mapping[str, Any] | None = None
    message_server: str | Mapping[str, Any] | None = None
    base_model: str | None = None
    trust: bool = False
    planner: str | Mapping[str, Any] | None = None
    trials: int | None = None
    recover: str | None = None
    patience: int | None = None
    modules: Sequence[str] | None = None

    def settings(self, reference: str | None = None, num_envs: int = 1) -> PlaySettings:
        """The settings of play, after the import of `modules`.

        Args:
            reference: The checkpoint whose message adapter drift is measured from.
            num_envs: Episodes that are played at once.

        Raises:
            UserError: If a module cannot be imported, there is no such planner, or it is not allowed.
        """
        from rllib_llm_comm.evaluation.play_settings import PlaySettings
        from rllib_llm_comm.experiments.console import import_modules
        from rllib_llm_comm.experiments.stages_without_tune import planning_of

        import_modules(self.modules)
        loading = Loading(
            self.messages, self.teacher, self.message_server, self.base_model, self.trust, reference=reference
        )
        planning = planning_of(self.planner, self.patience)
        return PlaySettings(self.greedy, self.env_config or {}, loading, planning, self.trials, self.recover, num_envs)


def _server(text: str) -> str | dict[str, Any]:
    return text if text.strip() == "none" else json_of("--message-server")(text)


_OPTIONS: dict[str, Any] = {
    "greedy": Annotated[bool, Option("--greedy", help="Take the most likely action instead of sampling.")],
    "env_config": Annotated[str | None, Option(help="Environment settings that differ from training, as JSON.")],
    "messages": Annotated[
        str | None,
        Option(
            help="Another message mode: none, student, teacher, other_moments, other_fact, constant, menu or swapped."
        ),
    ],
    "teacher": Annotated[
        str | None,
        Option(
            metavar="NAME|JSON",
            help="Who speaks with --messages teacher: scripted, or a JSON object with name, ...",
        ),
    ],
    "message_server": Annotated[
        str | None,
        Option(
            "--message-server",
            metavar="JSON",
            help="Who writes messages: a JSON object with base_url, ..., or 'none'.",
        ),
    ],
    "base_model": Annotated[str | None, Option(help="Where the base model lies, if not where it lay in training.")],
    "trust": TrustRecorded,
    "planner": Annotated[
        str | None,
        Option(
            metavar="NAME|JSON",
            help="Who says what agents shall do: scripted, plan4mc, one of your own (--import), 'none', or a JSON "
            "object with name and settings.",
        ),
    ],
    "trials": Annotated[
        int | None, Option(min=0, help="Think failures over: put each failed round back at most so many times.")
    ],
    "recover": Annotated[
        str | None,
        Option(help="How a failed round is put back: snapshot (default) or replay; only with --trials."),
    ],
    "patience": Annotated[int | None, Option(min=1, help="Game steps after which a subgoal counts as not done.")],
    "modules": Imports,
}

_READ = {
    "env_config": json_of("--env-config"),
    "teacher": name_or_json("--teacher"),
    "message_server": _server,
    "planner": name_or_json("--planner"),
}

takes_play_options = takes_settings(PlayOptions, _OPTIONS, _READ)


@takes_play_options
def evaluate_command(
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


@takes_play_options
def replay_command(
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
    page = out_file or _place_beside(checkpoint) / f"replay_{seed}.html"
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
    from rllib_llm_comm.experiments.console import import_modules

    import_modules(settings.modules)
    path = Path(folder)
    page = out_file or (path if path.is_dir() else path.parent) / "replay.html"
    with out.status("drawing"):
        replay_session(folder, page, trust=settings.trust)
    say(f"Open {short_path(page)} in a browser.")


def _place_beside(checkpoint: str) -> Path:
    """The folder of a page that has no place of its own: beside the checkpoint, or here if that has only a name."""
    return Path() if is_named(checkpoint) else find_checkpoint(checkpoint).parent


@takes_play_options
def play_command(
    checkpoint: Annotated[str, Argument(help="Checkpoint, trial, stage or run folder, or zoo:NAME.")],
    settings: PlayOptions,
    partners: Annotated[
        list[str] | None,
        Option(
            "--partner",
            metavar="[AGENT=]PARTNER",
            help="Plays in place of the checkpoint: scripted, random, stay, a checkpoint or module:function; may be "
            "given several times. Without AGENT it takes the last seat.",
        ),
    ] = None,
    seed: Annotated[int, Option(min=0, help="Seed of the first episode.")] = 0,
    watch: Annotated[bool, Option("--watch", help="Begin at once; without it the game waits for a person.")] = False,
    why: Annotated[bool, Option("--why/--no-why", help="Whether people may ask why agents did what they did.")] = True,
    spectators: Annotated[
        bool,
        Option(
            "--spectators/--no-spectators",
            help="Whether browsers without a seat are shown the game, with what every seat alone is told.",
        ),
    ] = True,
    host: Annotated[str, Option(help="Address to listen on; others than 127.0.0.1 open the page to a network.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    record: Annotated[
        Path | None, Option(metavar="FOLDER", help="Record the session: what is seen, said and done, in a new folder.")
    ] = None,
    consent: Annotated[
        Path | None, Option(metavar="FILE", help="A text to which people have to agree before they sit down.")
    ] = None,
    browser: Annotated[bool, Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Play with trained agents in a browser: take a seat, act, talk and hear them; or watch them.

    Examples:

        rllib play results/verco/verco

        rllib play CHECKPOINT --partner scripted --seed 7

        rllib play CHECKPOINT --watch

        rllib play CHECKPOINT --record sessions/p01 --consent consent.txt
    """
    quiet_libraries(0)
    from rllib_llm_comm.play.host import Hosting, host_table, read_consent

    text = "" if consent is None else read_consent(consent)
    chosen = Hosting(
        host=host, port=port, watch=watch, why=why, spectators=spectators, browser=browser, record=record, consent=text
    )
    host_table(
        checkpoint, partners=partners or (), settings=settings.settings(), seed=seed, hosting=chosen, tell=say
    )  # fmt: skip


def crossplay_command(
    players: Annotated[
        list[str],
        Argument(help="Policies of one method, one per seed: folders, zoo:NAME, or NAME=FOLDER."),
    ],
    partners: Annotated[
        Path | None,
        Option(metavar="FILE", help="YAML or JSON: groups of partners that the players have not been trained with."),
    ] = None,
    episodes: Annotated[int, Option(min=1, help="Episodes per pair and seat.")] = 10,
    seed: Annotated[int, Option(min=0, help="Seed of the first episode; the others count up.")] = 0,
    greedy: Annotated[bool, Option("--greedy", help="Take the most likely action instead of sampling.")] = False,
    metric: Annotated[str, Option(help="The score: return, or a metric of the game, such as score.")] = "return",
    env: Annotated[str | None, Option(help="Environment, if it is not that of the checkpoints.")] = None,
    env_config: Annotated[str | None, Option(help="Environment settings that differ from training, as JSON.")] = None,
    planner: Annotated[
        str | None,
        Option(metavar="NAME|JSON", help="Planner that tells subgoals to those who read them: a name, or settings."),
    ] = None,
    num_envs: Annotated[int, Option(min=1, help="Episodes played at once.")] = 16,
    json_file: Annotated[Path | None, Option("--json", help="Write the figures to this file.")] = None,
    html_file: Annotated[Path | None, Option("--html", help="Write a page with heat-maps to this file.")] = None,
    replay: Annotated[
        str | None,
        Option(metavar="A,B", help="Record an episode of these, by name or number, one per seat of the game."),
    ] = None,
    replay_out: Annotated[Path | None, Option(help="With --replay: the page of the replay.")] = None,
    trust: TrustRecorded = False,
    modules: Imports = None,
) -> None:
    """Play every policy in every seat with every other one, and print self-play, cross-play and their gap.

    Examples:

        rllib crossplay results/seed_0 results/seed_1 results/seed_2 --episodes 20 --html cross.html

        rllib crossplay a=results/seed_0 b=results/seed_1 --partners partners.json --json cross.json

        rllib crossplay a=results/seed_0 b=results/seed_1 --replay a,b

        rllib crossplay results/emma --partners partners.json --planner scripted --env-config '{"action_level":
        "primitive"}'
    """
    quiet_libraries(0)
    require_writable({"--json": json_file, "--html": html_file, "--replay-out": replay_out})
    import_modules(modules)
    from rllib_llm_comm.evaluation.cross_play import CrossPlaySettings
    from rllib_llm_comm.policies.load_policy import Loading

    config = None if env_config is None else json_of("--env-config")(env_config)
    planning = None if planner is None else {"planner": name_or_json("--planner")(planner)}
    settings = CrossPlaySettings(
        episodes, seed, greedy, metric, env, config, num_envs, loading=Loading(trust=trust), planning=planning
    )
    run_cross_play(
        players, settings, partners=partners, json_path=json_file, html_path=html_file, replay=replay,
        replay_path=replay_out,
    )  # fmt: skip


def export_command(
    checkpoint: Annotated[str, Argument(help="Checkpoint, trial, stage or run folder.")],
    folder: Annotated[Path, Argument(help="Folder to write; it must be empty or new.")],
    merge: Annotated[
        bool, Option("--merge", help="Write a whole model per adapter (message, action) in place of base + adapters.")
    ] = False,
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
    quiet_libraries(0)
    from rllib_llm_comm.verco.export_models import export_models

    with out.status("writing models"):
        written = export_models(checkpoint, folder, merge=merge, base_model=base_model, trust=trust)
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
