"""Checks of a stage beside its settings: what is at its paths, models, adapters, labels, cores, the game it plays."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from rllib_llm_comm.core.errors import UserError, within
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.core.places import fetched, local_path, scheme_of
from rllib_llm_comm.core.settings import describe, takes
from rllib_llm_comm.envs.base_env import Game, settings_of
from rllib_llm_comm.envs.game_contract import GameContract
from rllib_llm_comm.envs.games import env_spec, make_env, without_subgoals
from rllib_llm_comm.experiments.algorithm_settings import algorithm_names, default_config, find_algorithm
from rllib_llm_comm.experiments.console import one_line, say
from rllib_llm_comm.experiments.env_settings import check_guesses, is_parallel, planning_to_check
from rllib_llm_comm.experiments.ray_session import available_cpus
from rllib_llm_comm.experiments.search_space import first_point, has_search, single_points
from rllib_llm_comm.experiments.stages import REFERENCE, Stage, as_list, source_of
from rllib_llm_comm.language.prompts import AGENT_TEMPLATES, TOKENS_PER_WORD
from rllib_llm_comm.policies.find_checkpoint import is_named, is_shipped, shipped_policy
from rllib_llm_comm.policies.partner_settings import CHECKPOINT, PEOPLE, PartnerSettings, parse_partners
from rllib_llm_comm.policies.recorded_people import RecordedPeople
from rllib_llm_comm.verco.settings import OTHER_FACT, SWAPPED, CommunicationSettings

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig


def require_path(setting: str, path: str) -> None:
    """Refuses a path at which nothing is; `setting` names it in messages."""
    if not local_path(path, setting).exists():
        raise UserError(
            f"`{setting}` is {path!r} but nothing is there; give a path that exists, or the `${{NAME}}` of a stage "
            "above."
        )


def require_checkpoint(setting: str, path: str) -> None:
    """Refuses a checkpoint (as of `find_checkpoint`) that is not there; what is on a hub is left to who fetches it."""
    if not is_named(path):
        require_path(setting, path)
    elif is_shipped(path):
        with within(setting):
            shipped_policy(path)


# Settings that are read and never written; a stage gets a copy of what lies in a store.
_READ = (
    "action_checkpoint", "base_model", "checkpoint", "demonstrations", "input", "input_", "manual",
    "message_checkpoint", "officer", "paper", "partners", "player", "policy", "population_from", "prompts", "reference",
    "restore", "sessions", "subgoal_file", "text_encoder", "translation",
)  # fmt: skip
# RLlib's own algorithms read and write these themselves, wherever pyarrow can.
_OFFLINE_DATA = ("input", "input_", "output")
_PYARROWS = ("abfs", "abfss", "file", "gcs", "gs", "hdfs", "s3", "viewfs")
_ADDRESSES = ("http", "https", "ws", "wss")


def on_this_machine(setting: str, values: Mapping[str, Any], rllibs_own: bool = False) -> dict[str, Any]:
    """Settings with paths of this machine in place of URIs.

    Args:
        setting: The name above them, for messages.
        values: The settings.
        rllibs_own: True if they are of an algorithm of RLlib's own.

    Raises:
        UserError: If a URI is of an unknown kind, leads to nothing, or is of a setting that cannot lie in a store.
    """

    def local(name: str, key: str, value: Any) -> Any:
        """A value with the paths in it on this machine: files to be read are fetched, others must lie here."""
        if isinstance(value, Mapping):
            return {inner: local(f"{name}.{inner}", str(inner), item) for inner, item in value.items()}
        if isinstance(value, list):
            return [local(name, key, item) for item in value]
        if not isinstance(value, str) or "://" not in value or scheme_of(value) in ("", *_ADDRESSES):
            return value
        if rllibs_own and key in _OFFLINE_DATA and scheme_of(value) in _PYARROWS:
            return value
        return str(fetched(value, name) if key in _READ else local_path(value, name))

    return {key: local(f"{setting}.{key}", key, value) for key, value in values.items()}


def check_prerequisites(stage: str, run: str, config: AlgorithmConfig, unresolved: tuple[str, ...] = ()) -> None:
    """Checks what an algorithm would miss only when it is built, or later; nothing is at `unresolved` paths yet.

    Raises:
        UserError: At the first thing that is missing or does not fit.
    """
    try:
        _check_environment(stage, run, config)
        _check_models(config, unresolved)
        _check_labels(config, unresolved)
    except UserError as error:
        sentence = str(error)
        raise UserError(sentence if f"`{stage}." in sentence else f"In `{stage}.config`: {sentence}") from error


def check_device(stage: Stage, config: AlgorithmConfig) -> None:
    """Refuses a GPU where this machine has none, in a search, too; for trainings on a Ray of this machine."""
    import torch

    given = stage.experiment.config.get("device", getattr(config, "device", None))
    for point in single_points({"device": given}):
        if str(point["device"]).startswith("cuda") and not torch.cuda.is_available():
            raise UserError(
                f"`{stage.name}.config.device` is {point['device']!r} but this machine has no GPU that torch can use; "
                "set 'auto' or 'cpu', or name a cluster that has one (`--ray-address`)."
            )


def check_cores(stage: str, config: AlgorithmConfig) -> None:
    """Refuses more EnvRunners than this machine has cores for."""
    cores = available_cpus()
    for setting in ("num_env_runners", "evaluation_num_env_runners"):
        runners = getattr(config, setting, 0) or 0
        if runners > max(cores, 1):
            raise UserError(
                f"`{stage}.config.{setting}` is {runners} but there are {cores} cores here, on which so many processes "
                f"would only wait for each other; set at most {cores} (and more `num_envs_per_env_runner`), or say "
                "with `--ray-num-cpus` how many Ray may count."
            )


def check_base_models(stages: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, str]]]) -> None:
    """Checks that stages that hand on an adapter use the same base model, form of prompts and shape of adapters.

    Args:
        stages: Stage -> its `base_model`, other settings that must be equal, and role -> the stage whose adapter
            of that role it takes over.

    Raises:
        UserError: If two of them differ for certain.
    """
    from rllib_llm_comm.language.base_model import KNOWN

    for name, (base, form, sources) in stages.items():
        for role, source in sources.items():
            other, other_form, _ = stages.get(source, stages[name])
            for setting, value in form.items():
                if other_form.get(setting, value) != value:
                    raise UserError(
                        f"`{name}.config.{setting}` is {value!r}, but the {role} adapter that it takes over from "
                        f"`{source}` is trained with {other_form[setting]!r}; give both stages the same."
                    )
            # Two paths, or a path and a hub id, may be the same model.
            if other != base and {other, base} & set(KNOWN):
                raise UserError(
                    f"`{name}.config.base_model` is {base!r}, but the {role} adapter that it takes over from "
                    f"`{source}` is trained on {other!r}; give both stages the same."
                )


def _check_environment(stage: str, run: str, config: AlgorithmConfig) -> None:
    from rllib_llm_comm.rl.multi_agent_ppo import MultiAgentPPOConfig
    from rllib_llm_comm.verco.verco import VercoConfig

    if not config.is_offline and config.env is None:
        raise UserError(f"`{stage}.env` is missing; say where {run} plays.")
    if not isinstance(config, MultiAgentPPOConfig):
        return
    if isinstance(config.env, str) and is_parallel(config.env):
        _check_observations(stage, run, config)
        if isinstance(config, VercoConfig):
            config.require_possible_messages()
    elif _has_one_agent(config.env):
        raise UserError(
            f"`{stage}.env` is {config.env!r}, in which one agent plays alone, but {run} trains several that play "
            "together; give a PettingZoo parallel environment, or use PPO."
        )


def _has_one_agent(env: Any) -> bool:
    from ray.rllib.env.multi_agent_env import MultiAgentEnv

    if inspect.isclass(env):
        return issubclass(env, gym.Env) and not issubclass(env, MultiAgentEnv)
    return isinstance(env, str) and env.rpartition(":")[2] in gym.registry


def _check_observations(stage: str, run: str, config: Any) -> None:
    """Lets the algorithm's own connectors say whether the environment tells what they need."""
    from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES

    from rllib_llm_comm.rl.rllib_adapter import ParallelEnvAdapter

    env = _make(config)
    try:
        game = ParallelEnvAdapter(env)
    finally:
        env.close()
    spaces = (gym.spaces.Dict(game.observation_spaces), gym.spaces.Dict(game.action_spaces))
    try:
        config.build_env_to_module_connector(spaces={INPUT_ENV_SPACES: spaces, INPUT_ENV_SINGLE_SPACES: spaces})
    except UserError as error:
        hint = " (`env_config.observe` chooses)" if "observe" in (config.env_config or {}) else ""
        raise UserError(
            f"`{stage}.env` {config.env!r} does not show what {run} needs{hint}: {one_line(str(error))}"
        ) from error


