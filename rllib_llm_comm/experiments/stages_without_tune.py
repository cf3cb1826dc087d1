"""Stages that need no Ray: collecting rows, playing checkpoints, chat models, planners; and the list of all kinds."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from rllib_llm_comm.chat.chat_model import ChatCounters, cost_of, count_scope
from rllib_llm_comm.core.errors import UserError, require_choice, within
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.core.registry import Registry
from rllib_llm_comm.core.settings import Settings, Several
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.envs.interface import GameInfo
from rllib_llm_comm.evaluation.play_settings import CrossPlaySettings, Episodes, EvaluationSettings, ReplaySettings
from rllib_llm_comm.experiments.console import counting_bar, out, say, short_path
from rllib_llm_comm.experiments.env_settings import check_environment, check_shows_words, without_missing
from rllib_llm_comm.experiments.evaluation_run import (
    CROSS_PLAY,
    SENTENCES,
    ask_players,
    labels_of,
    play_crosswise,
    refuse_code,
    run_evaluation,
)
from rllib_llm_comm.experiments.experiment_file import Experiment
from rllib_llm_comm.experiments.language_stages import (
    ChatStageSettings,
    CollectSubgoals,
    MakeManual,
    Translate,
    WriteRewards,
    check_stage_chat,
    kept_planner,
)
from rllib_llm_comm.experiments.officer_stages import CloneOfficer, DemonstrateOfficers, PlayOfficers
from rllib_llm_comm.experiments.prerequisites import require_checkpoint
from rllib_llm_comm.experiments.sama_report import SamaReport
from rllib_llm_comm.experiments.stages import FIGURES, PAGE, STAGE_REFERENCE, Stage, StageKind, StageResult, as_list
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint, is_named, is_shipped
from rllib_llm_comm.policies.partner_settings import CHECKPOINT, FUNCTION, RANDOM, SCRIPTED, STAY, parse_partners
from rllib_llm_comm.policies.policy_manifest import read_manifest
from rllib_llm_comm.sama.planners import make_planner, planner_model

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.rollout import Episode
    from rllib_llm_comm.verco.teachers.collect_labels import CollectionReport


class _OfCheckpoints(Settings):
    checkpoint: str | list[str] = Field(examples=["checkpoint: ${verco}"])
    """A checkpoint (usually `${stage}`), or several."""


class EvaluateStageSettings(EvaluationSettings, _OfCheckpoints):
    """`config:` of `run: evaluate`."""


class ReplayStageSettings(ReplaySettings, _OfCheckpoints):
    """`config:` of `run: replay`."""

    animation: bool = False
    """Write the first episode as an animated picture, too."""


class _Collection(StageKind):
    """A stage that calls a function which collects rows; `noun` is what they are."""

    takes_env = True
    noun: ClassVar[str]
    author: ClassVar[str]
    """The setting that says who gives them."""

    @abstractmethod
    def collector(self) -> Callable[..., CollectionReport]:
        """The function."""

    @abstractmethod
    def check_settings(self, stage: Stage, given: Any) -> None:
        """Checks what the settings name."""

    def chosen(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """`config:` with the defaults of what it does not give, unchecked."""
        return {**self.model().defaults(), **{key: value for key, value in config.items() if value is not None}}

    def check_config(self, stage: Stage) -> None:
        """Checks keys, values, and the environment."""
        given = self.settings(stage)
        if stage.experiment.env is None:
            raise UserError(f"`{stage.name}.env` is missing; say where {self.noun} are collected.", "missing")
        _check_words(stage, given.env_config)
        self.check_settings(stage, given)

    def options(self, stage: Stage) -> dict[str, Any]:
        """Arguments of the collector that are no settings of the stage."""
        return {}

    def run(self, stage: Stage) -> StageResult:
        """Collects the rows into a folder of the stage's."""
        folder, settings = stage.folder / self.noun, self.settings(stage)
        with counting_bar(f"collecting {self.noun}") as progress, count_scope() as asked:
            report = self.collector()(
                str(stage.experiment.env), folder, progress=progress, **stage.experiment.config, **self.options(stage)
            )
        if not report.labels:
            raise UserError(
                f"`{stage.name}` found no {self.noun} in {report.decisions} decisions; mend `config.{self.author}`, or "
                "raise `config.max_decisions`."
            )
        if not report.complete and not report.exhausted:
            raise UserError(
                f"`{stage.name}` found only {report.labels} {self.noun} of {report.prompts} different observations in "
                f"{report.decisions} decisions; raise `config.max_decisions` to go on from them or, if the game "
                f"shows no others, lower `config.target_{self.noun}` to collect anew."
            )
        counted = {"labels": self.noun}  # what the report calls rows of any kind
        figures = {counted.get(key, key): value for key, value in report.to_json().items() if key != "output"}
        say(f"{report.labels} {self.noun} of {report.prompts} different observations, {report.decisions} decisions")
        if report.exhausted:
            target, stale = getattr(settings, f"target_{self.noun}"), settings.max_stale_decisions
            say(
                f"`{stage.name}` ends before its {target} {self.noun}: {stale} decisions in a row brought nothing new, "
                "so the game seems to show no others.",
                "yellow",
            )
        cost = cost_of(asked) if asked.requests or asked.cached else {}
        return StageResult([folder], summary={**figures, **cost})


