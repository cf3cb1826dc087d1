"""For `--dry-run`: what the stages of a file will ask of chat models, before anybody is asked.

Games are played once by rules, which costs nothing, and prompts are those that the first moment of a game leads to.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from rllib_llm_comm.chat.cassettes import asks
from rllib_llm_comm.chat.chat_model import LABEL, MANUAL, PLAN, REWARD_CODE, TRANSLATION, ChatError, tokens_for
from rllib_llm_comm.core.errors import UserError, did_you_mean, one_line
from rllib_llm_comm.core.files import read_text
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.games import make_env, without_subgoals
from rllib_llm_comm.experiments.asked_models import chats_in, chats_of, played_with
from rllib_llm_comm.experiments.console import print_table, say
from rllib_llm_comm.experiments.experiment_file import parse_yaml
from rllib_llm_comm.experiments.run_time import trials_of
from rllib_llm_comm.experiments.stages import STAGE_REFERENCE, Stage, as_list, source_of
from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS, CollectLabels
from rllib_llm_comm.policies.play_loop import play_games
from rllib_llm_comm.policies.policy_manifest import read_manifest
from rllib_llm_comm.sama.data_set import read_subgoals
from rllib_llm_comm.sama.manuals.latex import find_paper, read_latex, split_latex
from rllib_llm_comm.sama.manuals.manual import questions as listed
from rllib_llm_comm.sama.planners import ScriptedPlanner, prompts_of
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import DONE, WAITED, Plan, PlanRequest
from rllib_llm_comm.sama.preparation import open_game

CHARACTERS_PER_TOKEN = 4
"""A rule of thumb for English (ours); a server counts by its own vocabulary."""
EXAMPLE = "example"
_COLUMNS = ("stage", "asks", "questions a game", "requests", "tokens in", "tokens out", "money")


class Price(Settings):
    """Prices of a million tokens."""

    input: float = Field(ge=0)
    """Of those sent."""
    output: float = Field(ge=0)
    """Of those received."""


class Prices(Settings):
    """A price list, as a YAML or JSON file holds it."""

    date: str = Field(min_length=1, examples=["date: 2026-01-31"])
    """The day for which it holds."""
    models: dict[str, Price] = Field(min_length=1, examples=["models: {my-model: {input: 2.5, output: 10}}"])
    """Price by the model's name at the server."""
    currency: str = "USD"
    """Of the prices."""
    note: str = ""
    """Where they are from."""


def read_prices(path: str) -> Prices:
    """A price list: a YAML or JSON file, or "example", which comes with the package.

    Raises:
        UserError: If there is no such file, or it holds no price list.
    """
    shipped = Path(__file__).parents[1] / "chat" / "prices_example.yaml"
    file = local_path(path, "--prices")
    file = shipped if path == EXAMPLE and not file.exists() else file
    try:
        found = parse_yaml(read_text(file))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        why = one_line(str(error))
        raise UserError(
            f"`--prices` is {path!r}, which cannot be read ({why}); give a YAML or JSON file such as {str(shipped)!r}, "
            f"or {EXAMPLE!r}."
        ) from None
    if isinstance(found, Mapping):
        found = {**found, "date": str(found.get("date") or "")}
    return Prices.checked("--prices", found)


@dataclass(frozen=True)
class StageQuestions:
    """What a stage will ask.

    Attributes:
        requests: Number of them; `None` where nobody can tell before.
        prompt: Characters of a question.
        purpose: Of the questions, as of `rllib_llm_comm.chat.chat_model.TOKENS`; it bounds the answers.
        chat: Settings of the chat model.
        per_game: Questions in a game; 0 of stages that play none.
    """

    requests: int | None
    prompt: float
    purpose: str
    chat: Mapping[str, Any]
    per_game: float = 0.0

    def row(self, stage: str, prices: Prices | None) -> dict[str, Any]:
        """The figures of the stage, by the names of the columns; without `prices` by the chat model's own settings.

        Raises:
            UserError: If the list has no price of the model.
        """
        model = self.chat.get("model")
        whom = str(model or self.chat.get("local")) if asks(self.chat) else f"recording {self.chat.get('cassette')}"
        if self.requests is None:
            return dict(zip(_COLUMNS, (stage, whom, "?", "?", "?", "?", "?"), strict=True))
        sent = round(self.requests * self.prompt / CHARACTERS_PER_TOKEN)
        received = self.requests * tokens_for(self.chat.get("max_tokens"), self.purpose)
        money = 0.0
        if model:
            price = _price(str(model), self.chat, prices)
            money = (sent * price.input + received * price.output) / 1e6
        return dict(zip(_COLUMNS, (stage, whom, self.per_game, self.requests, sent, received, money), strict=True))