def _make(config: Any) -> Any:
    from rllib_llm_comm.sama.planned_env import PlannedSubgoals

    env = make_env(config.env, **(config.env_config or {}))
    if getattr(config, "planner", None) is None:
        return env
    return PlannedSubgoals(env, **planning_to_check(config))


def _check_models(config: Any, unresolved: tuple[str, ...]) -> None:
    from rllib_llm_comm.language.adapters import ACTION, MESSAGE, check_targets
    from rllib_llm_comm.language.base_model import (
        check_base_model,
        check_positions,
        check_quantization,
        torch_device,
    )
    from rllib_llm_comm.language.layer_cut import check_lora_layers
    from rllib_llm_comm.verco.policy import check_adapter_of
    from rllib_llm_comm.verco.verco import LanguageModelConfigMixin

    if not isinstance(config, LanguageModelConfigMixin):
        return
    base = config.base_model
    if base not in unresolved:
        check_base_model(str(base))
        check_lora_layers(str(base), config.lora_layers)
        check_targets(str(base), config.lora_target_modules)
        tokens = TOKENS_PER_WORD * config.max_message_words if config.messages == "student" else 0
        check_positions(str(base), config.max_prompt_tokens + max(tokens, config.max_candidate_tokens))
    check_quantization(config.quantization)
    if config.device != "auto":
        torch_device(config.device)  # whether it is there is for the trial's process to find out
    for role in (MESSAGE, ACTION):
        adapter = getattr(config, f"{role}_checkpoint", None)
        if adapter and adapter not in unresolved:
            check_adapter_of(adapter, str(base), config.prompt_format, str(config.prompt_date), role)
            tell_other_prompts(adapter, config, role)
    for setting, path, _ in config.member_adapters():  # those that are there were checked with the settings
        if path not in unresolved:
            require_checkpoint(setting.strip("`"), path)


