"""Stages in which a language model prepares a game for planning: manual, translation, data set of subgoals, rewards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.cassettes import Cassette, asks, open_chat
from rllib_llm_comm.chat.chat_model import MANUAL, TOKENS, ChatModel, begun_at_once, cost_of, side_by_side
from rllib_llm_comm.chat.settings import AskingChat
from rllib_llm_comm.core.errors import UserError, within
from rllib_llm_comm.core.files import read_text, write_atomically
from rllib_llm_comm.core.settings import InGames, Seeded
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.experiments.console import counting_bar, out, require_writable, say, short_path
from rllib_llm_comm.experiments.stages import (
    GAME_MANUAL,
    REWARDS,
    SUBGOALS,
    TRANSLATION,
    Stage,
    StageKind,
    StageResult,
    as_list,
)
from rllib_llm_comm.sama.data_set import (
    StatesApart,
    SubgoalDataset,
    distinct,
    diverse_states,
    propose_states,
    read_subgoals,
    require_form,
    without_keys,
    words_of,
)
from rllib_llm_comm.sama.manuals.latex import find_paper, read_latex, split_latex
from rllib_llm_comm.sama.manuals.manual import (
    Manual,
    ManualSettings,
    ManualShown,
    find_manual,
    make_manual,
    read_manual,
)
from rllib_llm_comm.sama.planners import WITH_MODEL, ListeningModel, make_planner
from rllib_llm_comm.sama.planning_game import OURS, PromptsOf, State
from rllib_llm_comm.sama.preparation import CodeIndex, GamePreparation, open_game, preparation_of
from rllib_llm_comm.sama.recordings import with_recording
from rllib_llm_comm.sama.rewards.subgoal_rewards import Agreement, RewardChecks, checked_reward, file_name, told_manual
from rllib_llm_comm.sama.translation import Translation, to_json, translate_actions, write_translator

ANSWERS = "answers.jsonl"
"""Recording of the answers of a stage, in its folder."""


def check_stage_chat(where: str, chat: Mapping[str, Any]) -> None:
    """Refuses settings of a chat model that cannot be used; nobody is asked and no recording is begun.

    Args:
        where: Full name of the setting, for messages.
        chat: As of `open_chat`; `cassette` may be the name of a recording that comes with the package.

    Raises:
        UserError: If a setting is not allowed or nobody can be asked.
    """
    unrecorded = {key: value for key, value in chat.items() if key != "cassette"}
    with within(where):
        open_chat(unrecorded if asks(chat) else with_recording(chat))


def kept_chat(chat: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Settings of a chat model whose answers are recorded in a stage's folder, unless they name another recording.

    A killed stage goes on with the answers that it has, and the recording can be played in place of the model.
    """
    return {"cassette": str(folder / ANSWERS), **chat} if asks(chat) else with_recording(chat)


def open_stage_chat(chat: Mapping[str, Any], folder: Path) -> ChatModel:
    """The chat model of a stage; what it answers is recorded."""
    folder.mkdir(parents=True, exist_ok=True)
    return open_chat(kept_chat(chat, folder))


def kept_planner(planner: Any, folder: Path) -> Any:
    """Settings of a planner; the answers of a chat model that it asks are recorded in a stage's folder."""
    if isinstance(planner, Mapping) and "planner" in planner:  # it disturbs another one
        return {**planner, "planner": kept_planner(planner["planner"], folder)}
    if not isinstance(planner, Mapping) or not isinstance(planner.get("chat"), Mapping):
        return planner
    chat = planner["chat"]
    kept = asks(chat) and not chat.get("cassette") and not chat.get("cache_dir") and not chat.get("temperature")
    return {**planner, "chat": kept_chat(chat, folder)} if kept else planner


def who_answered(model: ChatModel) -> dict[str, Any]:
    """Authors and cost of a stage's answers, for its summary and the report.

    Returns:
        `answers_from` in words, `answers` (count by author, of recordings), `note` (how a recording was made), and the
        counts `requests`, `kept_answers`, `input_tokens`, `output_tokens` and `cost`.
    """
    by: dict[str, Any] = {
        "answers_from": model.model,
        "answers": {model.model: model.counters.requests + model.counters.cached},
        "note": "",
    }
    if isinstance(model, Cassette) and model.client is None:
        note = str(model.header.get("note", ""))
        by = {"answers_from": _recording_in_words(model), "answers": dict(model.played), "note": note}
    return {**by, **cost_of(model.counters)}


