"""`rllib crossplay`: policies of several seeds with each other and with partners that they have not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from rllib_llm_comm.cli.options import Imports, TrustRecorded, json_of, name_or_json
from rllib_llm_comm.experiments.cross_play_run import run_cross_play
from rllib_llm_comm.experiments.import_modules import import_modules
from rllib_llm_comm.experiments.outputs import require_writable
from rllib_llm_comm.experiments.ray_session import quiet_libraries


def command(
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
    from rllib_llm_comm.policies.load_options import Loading

    config = None if env_config is None else json_of("--env-config")(env_config)
    planning = None if planner is None else {"planner": name_or_json("--planner")(planner)}
    settings = CrossPlaySettings(
        episodes, seed, greedy, metric, env, config, num_envs, loading=Loading(trust=trust), planning=planning
    )
    run_cross_play(
        players, settings, partners=partners, json_path=json_file, html_path=html_file, replay=replay,
        replay_path=replay_out,
    )  # fmt: skip