def tell_other_prompts(path: str, config: Any, role: str | None = None) -> None:
    """Says that what is taken over, an adapter of a role or a whole run, was trained with other prompts.

    The user sees it here: a trial's process logs into its own files.
    """
    from rllib_llm_comm.policies.policy_folder import find_policy
    from rllib_llm_comm.policies.policy_manifest import read_manifest
    from rllib_llm_comm.verco.policy import TEMPLATES_OF, other_prompts
    from rllib_llm_comm.verco.verco import LanguageModelConfigMixin

    if not isinstance(config, LanguageModelConfigMixin):
        return

    try:
        manifest = read_manifest(find_policy(path))
    except UserError:  # a PEFT folder tells no prompts
        return
    settings = config.language_model_settings()
    told = other_prompts(path, manifest, settings, AGENT_TEMPLATES if role is None else TEMPLATES_OF[role])
    if told:
        say(told)


def _check_labels(config: Any, unresolved: tuple[str, ...]) -> None:
    from rllib_llm_comm.verco.sft import AdapterSFTConfig, check_rows

    labels = config.input_
    if isinstance(config, AdapterSFTConfig) and isinstance(labels, str) and labels not in unresolved:
        path = local_path(labels, "input_")
        if path.exists():  # a pattern is for Ray Data
            check_rows(path, config.rows.form)