def _price(model: str, chat: Mapping[str, Any], prices: Prices | None) -> Price:
    if prices is None:
        return Price(
            input=float(chat.get("price_per_million_input", 0)), output=float(chat.get("price_per_million_output", 0))
        )
    if model not in prices.models:
        raise UserError(
            f"`--prices` has no price of {model!r}, only of {', '.join(prices.models)}; add it."
            f"{did_you_mean(model, prices.models)}"
        )
    return prices.models[model]


def tell(stages: Sequence[Stage], prices: str | None, done: Collection[str] = ()) -> None:
    """Prints what the stages will ask, and what it costs; nobody is asked and nothing is written.

    Args:
        stages: The stages of a file, checked; references to each other are still in them.
        prices: See `read_prices`; `None`: the prices in the chat models' own settings.
        done: Names of those that need not run.

    Raises:
        UserError: If the price list cannot be used.
    """
    listed = None if prices is None else read_prices(prices)
    rows = [asked.row(name, listed) for name, asked in questions(stages, done)]
    if not rows:
        if prices is not None:
            say("No stage that is left asks a chat model." if done else "No stage asks a chat model.")
        return
    texts = [[_text(row[name]) for name in _COLUMNS] for row in rows]
    known = [row for row in rows if row["requests"] != "?"]
    real = [row for row in known if not _is_recorded(row)]
    total = {name: sum(row[name] for row in real) for name in _COLUMNS[3:]}
    more = any(row["requests"] == "?" and not _is_recorded(row) for row in rows)
    sums = [_text(total[name]) or "0" for name in _COLUMNS[3:]]
    texts.append(["all, without recordings", "", "", *(f"{one} + ?" if more else one for one in sums)])
    print_table([list(_COLUMNS), *texts])
    say(
        f"Tokens in: {CHARACTERS_PER_TOKEN} characters each; out: answers of full length (`max_tokens`). Requests are "
        "estimates: games are counted by one in which rules plan and follow; answers that cannot be used, and rounds "
        "that are put back (`trials`), cost more."
    )
    if len(known) < len(rows):
        say(
            "`?`: nobody can tell how often: while agents learn, by who speaks or plays, at all checkpoints of a "
            "curve, in a game that rules do not play, or anew where plans that are kept are disturbed."
        )
    if listed is not None:
        say(f"Prices in {listed.currency} of {listed.date}{f' ({listed.note})' if listed.note else ''}.")
    say("Nobody was asked.")


def _is_recorded(row: Mapping[str, Any]) -> bool:
    return str(row["asks"]).startswith("recording ")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if value else ""
    return f"{value:,}" if isinstance(value, int) else str(value)


def questions(stages: Sequence[Stage], done: Collection[str] = ()) -> list[tuple[str, StageQuestions]]:
    """What each stage will ask, with its name; stages that ask nobody are left out. Arguments as of `tell`."""
    by_name = {stage.name: stage for stage in stages}
    played: dict[str, int | None] = {}
    found: list[tuple[str, StageQuestions]] = []
    for stage in stages:
        chats = [] if stage.name in done else chats_of(stage, by_name)
        config = stage.experiment.config
        if not chats:
            continue
        if stage.experiment.run in _STAGES:
            asked = [_STAGES[stage.experiment.run](stage, by_name)]
        elif stage.experiment.run in ("evaluate", "replay"):
            asked = list(_games(stage, by_name, played))
        elif stage.experiment.run == "play_planners":
            asked = _games_of_seats(stage, played)
        elif stage.experiment.run == "collect_labels":
            asked = _labels(stage, config)
        else:
            asked = []
        # Where nobody counts: of training (planners, judges, the growing data set), of teachers and players.
        asked += [StageQuestions(None, 0, PLAN, chat) for chat in chats if not any(one.chat == chat for one in asked)]
        found += [(stage.name, one) for one in asked]
    return found


