"""`rllib play`: a page on which people take seats beside trained agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from rllib_llm_comm.cli.play_options import PlayOptions, takes_play_options
from rllib_llm_comm.experiments.console import say
from rllib_llm_comm.experiments.ray_session import quiet_libraries


@takes_play_options
def command(
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
