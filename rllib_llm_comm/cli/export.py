"""`rllib export`: the language models of a checkpoint for transformers, PEFT and their servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from rllib_llm_comm.cli.options import TrustRecorded
from rllib_llm_comm.experiments.console import out, say, short_path
from rllib_llm_comm.experiments.ray_session import quiet_libraries


def command(
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