class CollectLabels(_Collection):
    """`run: collect_labels`: roll-outs in which a teacher says what each agent should say."""

    name, noun, author = "collect_labels", "labels", "teacher"
    gives = {"": noun}

    def collector(self) -> Callable[..., CollectionReport]:
        """`collect_labels`."""
        from rllib_llm_comm.verco.teachers.collect_labels import collect_labels

        return collect_labels

    def model(self) -> type[Settings]:
        """`LabelSettings`."""
        from rllib_llm_comm.verco.teachers.collect_labels import LabelSettings

        return LabelSettings

    def check_settings(self, stage: Stage, given: Any) -> None:
        """Checks the base model if it plays, and the teacher."""
        from rllib_llm_comm.language.base_model import (
            check_base_model,
            check_quantization,
            resolve_device,
            torch_device,
        )
        from rllib_llm_comm.verco.teachers.base import make_teacher

        if given.policy == "base" and given.base_model not in stage.to_come:
            with within(f"{stage.name}.config"):
                check_base_model(given.base_model)
                check_quantization(given.quantization)
                torch_device(resolve_device(given.device))
        with within(f"{stage.name}.config.teacher"):
            make_teacher(given.teacher)

    def config_identity(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Without the teacher's time-outs, prices and the like: more budget or patience continues a collection.

        `max_decisions` is left out, too: what a finished collection has does not depend on it.
        """
        return _identity(config, {"teacher": self.chosen(config)["teacher"]})

    def loads(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The teacher, and the base model if it plays."""
        chosen = self.chosen(config)
        model = {"base_model": chosen["base_model"]} if chosen["policy"] == "base" else {}
        return {"teacher": chosen["teacher"], **model}


class CollectDemonstrations(_Collection):
    """`run: collect_demonstrations`: what a player does in the states that it meets, with or without messages."""

    name, noun, author = "collect_demonstrations", "demonstrations", "player"
    gives = {"": noun}

    def collector(self) -> Callable[..., CollectionReport]:
        """`collect_demonstrations`."""
        from rllib_llm_comm.evaluation.collect_demonstrations import collect_demonstrations

        return collect_demonstrations

    def model(self) -> type[Settings]:
        """`DemonstrationSettings`."""
        from rllib_llm_comm.evaluation.collect_demonstrations import DemonstrationSettings

        return DemonstrationSettings

    def check_settings(self, stage: Stage, given: Any) -> None:
        """Checks the player, who must know the game, and the teacher if it speaks."""
        from rllib_llm_comm.evaluation.collect_demonstrations import TEACHER, read_player, read_sessions, require_game
        from rllib_llm_comm.policies.partners import Partner, load_function, try_out
        from rllib_llm_comm.policies.policy_folder import find_policy
        from rllib_llm_comm.verco.teachers.base import make_teacher

        place, who = f"{stage.name}.config.", read_player(given.player)
        if who.chat is not None:
            check_stage_chat(f"{place}player.chat", who.chat)
        elif who.sessions:
            with within(f"{stage.name}.config"):
                read_sessions(who, str(stage.experiment.env))
        elif who.partner is not None and who.partner.kind == CHECKPOINT and who.partner.policy not in stage.to_come:
            _check_checkpoint(stage, who.partner.policy, "player")
            if not is_named(who.partner.policy) or is_shipped(who.partner.policy):
                with within(f"{stage.name}.config"):
                    require_game(read_manifest(find_policy(who.partner.policy)), str(stage.experiment.env))
        elif who.partner is not None and who.partner.kind == FUNCTION:
            if not stage.trust:
                refuse_code(f"`{place}player`", who.partner.policy)
            with within(f"{place}player"):
                load_function(who.partner.policy)
        elif (
            who.partner is not None
            and who.partner.kind in (SCRIPTED, RANDOM, STAY)
            and without_missing(given.env_config, stage.to_come) == given.env_config
        ):
            game = make_env(str(stage.experiment.env), **given.env_config)
            with within(f"{place}player"):
                try_out(Partner(who.partner), game, seed=0)
            game.close()
        if given.messages == TEACHER:
            with within(f"{place}teacher"):
                make_teacher(given.teacher)

    def config_identity(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """As of `CollectLabels`; the teacher counts where it speaks, a chat model without time-outs and prices."""
        from rllib_llm_comm.evaluation.collect_demonstrations import TEACHER

        chosen = self.chosen(config)
        teacher = chosen["teacher"] if chosen["messages"] == TEACHER else None
        player = chosen["player"]
        if isinstance(player, Mapping) and isinstance(player.get("chat"), Mapping):
            from rllib_llm_comm.verco.teachers.chat_teacher import ChatTeacher

            deciding = {key: value for key, value in player["chat"].items() if key not in ChatTeacher.without_effect}
            player = {**player, "chat": deciding}
        return _identity({**config, "player": player}, {} if teacher is None else {"teacher": teacher})

    def loads(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The player, what it loads, and the teacher if it speaks."""
        from rllib_llm_comm.evaluation.collect_demonstrations import TEACHER, read_player

        chosen = self.chosen(config)
        who, speaks = read_player(chosen["player"]), chosen["messages"] == TEACHER
        return {
            "cloned_from": who.kind,
            **({"checkpoint": who.partner.policy} if who.partner is not None else {}),
            **({"chat": who.chat} if who.chat is not None else {}),
            **({"teacher": chosen["teacher"]} if speaks else {}),
        }

    def options(self, stage: Stage) -> dict[str, Any]:
        """Whether recorded settings are trusted."""
        return {"trust": stage.trust}


def _check_words(stage: Stage, env_config: Mapping[str, Any]) -> None:
    """Checks that the environment can be made, as far as all that it names is there, and shows words."""
    there = without_missing(env_config, stage.to_come)
    check_environment(stage.name, stage.experiment.env, there, stage.trust)
    check_shows_words(stage.name, str(stage.experiment.env), there)


# Settings of collectors that say how long they try, not which rows are wanted.
_PATIENCE = ("max_decisions", "max_empty_moments")


def _identity(config: Mapping[str, Any], teacher: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of `config:` of a collection that decides its rows."""
    from rllib_llm_comm.verco.teachers.base import teacher_identity

    if not all(isinstance(one, str | Mapping) for one in teacher.values()):
        return config  # refused later, with the name of the setting
    deciding = {k: v for k, v in config.items() if v is not None and k not in (*_PATIENCE, "teacher")}
    return {**deciding, **{key: teacher_identity(value) for key, value in teacher.items()}}


class _OnCheckpoint(StageKind):
    """A stage that plays checkpoints. Settings that those which were written here recorded need no `trust`."""

    def to_play(self, stage: Stage) -> tuple[list[str], Any]:
        """Paths of the checkpoints, and the settings; what a planner's chat model answers is recorded in the folder."""
        given = self.settings(stage)
        kept = {"planner": kept_planner(given.planner, stage.folder), "trust": stage.trust, "trust_own": True}
        return as_list(given.checkpoint), given.model_copy(update=kept)

    def check_config(self, stage: Stage) -> None:
        """Checks keys, values, and checkpoints that should be there by now."""
        settings = self.settings(stage)
        with within(f"{stage.name}.config", unless=stage.to_come):
            settings.check()
        for path in as_list(settings.checkpoint):
            if path not in stage.to_come:
                _check_checkpoint(stage, path)


def _check_checkpoint(stage: Stage, path: str, setting: str = "checkpoint") -> None:
    require_checkpoint(f"{stage.name}.config.{setting}", path)
    with within(f"{stage.name}.config"):
        _require_policy(stage, path)


def _require_policy(stage: Stage, path: str) -> None:
    """Reads a policy's weights, but for those of this file's own stages: only who takes these fails by their damage."""
    from rllib_llm_comm.policies.policy_folder import find_policy, require_whole_policy

    own = Path(path).absolute().is_relative_to(stage.folder.parent.absolute())
    (find_policy if own else require_whole_policy)(path)


class Evaluate(_OnCheckpoint):
    """`run: evaluate`: episodes of a checkpoint, figures as JSON; under a planner also all that was planned."""

    name = "evaluate"
    gives = {"": FIGURES}
    settings_class = EvaluateStageSettings

    def check_config(self, stage: Stage) -> None:
        """Checks the reference, too."""
        super().check_config(stage)
        reference = self.settings(stage).reference
        if reference is not None and reference not in stage.to_come:
            with within(f"{stage.name}.config.reference"):
                find_checkpoint(reference)

    def run(self, stage: Stage) -> StageResult:
        """Plays the episodes and writes `evaluation.json`."""
        paths, settings = self.to_play(stage)
        path, log = stage.folder / "evaluation.json", stage.folder / "plans.jsonl"
        with count_scope() as asked:
            figures = run_evaluation(paths, settings, json_path=path, log_path=log, tell=False)
        return StageResult([path], {"plans": log} if log.exists() else {}, summary={**figures, **cost_of(asked)})


class Replay(_OnCheckpoint):
    """`run: replay`: episodes of a checkpoint as a page to open in a browser."""

    name = "replay"
    gives = {"": PAGE}
    settings_class = ReplayStageSettings

    def run(self, stage: Stage) -> StageResult:
        """Plays the episodes and writes one page per checkpoint."""
        from rllib_llm_comm.evaluation.evaluate_checkpoint import planned_by
        from rllib_llm_comm.evaluation.replay import replay_checkpoint

        paths, settings = self.to_play(stage)
        written: list[Path] = []
        played: list[Episode] = []
        asked = ChatCounters()
        for number, checkpoint in enumerate(paths):
            page = stage.folder / ("replay.html" if len(paths) == 1 else f"replay_{number}.html")
            picture = page.with_suffix(".gif") if settings.animation else None
            with out.status("playing and drawing"), count_scope(asked):
                replay_checkpoint(checkpoint, page, settings, animation=picture, watch=played.extend)
            written += [page] if picture is None else [page, picture]
            say(f"Open {short_path(page)} in a browser.")
        return StageResult(written, summary={**planned_by(played), **cost_of(asked)})


class ChatPlaySettings(ChatStageSettings, Episodes):
    """`config:` of `run: chat_play`."""


class ChatPlay(StageKind):
    """`run: chat_play`: episodes in which a chat model chooses every action."""

    name = "chat_play"
    gives = {"": FIGURES}
    takes_env = True
    settings_class = ChatPlaySettings

    def check_config(self, stage: Stage) -> None:
        """Checks keys, values, the environment and who is asked."""
        settings = self.settings(stage)
        if stage.experiment.env is None:
            raise UserError(f"`{stage.name}.env` is missing; say what is played.", "missing")
        _check_words(stage, settings.env_config)
        check_stage_chat(f"{stage.name}.config.chat", settings.chat)

    def run(self, stage: Stage) -> StageResult:
        """Plays the episodes and writes `evaluation.json`."""
        from rllib_llm_comm.evaluation.chat_player import WAYS, ChatPlayer, keeping_answers
        from rllib_llm_comm.evaluation.rollout import evaluate

        settings = self.settings(stage)
        env = make_env(str(stage.experiment.env), **settings.env_config)
        game = GameInfo(env)
        player = ChatPlayer(keeping_answers(settings.chat, stage.folder / "chat_cache"), game.task, game.brief)
        with counting_bar(f"playing {settings.episodes} episodes") as progress:
            result = evaluate(player, episodes=settings.episodes, seed=settings.seed, env=env, progress=progress)
        player.require_answers()
        counters = player.client.counters.__dict__
        answers = {way: player.counts[way] for way in (*WAYS, "failures", "truncated")}
        figures = {**result.to_json(), "answers": answers, "chat": dict(counters)}
        path = stage.folder / "evaluation.json"
        write_atomically(path, json.dumps(figures, separators=(",", ":")) + "\n")
        say(
            f"return {result.return_mean:.3f}, solved {result.success_rate:.2f}; answers understood as "
            + ", ".join(f"{way} {count}" for way, count in answers.items() if count)
            + f"; cost {player.client.counters.cost:.4g}"
        )
        return StageResult([path], summary=figures)


class CrossPlayStageSettings(CrossPlaySettings):
    """`config:` of `run: crossplay`."""

    players: Several[Any] | str = Field(examples=["players: ${verco}"])
    """Seeds of one method: checkpoints (usually `${stage}`), or mappings with the keys of `PartnerSettings`."""
    partners: dict[str, Several[Any] | str] = Field(default_factory=dict)
    """Group -> partners that none of them was trained with; likewise."""


class CrossPlayStage(StageKind):
    """`run: crossplay`: every player in every seat with every other, with itself and with strangers."""

    name = "crossplay"
    gives = {"": FIGURES}
    settings_class = CrossPlayStageSettings

    def check_config(self, stage: Stage) -> None:
        """Checks keys, values, and checkpoints that should be there by now."""
        if not stage.trust:
            refuse_code(f"`{stage.name}.config`", stage.experiment.config)
        given = self.settings(stage)
        groups = {f"partners.{name}": group for name, group in given.partners.items()}
        for place, listed in {"players": given.players, **groups}.items():
            for one in parse_partners(as_list(listed), f"{stage.name}.config.{place}"):
                waits = stage.awaits(one.policy) or STAGE_REFERENCE.search(one.policy)
                if one.kind == CHECKPOINT and not waits:
                    with within(f"{stage.name}.config.{place}"):
                        _require_policy(stage, one.policy)

    def loads(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Its players tell themselves what stands in."""
        return {}

    def run(self, stage: Stage) -> StageResult:
        """Plays all pairs; writes `crossplay.json` and, where somebody talks, `sentences.json`, each with its page."""
        from rllib_llm_comm.evaluation.cross_play import CrossPlay

        given = self.settings(stage)
        settings = CrossPlaySettings.from_attributes(given, trust=stage.trust, trust_own=True)
        partners = {name: as_list(group) for name, group in given.partners.items()}
        json_path, page = stage.folder / CROSS_PLAY, stage.folder / "crossplay.html"
        players = as_list(given.players)
        if len(players) > 1 and all(isinstance(one, str) and Path(one).exists() for one in players):  # trials
            players = [{"policy": one, "name": name} for one, name in zip(players, labels_of(players), strict=True)]
        cross = CrossPlay(players, partners, settings)
        told = play_crosswise(cross, json_path, page)
        sentences = ask_players(cross, settings, stage.folder / SENTENCES)
        groups = {name: group["mean"] for name, group in told["groups"].items()}
        means = {name: told[name]["mean"] for name in ("self_play", "cross_play", "gap")}
        files = {"page": page} | ({} if sentences is None else {"sentences": sentences})
        return StageResult([json_path], files, summary={**means, "with": groups})


class PlayPlannersSettings(Episodes):
    """`config:` of `run: play_planners`; `env_config` is that of the planners' seats."""

    planner: list[str | dict[str, Any]] = Field(default=["scripted", "random"], min_length=1)
    """Planners, as of `make_planner`; `{name: trained, policy: ${stage}}` stands for all results of a stage."""
    seed: int = Field(default=1000, ge=0, le=2**31 - 1)
    """Seed of the first game; the others count up."""

    def planners(self) -> list[str | dict[str, Any]]:
        """One entry per planner: those of several results are told apart."""
        found: list[str | dict[str, Any]] = []
        for one in self.planner:
            several = one.get("policy") if isinstance(one, dict) else None
            found += [{**one, "policy": path} for path in several] if isinstance(several, list) else [one]  # type: ignore[dict-item]
        return found


class PlayPlanners(StageKind):
    """`run: play_planners`: games of the seats of `env` under each planner; figures as JSON and as a table."""

    name = "play_planners"
    gives = {"": FIGURES}
    settings_class = PlayPlannersSettings
    takes_env = True

    def check_config(self, stage: Stage) -> None:
        """Checks keys, values, the seats, and planners that should be there by now."""
        from rllib_llm_comm.experiments.planning_run import planners_by_label
        from rllib_llm_comm.sama.planner_seats import SEATS
        from rllib_llm_comm.sama.planners.baselines import AroundPlanner
        from rllib_llm_comm.sama.planners.trained import TrainedPlanner

        settings, env = self.settings(stage), stage.experiment.env
        require_choice(f"{stage.name}.env", env, SEATS)
        there = without_missing(settings.env_config, stage.to_come)
        check_environment(stage.name, env, there, stage.trust)
        game = make_env(str(env), **there).game
        with within(f"{stage.name}.config.planner"):
            planners = planners_by_label(settings.planners()).values()
        for planner in planners:
            if not stage.awaits(planner):
                with within(f"{stage.name}.config.planner"):
                    made = make_planner(planner, planner_model(planner))
                    made.check_game(game)
                while isinstance(made, AroundPlanner):
                    made = made.planner
                if isinstance(made, TrainedPlanner):
                    with within(f"{stage.name}.config"):
                        made.check_seats(settings.env_config)

    def loads(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """All of `config:`, with the planners that it has by default."""
        return {**self.settings_class.defaults(), **config}

    def run(self, stage: Stage) -> StageResult:
        """Plays the games that are not played yet and writes `planners.json` and `planners.md`."""
        from rllib_llm_comm.evaluation.planner_scores import (
            Cell,
            PlannerScores,
            PlanningSetup,
            PolicyExecutor,
            ScriptedExecutor,
        )
        from rllib_llm_comm.experiments.planning_run import WHICH_PLANNER, planners_by_label, play_and_tell
        from rllib_llm_comm.policies.policy_folder import weights_digest
        from rllib_llm_comm.sama.planner_seats import SEATS, SeatSettings, executor_of

        settings: PlayPlannersSettings = self.settings(stage)
        seats = SeatSettings.checked(f"{stage.name}.config.env_config", settings.env_config)
        game_id = SEATS[str(stage.experiment.env)].game_id
        policy, name = executor_of(seats, game_id), seats.executor.removeprefix("trained:")
        executor = (
            ScriptedExecutor(game_id, seats.game)
            if policy is None
            else PolicyExecutor(policy, name, seats.game, seats.greedy, weights_digest(name))
        )
        cells = []
        for number, (label, planner) in enumerate(planners_by_label(settings.planners()).items()):
            # A recording of its own each: planners of different models have the same questions.
            kept = kept_planner(planner, stage.folder / f"planner_{number}")
            cells.append(Cell({"planner": label}, executor, {}, PlanningSetup(kept, patience=seats.patience)))
        seeds = range(settings.seed, settings.seed + settings.episodes)
        scores = PlannerScores("planners", WHICH_PLANNER, cells, seeds)
        stage.folder.mkdir(parents=True, exist_ok=True)
        json_file, table = stage.folder / "planners.json", stage.folder / "planners.md"
        with count_scope() as asked:
            play_and_tell(scores, json_file, table)
        told = {row["labels"]["planner"]: row["summary"]["value"] for row in scores.figures()}
        cost = cost_of(asked) if asked.requests or asked.cached else {}
        return StageResult([json_file], {"table": table}, summary={**told, **cost})


STAGE_KINDS: Registry[StageKind] = Registry(
    "run",
    {
        kind.name: kind()
        for kind in (
            CollectLabels,
            CollectDemonstrations,
            MakeManual,
            Translate,
            CollectSubgoals,
            WriteRewards,
            Evaluate,
            Replay,
            CrossPlayStage,
            ChatPlay,
            SamaReport,
            DemonstrateOfficers,
            CloneOfficer,
            PlayOfficers,
            PlayPlanners,
        )  # fmt: skip
    },
)


def config_identity(experiment: Experiment) -> Mapping[str, Any]:
    """The part of an experiment's `config:` that decides its result."""
    kind = STAGE_KINDS.get(experiment.run)
    return kind.config_identity(experiment.config) if kind else experiment.config
