"""Checks of what stages hand on to each other: adapters, rows, weights, and policies that are played in a game."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rllib_llm_comm.core.errors import UserError, as_in_files, within
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.core.settings import describe, settings_of, takes
from rllib_llm_comm.core.trust import leaves
from rllib_llm_comm.envs.base_env import Game
from rllib_llm_comm.envs.game_contract import GameContract
from rllib_llm_comm.envs.games import env_spec, make_env, without_subgoals
from rllib_llm_comm.experiments.algorithm_settings import algorithm_names, default_config, find_algorithm
from rllib_llm_comm.experiments.env_settings import check_guesses, is_parallel
from rllib_llm_comm.experiments.search_space import SEARCHES, first_point, has_search, search_kind, single_points
from rllib_llm_comm.experiments.stages import (
    GAME_MANUAL,
    POLICY,
    REWARDS,
    STAGE_REFERENCE,
    SUBGOALS,
    TRANSLATION,
    Stage,
    as_list,
    source_of,
)
from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS
from rllib_llm_comm.experiments.tune_stage import network_settings
from rllib_llm_comm.policies.partner_settings import CHECKPOINT, PEOPLE, PartnerSettings, parse_partners
from rllib_llm_comm.policies.policy_manifest import require_same_network, require_silence
from rllib_llm_comm.policies.recorded_people import RecordedPeople
from rllib_llm_comm.verco.settings import OTHER_FACT, SWAPPED, WRITTEN_WORD_BY_WORD, CommunicationSettings

# Settings that a stage must share with the one whose adapter it takes over.
_WORDS = "max_message_words"
_OF_ADAPTERS = ("prompt_format", "prompt_date", "lora_r", "lora_alpha", "lora_layers", "lora_target_modules")


def check_adapters(stages: Sequence[Stage]) -> None:
    """Refuses adapters from stages that train none of the role, or with another base model, prompts or shape, and
    messages shorter than those that the adapter learned.

    Raises:
        UserError: If two stages differ for certain.
    """
    named = {stage.name: stage for stage in stages}
    for stage in stages:
        for role in ("message", "action"):
            setting = f"{role}_checkpoint"
            source = source_of(stage.experiment.config.get(setting), named)
            if source is not None and (own := _model_of(stage)):
                _check_role(f"{stage.name}.config.{setting}", role, source)
                _check_same_model(f"{stage.name}.config", role, own, source)
                if role == "message":
                    _check_words(stage, source, named)


def _check_role(place: str, role: str, source: Stage) -> None:
    from rllib_llm_comm.verco.policy import TRAINS_ALONE

    run = source.experiment.run
    others = {algorithm for other, algorithm in TRAINS_ALONE.items() if other != role}
    if run in STAGE_KINDS or (run in others and not source.experiment.config.get(f"{role}_checkpoint")):
        raise UserError(
            f"`{place}` is the result of `{source.name}`, a stage of {run}, which trains no {role} adapter; name a "
            f"stage of {TRAINS_ALONE[role]} or Verco."
        )


def _check_same_model(place: str, role: str, own: Mapping[str, Any], source: Stage) -> None:
    from rllib_llm_comm.language.base_model import KNOWN

    theirs = _model_of(source)
    for name, value in own.items():
        other = theirs.get(name, value)
        # Two paths, or a path and a hub id, may be the same model.
        if other != value and (name != "base_model" or {other, value} & set(KNOWN)):
            how = "on" if name == "base_model" else "with"
            raise UserError(
                f"`{place}.{name}` is {as_in_files(value)}, but the {role} adapter that it takes over from "
                f"`{source.name}` is trained {how} {as_in_files(other)}; give both stages the same."
            )


def _check_words(stage: Stage, source: Stage, named: Mapping[str, Stage]) -> None:
    """Refuses to cut messages that the adapter learned in full."""
    own, learned = _words_of(stage, named), _words_of(source, named)
    freely = _setting_of(stage, "messages") in WRITTEN_WORD_BY_WORD and not _setting_of(stage, "message_menu")
    if freely and None not in (own, learned) and own < learned:
        raise UserError(
            f"`{stage.name}.config.max_message_words` is {own}, but the message adapter that it takes over from "
            f"`{source.name}` learns messages of up to {learned} words; give both stages the same."
        )


def _words_of(stage: Stage, named: Mapping[str, Stage]) -> Any:
    """The longest messages that a stage writes or learns, in words; `None` where that is searched for or unknown."""
    labels = _rows_of(stage, named)
    bounds = [_setting_of(stage, _WORDS)]
    if labels is not None and labels.experiment.run == "collect_labels":
        bounds.append(STAGE_KINDS["collect_labels"].settings(labels).max_message_words)
    return min(bounds) if all(isinstance(bound, int) for bound in bounds) else None


def _setting_of(stage: Stage, name: str) -> Any:
    """A setting of a stage that trains: as it is given, else its default."""
    given = stage.experiment.config.get(name)
    return getattr(default_config(stage.experiment.run), name, None) if given is None else given


def _rows_of(stage: Stage, named: Mapping[str, Stage]) -> Stage | None:
    """The stage that leaves the rows from which a stage learns."""
    config = stage.experiment.config
    return source_of(config.get("input_", config.get("input")), named)


def _model_of(stage: Stage) -> dict[str, Any]:
    """The base model of a stage that trains, and what else its adapters depend on; empty where it has none for sure."""
    experiment = stage.experiment
    default = None if experiment.run in STAGE_KINDS else default_config(experiment.run)
    values = {name: experiment.config.get(name, getattr(default, name, None)) for name in (*_OF_ADAPTERS, "base_model")}
    if default is None or not isinstance(values["base_model"], str):
        return {}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if not search_kind(value)
    }


# Part of `config:` -> its settings -> what a stage must give that is named there, whatever takes it.
_WANTED_IN: Mapping[str, Mapping[str, str]] = {
    "planner": {"manual": GAME_MANUAL, "translation": TRANSLATION, "subgoals": SUBGOALS},
    "new_subgoals": {"manual": GAME_MANUAL},
    "env_config": {"subgoal_file": SUBGOALS},
    "subgoal_rewards": {"path": REWARDS},
}
_BELOW_RESULT = re.compile(rf"{STAGE_REFERENCE.pattern}(?:/(.*))?")


def check_kinds(stages: Sequence[Stage]) -> None:
    """Refuses the result of another kind of stage than a setting wants, before anybody is asked and paid.

    Raises:
        UserError: At the first such setting.
    """
    named = {stage.name: stage for stage in stages}
    for stage in stages:
        kind = STAGE_KINDS.get(stage.experiment.run)
        for place, value in leaves(stage.experiment.config):
            part, setting = ["", "", *(one for one in place.split(".") if one not in SEARCHES)][-2:]
            wants = _WANTED_IN.get(part, {}) if part else kind.wants if kind else {}
            result = _BELOW_RESULT.fullmatch(value) if setting in wants and isinstance(value, str) else None
            if result is not None:
                _require_kind(f"{stage.name}.config.{place}", value, wants[setting], named[result[1]], result[2] or "")


def _require_kind(place: str, value: str, wanted: str, source: Stage, below: str) -> None:
    run = source.experiment.run
    kind = STAGE_KINDS.get(run)
    given = kind.gives if kind else {"": POLICY}
    if not given or given.get(below) == wanted:
        return
    told = given.get(below, f"something in {given.get('', 'a result')}")
    ways = [
        f"`{'/'.join(filter(None, ('${NAME}', where)))}` of a stage of {one.name}"
        for one in STAGE_KINDS.values()
        for where, what in one.gives.items()
        if what == wanted
    ]
    raise UserError(
        f"`{place}` is {value!r}, {told} from a stage of {run}, but must be {wanted}; give {' or '.join(ways)}."
    )


def check_restored(stage: Stage, stages: Sequence[Stage], configs: Mapping[str, Any]) -> None:
    """Refuses to go on from a stage to come that trains another algorithm or network.

    `configs` are the checked configs of all stages up to this one, by name.
    """
    source = source_of(stage.experiment.restore, {one.name: one for one in stages})
    if source is None:
        return
    if source.experiment.run != stage.experiment.run:
        raise UserError(
            f"`{stage.name}.restore` is the result of `{source.name}`, a stage of {source.experiment.run}, but `run` "
            f"is {stage.experiment.run}; restore a stage of the same algorithm."
        )
    with within(f"{stage.name}.config"):
        searched = {key for one in (source, stage) for key, value in one.experiment.config.items() if has_search(value)}
        theirs, own = (
            {k: v for k, v in network_settings(configs.get(one.name)).items() if k not in searched}
            for one in (source, stage)
        )
        require_same_network(theirs, own, f"`{source.name}`")


def check_rows(stages: Sequence[Stage]) -> None:
    """Refuses to learn from what another stage than one that collects such rows leaves."""
    named = {stage.name: stage for stage in stages}
    for stage in stages:
        source = _rows_of(stage, named)
        if source is None or stage.experiment.run in STAGE_KINDS:
            continue
        form = getattr(default_config(stage.experiment.run), "form", None)
        if form is not None and source.experiment.run != form.collector:
            raise UserError(
                f"`{stage.name}.config.input_` is the result of `{source.name}`, a stage of {source.experiment.run}, "
                f"but {stage.experiment.run} learns from {form.name}; name a stage of {form.collector}."
            )
        _check_labels(stage, source)


def _check_labels(stage: Stage, labels: Stage) -> None:
    """Refuses to cut the messages of labels by a bound that nobody has given."""
    if labels.experiment.run != "collect_labels" or stage.experiment.config.get(_WORDS) is not None:
        return
    taught, own = STAGE_KINDS["collect_labels"].settings(labels).max_message_words, _setting_of(stage, _WORDS)
    if own is not None and own < taught:  # of RLlib's own algorithms it is None
        raise UserError(
            f"`{stage.name}.config.max_message_words` is not set, so that messages of `{labels.name}` with up to "
            f"{taught} words would be cut after {own}; set it to {taught}, or lower that of `{labels.name}`."
        )


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
        if stage.name in finished:
            continue
        run, config = stage.experiment.run, stage.experiment.config
        with within(f"{stage.name}.config"):
            if run == "crossplay":
                _check_crosswise(config, named)
            _require_names(stage.experiment.env, config)
        _check_executor(stage, named)
        _check_results(stage, named)
        for one in as_list(config["checkpoint"]) if run in ("evaluate", "replay") else ():
            with within(f"{stage.name}.config"):
                if (trained := _trained(str(one), named)) is not None:
                    _check_talk(config, trained)
                    _check_game(config, trained)


def _require_names(env: Any, config: Mapping[str, Any], part: str = "env_config") -> None:
    """Refuses the result of a stage where a game wants no path, such as for one of the names that it lists."""
    from rllib_llm_comm.sama.planner_seats import SEATS

    settings = config.get(part)
    if not isinstance(env, str) or not is_parallel(env) or not isinstance(settings, Mapping):
        return
    entry = env_spec(env).entry_point
    game: Any = getattr(load(entry) if isinstance(entry, str) else entry, "game", None)
    known = isinstance(game, type) and issubclass(game, Game)
    fields = settings_of(game).model_fields if known else {}
    points = [point for point in single_points(dict(settings)) if isinstance(point, Mapping)]
    with within(part):
        for name, value in (item for point in points for item in point.items()):
            about = fields.get(name) if isinstance(value, str) and STAGE_REFERENCE.search(value) else None
            if about is not None and not takes(about.annotation, str):
                allowed = describe(about.annotation, about.metadata)
                raise UserError(f"`{name}` is {value!r}, the result of a stage, but must be {allowed}.")
        if env in SEATS:
            _require_names(SEATS[env].game_id, settings, "game")


def _check_results(stage: Stage, named: Mapping[str, Stage]) -> None:
    """Refuses results of stages as base models, which none makes, and as players that demonstrate, if none plays."""
    base, player = (stage.experiment.config.get(setting) for setting in ("base_model", "player"))
    if isinstance(base, str) and STAGE_REFERENCE.search(base):
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
            if one.kind != CHECKPOINT or (
                STAGE_REFERENCE.search(one.policy) and not STAGE_REFERENCE.fullmatch(one.policy)
            ):
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
        require_silence(config, trained.algorithm)
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
    settings = {key: value for key, value in settings.items() if not STAGE_REFERENCE.search(str(value))}
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
    own = {key: value for key, value in trained.env_config.items() if not STAGE_REFERENCE.search(str(value))}
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
    if experiment.run == "clone_officer":
        return None
    if default is None or not (
        hasattr(find_algorithm(experiment.run), "save_policy") or experiment.run not in algorithm_names()
    ):
        raise UserError(f"`${{{stage.name}}}` is no checkpoint: `run: {experiment.run}` leaves no policy to play.")
    given = first_point(dict(experiment.config))

    def setting(name: str) -> Any:
        return given.get(name, getattr(default, name, None))

    env = experiment.env or getattr(default, "env", None)
    talk = (
        {name: setting(name) for name in CommunicationSettings.model_fields} if hasattr(default, "messages") else None
    )
    filled = getattr(default, "env_defaults", {}) if env == getattr(default, "own_env", None) else {}
    return _Trained(
        experiment.run,
        env if isinstance(env, str) else None,
        {**filled, **(given.get("env_config") or {})},
        talk,
        setting("teacher"),
        # In a sweep over games the trial that is played may be the one that fits.
        reads_vectors=not has_search(experiment.config.get("env_config"))
        and getattr(default, "acts_by_vectors", False),
    )
