"""`rllib clone` and `rllib officer`: policies that act as recorded or given players do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import Field
from typer import Argument, Option

from rllib_llm_comm.baselines.red.officer_settings import (
    OfficerCloningSettings,
    OfficerDemonstrationSettings,
    OfficerScoreSettings,
    OfficerSettings,
    OfficerTaskSettings,
)
from rllib_llm_comm.cli.options import Imports, takes_settings
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.settings import Seeded, Settings
from rllib_llm_comm.experiments.console import counting_bar, print_table, require_writable, say, short_path
from rllib_llm_comm.experiments.experiment_file import ExperimentFile, TrainSettings, make_experiment
from rllib_llm_comm.experiments.ray_session import begin_command
from rllib_llm_comm.experiments.run_experiments import run_experiments
from rllib_llm_comm.policies.policy_manifest import MANIFEST, read_manifest

_ROWS, _CLONE = "demonstrations", "clone"


def _clone_language_agents(player: str, base_model: str, folder: Path, given: Mapping[str, Any]) -> None:
    """Collects demonstrations and trains the action adapter, as two stages of a run; `given` are the options."""
    _require_place(folder, _ROWS, "run of such a clone")
    env, env_config, player = _game(player, given.get("env"), given.get("env_config") or {})
    epochs, seed = given.get("epochs", 8), given.get("seed", 0)

    def named(**settings: str) -> dict[str, Any]:
        return {setting: given[option] for option, setting in settings.items() if option in given}

    rows = {"env_config": env_config, "player": player, "seed": seed}
    rows |= named(messages="messages", demonstrations="target_demonstrations", random_share="random_share")
    training = {"input_": f"${{{_ROWS}}}", "base_model": base_model, "anneal": epochs, "seed": seed}
    training |= named(lr="lr", held_out="held_out_share")
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
        raise UserError(f"`--env` is missing; say which game the player {player!r} plays.", "missing")
    return env, env_config, player


class NumericClone(Settings):
    """Options of numeric clones alone."""

    layout: str | None = None
    """Name or .layout file of the kitchen, if the file lacks it."""
    dynamics: str | None = None
    """"old" or "new", if the file does not tell."""
    players: Literal["both", "0", "1"] | None = None
    """Whose decisions are learned: both (default), 0 or 1."""
    half: Literal["all", "first", "second"] | None = None
    """Games that are used: all (default), or every other one: first or second."""


class LanguageClone(Settings):
    """Options of cloned language agents alone."""

    env: str | None = None
    """Game of language agents, if player is neither session nor checkpoint."""
    env_config: dict[str, Any] | None = None
    """Settings of that game."""
    messages: Literal["none", "own", "teacher"] | None = None
    """What language agents hear: none (default), own (the player's), teacher."""
    demonstrations: int | None = Field(None, ge=1)
    """Rows that language agents learn from: 2000 by default."""
    random_share: float | None = Field(None, ge=0, le=1)
    """Share of random moves that are played but not learned: .25 by default."""


class CloneOptions(Seeded):
    """Options of all clones."""

    epochs: int | None = Field(None, ge=1)
    """Passes over the decisions: 100, with --base-model 8 by default."""
    lr: float | None = Field(None, gt=0)
    """Learning rate: 1e-3, with --base-model 3e-3 by default."""
    held_out: float | None = Field(None, ge=0, lt=1)
    """Share of the decisions that are held out: .15, with --base-model .1 by default."""


@takes_settings(CloneOptions)
@takes_settings(NumericClone, into="of_numbers")
@takes_settings(LanguageClone, into="of_language")
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
    settings: CloneOptions,
    of_numbers: NumericClone,
    of_language: LanguageClone,
    base_model: Annotated[
        str | None, Option(help="Clone language agents on this model: embedded, a folder or a hub id.")
    ] = None,
    modules: Imports = None,
) -> None:
    """Clone the behaviour of players, such as people in your own games, for cross-play, as partners or as a start.

    With --base-model it collects demonstrations in words and trains the action adapter of a language model, as the
    stages collect_demonstrations and ActionSFT of a file do; a killed command goes on.

    Examples:

        rllib clone human_games.json results/human_proxy --layout cramped_room --dynamics old

        rllib clone human_games.json results/human_proxy --players 1 --epochs 120

        rllib clone sessions/p01 results/human_proxy

        rllib clone scripted results/cook --base-model embedded --env rllib_llm_comm/overcooked_text-v0

        rllib clone players:mine results/mine --base-model embedded --env my_games/door-v0 --import players
    """
    begin_command(modules=modules)
    useless, whose = (
        (of_language, "language agents (`--base-model`)")
        if base_model is None
        else (of_numbers, "numeric clones (without `--base-model`)")
    )
    for name, value in useless.model_dump(exclude_unset=True).items():
        raise UserError(f"`--{name.replace('_', '-')}` is {value!r}, which is for {whose} alone; omit it.")
    chosen = of_numbers if base_model is None else of_language
    given = {**settings.model_dump(exclude_unset=True), **chosen.model_dump(exclude_unset=True)}
    if base_model is None:
        _clone_numbers(local_path(player, "PLAYER"), folder, given)
    else:
        _clone_language_agents(player, base_model, folder, given)