_PLAYING = ("evaluate", "replay")
_CLONING = "clone_officer"
_TALK = ("messages", "message_server", "base_model", "reference")


@dataclass(frozen=True)
class _Trained:
    """What a stage that plays a checkpoint has to fit; without `env` it tells none, without `talk` nobody speaks."""

    algorithm: str
    env: str | None
    env_config: Mapping[str, Any]
    talk: Mapping[str, Any] | None
    teacher: Any
    reads_vectors: bool


def check_played_games(stages: Sequence[Stage], finished: Collection[str] = ()) -> None:
    """Refuses stages that cannot play what they name: no policy, messages that it has not, settings of another game.

    Args:
        stages: All stages of a file, with the references between them; each is right by itself.
        finished: Names of those that need not run.

    Raises:
        UserError: At the first such stage.
    """
    named = {stage.name: stage for stage in stages}
    for stage in stages:
        if stage.name not in finished and stage.experiment.run == "crossplay":
            with within(f"{stage.name}.config"):
                _check_crosswise(stage.experiment.config, named)
        if stage.name not in finished:
            with within(f"{stage.name}.config"):
                _require_names(stage.experiment.env, stage.experiment.config)
            _check_executor(stage, named)
            _check_results(stage, named)
        if stage.name in finished or stage.experiment.run not in _PLAYING:
            continue
        for one in as_list(stage.experiment.config["checkpoint"]):
            with within(f"{stage.name}.config"):
                if (trained := _trained(str(one), named)) is not None:
                    _check_talk(stage.experiment.config, trained)
                    _check_game(stage.experiment.config, trained)


def _require_names(env: Any, config: Mapping[str, Any], part: str = "env_config") -> None:
    """Refuses the result of a stage where a game wants no path, such as for one of the names that it lists."""
    from rllib_llm_comm.sama.planner_seats import SEATS

    settings = config.get(part)
    if not isinstance(env, str) or not is_parallel(env) or not isinstance(settings, Mapping):
        return
    entry = env_spec(env).entry_point
    game = getattr(load(entry) if isinstance(entry, str) else entry, "game", None)
    known = isinstance(game, type) and issubclass(game, Game)
    fields = settings_of(game).model_fields if known else {}
    points = [point for point in single_points(dict(settings)) if isinstance(point, Mapping)]
    with within(part):
        for name, value in (item for point in points for item in point.items()):
            about = fields.get(name) if isinstance(value, str) and REFERENCE.search(value) else None
            if about is not None and not takes(about.annotation, str):
                allowed = describe(about.annotation, about.metadata)
                raise UserError(f"`{name}` is {value!r}, the result of a stage, but must be {allowed}.")
        if env in SEATS:
            _require_names(SEATS[env].game_id, settings, "game")


def _check_results(stage: Stage, named: Mapping[str, Stage]) -> None:
    """Refuses results of stages as base models, which none makes, and as players that demonstrate, if none plays."""
    base, player = (stage.experiment.config.get(setting) for setting in ("base_model", "player"))
    if isinstance(base, str) and REFERENCE.search(base):
        raise UserError(
            f"`{stage.name}.config.base_model` is {base!r}, but no stage makes a base model; name a model or its "
            "folder, and give adapters as `message_checkpoint` and `action_checkpoint`."
        )
    if stage.experiment.run == "collect_demonstrations":
        shown_by = player.get("policy") if isinstance(player, Mapping) else player
        if source_of(shown_by, named) is not None:
            with within(f"{stage.name}.config.player"):
                trained = _trained(str(shown_by), named)
                if trained is None or trained.env is None:
                    raise UserError(f"{shown_by!r} is the result of a stage that plays no game; give another player.")


