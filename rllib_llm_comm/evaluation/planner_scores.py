"""Comparisons of planners: whole games under a planner, played once, kept as they come, and summed up."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

import rllib_llm_comm
from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env, without_subgoals
from rllib_llm_comm.evaluation.columns import from_columns, to_columns
from rllib_llm_comm.evaluation.planned_play import play_rounds
from rllib_llm_comm.evaluation.rollout import EpisodeRecorder
from rllib_llm_comm.evaluation.stand_ins import stand_ins
from rllib_llm_comm.evaluation.statistics import Interval, bootstrap, middle_of, rounded
from rllib_llm_comm.policies.decision import Policy
from rllib_llm_comm.policies.play_loop import play_games
from rllib_llm_comm.policies.policy import TrainedPolicy
from rllib_llm_comm.policies.policy_folder import weights_digest
from rllib_llm_comm.policies.recorded_settings import granted
from rllib_llm_comm.sama.planned_env import PATIENCE, PlannedSubgoals
from rllib_llm_comm.sama.planners import (
    fallback_of,
    make_planner,
    planner_model,
    played_recording,
    trained_policy,
)
from rllib_llm_comm.sama.planners.baselines import DisturbedPlanner
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import authors_in
from rllib_llm_comm.sama.reflection import ReflectedEpisode

SCRIPTED = "scripted"
DEFAULT_ENV = "rllib_llm_comm/overcooked_ai-v0"


class _InScenarios:
    """Games of one environment, with its settings and those of a scenario."""

    _env_id: str
    _config: dict[str, Any]
    stand_ins: Sequence[str] = ()
    """What stands in for what the papers use (`evaluation.stand_ins`)."""
    in_vector = False
    """Whether it reads numbers, as of `PlannedSubgoals`."""
    explore = True
    """Whether its actions are sampled."""

    def env(self, settings: Mapping[str, Any]) -> Any:
        """A game with the settings of a scenario."""
        return make_env(self._env_id, **{**self._config, **settings})


class ScriptedExecutor(_InScenarios):
    """The game's own player, which carries out any subgoal by rules, in the scenarios of a parallel environment.

    Raises:
        UserError: If planners do not know the game, or nobody follows subgoals in it.
    """

    def __init__(self, env_id: str = DEFAULT_ENV, env_config: Mapping[str, Any] | None = None) -> None:
        self._env_id = env_id
        game = planning_game(make_env(env_id, **(env_config or {})))
        game.player()
        self._config = {**game.played_with, **(env_config or {})}
        ruled = self._config.get("executor", SCRIPTED) == SCRIPTED  # the strategy game's own may have been trained
        self.stand_ins = ("executor scripted: rules that do as they are told",) if ruled else ()
        self.scenarios: Mapping[str, Mapping[str, Any]] = game.scenarios

    def identity(self) -> dict[str, Any]:
        """The settings that distinguish this executor from others, JSON-able."""
        return {"executor": SCRIPTED, "env": self._env_id, "env_config": self._config}

    def policy(self, env: Any) -> Policy:
        """The player of a game."""
        return planning_game(env).player()


class PolicyExecutor(_InScenarios):
    """A trained policy that reads subgoals, in the game that it was trained on.

    A policy that was trained in a game with sampled subgoals plays the same game without them, as the planner gives
    subgoals now.

    Args:
        policy: The policy that `load_policy` gives.
        name: Its name in tables and files.
        env_config: Settings of the game that differ from training.
        greedy: True if the most likely action is taken instead of a sampled one.
        digest: Digest of its weights, which distinguishes it from others of the same name.

    Raises:
        UserError: If a recorded setting of the game is withheld and not given (`policies.recorded_settings`).
    """

    def __init__(
        self,
        policy: TrainedPolicy,
        name: str,
        env_config: Mapping[str, Any] | None = None,
        greedy: bool = False,
        digest: str = "",
    ) -> None:
        self._policy, self._name, self.explore, self._digest = policy, name, not greedy, digest
        self.stand_ins = stand_ins(replace(policy.manifest, planning=None))
        self.in_vector = bool((policy.manifest.planning or {}).get("in_vector"))
        self._env_id, trained = without_subgoals(str(policy.manifest.env), dict(policy.manifest.env_config))
        merged = {**trained, **(env_config or {})}
        self._config = {key: granted(value) for key, value in merged.items()}
        self.scenarios: Mapping[str, Mapping[str, Any]] = {str(self._config.get("layout", "as trained")): {}}

    def identity(self) -> dict[str, Any]:
        """The settings that distinguish this executor from others, JSON-able."""
        about = {"executor": self._name, "sha256": self._digest, "algorithm": self._policy.manifest.algorithm}
        return {**about, "greedy": not self.explore, "env": self._env_id, "env_config": self._config}

    def policy(self, env: Any) -> Policy:
        """The policy, for every game."""
        return self._policy


Executor = ScriptedExecutor | PolicyExecutor


@dataclass(frozen=True)
class PlanningSetup:
    """The planner of whole games, and its use.

    Attributes:
        planner: A name or settings of `make_planner`.
        replan: "any": plans whenever somebody's subgoal has ended; "all": in rounds, when those of all have or one has
            failed (SAMA).
        trials: Most reflections per round; more than 0 needs rounds.
        recover: Recovery of a failed round, as of `ReflectivePlay`.
        patience: Game steps that a subgoal may take.

    Raises:
        UserError: If reflection is wanted without rounds.
    """

    planner: str | Mapping[str, Any] = SCRIPTED
    replan: str = "any"
    trials: int = 0
    recover: str = "snapshot"
    patience: int = PATIENCE

    def __post_init__(self) -> None:
        """Refuses reflection without rounds; the planner and the games check the rest."""
        if self.trials and self.replan == "any":
            raise UserError(
                f"`replan` is 'any' but `trials` is {self.trials}, and reflection puts whole rounds back; use 'all'."
            )


class PlannedGames:
    """Plays episodes of one game under one planner.

    Args:
        executor: Gives the game and the player that carries subgoals out.
        settings: Settings of the scenario.
        setup: The planner, and its use.

    Raises:
        UserError: If the game does not fit or a setting is not allowed.
    """

    def __init__(self, executor: Executor, settings: Mapping[str, Any], setup: PlanningSetup) -> None:
        self._executor, self._setup = executor, setup
        self._env = executor.env(settings)
        self._planner = make_planner(setup.planner, planner_model(setup.planner))
        own: dict[str, Any] = {"patience": setup.patience, "in_vector": executor.in_vector}
        self._rounds = {"trials": setup.trials, "recover": setup.recover, "explore": executor.explore, **own}
        self._wrapped = PlannedSubgoals(
            self._env, self._planner, subgoal_reward=0.0, replan=setup.replan, wait=True, **own
        )

    def play(self, seed: int) -> dict[str, Any]:
        """Plays an episode.

        Args:
            seed: Fixes everything that is random but a chat model.

        Returns:
            `seed`, `return` (the game's rewards, averaged over agents) and `metrics`: the game's own, and figures of
            planning and its cost. `subgoals_completed` and `subgoals_stuck` (not done in time, or no longer possible)
            leave out attempts that were put back; `plans` and the cost do not.

        Raises:
            UserError: If the user has to do something first, or no plan could be made: in rounds for one of them, else
                in the whole episode.
        """
        policy = self._executor.policy(self._env)
        if self._setup.replan == "all":
            told = play_rounds(self._env, policy, self._planner, seed, **self._rounds)
            returns, metrics = told.returns, _figures(told)
        else:
            recorder = EpisodeRecorder(policy)
            play_games(policy, lambda: self._wrapped, [seed], observers=[recorder], explore=self._executor.explore)
            returns, metrics = recorder.episodes[seed].returns, dict(recorder.episodes[seed].metrics)
        if isinstance(self._planner, DisturbedPlanner):
            metrics["subgoals_replaced"] = float(self._planner.replaced)
        return {"seed": seed, "return": float(np.mean(list(returns.values()))), "metrics": metrics}


def _figures(episode: ReflectedEpisode) -> dict[str, float]:
    """The figures of an episode of rounds, under the names that `PlannedSubgoals` has."""
    failed = sum(attempts[-1].failed for attempts in episode.rounds)
    rounds = {"rounds": float(len(episode.rounds)), "rounds_failed": float(failed)}
    return {**episode.metrics, **episode.counts(), **rounds}


FORMAT = 2
SCENARIO = "scenario"
ALL = "mean of all"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Cell:
    """One point of a comparison.

    Attributes:
        labels: Values that distinguish it from the others, by column; the scenario is under `SCENARIO`.
        executor: The executor of subgoals.
        settings: Settings of the scenario.
        setup: The planner, and how it is used.
    """

    labels: Mapping[str, Any]
    executor: Executor
    settings: Mapping[str, Any]
    setup: PlanningSetup

    def made_with(self) -> dict[str, Any]:
        """All that decides its figures, JSON-able."""
        made = {**self.executor.identity(), "scenario": dict(self.settings), **asdict(self.setup)}
        if trained := trained_policy(self.setup.planner):
            made["planner_sha256"] = weights_digest(trained)
        tape = _recording(self.setup.planner)
        return {**made, "recording": tape} if tape else made

    def fallback(self) -> str:
        """The `fallback` of a planner that asks a language model; empty for others."""
        return fallback_of(self.setup.planner)

    def stand_ins(self) -> list[str]:
        """What stands in for what the papers use (`evaluation.stand_ins`)."""
        return [*self.executor.stand_ins, *stand_ins({"planner": self.setup.planner})]

    def key(self) -> str:
        """Digest of `made_with` and of the format, so that figures of another one are not taken over."""
        text = json.dumps([FORMAT, self.made_with()], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _recording(planner: str | Mapping[str, Any]) -> dict[str, str]:
    """`sha256` and `model` of the recording that a planner plays back; empty for planners that play none back."""
    path = played_recording(planner)
    if path is None:
        return {}
    model = str(Cassette(path).header.get("model", ""))
    return {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()[:16], "model": model}


@dataclass
class PlannerScores:
    """The scores of a comparison of planners: its cells, and the episodes that are played of them.

    Attributes:
        name: Name of the comparison.
        measures: The measured quantity, in a sentence.
        cells: Its cells.
        seeds: Seeds of the episodes of each.
        played: Episodes by cell key, then by seed, as `PlannedGames.play` gives them; those of other cells too.
        others: Cells of the file that are not asked for now; they stay in it.
    """

    name: str
    measures: str
    cells: Sequence[Cell]
    seeds: Sequence[int]
    played: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    others: list[dict[str, Any]] = field(default_factory=list)
    _summaries: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def take_over(self, text: str) -> None:
        """Takes over the episodes of a file that `to_json` wrote.

        Args:
            text: Its content.

        Raises:
            UserError: If it is none, or holds another comparison.
        """
        try:
            record = json.loads(text)
            name, cells = record["study"], record["cells"]
            played = {
                # Figures that were kept without the metrics of each episode can be read, not continued.
                cell["key"]: {int(one["seed"]): {**one, "metrics": one["metrics"]} for one in _rows(cell["episodes"])}
                for cell in cells
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"The file of figures cannot be continued ({type(error).__name__}: {error}); give another --json."
            ) from error
        if name != self.name:
            raise UserError(f"The file holds the figures of {name!r}, not of {self.name!r}; give another --json.")
        own = {cell.key() for cell in self.cells}
        self.played = {key: episodes for key, episodes in played.items() if key in own}
        self.others = [cell for cell in cells if cell["key"] not in own]

    def play(self, keep: Callable[[str], None], progress: Progress | None = None) -> None:
        """Plays what is not played yet.

        Args:
            keep: Called with the content of the file after each episode.
            progress: Called with the number of finished episodes and that of all.

        Raises:
            UserError: If one of the planners, or a game, does not fit.
        """
        total, done = len(self.cells) * len(self.seeds), 0
        left = [cell for cell in self.cells if any(seed not in self.played.get(cell.key(), {}) for seed in self.seeds)]
        first = {json.dumps(_without_scenario(cell), default=str): cell for cell in reversed(left)}
        # A planner that cannot play is refused before others have played.
        made = {cell.key(): PlannedGames(cell.executor, cell.settings, cell.setup) for cell in first.values()}
        for cell in self.cells:
            episodes, games = self.played.setdefault(cell.key(), {}), made.pop(cell.key(), None)
            for seed in self.seeds:
                if seed not in episodes:
                    games = games or PlannedGames(cell.executor, cell.settings, cell.setup)
                    begun = time.perf_counter()
                    episodes[seed] = rounded(games.play(seed))
                    episodes[seed]["seconds"] = round(time.perf_counter() - begun, 4)
                    keep(self.to_json())
                done += 1
                if progress is not None:
                    progress(done, total)
        keep(self.to_json())

    def stand_ins(self) -> list[str]:
        """What stands in for what the papers use in any of the cells."""
        return list(dict.fromkeys(phrase for cell in self.cells for phrase in cell.stand_ins()))

    def figures(self) -> list[dict[str, Any]]:
        """Per cell its labels and `summary`; then the mean over all scenarios, where there are several."""
        rows = [
            {"labels": dict(cell.labels), "fallback": cell.fallback(), "summary": self._summary(cell)}
            for cell in self.cells
        ]
        groups: dict[str, list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault(json.dumps(_without_scenario(cell), default=str), []).append(cell)
        for cells in groups.values():
            if len(cells) > 1 and all(self._episodes(cell) for cell in cells):
                labels = {SCENARIO: ALL, **_without_scenario(cells[0])}
                summary = _summary([self._episodes(cell) for cell in cells])
                rows.append({"labels": labels, "fallback": cells[0].fallback(), "summary": summary})
        return rows

    def to_json(self) -> str:
        """The figures as JSON, one cell per line; its episodes as columns."""
        head = {
            "study": self.name,
            "format": FORMAT,
            "version": rllib_llm_comm.__version__,
            "measures": self.measures,
            "seeds": list(self.seeds),
            "stand_ins": self.stand_ins(),
        }
        cells = [
            {
                "labels": dict(cell.labels),
                "key": cell.key(),
                "made_with": cell.made_with(),
                "fallback": cell.fallback(),
                "summary": self._summary(cell, whole=True),
                "episodes": to_columns(list(self.played.get(cell.key(), {}).values())),
            }
            for cell in self.cells
        ]
        lines = ",\n".join(_compact(cell) for cell in [*cells, *self.others])
        return f'{_compact(head)[:-1]},"cells":[\n{lines}\n]}}\n'

    def _episodes(self, cell: Cell) -> list[dict[str, Any]]:
        """The played episodes of a cell, of the wanted seeds."""
        played = self.played.get(cell.key(), {})
        return [played[seed] for seed in self.seeds if seed in played]

    def _summary(self, cell: Cell, whole: bool = False) -> dict[str, Any]:
        """Computed once, and if so wanted only for whole cells: intervals take their time, files are written often."""
        episodes = self._episodes(cell)
        if whole and len(episodes) < len(self.seeds):
            return {"episodes": len(episodes)}
        at = (cell.key(), len(episodes))
        if at not in self._summaries:
            self._summaries[at] = _summary([episodes])
        return self._summaries[at]


def _compact(value: Any) -> str:
    return json.dumps(value, default=str, separators=(",", ":"))


def _rows(episodes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return from_columns(episodes, len(episodes["seed"])) if episodes else []


def _without_scenario(cell: Cell) -> dict[str, Any]:
    return {name: value for name, value in cell.labels.items() if name != SCENARIO}


def _summary(scenarios: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Figures of the episodes of one scenario, or of the same seeds of several.

    Of one scenario the interquartile mean (of fewer than four episodes the mean), of several the mean: their scores are
    far apart, and a middle half would leave whole scenarios out.
    """
    if not all(scenarios):
        return {"episodes": 0}
    scores = np.array([[one["return"] for one in episodes] for episodes in scenarios]).T
    statistic = middle_of(len(scores)) if len(scenarios) == 1 else np.mean
    found: Interval = bootstrap(scores, statistic)
    all_episodes = [one for episodes in scenarios for one in episodes]
    names = [name for name in all_episodes[0]["metrics"] if all(name in one["metrics"] for one in all_episodes)]
    metrics = {name: float(np.mean([one["metrics"][name] for one in all_episodes])) for name in names}
    seconds = [float(one["seconds"]) for one in all_episodes if "seconds" in one]  # earlier versions have none
    return rounded(
        {
            "episodes": len(all_episodes),
            "statistic": statistic.__name__,
            **found._asdict(),
            "mean": float(scores.mean()),
            "metrics": metrics,
            **({"seconds": float(np.mean(seconds))} if len(seconds) == len(all_episodes) else {}),
        }
    )


# ---- tables ------------------------------------------------------------------------------------------------

_SHOWN = {
    "plans": "plans",
    "no plan": "plans_failed",
    "subgoals done": "",
    "replaced": "subgoals_replaced",
    "put back": "reflections",
    "rounds failed": "rounds_failed",
    "questions": "plan_questions",
    "requests": "plan_requests",
    "tokens": "plan_tokens",
    "cost": "plan_cost",
}
"""Columns after the score, and the metric of each; those that are zero everywhere are left out."""
_SECONDS = "seconds"
_PLANNED_BY = "planned by"
_AUTHORS = {
    _PLANNED_BY: "plans", "assigned by": "assignments", "subgoals by": "subgoals", "blamed by": "reflections"
}  # fmt: skip
"""Columns that tell who answered, and the counts of each; those that tell nowhere anything else than the first are left
out, but not the last."""


def table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of figures (`PlannerScores.figures`) as a table."""
    labels = list(dict.fromkeys(name for row in rows for name in row["labels"]))
    cells: list[dict[str, str]] = []
    for row in rows:
        summary = row["summary"]
        shown = {name: _text(row["labels"].get(name, "")) for name in labels}
        if summary["episodes"]:
            shown |= {
                "score": f"{summary['value']:.1f}",
                "95 % interval": f"{summary['low']:.1f} to {summary['high']:.1f}",
            }
            shown |= {name: _figure(name, metric, summary["metrics"]) for name, metric in _SHOWN.items()}
            shown |= {name: _authors(summary["metrics"], what) for name, what in _AUTHORS.items()}
            shown[_SECONDS] = f"{summary['seconds']:.3g}" if "seconds" in summary else ""
            shown["fallback"] = row.get("fallback", "")
        cells.append({**shown, "episodes": str(summary["episodes"])})
    optional = ["score", "95 % interval", *_SHOWN, _SECONDS, *_AUTHORS, "fallback"]
    told = [name for name in optional if any(cell.get(name, "") not in ("", "0") for cell in cells)]
    for name in ("assigned by", "subgoals by"):
        if name in told and all(cell.get(name) == cell.get(_PLANNED_BY) for cell in cells):
            told.remove(name)
    columns = [*labels, *told, "episodes"]
    return columns, [[cell.get(name, "") for name in columns] for cell in cells]


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], stand_ins: Sequence[str] = ()) -> str:
    """A table in Markdown; what stands in for what the papers use is told below it."""
    lines = [columns, ["---"] * len(columns), *rows]
    told = f"\nStands in: {'; '.join(stand_ins)}.\n" if stand_ins else ""
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + told


def _figure(name: str, metric: str, metrics: Mapping[str, float]) -> str:
    if metric:
        return f"{metrics[metric]:.4g}" if metric in metrics else ""
    done, stuck = metrics["subgoals_completed"], metrics["subgoals_stuck"]
    return f"{100 * done / (done + stuck):.0f} %" if done + stuck else ""


def _authors(metrics: Mapping[str, float], what: str) -> str:
    """The authors, with shares where there are several: "model 97 %, rules 3 %"."""
    found = authors_in(metrics, what)
    if len(found) < 2:
        return "".join(found)
    return ", ".join(f"{who} {100 * count / sum(found.values()):.0f} %" for who, count in found.items())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