def _recording_in_words(tape: Cassette) -> str:
    authors = ", ".join(f"{count} by {who}" for who, count in sorted(tape.played.items()))
    return f"recording {tape.path.name} of {tape.header.get('made', 'an unknown day')} ({authors or 'none was needed'})"


class ChatStageSettings(AskingChat, Seeded):
    """`config:` of stages that ask a chat model."""


class QuestionStageSettings(ChatStageSettings):
    """`config:` of stages whose questions are worded in two ways."""

    prompts: PromptsOf = OURS
    """"ours", or "paper": the questions of SAMA's listings, in our own words."""


class _ChatStage(StageKind):
    """A stage that asks a chat model; a killed one goes on with the answers that it has."""

    def check_config(self, stage: Stage) -> None:
        """Checks keys, values, files that should be there by now, and who is asked."""
        settings = self.settings(stage)
        for name in self.wants:
            path = getattr(settings, name)
            if not path or stage.awaits(path):
                continue
            if not (find_manual(path) if name == "manual" else Path(path)).exists():
                raise UserError(
                    f"`{stage.name}.config.{name}` is {path!r} but nothing is there; give a path that exists, or the "
                    "`${NAME}` of a stage above."
                )
        check_stage_chat(f"{stage.name}.config.chat", settings.chat)

    def config_identity(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Without time-outs, prices and the like: more budget or patience continues a stage."""
        return dict(without_keys(config))


class GameStageSettings(QuestionStageSettings, InGames):
    """`config:` of stages that show a game to the model; `env` above it names the game, by default the kitchens."""

    layout: str = ""
    """Short for `env_config: {layout: ...}`, for games that have layouts."""

    def game(self, env: Any) -> dict[str, Any]:
        """Id of the environment (`env`, the kitchens by default) and its `settings`, as of `open_game`."""
        if self.layout and "layout" in self.env_config:
            raise UserError("`layout` is given, and in `env_config`, too; omit one of them.")
        named = {"layout": self.layout} if self.layout else {}
        return {"env": env or ENV_ID, "settings": {**self.env_config, **named}}


class _GameStage(_ChatStage):
    """A stage that shows a game to the model, through the game's `GamePreparation`."""

    takes_env = True

    def check_config(self, stage: Stage) -> None:
        """Checks the game, too."""
        super().check_config(stage)
        with within(stage.name):
            open_game(**self.settings(stage).game(stage.experiment.env))


class ManualStageSettings(ManualSettings, ChatStageSettings):
    """`config:` of `run: make_manual`."""

    paper: str | list[str] = Field(examples=["paper: onion_soup"])
    """LaTeX file of a paper about the game, or the name of a description that comes with the package; or several."""


class MakeManual(_ChatStage):
    """`run: make_manual`: a manual of the game from LaTeX sources (SAMA Section 3.1)."""

    name = "make_manual"
    gives = {"": GAME_MANUAL}
    settings_class = ManualStageSettings

    def check_config(self, stage: Stage) -> None:
        """Checks the papers, too."""
        super().check_config(stage)
        for paper in as_list(self.settings(stage).paper):
            find_paper(paper)

    def run(self, stage: Stage) -> StageResult:
        """Writes `manual.md`, and its facts and figures to `manual.json`."""
        settings = self.settings(stage)
        model = open_stage_chat(manual_chat(settings.chat), stage.folder)
        target, facts = stage.folder / "manual.md", stage.folder / "manual.json"
        papers = [Path(paper) for paper in as_list(settings.paper)]
        figures = run_manual(papers, target, settings.chat, settings, figures=facts, chat_model=model)
        counts = {"paragraphs": figures["paragraphs"], "relevant": len(figures["relevant"])}
        facts_found = sum(map(len, figures["facts"].values()))
        return StageResult([target], {"facts": facts}, {**counts, "facts": facts_found, **who_answered(model)})


def run_manual(
    papers: Sequence[Path],
    target: Path,
    chat: Mapping[str, Any],
    settings: ManualSettings,
    *,
    figures: Path | None = None,
    chat_model: ChatModel | None = None,
) -> dict[str, Any]:
    """Makes the manual of a game from papers about it, and prints what it cost.

    Args:
        papers: Main LaTeX file of each paper, or the name of one that comes with the package.
        target: File of the manual (Markdown).
        chat: Settings of the chat model, as of `open_chat`; a recording may be one that comes with the package.
        settings: How the manual is made.
        figures: File of facts, figures and cost (JSON); `None` for none.
        chat_model: The chat model, in place of the one that the settings name.

    Returns:
        Facts, figures and cost.

    Raises:
        UserError: If a file cannot be read or written, or a setting is not allowed.
        ChatError: If a request failed for good.
    """
    require_writable({"--out": target, "--json": figures})
    asked = with_recording(manual_chat(chat))
    sources = {path: read_latex(path) for path in map(find_paper, papers)}
    found = {path: split_latex(source) for path, source in sources.items()}
    for path, parts in found.items():
        if not parts:
            raise UserError(f"{str(path)!r} has no paragraphs; give the main LaTeX file of a paper.")
    paragraphs = [paragraph for parts in found.values() for paragraph in parts]
    if chat_model is None:  # a recording without answers is false
        chat_model = open_chat(asked)
    with out.status(f"asking about {len(paragraphs)} paragraphs"):
        manual = make_manual(chat_model, paragraphs, settings)
    made = _provenance(sources, manual.to_json(), chat_model)
    write_atomically(target, f"<!--\n{made}\n-->\n\n{manual.text}\n")
    if figures is not None:
        write_atomically(figures, json.dumps(manual.to_json(), indent=2) + "\n")
    _tell(manual, len(paragraphs), target)
    return manual.to_json()


def manual_chat(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a chat model with room for the long answers of a manual, which a local model has to be told."""
    return {"max_tokens": TOKENS[MANUAL], **chat} if chat.get("local") else dict(chat)


def _tell(manual: Manual, paragraphs: int, target: Path) -> None:
    say(
        f"{len(manual.relevant)} of {paragraphs} paragraphs are relevant; "
        f"{sum(map(len, manual.facts.values()))} facts, {manual.repeated} repetitions left out; "
        f"{manual.cost.requests} requests, {manual.cost.cached} kept answers, cost {manual.cost.cost:.4g}"
    )
    for line in _doubts(manual.to_json()):
        say(line)
    say(f"The manual is in {short_path(target)}.")


def _doubts(figures: dict[str, Any]) -> list[str]:
    """Sentences about all that was kept because the answer of the model could not be used."""
    undecided, unsorted = figures["undecided"], figures["unsorted"]
    told = [f"{undecided} paragraphs were kept although the model said neither yes nor no."] if undecided else []
    return told + ([f"{unsorted} lists of facts were kept whole for want of a usable answer."] if unsorted else [])


def _provenance(sources: dict[Path, str], figures: dict[str, Any], chat_model: ChatModel) -> str:
    """The sources and the author of a manual, kept in the file so that nobody takes it for one that a person wrote."""
    names = ", ".join(
        f"{path.name} (sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]})" for path, text in sources.items()
    )
    by, note = chat_model.model, ""
    if isinstance(chat_model, Cassette) and chat_model.client is not None:
        by = str(chat_model.header.get("model", "")) or by
    elif isinstance(chat_model, Cassette):
        authors = ", ".join(chat_model.played) or chat_model.header.get("model", "")
        by = f"the recording {chat_model.path.name} ({authors}, {chat_model.header.get('made', 'an unknown day')})"
        note = str(chat_model.header.get("note", ""))
    lines = [
        f"Made by `rllib manual` from {names}, by {by}. Not checked by a person.",
        f"{len(figures['relevant'])} of {figures['paragraphs']} paragraphs were relevant.",
        *_doubts(figures),
        *([note] if note else []),
    ]
    return "\n".join(lines).replace("--", "- -")


class TranslationStageSettings(ManualShown, GameStageSettings):
    """`config:` of `run: translate`."""

    code: list[str] = Field(default_factory=list)
    """Python files of the game; empty: those of the game; of the kitchens a recorded copy, which recordings quote."""
    pieces: int = Field(1, ge=1, le=20)
    """Pieces of code that the model is shown (ours; SAMA does not say)."""
    states: int = Field(200, ge=1, le=10_000)
    """Random states in which the translator is checked (ours); fewer where the game has no more that differ."""
    actions: int = Field(1, ge=0, le=1000)
    """Random states in which the model tells the effects of the first agent's actions, to be checked (ours)."""


class Translate(_GameStage):
    """`run: translate`: a translator of states, written by the model, and actions in words; both checked."""

    name = "translate"
    gives = {"": TRANSLATION}
    wants = {"manual": GAME_MANUAL}
    settings_class = TranslationStageSettings

    def check_config(self, stage: Stage) -> None:
        """Checks the code, too."""
        super().check_config(stage)
        settings = self.settings(stage)
        if settings.code:
            CodeIndex.of_files(map(Path, settings.code))

    def run(self, stage: Stage) -> StageResult:
        """Writes `translation.json`."""
        settings = self.settings(stage)
        model = open_stage_chat(settings.chat, stage.folder)
        target = stage.folder / "translation.json"
        figures = run_translation(model, target, settings, stage.experiment.env)
        return StageResult([target], {}, {**figures, **who_answered(model)})


_TRIED, _SHOWN = 20, 3
_TRUTHS = ("true", "false", "unclear")


def run_translation(model: ChatModel, target: Path, given: TranslationStageSettings, env: Any = None) -> dict[str, Any]:
    """Lets a chat model write a translator, measures it on random states, and lets it tell the effects of actions.

    Args:
        model: The chat model.
        target: File of the translation.
        given: What is translated.
        env: Id of the game's environment; the kitchens by default.

    Returns:
        Counts of true, false and unclear sentences about `states`, and of the effects of actions.

    Raises:
        AnswerError: If the model writes no translator that works.
        ChatError: If a request failed for good.
        UserError: If a file cannot be read, or the user has to do something first.
    """
    game = open_game(**given.game(env), seed=given.seed)
    how = preparation_of(game)
    index = CodeIndex.of_files(map(Path, given.code)) if given.code else how.code()
    found = list(diverse_states(game, max(given.states, _TRIED), given.seed).values())
    told_manual = f"{read_manual(given.manual)}\n{game.scenario()}" if given.manual else game.manual()
    write = partial(
        write_translator,
        model,
        game,
        found[:_TRIED],
        index,
        manual=told_manual,
        pieces=given.pieces,
        prompts=given.prompts,
    )
    # The translator is one question, the effects of actions in each state are another.
    tell = [
        partial(_effects, model, how, index, given.pieces, one) for one in range(given.seed, given.seed + given.actions)
    ]
    asks: list[Callable[[], Any]] = [write, *tell]
    translator, *told_effects = side_by_side(lambda ask: ask(), asks, begun_at_once(model))
    effects, unusable = _joined(told_effects)
    sums, examples, looked_at = Translation(), [], found[: given.states]
    with counting_bar("checking sentences") as progress:
        for number, state in enumerate(looked_at, 1):
            told = translator.told(game, state)
            sums += told
            if number <= _SHOWN:
                examples.append({"state": game.plain(state), "words": translator.words(game, state)})
            progress(number, len(looked_at))
    figures = {
        "states": len(looked_at),
        "sentences_true": len(sums.true),
        "sentences_false": len(sums.false),
        "sentences_unclear": len(sums.unclear),
        "actions_true": len(effects["true"]),
        "actions_false": len(effects["false"]),
        "actions_unclear": len(effects["unclear"]),
        "actions_unusable": unusable,
    }
    write_atomically(target, to_json(translator, **how.origin(), figures=figures, examples=examples, actions=effects))
    say(
        f"{len(looked_at)} states: {figures['sentences_true']} sentences true, {figures['sentences_false']} false, "
        f"{figures['sentences_unclear']} not understood. The translator is in {short_path(target)}."
    )
    return figures


def _effects(
    model: ChatModel, how: GamePreparation, index: CodeIndex, pieces: int, seed: int
) -> dict[str, dict[str, str]] | None:
    """Effects of the first agent's actions in a random state, checked; `None` without a usable answer."""
    agent, state = how.game.agents[0], how.draw(np.random.default_rng(seed))
    actions, beside = how.actions(state, agent), how.beside(state, agent)
    if not actions:
        return {}
    try:
        shown = how.game.plain(state)
        found = translate_actions(model, index, shown, agent, actions, beside=beside, pieces=pieces)
    except AnswerError:
        return None
    return {name: getattr(found, name) for name in _TRUTHS}


def _joined(effects: Sequence[dict[str, dict[str, str]] | None]) -> tuple[dict[str, list[str]], int]:
    """The effects of all states by their truth, and the number of states without an answer."""
    told: dict[str, list[str]] = {name: [] for name in _TRUTHS}
    for found in effects:
        for name, words in (found or {}).items():
            told[name] += [f"{action}: {said}" for action, said in words.items()]
    return told, sum(found is None for found in effects)


class SubgoalStageSettings(StatesApart, GameStageSettings):
    """`config:` of `run: collect_subgoals`."""

    planner: dict[str, Any] = Field(default_factory=lambda: {"name": "sama"})
    """Settings of `make_planner` that asks a chat model, without `chat`."""
    states: int = Field(30, ge=1, le=10_000)
    """States in which the planner is asked (ours; SAMA does not say)."""
    states_by: Literal["model", "random"] = "model"
    """"model" (SAMA): the chat model proposes the states, in games in which it can; "random": they are drawn."""


class CollectSubgoals(_GameStage):
    """`run: collect_subgoals`: what a planner wants in diverse states, as a data set for training."""

    name = "collect_subgoals"
    gives = {"": SUBGOALS}
    settings_class = SubgoalStageSettings

    def check_config(self, stage: Stage) -> None:
        """Checks planner and encoder, too."""
        from rllib_llm_comm.language.text_encoder import check_text_encoder

        super().check_config(stage)
        settings = self.settings(stage)
        if settings.states_by == "model":
            with within(f"{stage.name}.config"):
                require_form(preparation_of(open_game(**settings.game(stage.experiment.env))))
        check_text_encoder(settings.text_encoder)
        with within(f"{stage.name}.config.planner", unless=stage.to_come):
            planner_without_chat(settings.planner, settings.chat)

    def run(self, stage: Stage) -> StageResult:
        """Writes `subgoals.json`; what an earlier call has asked is not asked again."""
        settings = self.settings(stage)
        model = open_stage_chat(settings.chat, stage.folder)
        target = stage.folder / "subgoals.json"
        figures = run_subgoals(model, target, settings, stage.experiment.env)
        return StageResult([target], {}, {**figures, **who_answered(model)})


def planner_without_chat(planner: Mapping[str, Any], chat: Mapping[str, Any]) -> None:
    """Checks the settings of a planner whose chat model is given apart.

    Raises:
        UserError: If the planner asks no chat model, names one itself, or a setting is not allowed.
    """
    if "chat" in planner or "cassette" in planner:
        raise UserError("`chat` is given for the whole stage; omit it here.")
    if planner.get("name") not in WITH_MODEL:
        raise UserError(f"`name` is {planner.get('name')!r} but must ask a chat model: {', '.join(WITH_MODEL)}.")
    make_planner(dict(planner), ListeningModel())  # settings are checked without loading a model


def run_subgoals(model: ChatModel, target: Path, given: SubgoalStageSettings, env: Any = None) -> dict[str, Any]:
    """Asks a planner in diverse states and writes the data set.

    Args:
        model: The chat model.
        target: File of the data set; what it holds is not asked for again.
        given: The planner and the states.
        env: Id of the game's environment; the kitchens by default.

    Returns:
        Figures of the data set; `proposed` states and those that stayed after de-duplication (`distinct`).

    Raises:
        ChatError: If a request failed for good.
        UserError: If the user has to do something first.
    """
    game, states = given.game(env), given.states
    data = SubgoalDataset(
        open_game(**game, seed=given.seed), given.planner, given.seed, model, states_by=given.states_by
    )
    proposed = states
    if given.states_by == "model":
        data.given, proposed = _proposed(model, data, given)
        states = len(data.given)
    there = ask_planner(data, states, target, game["settings"].get("layout", game["env"]))
    summary = data.summary()
    say(
        f"{proposed} states, {there} of them distinct: {summary['subgoals']} subgoals, {summary['goals']} goals, "
        f"{summary['refused']} refusals, {summary['failed']} without an answer. Data set: {short_path(target)}"
    )
    if not summary["subgoals"]:
        raise UserError(
            f"The planner gave no subgoal in {there} states; mend `config.planner` or give another chat model."
        )
    return {"proposed": proposed, "distinct": there, **summary}


def ask_planner(data: SubgoalDataset, states: int, file: Path, where: str) -> int:
    """Asks a planner in so many states, but for those that a file holds already; keeps it and gives how many it has.

    `where` names the game, for the bar.
    """
    if file.exists():
        data.take_over(read_text(file))
    with counting_bar(f"asking in {where}") as progress:
        return data.ask(states, partial(write_atomically, file), progress)


def _proposed(model: ChatModel, data: SubgoalDataset, given: SubgoalStageSettings) -> tuple[dict[str, State], int]:
    """The proposed states that are apart, by their words, and the number of all."""
    game, manual = data.game, str(given.planner.get("manual", ""))
    told = f"{read_manual(manual)}\n{game.scenario()}" if manual else game.manual()
    proposed = propose_states(model, game, given.states, manual=told, seed=data.seed, prompts=given.prompts)
    return distinct(proposed, partial(words_of, game), given.apart, given.text_encoder), len(proposed)


class RewardStageSettings(RewardChecks, QuestionStageSettings):
    """`config:` of `run: write_rewards`."""

    subgoals: str = Field(examples=["subgoals: ${subgoals}"])
    """Data set of subgoals, usually `${stage}`; one reward is written for each."""


class WriteRewards(_ChatStage):
    """`run: write_rewards`: reward code for the subgoals of a data set, sandboxed and compared with the exact tests."""

    name = "write_rewards"
    gives = {"": REWARDS, "subgoals.json": SUBGOALS}
    wants = {"subgoals": SUBGOALS, "manual": GAME_MANUAL}
    settings_class = RewardStageSettings

    def run(self, stage: Stage) -> StageResult:
        """Writes the folder `rewards`: code, `agreement.json`, and `subgoals.json` with the subgoals that have code."""
        settings = self.settings(stage)
        model = open_stage_chat(settings.chat, stage.folder)
        target = stage.folder / "rewards"
        figures = run_rewards(model, target, stage.name, settings)
        return StageResult([target], {"agreement": target / "agreement.json"}, {**figures, **who_answered(model)})


def run_rewards(model: ChatModel, folder: Path, stage: str, given: RewardStageSettings) -> dict[str, Any]:
    """Has reward code written for the subgoals of a data set, and keeps what agrees with the game's own tests.

    Args:
        model: The chat model.
        folder: Folder of the code, of `agreement.json`, and of `subgoals.json`, the data set's subgoals that have code.
        stage: Name of the stage, for messages.
        given: The data set, and how code is judged.

    Returns:
        Numbers of `subgoals`, of those `with_code`, without a usable answer (`refused`) and below the least agreement
        (`disagree`), those with code that are done in none of the steps (`never_done`); and over all code that was
        kept `judgements`, their `share` that agrees, `precision` and `recall`.

    Raises:
        ChatError: If a request failed for good.
        UserError: If the data set cannot be read, or no code is left.
    """
    record, game, wanted = read_subgoals(given.subgoals)
    told = told_manual(game, given.manual)
    transitions = list(preparation_of(game).steps(given.steps, given.seed))
    game.env.reset(seed=given.seed)
    done: list[str] = []
    with counting_bar("writing rewards") as progress:

        def write(text: str) -> dict[str, Any]:
            """Writes and tests the code of a subgoal; its file goes where none passes the tests."""
            source, row = checked_reward(model, game, text, told, transitions, given.least_agreement, given.prompts)
            path = folder / f"{file_name(text)}.py"
            if source:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, f"# {text}\n{source.strip()}\n")
            else:
                path.unlink(missing_ok=True)
            done.append(text)
            progress(len(done), len(wanted))
            return row

        rows = side_by_side(write, wanted, begun_at_once(model))
    figures = _figures(rows)
    kept = {row["subgoal"] for row in rows if row["kept"]}
    if not kept:
        raise UserError(
            f"`{stage}` has no reward code: of {len(rows)} subgoals {figures['refused']} got no usable code and "
            f"{figures['disagree']} disagree with the game; give another chat model, or lower "
            "`config.least_agreement`."
        )
    left = {**record, "subgoals": [entry for entry in record["subgoals"] if entry["subgoal"] in kept]}
    write_atomically(folder / "subgoals.json", json.dumps(left, indent=1) + "\n")
    write_atomically(folder / "agreement.json", json.dumps({"figures": figures, "by_subgoal": rows}, indent=1) + "\n")
    say(
        f"{figures['with_code']} of {figures['subgoals']} subgoals have reward code, which agrees with the exact tests "
        f"in {figures['share']:.1%} of {figures['judgements']} judgements; {figures['never_done']} of them are done in "
        f"none of the steps. Code: {short_path(folder)}"
    )
    return figures


def _figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    total = Agreement()
    for row in rows:
        total += Agreement(**row["agreement"]) if row["kept"] else Agreement()
    return {
        "subgoals": len(rows),
        "with_code": sum(row["kept"] for row in rows),
        "refused": sum("agreement" not in row for row in rows),
        "never_done": sum(row["kept"] and not row["agreement"]["both"] + row["agreement"]["missed"] for row in rows),
        "disagree": sum("agreement" in row and not row["kept"] for row in rows),
        "judgements": total.steps,
        "share": round(total.share, 6),
        "precision": round(total.precision, 6),
        "recall": round(total.recall, 6),
    }