def _check_executor(stage: Stage, named: Mapping[str, Stage]) -> None:
    """Refuses who carries subgoals out, if it is the result of a stage in another game or without subgoals."""
    executor = (stage.experiment.config.get("env_config") or {}).get("executor")
    if not isinstance(executor, str) or not executor.startswith("trained:"):
        return
    from rllib_llm_comm.sama.planner_seats import SEATS, require_executor

    source = source_of(executor.removeprefix("trained:"), named)
    if source is None or stage.experiment.env not in SEATS:
        return
    with within(f"{stage.name}.config.env_config"):
        trained = _of_stage(source)
        if trained is None or trained.env is None:
            raise UserError(
                f"`executor` is {executor!r}, the result of a stage that plays no game; give a checkpoint that follows "
                "subgoals, or 'scripted' (officers of MiniRTS belong in `game.executor`)."
            )
        planned = source.experiment.config.get("planner") is not None
        require_executor(executor, trained.env, trained.env_config, planned, SEATS[stage.experiment.env].game_id)


def _check_crosswise(config: Mapping[str, Any], named: Mapping[str, Stage]) -> None:
    """Refuses players of a cross-play and strangers that are of another game than the first checkpoint."""
    groups = {f"partners.{name}": group for name, group in (config.get("partners") or {}).items()}
    people: list[tuple[str, PartnerSettings]] = []
    given, first, settings = config.get("env"), "", dict[str, Any]()
    played = given
    for place, group in {"players": config["players"], **groups}.items():
        listed = [group] if isinstance(group, str | Mapping) else list(group)
        for one in parse_partners(listed, place):
            if one.kind == PEOPLE:
                people.append((place, one))
            # What lies in the result of a stage, such as `${stage}/past/initial`, is not there yet.
            if one.kind != CHECKPOINT or (REFERENCE.search(one.policy) and not REFERENCE.fullmatch(one.policy)):
                continue
            trained = _trained(one.policy, named)
            if trained is None or trained.env is None:
                continue
            env, own = trained.env, dict(trained.env_config)
            if config.get("planning"):
                env, own = without_subgoals(env, own)
            if not first:
                first, settings, played = one.name, own, given or env
            elif given is None and env != played:
                raise UserError(
                    f"`{place}` has {one.name!r}, which was trained in {env!r}, but {first!r} in {played!r}; take "
                    "checkpoints of one game, or name the environment with `env`."
                )
    if people and played is not None:
        game = make_env(str(played), **first_point({**settings, **(config.get("env_config") or {})}))
        for place, one in people:
            try:
                RecordedPeople(one.session).require_game(game)
            except UserError as error:
                raise UserError(f"`{place}` has {one.name!r}, which cannot play: {error}") from None
        game.close()


def _check_talk(config: Mapping[str, Any], trained: _Trained) -> None:
    if trained.talk is None:
        for name in _TALK:
            if config.get(name) not in (None, "none"):
                raise UserError(f"`{name}` is {config[name]!r} but agents of {trained.algorithm} say nothing; omit it.")
        return
    given = {name: config[name] for name in ("messages", "message_server") if config.get(name) is not None}
    if given.get("message_server") == "none":
        given["message_server"] = None
    messages = CommunicationSettings.from_mapping({**trained.talk, **given, "train_messages": False}).messages
    if messages == "teacher" and not (config.get("teacher") or trained.teacher):
        raise UserError("`messages` is 'teacher' but no `teacher` is set; give one, for example 'scripted'.")


