"""`rllib zoo`: trained policies that come with the package."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Typer

from rllib_llm_comm.experiments.console import print_table, say
from rllib_llm_comm.policies.zoo import PREFIX, card_text, shipped_policies, shipped_policy

app = Typer(help="Trained policies that come with the package.", no_args_is_help=True)


@app.command("list")
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


@app.command("show")
def show(name: Annotated[str, Argument(help="Name of a shipped policy, with or without zoo:.")]) -> None:
    """Show the card of a shipped policy: what it is, how it was trained, its figures and limits."""
    shown = name.removeprefix(PREFIX)
    shipped_policy(shown)
    say(card_text(shipped_policies()[shown]))
