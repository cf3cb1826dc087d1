"""`rllib clone` and `rllib officer`: policies that act as recorded or given players do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.experiments.console import counting_bar, print_table, require_writable, say, short_path
from rllib_llm_comm.experiments.experiment_file import ExperimentFile, TrainSettings, load_json_option, make_experiment
from rllib_llm_comm.experiments.ray_session import quiet_libraries
from rllib_llm_comm.experiments.run_experiments import run_experiments

_ROWS, _CLONE = "demonstrations", "clone"


def clone_language_agents(player: str, base_model: str, folder: Path, **given: Any) -> None:
    """Collects demonstrations and trains the action adapter; a killed call goes on.

    Args:
        player: A session's folder, a checkpoint, "scripted", or another name of `collect_demonstrations`.
        base_model: The language model.
        folder: The run's folder, with the stages `demonstrations` and `clone`; `find_policy` takes that of the latter.
        **given: `env` and `env_config` of the game, if not those of the session or checkpoint; `messages`,
            `demonstrations` (rows to collect; of a session all of them, up to so many) and `random_share` as of
            `collect_demonstrations`; `epochs` (passes over the rows), `lr` and `held_out` as of `ActionSFT`; `seed`.

    Raises:
        UserError: If a setting is not allowed, or the folder holds something else.
    """
    if folder.exists() and not (folder / _ROWS).is_dir() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{str(folder)!r} is there and is no run of such a clone; give a new folder.")
    env, env_config, player = _game(player, given.get("env"), given.get("env_config") or {})
    epochs, seed = given.get("epochs", 8), given.get("seed", 0)
    named = {"messages": "messages", "demonstrations": "target_demonstrations", "random_share": "random_share"}
    rows = {"env_config": env_config, "player": player, "seed": seed}
    rows |= {setting: given[option] for option, setting in named.items() if option in given}
    training = {
        "input_": f"${{{_ROWS}}}",
        "base_model": base_model,
        "lr": given.get("lr", 3e-3),
        "anneal": epochs,
        "held_out_share": given.get("held_out", 0.1),
        "seed": seed,
    }
    stages: dict[str, dict[str, Any]] = {
        _ROWS: {"run": "collect_demonstrations", "env": env, "config": rows},
        _CLONE: {"run": "ActionSFT", "stop": {"training_iteration": epochs}, "config": training},
    }
    file = ExperimentFile(folder.name, {name: make_experiment(name, spec) for name, spec in stages.items()})
    run_experiments(file, TrainSettings(storage_path=str(folder.absolute().parent), experiment_name=folder.name))
    clone = short_path(folder / _CLONE)
    say(f"To train on from it, set `action_checkpoint: {clone}` in the `config` of Verco or TWOSOME.")


def _game(player: str, env: str | None, given: Mapping[str, Any]) -> tuple[str, dict[str, Any], Any]:
    """Id and settings of the game, and the player as of `collect_demonstrations`."""
    from rllib_llm_comm.core.session_files import is_session, read_session
    from rllib_llm_comm.policies.partner_settings import CHECKPOINT, PartnerSettings
    from rllib_llm_comm.policies.policy_folder import find_policy
    from rllib_llm_comm.policies.policy_manifest import read_manifest
    from rllib_llm_comm.policies.recorded_settings import granted, withhold

    env_config = dict(given)
    if is_session(player):
        session = read_session(player)
        return env or session.env, env_config or session.env_config, {"sessions": [player]}
    if env is None and PartnerSettings(policy=player).kind == CHECKPOINT:
        manifest = withhold(read_manifest(find_policy(player)))
        env = manifest.env
        env_config = {**{name: granted(value) for name, value in manifest.env_config.items()}, **env_config}
    if env is None:
        raise UserError(f"`--env` is missing; say which game the player {player!r} plays.")
    return env, env_config, player


_LANGUAGE, _NUMBERS = "language agents (`--base-model`)", "numeric clones (without `--base-model`)"


def clone_command(
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
        clone_language_agents(player, base_model, folder, **given)
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


officer_app = typer.Typer(
    no_args_is_help=True, help="Officers of MiniRTS that follow sentences: demonstrate, clone, judge."
)

Opponent = Annotated[str, Option(help="The scripted opponent, as in the game's settings.")]
Commanders = Annotated[int, Option("--num-agents", min=1, max=3, help="Commanders of the side.")]
Ticks = Annotated[int, Option(min=100, help="Length of a game.")]


@officer_app.command("demonstrations")
def demonstrations(
    folder: Annotated[Path, Argument(help="Folder to write; one with the same settings gets more games.")],
    games: Annotated[int, Option(min=1, help="Games in all.")] = 400,
    opponent: Opponent = "medium2",
    num_agents: Commanders = 2,
    max_tick: Ticks = 12800,
    oracle: Annotated[float, Option(min=0, help="Share of games under the oracle.")] = 0.4,
    random: Annotated[float, Option(min=0, help="Share under random commands.")] = 0.4,
    adversarial: Annotated[float, Option(min=0, help="Share under the adversary.")] = 0.2,
    delay: Annotated[float, Option(help="Chance that an officer orders nothing at a decision.")] = 0.2,
    wrong: Annotated[float, Option(help="Chance of a wrong target.")] = 0.15,
    rule: Annotated[str, Option(help="Rule of the label: turns, same or majority.")] = "turns",
    seed: Annotated[int, Option(min=0, help="Of everything that is drawn.")] = 0,
) -> None:
    """Record games of imperfect scripted officers as demonstrations to learn from.

    Examples:

        rllib officer demonstrations results/demonstrations --games 400
    """
    from rllib_llm_comm.baselines.red.officer_cloning import (
        DemonstrationSettings,
        idle_share,
        write_demonstrations,
    )

    shares = {"oracle": oracle, "random": random, "adversarial": adversarial}
    settings = DemonstrationSettings(
        games=games,
        opponent=opponent,
        num_agents=num_agents,
        max_tick=max_tick,
        commanders=shares,
        delay=delay,
        wrong=wrong,
        rule=rule,  # type: ignore[arg-type]  # its model checks it
        seed=seed,
    )
    with counting_bar("demonstrating") as progress:
        rows = write_demonstrations(folder, settings, progress)
    won = {name: [game["result"] == 1 for game in rows.games if game["commander"] == name] for name in shares}
    told = ", ".join(f"{name} {sum(results)} of {len(results)}" for name, results in won.items() if results)
    say(f"{len(rows.games)} games, {len(rows)} decisions, nothing ordered at {idle_share(rows):.1%}; won under {told}")
    say(f"The demonstrations are {short_path(folder)}")


@officer_app.command("clone")
def clone_officer_command(
    source: Annotated[Path, Argument(metavar="DEMONSTRATIONS", help="Folder of demonstrations.")],
    folder: Annotated[Path, Argument(help="Policy folder to write; a new one, or an officer to replace.")],
    epochs: Annotated[int, Option(min=1, help="Most passes over the decisions.")] = 8,
    lr: Annotated[float, Option(help="Learning rate of Adamax.")] = 2e-3,
    batch_size: Annotated[int, Option(min=1, help="Decisions per gradient step.")] = 128,
    idle: Annotated[float, Option(help="Share of decisions without orders that a pass takes.")] = 0.3,
    held_out: Annotated[float, Option(help="Share of games that is held out.")] = 0.1,
    filters: Annotated[int, Option(min=1, help="Filters of the convolutions.")] = 32,
    stride: Annotated[int, Option(min=1, max=2, help="Cells per step of the first convolution.")] = 2,
    width: Annotated[int, Option(min=1, help="Length of the vectors of units.")] = 64,
    seed: Annotated[int, Option(min=0, help="Of weights and batches.")] = 0,
    start: Annotated[str | None, Option(help="Officer to go on from.")] = None,
) -> None:
    """Train an officer to order what was demonstrated, when told the same.

    The officer is written after each pass over the decisions that is the best yet, so that a call that is cut off
    leaves one; with --start training goes on from it.

    Examples:

        rllib officer clone results/demonstrations results/officer

        rllib officer clone results/demonstrations results/officer --epochs 50 --filters 64 --stride 1
    """
    quiet_libraries(0)
    from rllib_llm_comm.baselines.red.officer_cloning import OfficerCloningSettings, clone_into
    from rllib_llm_comm.baselines.red.officer_network import OfficerSettings
    from rllib_llm_comm.policies.policy_manifest import MANIFEST

    network = OfficerSettings(filters=filters, stride=stride, width=width)
    settings = OfficerCloningSettings(
        network=network,
        lr=lr,
        epochs=epochs,
        batch_size=batch_size,
        idle=idle,
        held_out=held_out,
        seed=seed,
        start=start,
    )
    if folder.exists() and not (folder / MANIFEST).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{str(folder)!r} is there and is no policy folder; give a new one.")
    with counting_bar("cloning") as progress:
        found = clone_into(folder, source, settings, progress)
    say(
        f"{found.decisions[0]} decisions learned, {found.decisions[1]} held out, {len(found.nll)} passes: "
        f"held-out loss {found.nll[0]:.3f} nats after the first, {min(found.nll):.3f} at best"
    )
    say(f"The officer is {short_path(folder)}")


@officer_app.command("play")
def play_officer_command(
    executor: Annotated[str, Argument(help="scripted, trained:CHECKPOINT, or switch:TOLD:UNTOLD.")] = "scripted",
    commanders: Annotated[str, Option(help="Names, such as oracle,none,random:0.5,adversarial.")] = (
        "oracle,none,random,adversarial"
    ),
    games: Annotated[int, Option(min=1, help="Games per commander.")] = 100,
    seed: Annotated[int, Option(min=0, help="Seed of the first game.")] = 0,
    opponent: Opponent = "medium2",
    num_agents: Commanders = 2,
    max_tick: Ticks = 12800,
    side_by_side: Annotated[int, Option(min=1, help="Games played at once; changes no result.")] = 16,
    json_file: Annotated[Path | None, Option("--json", help="File that keeps all games and their figures.")] = None,
) -> None:
    """Win rates of officers under scripted commanders. With --json a call that was cut off goes on.

    Examples:

        rllib officer play trained:results/officer --json officer.json

        rllib officer play scripted --commanders oracle --games 300

        rllib officer play switch:results/officer:results/rl --commanders oracle,none,random:0.5
    """
    quiet_libraries(0)
    from rllib_llm_comm.evaluation.officers import OfficerScoreSettings, officer_scores

    require_writable({"--json": json_file})
    named = [name.strip() for name in commanders.split(",") if name.strip()]
    settings = OfficerScoreSettings(executor, named, games, seed, opponent, num_agents, max_tick, side_by_side)
    with counting_bar("playing") as progress:
        found = officer_scores(settings, json_file, progress)
    rows = [["commander", "games", "won", "95 %", "drawn", "lost"]]
    for name in named:
        one = found["summary"][name]
        low, high = one["won_95"]
        shares = [f"{one['won']:.2f}", f"{low:.2f} to {high:.2f}", f"{one['drawn']:.2f}", f"{one['lost']:.2f}"]
        rows.append([name, str(one["games"]), *shares])
    print_table(rows, f"officers: {executor}, opponent: {opponent}")


@officer_app.command("build")
def build(
    executor: Annotated[str, Argument(help="scripted, trained:CHECKPOINT, or switch:TOLD:UNTOLD.")] = "scripted",
    units: Annotated[str, Option(help="Units, such as spearman,archer; all fighters by default.")] = "",
    games: Annotated[int, Option(min=1, help="Games per unit, told and not told.")] = 100,
    decisions: Annotated[int, Option(min=1, help="Decisions until the building stands, and until the unit.")] = 30,
    seed: Annotated[int, Option(min=0, help="Seed of the first game.")] = 0,
    opponent: Opponent = "medium2",
    num_agents: Commanders = 2,
    side_by_side: Annotated[int, Option(min=1, help="Games played at once; changes no result.")] = 16,
    json_file: Annotated[Path | None, Option("--json", help="File for the figures.")] = None,
) -> None:
    """Shares of games in which officers make a unit within 30 decisions, told to and not told.

    Examples:

        rllib officer build trained:results/officer --json build.json

        rllib officer build scripted --units archer,dragon --games 20
    """
    quiet_libraries(0)
    import json

    from rllib_llm_comm.core.files import write_atomically
    from rllib_llm_comm.evaluation.officers import UNITS, OfficerTaskSettings, officer_tasks

    require_writable({"--json": json_file})
    named = tuple(name.strip() for name in units.split(",") if name.strip()) or UNITS
    settings = OfficerTaskSettings(executor, named, games, decisions, seed, opponent, num_agents, side_by_side)
    with counting_bar("building") as progress:
        found = officer_tasks(settings, progress)
    if json_file is not None:
        write_atomically(json_file, json.dumps(found, separators=(",", ":")) + "\n")
    rows = [["unit", "building", "told", "95 %", "untold", "95 %"]]
    rows += [
        [unit, f"{one['building']:.2f}", *_shown(one, "told"), *_shown(one, "not_told")]
        for unit, one in (found["units"].items())
    ]
    print_table(rows, f"officers: {executor}, within {decisions} decisions each")


@officer_app.command("compare")
def compare_officers_command(
    files: Annotated[list[Path], Argument(help="Files of `rllib officer play --json`.")],
    json_file: Annotated[Path | None, Option("--json", help="File for the figures.")] = None,
) -> None:
    """Win rates of several officers, and whether they fall from oracle to none, random and adversarial.

    A step holds if the difference is above 0 at the level 0.05 after Holm's correction over all steps. Files may be of
    different seeds or numbers of games; a note says so.

    Examples:

        rllib officer compare seed_0.json seed_1.json seed_2.json
    """
    import json

    from rllib_llm_comm.core.files import write_atomically
    from rllib_llm_comm.evaluation.officers import apart_note, missing_commanders, order_steps, read_scores
    from rllib_llm_comm.evaluation.statistics import wilson

    if json_file is not None and json_file.resolve() in {file.resolve() for file in files}:
        raise UserError(f"`--json` is {str(json_file)!r}, one of the files to compare; give another file.")
    require_writable({"--json": json_file})
    scores = read_scores(files)
    steps = order_steps(scores)
    rows = [["officer", "commander", "games", "won", "95 %"]]
    for officer, one in scores.items():
        for name, (won, games) in one["won"].items():
            share = wilson(won, games)
            rows.append([officer, name, str(games), f"{share.value:.2f}", f"{share.low:.2f} to {share.high:.2f}"])
    print_table(rows, "share of games won")
    told = [["officer", "step", "difference", "intervals", "p, corrected", "holds"]]
    for step in steps:
        apart = "overlap" if step.overlap else "apart"
        words = [f"{step.difference:+.2f}", apart, f"{step.p_corrected:.2g}", "yes" if step.holds else "no"]
        told.append([step.officer, f"{step.above} > {step.below}", *words])
    if steps:
        print_table(told, "the order of RED's paper")
    if note := apart_note(scores):
        say(note)
    for officer, one in scores.items():
        if lacking := missing_commanders(one):
            say(f"{officer} has no games under {', '.join(lacking)}, so its order is not tested.")
    if json_file is not None:
        found = {"officers": scores, "steps": [{**step._asdict(), "holds": step.holds} for step in steps]}
        write_atomically(json_file, json.dumps(found, separators=(",", ":")) + "\n")


def _shown(figures: dict[str, Any], name: str) -> list[str]:
    """A share and its interval; dashes where no building stood."""
    if name not in figures:
        return ["-", "-"]
    low, high = figures[f"{name}_95"]
    return [f"{figures[name]:.2f}", f"{low:.2f} to {high:.2f}"]