def _manual(stage: Stage, _: Mapping[str, Stage]) -> StageQuestions:
    given = STAGE_KINDS[stage.experiment.run].settings(stage)
    parts = [part for paper in as_list(given.paper) for part in split_latex(read_latex(find_paper(paper)))]
    times = len(listed("manual_relevance_questions")) + len(listed("manual_game_questions"))
    batches = math.ceil(len(parts) / given.batch)
    # Each question of each batch, then the repetitions and the summary.
    text = sum(len(part.text) for part in parts)
    return StageQuestions(times * batches + 2, text / max(1, batches), MANUAL, given.chat)


def _opened(stage: Stage, given: Any) -> Any:
    return open_game(**given.game(stage.experiment.env), seed=given.seed)


_MOST_DECISIONS = 20_000  # of a collection of labels that is counted; more labels in proportion
_OF_CODE = 4000  # characters of a piece of code with its instruction


def _translation(stage: Stage, _: Mapping[str, Stage]) -> StageQuestions:
    given = STAGE_KINDS[stage.experiment.run].settings(stage)
    prompt = len(_opened(stage, given).manual()) + _OF_CODE * given.pieces
    return StageQuestions(1 + given.actions, prompt, TRANSLATION, given.chat)


def _subgoals(stage: Stage, _: Mapping[str, Stage]) -> StageQuestions:
    given = STAGE_KINDS[stage.experiment.run].settings(stage)
    each, prompt = _plan(given.planner, _opened(stage, given))
    once = int(given.states_by == "model") + int(bool(given.planner.get("objects", True)))
    return StageQuestions(once + given.states * each, prompt, PLAN, given.chat)


def _rewards(stage: Stage, stages: Mapping[str, Stage]) -> StageQuestions:
    config = stage.experiment.config
    chat, subgoals = config.get("chat") or {}, str(config.get("subgoals", ""))
    source = source_of(subgoals, stages)
    if source is not None and source.experiment.run == "collect_subgoals":
        given = STAGE_KINDS[source.experiment.run].settings(source)
        game = _opened(source, given)
        library = {subgoal for agent in game.agents for subgoal in game.library(agent)}
        number = min(len(library), given.states * len(game.agents))
    elif source is not None:
        return StageQuestions(None, 0, REWARD_CODE, chat)
    else:
        _, game, wanted = read_subgoals(subgoals)
        number = len(wanted)
    return StageQuestions(number, len(game.manual()) + _OF_CODE, REWARD_CODE, chat)


def _plan(planner: Any, game: Any) -> tuple[int, float]:
    """Questions of a plan, and the characters of one; what refers to a stage that has not run is taken for empty."""
    given = {
        key: "" if isinstance(value, str) and STAGE_REFERENCE.search(value) else value
        for key, value in planner.items()
        if key not in ("chat", "cassette")
    }
    prompts = prompts_of(given, game) or [""]
    # The last ones ask again, since empty forms are refused.
    longest = max(len(prompt) for prompt in prompts if "You were asked this before" not in prompt)
    if given.get("ahead"):
        return 1, longest
    return {"sama": 2, "deps": 2}.get(str(given.get("name")), 3), longest


def _games(stage: Stage, stages: Mapping[str, Stage], played: dict[str, int | None]) -> list[StageQuestions]:
    """The questions of a stage that plays whole games to planners, per entry of its checkpoints."""
    config, found = stage.experiment.config, list[StageQuestions]()
    episodes = config.get("episodes") or STAGE_KINDS[stage.experiment.run].model().model_fields["episodes"].default
    for checkpoint in as_list(config.get("checkpoint")):
        planner = config.get("planner") or played_with(checkpoint, stages).get("planner")
        if chats := chats_in(planner):
            once = not any(one.chat == chats[0] for one in found)  # kept answers serve all checkpoints
            asked = None
            if isinstance(planner, Mapping) and "name" in planner:  # else a sweep over planners
                with suppress(UserError):  # what its training itself would refuse
                    asked = _games_of(checkpoint, planner, config, stages, played, episodes, once)
            found.append(asked or StageQuestions(None, 0, PLAN, chats[0]))
    return found