def _check_game(config: Mapping[str, Any], trained: _Trained) -> None:
    from rllib_llm_comm.sama.planners import guesses
    from rllib_llm_comm.verco.message_protocol import require_possible

    _require_names(trained.env, config)
    guessing, telling = guesses(config.get("planner")), config.get("messages") in (OTHER_FACT, SWAPPED)
    if trained.env is None or not (guessing or telling or config.get("env_config")):
        return
    settings = first_point({**trained.env_config, **(config.get("env_config") or {})})
    settings = {key: value for key, value in settings.items() if not REFERENCE.search(str(value))}
    if config.get("planner") is not None:
        env, settings = without_subgoals(trained.env, settings)
    else:
        env = trained.env
    made = make_env(env, **settings)
    try:
        if guessing:
            check_guesses(config["planner"], made)
        require_possible(str(config.get("messages")), made)
        if trained.reads_vectors and config.get("env_config"):
            _require_same_vectors(made, env, trained)
    finally:
        made.close()


def _require_same_vectors(game: Any, env: str, trained: _Trained) -> None:
    """Refuses a game whose numbers or actions are not as many as a network of numbers was trained with."""
    own = {key: value for key, value in trained.env_config.items() if not REFERENCE.search(str(value))}
    try:
        learned = make_env(env, **(own if env == trained.env else without_subgoals(str(trained.env), own)[1]))
    except Exception:  # such as a path that is gone by now, in whose place the evaluation names another
        return
    try:
        sizes = [_sizes(GameContract(one, reads=False)) for one in (game, learned)]
    finally:
        learned.close()
    for key, now in sizes[0].items():
        if 0 not in (now, before := sizes[1].get(key, 0)) and now != before:
            what, agent = key
            raise UserError(
                f"with this `env_config` the {what} of agent {agent!r} is {now}, but {trained.algorithm} was trained "
                f"with {before}; play the game with the settings of its training."
            )


def _sizes(game: GameContract) -> dict[tuple[str, Any], int]:
    """The length of each agent's vector and its number of actions; 0 where it has none."""
    found: dict[tuple[str, Any], int] = {}
    for agent in game.possible_agents:
        parts = getattr(game.observation_spaces[agent], "spaces", {})
        vector = parts.get("vector") if isinstance(parts, Mapping) else None
        found["length of the `vector`", agent] = math.prod(getattr(vector, "shape", None) or (0,))
        found["number of actions", agent] = int(getattr(game.action_spaces[agent], "n", 0))
    return found


def _trained(checkpoint: str, named: Mapping[str, Stage]) -> _Trained | None:
    """What is known of a checkpoint, a path or `${stage}`; `None` of an officer, which has no game of its own."""
    from rllib_llm_comm.policies.policy_folder import find_policy
    from rllib_llm_comm.policies.policy_manifest import LANGUAGE, NUMERIC, VALUED, read_manifest

    if (source := source_of(checkpoint, named)) is not None:
        return _of_stage(source)
    manifest = read_manifest(find_policy(checkpoint))
    talk = manifest.communication if manifest.kind == LANGUAGE else None
    vectors = manifest.kind in (NUMERIC, VALUED)
    return _Trained(manifest.algorithm, manifest.env, manifest.env_config, talk, manifest.teacher, vectors)


def _of_stage(stage: Stage) -> _Trained | None:
    experiment = stage.experiment
    default = default_config(stage.experiment.run)
    if experiment.run == _CLONING:
        return None
    if default is None or not (
        hasattr(find_algorithm(experiment.run), "save_policy") or experiment.run not in algorithm_names()
    ):
        raise UserError(f"`${{{stage.name}}}` is no checkpoint: `run: {experiment.run}` leaves no policy to play.")
    given = first_point(dict(experiment.config))

    def setting(name: str) -> Any:
        return given.get(name, getattr(default, name, None))

    env = experiment.env or getattr(default, "env", None)
    talk = {name: setting(name) for name in CommunicationSettings.names()} if hasattr(default, "messages") else None
    return _Trained(
        experiment.run,
        env if isinstance(env, str) else None,
        dict(given.get("env_config") or {}),
        talk,
        setting("teacher"),
        # In a sweep over games the trial that is played may be the one that fits.
        reads_vectors=not has_search(experiment.config.get("env_config"))
        and (getattr(default, "network", None) in ("mlp", "commnet") or hasattr(default, "mixer")),
    )
