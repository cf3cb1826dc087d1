"""`rllib clone`: a policy that acts as the players of saved onion-soup games did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.experiments.console import say, short_path
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.experiments.ray_session import quiet_libraries


def command(
    trajectories: Annotated[
        Path, Argument(help="JSON file of Overcooked-AI with ep_states and ep_actions, or a session.")
    ],
    folder: Annotated[Path, Argument(help="Policy folder to write; a new one, or a clone to replace.")],
    layout: Annotated[str | None, Option(help="Name or .layout file of the kitchen, if the file lacks it.")] = None,
    dynamics: Annotated[str | None, Option(help='"old" or "new", if the file does not tell.')] = None,
    players: Annotated[str, Option(help="Whose decisions are learned: both, 0 or 1.")] = "both",
    half: Annotated[str, Option(help="Games that are used: all, or every other one: first or second.")] = "all",
    epochs: Annotated[int, Option(min=1, help="Passes over the decisions.")] = 100,
    lr: Annotated[float, Option(help="Learning rate of Adam.")] = 1e-3,
    held_out: Annotated[float, Option(help="Share of the decisions that are held out.")] = 0.15,
    seed: Annotated[int, Option(min=0, help="Seed of weights and batches.")] = 0,
) -> None:
    """Clone the behaviour of recorded players, such as your own human games, for cross-play and as partners.

    Examples:

        rllib clone human_games.json results/human_proxy --layout cramped_room --dynamics old

        rllib clone human_games.json results/human_proxy --players 1 --epochs 120

        rllib clone sessions/p01 results/human_proxy
    """
    quiet_libraries(0)
    from rllib_llm_comm.agents.behavior_cloning import CloningSettings, clone_players, read_demonstrations
    from rllib_llm_comm.agents.policy_manifest import MANIFEST

    settings = CloningSettings(lr=lr, epochs=epochs, held_out=held_out, players=players, half=half, seed=seed)
    if folder.exists() and not (folder / MANIFEST).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{str(folder)!r} is there and is no policy folder; give a new one.")
    demonstrations = read_demonstrations(trajectories, layout, dynamics)
    with counting_bar("cloning") as progress:
        found = clone_players(demonstrations, folder, settings, progress)
    say(
        f"{found.games} games, {found.decisions[0]} decisions learned, {found.decisions[1]} held out: "
        f"{found.agreement:.1%} agree (always the same action: {found.most_common:.1%}), cross-entropy "
        f"{found.cross_entropy:.3f} nats"
    )
    say(f"The policy is {short_path(found.folder)}")
