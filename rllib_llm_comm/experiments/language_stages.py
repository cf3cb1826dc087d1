"""Stages in which a language model prepares a game for planning: manual, translation, data set of subgoals, rewards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.plain_stage import PlainStage
from rllib_llm_comm.experiments.stage_chat import check_stage_chat, open_stage_chat, who_answered
from rllib_llm_comm.experiments.stages import Stage, StageResult
from rllib_llm_comm.experiments.validation import StrictSettings

Settings = TypeVar("Settings", bound="ChatStageSettings")
_OF_THE_GAME = {"chat", "env_config", "layout"}


class ChatStageSettings(StrictSettings):
    """`config:` of stages that ask a chat model.

    Attributes:
        chat: Settings of the chat model, as for `open_chat`: `model` and `base_url` of any endpoint with OpenAI's
            protocol, `local`, or `cassette`, a file or a recording that comes with the package.
        seed: Of everything that is drawn.
    """

    chat: dict[str, Any] = Field(examples=["chat: {model: gpt-4o}"])
    seed: int = Field(0, ge=0, le=2**31 - 1)


class _ChatStage(PlainStage):
    """A stage that asks a chat model; a killed one goes on with the answers that it has."""

    settings_class: ClassVar[type[ChatStageSettings]]
    texts: ClassVar[tuple[str, ...]] = ()
    """Settings that are paths of files."""

    def settings(self, stage: Stage) -> Any:
        """The checked `config:`."""
        return self.settings_class.checked(f"{stage.name}.config", stage.experiment.config)

    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks keys, values, files that should be there by now, and who is asked."""
        from rllib_llm_comm.sama.manuals.manual import find_manual

        settings = self.settings(stage)
        for name in self.texts:
            path = getattr(settings, name)
            if path and not any(future in path for future in unresolved) and not find_manual(path).exists():
                raise UserError(
                    f"`{stage.name}.config.{name}` is {path!r} but nothing is there; give a path that exists, or the "
                    "`${NAME}` of a stage above."
                )
        check_stage_chat(f"{stage.name}.config.chat", settings.chat)

    def config_identity(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Without time-outs, prices and the like: more budget or patience continues a stage."""
        from rllib_llm_comm.sama.subgoals.dataset import without_keys

        return dict(without_keys(config))


class GameStageSettings(ChatStageSettings):
    """`config:` of stages that show a game to the model; `env` above it names the game, by default the kitchens.

    Attributes:
        env_config: Settings of the game.
        layout: Short for `env_config: {layout: ...}`, for games that have layouts.
    """

    env_config: dict[str, Any] = Field(default_factory=dict)
    layout: str = ""


class _GameStage(_ChatStage):
    """A stage that shows a game to the model, through the game's `GamePreparation`."""

    takes_env = True

    def game(self, stage: Stage) -> dict[str, Any]:
        """Id of the environment (`env`) and its `settings`."""
        from rllib_llm_comm.envs.overcooked_ai.game import ENV_ID

        given = self.settings(stage)
        if given.layout and "layout" in given.env_config:
            raise UserError(f"`{stage.name}.config` has both `layout` and `env_config.layout`; leave one of them away.")
        named = {"layout": given.layout} if given.layout else {}
        return {"env": stage.experiment.env or ENV_ID, "settings": {**given.env_config, **named}}

    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks the game, too."""
        from rllib_llm_comm.sama.preparation import open_game

        super().check_config(stage, unresolved)
        game = self.game(stage)
        try:
            open_game(game["env"], game["settings"])
        except UserError as error:
            raise UserError(f"In `{stage.name}`: {error}") from None


class ManualStageSettings(ChatStageSettings):
    """`config:` of `run: make_manual`.

    Attributes:
        paper: LaTeX file of a paper about the game, or the name of a description that comes with the package; or
            several.
        words: Most words of the manual (ours; SAMA does not say).
        batch: Paragraphs per request (ours).
    """

    paper: str | list[str] = Field(examples=["paper: onion_soup"])
    words: int = Field(400, ge=20, le=5000)
    batch: int = Field(8, ge=1, le=100)


class MakeManual(_ChatStage):
    """`run: make_manual`: a manual of the game from LaTeX sources (SAMA Section 3.1)."""

    name = "make_manual"
    settings_class = ManualStageSettings

    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks the papers, too."""
        from rllib_llm_comm.sama.manuals.latex import find_paper

        super().check_config(stage, unresolved)
        for paper in _list(self.settings(stage).paper):
            find_paper(paper)

    def run(self, stage: Stage) -> StageResult:
        """Writes `manual.md`, and its facts and figures to `manual.json`."""
        from rllib_llm_comm.experiments.manual_run import manual_chat, run_manual

        settings = self.settings(stage)
        model = open_stage_chat(manual_chat(settings.chat), stage.folder)
        target, facts = stage.folder / "manual.md", stage.folder / "manual.json"
        papers = [Path(paper) for paper in _list(settings.paper)]
        how = {"words": settings.words, "batch": settings.batch, "figures": facts}
        figures = run_manual(papers, target, settings.chat, chat_model=model, **how)
        counts = {"paragraphs": figures["paragraphs"], "relevant": len(figures["relevant"])}
        facts_found = sum(map(len, figures["facts"].values()))
        return StageResult([target], {"facts": facts}, {**counts, "facts": facts_found, **who_answered(model)})


class TranslationStageSettings(GameStageSettings):
    """`config:` of `run: translate`.

    Attributes:
        manual: Manual that the model is shown: a file, or one that comes with the package; empty: the game's own.
        code: Python files of the game; empty: those of the game; of the kitchens a recorded copy, which
            recordings quote.
        pieces: Pieces of code that the model is shown (ours; SAMA does not say).
        states: Random states in which the translator is checked (ours); fewer where the game has no more that differ.
        actions: Random states in which the model tells the effects of the first agent's actions, to be checked (ours).
    """

    manual: str = ""
    code: list[str] = Field(default_factory=list)
    pieces: int = Field(1, ge=1, le=20)
    states: int = Field(200, ge=1, le=10_000)
    actions: int = Field(1, ge=0, le=1000)


class Translate(_GameStage):
    """`run: translate`: a translator of states, written by the model, and actions in words; both checked."""

    name = "translate"
    settings_class = TranslationStageSettings
    texts = ("manual",)

    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks the code, too."""
        from rllib_llm_comm.sama.translation import CodeIndex

        super().check_config(stage, unresolved)
        settings = self.settings(stage)
        if settings.code:
            CodeIndex.of_files(map(Path, settings.code))

    def run(self, stage: Stage) -> StageResult:
        """Writes `translation.json`."""
        from rllib_llm_comm.experiments.translation_run import run_translation

        settings = self.settings(stage)
        model = open_stage_chat(settings.chat, stage.folder)
        target = stage.folder / "translation.json"
        figures = run_translation(model, target, **self.game(stage), **settings.model_dump(exclude=_OF_THE_GAME))
        return StageResult([target], {}, {**figures, **who_answered(model)})


class SubgoalStageSettings(GameStageSettings):
    """`config:` of `run: collect_subgoals`.

    Attributes:
        planner: Settings of `make_planner` that asks a chat model, without `chat`.
        states: States in which the planner is asked (ours; SAMA does not say).
        states_by: "model" (SAMA): the chat model proposes the states, in games in which it can; "random": they are
            drawn.
        apart: Least distance between the words of two proposed states, 1 minus the cosine of their mean token vectors;
            0 keeps all that differ (ours; SAMA lets the model sort out duplicates).
        text_encoder: The frozen text encoder that compares them.
    """

    planner: dict[str, Any] = Field(default_factory=lambda: {"name": "sama"})
    states: int = Field(30, ge=1, le=10_000)
    states_by: str = "model"
    apart: float = Field(0.0, ge=0, le=2)
    text_encoder: str = "embedded"


class CollectSubgoals(_GameStage):
    """`run: collect_subgoals`: what a planner wants in diverse states, as a data set for training."""

    name = "collect_subgoals"
    settings_class = SubgoalStageSettings

    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks planner and encoder, too."""
        from rllib_llm_comm.core.errors import require_choice
        from rllib_llm_comm.experiments.subgoal_stage_run import BY_MODEL, STATES_BY, planner_without_chat
        from rllib_llm_comm.language.text_encoder import check_text_encoder
        from rllib_llm_comm.sama.preparation import open_game, preparation_of
        from rllib_llm_comm.sama.subgoals.dataset import require_form

        super().check_config(stage, unresolved)
        settings = self.settings(stage)
        require_choice(f"{stage.name}.config.states_by", settings.states_by, STATES_BY)
        if settings.states_by == BY_MODEL:
            try:
                require_form(preparation_of(open_game(**self.game(stage))))
            except UserError as error:
                raise UserError(f"In `{stage.name}.config`: {error}") from None
        check_text_encoder(settings.text_encoder)
        try:
            planner_without_chat(settings.planner, settings.chat)
        except UserError as error:
            if not any(path in str(error) for path in unresolved):
                raise UserError(f"In `{stage.name}.config.planner`: {error}") from None

    def run(self, stage: Stage) -> StageResult:
        """Writes `subgoals.json`; what an earlier call has asked is not asked again."""
        from rllib_llm_comm.experiments.subgoal_stage_run import run_subgoals

        settings = self.settings(stage)
        model = open_stage_chat(settings.chat, stage.folder)
        target = stage.folder / "subgoals.json"
        figures = run_subgoals(model, target, **self.game(stage), **settings.model_dump(exclude=_OF_THE_GAME))
        return StageResult([target], {}, {**figures, **who_answered(model)})


class RewardStageSettings(ChatStageSettings):
    """`config:` of `run: write_rewards`.

    Attributes:
        subgoals: Data set of subgoals, usually `${stage}`; one reward is written for each.
        manual: Manual that the model is shown: a file, or one that comes with the package; empty: the game's own.
        steps: Steps of disturbed scripted play in which the code is compared with the game's own test (ours).
        least_agreement: Least share of judgements that agree, in [0, 1]; code below it is left out together with its
            subgoal (ours; SAMA checks nothing).
    """

    subgoals: str = Field(examples=["subgoals: ${subgoals}"])
    manual: str = ""
    steps: int = Field(300, ge=1, le=100_000)
    least_agreement: float = Field(0.8, ge=0, le=1)


class WriteRewards(_ChatStage):
    """`run: write_rewards`: reward code for the subgoals of a data set, sandboxed and compared with the exact tests."""

    name = "write_rewards"
    settings_class = RewardStageSettings
    texts = ("subgoals", "manual")

    def run(self, stage: Stage) -> StageResult:
        """Writes the folder `rewards`: code, `agreement.json`, and `subgoals.json` with the subgoals that have code."""
        from rllib_llm_comm.experiments.reward_stage_run import run_rewards

        settings = self.settings(stage)
        model = open_stage_chat(settings.chat, stage.folder)
        target = stage.folder / "rewards"
        figures = run_rewards(model, target, stage.name, **settings.model_dump(exclude={"chat"}))
        return StageResult([target], {"agreement": target / "agreement.json"}, {**figures, **who_answered(model)})


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
