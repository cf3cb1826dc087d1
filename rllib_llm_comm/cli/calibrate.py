"""`rllib calibrate`: temperature, normalisation and prompts of candidate scores, before anything is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from rllib_llm_comm.cli.options import Imports
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.experiments.console import print_table, say
from rllib_llm_comm.experiments.experiment_file import load_json_option
from rllib_llm_comm.experiments.import_modules import import_modules
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.experiments.ray_session import quiet_libraries

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.calibration import Calibration


def command(
    file: Annotated[Path | None, Argument(help="Experiment file; its language model and game are taken.")] = None,
    stage: Annotated[str | None, Option(help="Stage of the file, if several train a language model.")] = None,
    base_model: Annotated[
        str | None,
        Option(help="'embedded', 'embedded_minirts', 'smollm2', a folder or a hub id, in place of the file's."),
    ] = None,
    env: Annotated[str | None, Option("--env", "-e", help="Environment id, in place of the file's.")] = None,
    env_config: Annotated[str | None, Option(help="Settings of the environment, as JSON.")] = None,
    decisions: Annotated[int, Option(min=1, help="Decisions that are looked at.")] = 200,
    entropy: Annotated[float, Option(help="Aimed entropy of the untrained policy, as a share of the greatest.")] = 0.5,
    seed: Annotated[int, Option(min=0, help="Of the games.")] = 0,
    prompts: Annotated[
        str | None,
        Option(help="Sets of prompts to compare, in place of the file's: names or folders, between commas."),
    ] = None,
    prompt_format: Annotated[str | None, Option(help="'plain' or 'chat', in place of the file's.")] = None,
    json_file: Annotated[Path | None, Option("--json", help="Write all figures to this file.")] = None,
    modules: Imports = None,
) -> None:
    """Find `temperature`, `score_normalization` and `prompts` for a language model in a game, before training.

    The game is played at random. The base model scores the candidates of each decision, in silence; sets of prompts are
    compared in silence and with the messages of the game's scripted player heard.

    Examples:

        rllib calibrate tuned_examples/verco.yaml

        rllib calibrate --base-model smollm2 --env rllib_llm_comm/overcooked_text-v0

        rllib calibrate tuned_examples/twosome.yaml --base-model smollm2 --decisions 50

        rllib calibrate tuned_examples/verco_told.yaml --stage verco --prompts default,twosome,default_options
    """
    quiet_libraries(0)
    import_modules(modules)
    from rllib_llm_comm.evaluation.calibration import DECIDED, calibrate, check_aim
    from rllib_llm_comm.experiments.calibration_run import open_both, read_settings
    from rllib_llm_comm.language.prompts import PromptTemplates

    check_aim(entropy)
    given = load_json_option("--env-config", env_config) if env_config else None
    sets = [one.strip() for one in prompts.split(",")] if prompts is not None else []
    settings = read_settings(file, stage, base_model, env, given, sets, prompt_format)
    base, game = open_both(settings)
    templates = {name: PromptTemplates(texts) for name, texts in settings.prompts.items()}
    with counting_bar("scores") as progress:
        found = calibrate(base, game, decisions, entropy, seed, settings.present, progress, templates)
    say(
        f"{settings.base_model} in {settings.env}: {found.decisions} decisions of random play ({found.distinct} "
        f"different ones), {found.candidates:.1f} candidates each"
    )
    print_table(table(found), f"decided: share of the decisions whose likeliest candidate has {DECIDED:g} or more")
    print_table(prompt_table(found), prompt_caption(found))
    advice = found.advice
    say(f"Write in `config`: score_normalization: {advice.normalization}, temperature: {advice.temperature:g}", "green")
    if json_file is not None:
        figures = {**settings.to_json(), "entropy_aim": entropy, "seed": seed, **found.to_json()}
        write_atomically(json_file, json.dumps(figures, indent=1) + "\n")
        say(f"Written to {json_file}")


def table(found: Calibration) -> list[list[str]]:
    """Rows for the console: temperature 1, the file's setting, and what was found."""
    rows = [["", "normalization", "temperature", "entropy", "likeliest", "decided"]]
    kinds = {"at 1": found.plain, "so far": (found.present,), "found": found.chosen}
    for kind, group in kinds.items():
        for row in filter(None, group):
            figures = [f"{figure:.3f}" for figure in (row.entropy, row.best, row.decided)]
            rows.append([kind, row.normalization, f"{row.temperature:g}", *figures])
    return rows


def prompt_table(found: Calibration) -> list[list[str]]:
    """Rows for the console: the sets of prompts, in silence and with messages heard."""
    rows = [["prompts", "heard", "entropy", "likeliest", "decided", "agrees", "T"]]
    for row in found.compared:
        figures = [row.openness.entropy, row.openness.best, row.openness.decided, row.agreement]
        told = ["-" if figure is None else f"{figure:.3f}" for figure in figures]
        rows.append([row.prompts, "yes" if row.heard else "no", *told, f"{row.temperature:g}"])
    return rows


def prompt_caption(found: Calibration) -> str:
    """What the table of prompts shows."""
    at = found.compared[0].openness
    told = f"at {at.normalization}, {at.temperature:g}; T: temperature of the aimed entropy"
    if found.chance is None:
        return told
    return (
        f"{told}; agrees with the scripted player: by chance {found.chance:.3f}, always one phrase "
        f"{found.one_phrase:.3f}"
    )