def _games_of(
    checkpoint: Any,
    planner: Mapping[str, Any],
    config: Mapping[str, Any],
    stages: Mapping[str, Stage],
    played: dict[str, int | None],
    episodes: int,
    once: bool,
) -> StageQuestions | None:
    """The questions of the games of a checkpoint; `None` where nobody can tell. `once`: nobody has asked before."""
    from rllib_llm_comm.policies.planning_settings import PlanningSettings

    source, env, settings = _game_of(checkpoint, config, stages)
    if env is None or config.get("curve"):
        return None
    patience = config.get("patience") or source.get("patience") or PlanningSettings.defaults()["patience"]
    trained = source_of(checkpoint, stages)
    games = episodes * max(1, 1 if trained is None else trials_of(trained.experiment))
    rounds = config.get("trials") is not None
    return _asked_in_games(games, env, settings, patience, rounds, played, planner, once)


def _games_of_seats(stage: Stage, played: dict[str, int | None]) -> list[StageQuestions]:
    """The questions of games of planners' seats, per planner that asks a chat model; its answers are kept apart."""
    from rllib_llm_comm.sama.planner_seats import SEATS, SeatSettings

    given, env = STAGE_KINDS[stage.experiment.run].settings(stage), SEATS[str(stage.experiment.env)].game_id
    seats = SeatSettings.checked(f"{stage.name}.config.env_config", given.env_config)
    found = []
    for planner in given.planners():
        if chats := chats_in(planner):
            asked = None
            with suppress(UserError):  # such as a game whose executor is to come
                game = {**planning_game(make_env(env, **seats.game)).played_with, **seats.game}
                asked = _asked_in_games(given.episodes, env, game, seats.patience, False, played, planner, True)
            found.append(asked or StageQuestions(None, 0, PLAN, chats[0]))
    return found


def _asked_in_games(
    games: int,
    env: str,
    settings: Mapping[str, Any],
    patience: int,
    rounds: bool,
    played: dict[str, int | None],
    planner: Mapping[str, Any],
    once: bool,
) -> StageQuestions | None:
    """The questions of a planner in games; `None` where nobody can tell.

    `played` has the plans of games that were counted; `once`: also what is asked before the first game.
    """
    asking = planner
    while isinstance(asking.get("planner"), Mapping):
        asking = asking["planner"]
    ahead = int(asking.get("ahead", 0))
    key = repr((env, settings, patience, rounds, ahead))
    if key not in played:
        played[key] = plans_in_a_game(env, settings, patience=patience, rounds=rounds, ahead=ahead)
    plans = played[key]
    if plans is None or (asking is not planner and ahead):  # a disturbed plan is not kept
        return None
    made = make_env(env, **settings)
    made.reset(seed=0)
    each, prompt = _plan(asking, planning_game(made))
    per_game = plans * each
    if asking.get("opening"):
        per_game = min(per_game, int(asking["opening"]) * each)
    asked = int(once and bool(asking.get("objects", True)))
    return StageQuestions(asked + games * per_game, prompt, PLAN, chats_in(planner)[0], float(per_game))


def _game_of(
    checkpoint: Any, config: Mapping[str, Any], stages: Mapping[str, Stage]
) -> tuple[Mapping[str, Any], str | None, Any]:
    """Settings of the training of a checkpoint, and its game; without an id where nobody can tell."""
    from rllib_llm_comm.policies.policy_folder import find_policy

    trained: Mapping[str, Any]
    if (source := source_of(checkpoint, stages)) is not None:
        trained, env = source.experiment.config, source.experiment.env
        env_config = trained.get("env_config")
    else:
        try:
            manifest = read_manifest(find_policy(str(checkpoint)))
        except UserError:
            return {}, None, {}
        trained, env, env_config = manifest.planning or {}, manifest.env, manifest.env_config
    if env is None:
        return trained, None, {}
    return trained, *without_subgoals(str(env), {**(env_config or {}), **(config.get("env_config") or {})})