def _require_place(folder: Path, mark: str = MANIFEST, what: str = "policy folder") -> None:
    """Refuses a folder that holds something else than is written there, which has the mark in it."""
    if folder.exists() and not (folder / mark).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{str(folder)!r} is there and is no {what}; give a new folder.")


def _clone_numbers(trajectories: Path, folder: Path, given: dict[str, Any]) -> None:
    from rllib_llm_comm.baselines.numeric.behavior_cloning import CloningSettings, clone_players, read_demonstrations

    layout, dynamics = given.pop("layout", None), given.pop("dynamics", None)
    settings = CloningSettings(**given)
    _require_place(folder)
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


@officer_app.command("demonstrations")
@takes_settings(OfficerDemonstrationSettings, without=("commanders",))
def demonstrations(
    folder: Annotated[Path, Argument(help="Folder to write; one with the same settings gets more games.")],
    settings: OfficerDemonstrationSettings,
    oracle: Annotated[float, Option(min=0, help="Share of games under the oracle.")] = 0.4,
    random: Annotated[float, Option(min=0, help="Share under random commands.")] = 0.4,
    adversarial: Annotated[float, Option(min=0, help="Share under the adversary.")] = 0.2,
) -> None:
    """Record games of imperfect scripted officers as demonstrations to learn from.

    Examples:

        rllib officer demonstrations results/demonstrations --games 400
    """
    from rllib_llm_comm.experiments.officer_stages import demonstrate

    shares = {"oracle": oracle, "random": random, "adversarial": adversarial}
    demonstrate(folder, settings.replace(commanders=shares))
    say(f"The demonstrations are {short_path(folder)}")


@officer_app.command("clone")
@takes_settings(OfficerCloningSettings, without=("network",))
@takes_settings(OfficerSettings, without=("critic_observation", "init_seed"), into="network")
def clone_officer_command(
    source: Annotated[Path, Argument(metavar="DEMONSTRATIONS", help="Folder of demonstrations.")],
    folder: Annotated[Path, Argument(help="Policy folder to write; a new one, or an officer to replace.")],
    settings: OfficerCloningSettings,
    network: OfficerSettings,
) -> None:
    """Train an officer to order what was demonstrated, when told the same.

    The officer is written after each pass over the decisions that is the best yet, so that a call that is cut off
    leaves one; with --start training goes on from it.

    Examples:

        rllib officer clone results/demonstrations results/officer

        rllib officer clone results/demonstrations results/officer --epochs 50 --filters 64 --stride 1
    """
    begin_command()
    from rllib_llm_comm.experiments.officer_stages import clone

    _require_place(folder)
    clone(folder, source, settings.replace(network=network))
    say(f"The officer is {short_path(folder)}")


@officer_app.command("play")
@takes_settings(OfficerScoreSettings, without=("executor",), joined=("commanders",))
def play_officer_command(
    settings: OfficerScoreSettings,
    executor: Annotated[str, Argument(help="scripted, trained:CHECKPOINT, or switch:TOLD:UNTOLD.")] = "scripted",
    json_file: Annotated[Path | None, Option("--json", help="File that keeps all games and their figures.")] = None,
) -> None:
    """Win rates of officers under scripted commanders. With --json a call that was cut off goes on.

    Examples:

        rllib officer play trained:results/officer --json officer.json

        rllib officer play scripted --commanders oracle --games 300

        rllib officer play switch:results/officer:results/rl --commanders oracle,none,random:0.5
    """
    begin_command({"--json": json_file})
    from rllib_llm_comm.experiments.officer_stages import play

    play(settings.replace(executor=executor), json_file)


@officer_app.command("build")
@takes_settings(OfficerTaskSettings, without=("executor",), joined=("units",))
def build(
    settings: OfficerTaskSettings,
    executor: Annotated[str, Argument(help="scripted, trained:CHECKPOINT, or switch:TOLD:UNTOLD.")] = "scripted",
    json_file: Annotated[Path | None, Option("--json", help="File for the figures.")] = None,
) -> None:
    """Shares of games in which officers make a unit within 30 decisions, told to and not told.

    Examples:

        rllib officer build trained:results/officer --json build.json

        rllib officer build scripted --units archer,dragon --games 20
    """
    begin_command({"--json": json_file})
    from rllib_llm_comm.evaluation.officers import officer_tasks

    settings = settings.replace(executor=executor)
    with counting_bar("building") as progress:
        found = officer_tasks(settings, progress)
    if json_file is not None:
        write_atomically(json_file, json.dumps(found, separators=(",", ":")) + "\n")
    rows = [["unit", "building", "told", "95 %", "untold", "95 %"]]
    rows += [
        [unit, f"{one['building']:.2f}", *_shown(one, "told"), *_shown(one, "not_told")]
        for unit, one in found["units"].items()
    ]
    print_table(rows, f"officers: {executor}, within {settings.decisions} decisions each")


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
