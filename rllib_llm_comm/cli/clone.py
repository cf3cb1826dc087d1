"""`rllib clone`: a policy that acts as recorded or given players do, of numbers or of a language model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.experiments.clone_run import LanguageClone, clone_language_agents
from rllib_llm_comm.experiments.console import say, short_path
from rllib_llm_comm.experiments.experiment_file import load_json_option
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.experiments.ray_session import quiet_libraries

_LANGUAGE, _NUMBERS = "language agents (`--base-model`)", "numeric clones (without `--base-model`)"


def command(
    player: Annotated[
        str,
        Argument(
            metavar="PLAYER",
            help="JSON file of Overcooked-AI with ep_states and ep_actions, or a session; with --base-model a session, "
            'a checkpoint, "scripted" or "module:function".',
        ),
    ],
    folder: Annotated[
        Path, Argument(help="Policy folder to write; a new one, or a clone to replace. With --base-model of a run.")
    ],
    layout: Annotated[str | None, Option(help="Name or .layout file of the kitchen, if the file lacks it.")] = None,
    dynamics: Annotated[str | None, Option(help='"old" or "new", if the file does not tell.')] = None,
    players: Annotated[str | None, Option(help="Whose decisions are learned: both (default), 0 or 1.")] = None,
    half: Annotated[
        str | None, Option(help="Games that are used: all (default), or every other one: first or second.")
    ] = None,
    epochs: Annotated[
        int | None, Option(min=1, help="Passes over the decisions: 100, with --base-model 8 by default.")
    ] = None,
    lr: Annotated[float | None, Option(help="Learning rate: 1e-3, with --base-model 3e-3 by default.")] = None,
    held_out: Annotated[
        float | None, Option(help="Share of the decisions that are held out: .15, with --base-model .1 by default.")
    ] = None,
    seed: Annotated[int, Option(min=0, help="Seed of all that is drawn.")] = 0,
    base_model: Annotated[
        str | None, Option(help="Clone language agents on this model: embedded, a folder or a hub id.")
    ] = None,
    env: Annotated[
        str | None, Option(help="Game of language agents, if player is neither session nor checkpoint.")
    ] = None,
    env_config: Annotated[str | None, Option(metavar="JSON", help="Settings of that game.")] = None,
    messages: Annotated[
        str | None, Option(help="What language agents hear: none (default), own (the player's), teacher.")
    ] = None,
    demonstrations: Annotated[
        int | None, Option(min=1, help="Rows that language agents learn from: 2000 by default.")
    ] = None,
    random_share: Annotated[
        float | None, Option(help="Share of random moves that are played but not learned: .25 by default.")
    ] = None,
) -> None:
    """Clone the behaviour of players, such as people in your own games, for cross-play, as partners or as a start.

    With --base-model it collects demonstrations in words and trains the action adapter of a language model, as the
    stages collect_demonstrations and ActionSFT of a file do; a killed command goes on.

    Examples:

        rllib clone human_games.json results/human_proxy --layout cramped_room --dynamics old

        rllib clone human_games.json results/human_proxy --players 1 --epochs 120

        rllib clone sessions/p01 results/human_proxy

        rllib clone scripted results/cook --base-model embedded --env rllib_llm_comm/overcooked_text-v0
    """
    of_numbers = {"layout": layout, "dynamics": dynamics, "players": players, "half": half}
    of_language = {
        "env": env, "env_config": env_config, "messages": messages, "demonstrations": demonstrations,
        "random_share": random_share,
    }  # fmt: skip
    useless, whose = (of_language, _LANGUAGE) if base_model is None else (of_numbers, _NUMBERS)
    for name, value in useless.items():
        if value is not None:
            raise UserError(f"`--{name.replace('_', '-')}` is {value!r}, which is for {whose} alone; omit it.")
    both = {"epochs": epochs, "lr": lr, "held_out": held_out, "seed": seed}
    given: dict[str, Any] = {
        name: value for name, value in {**both, **of_numbers, **of_language}.items() if value is not None
    }
    if base_model is not None:
        if env_config is not None:
            given["env_config"] = load_json_option("--env-config", env_config)
        clone_language_agents(LanguageClone(player=player, base_model=base_model, **given), folder)
    else:
        _clone_numbers(local_path(player, "PLAYER"), folder, given)


def _clone_numbers(trajectories: Path, folder: Path, given: dict[str, Any]) -> None:
    quiet_libraries(0)
    from rllib_llm_comm.baselines.numeric.behavior_cloning import CloningSettings, clone_players, read_demonstrations
    from rllib_llm_comm.policies.policy_manifest import MANIFEST

    layout, dynamics = given.pop("layout", None), given.pop("dynamics", None)
    settings = CloningSettings(**given)
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