class _AskedRules(ScriptedPlanner):
    """Rules that count how often a chat model in their place is asked, whose plans are kept as those of `ChatPlanner`.

    Args:
        ahead: Subgoals of each agent in a plan; 0 counts as 1.
    """

    def __init__(self, ahead: int) -> None:
        super().__init__()
        self.asked, self._most, self._left = 0, max(1, ahead), dict[str, int]()

    def plan(self, request: PlanRequest) -> Plan:
        ends = {one.agent: one.how for one in request.outcomes}
        free = [agent for agent in request.game.agents if not request.current.get(agent)]
        if not all(self._left.get(agent) and ends.get(agent) in (DONE, WAITED) for agent in free):
            self.asked, self._left = self.asked + 1, dict.fromkeys(request.game.agents, self._most)
            free = list(request.game.agents)
        self._left |= {agent: self._left[agent] - 1 for agent in free}
        return super().plan(request)


def plans_in_a_game(
    env_id: str, settings: Mapping[str, Any], *, patience: int, rounds: bool, ahead: int = 0
) -> int | None:
    """Plans in one game in which rules plan and follow, `ahead` subgoals per agent; `None` in a game without rules.

    A subgoal that is not done ends after `patience` game steps. With `rounds` plans are made when all have ended.
    """
    from rllib_llm_comm.sama.planned_env import PlannedSubgoals
    from rllib_llm_comm.sama.reflection import ReflectivePlay

    with suppress(UserError, ChatError):
        shown = settings.get("observe")
        if isinstance(shown, list | tuple) and "text" not in shown:  # of agents that read numbers; subgoals need words
            settings = {**settings, "observe": [*shown, "text"]}
        env = make_env(env_id, **settings)
        player = planning_game(env).player()
        rules = _AskedRules(ahead)
        if rounds:
            ReflectivePlay(env, player, rules, trials=0, patience=patience).play(0)
        else:
            planned = PlannedSubgoals(env, rules, patience=patience)
            play_games(player, lambda: planned, [0])
        return rules.asked
    return None


def _labels(stage: Stage, config: Mapping[str, Any]) -> list[StageQuestions]:
    """The questions of a chat teacher, counted while chance plays: one per moment, with labels for all agents; those of
    what they see that have enough are none.
    """
    teacher = config.get("teacher")
    if not isinstance(teacher, Mapping) or teacher.get("name") != "chat":
        return []
    from rllib_llm_comm.verco.teachers.base import Teacher, TeacherRequest
    from rllib_llm_comm.verco.teachers.chat_teacher import ChatTeacher
    from rllib_llm_comm.verco.teachers.collect_labels import collect_labels

    asking = ChatTeacher(**{key: value for key, value in teacher.items() if key != "name"})
    prompts: dict[str, str] = {}

    class Counting(Teacher):
        """Has words of its own for each moment, as chat models have; a moment that comes again is asked about once."""

        name = "chat"

        def messages(self, request: TeacherRequest, *, rng: Any) -> dict[str, str]:
            words = prompts.setdefault(asking.prompt(request), f"moment {len(prompts)}")
            return dict.fromkeys(request.agents, words)

    chosen = CollectLabels().chosen(config)
    wanted, limit = chosen["target_labels"], chosen["max_decisions"]
    given = {**chosen, "teacher": Counting(), "policy": "random", "max_decisions": min(limit, _MOST_DECISIONS)}
    with tempfile.TemporaryDirectory(prefix="labels-") as folder:
        found = collect_labels(str(stage.experiment.env), Path(folder) / "labels", **given)
    larger = max(1.0, min(wanted / max(1, found.labels), limit / _MOST_DECISIONS))
    return [
        StageQuestions(math.ceil(len(prompts) * larger), sum(map(len, prompts)) / max(1, len(prompts)), LABEL, teacher)
    ]


_STAGES: Mapping[str, Callable[[Stage, Mapping[str, Stage]], StageQuestions]] = {
    "make_manual": _manual,
    "translate": _translation,
    "collect_subgoals": _subgoals,
    "write_rewards": _rewards,
}
