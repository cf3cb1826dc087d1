"""Reward code of a whole kitchen against the hand-written tests of completion."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import rllib_llm_comm
from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_text, write_atomically
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout
from rllib_llm_comm.envs.overcooked_ai.subgoals import all_subgoals, subgoal_text
from rllib_llm_comm.sama.planning_game import PlanningGame
from rllib_llm_comm.sama.preparation import Transition, open_game, preparation_of
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError
from rllib_llm_comm.sama.rewards.subgoal_rewards import (
    Agreement,
    CodeReward,
    file_name,
    measure_agreement,
    write_reward,
)

STUDY = "rewards"
_FORMAT = 1


def code_path(folder: Path, layout: str, subgoal: str) -> Path:
    """The path of the reward code of a subgoal: in the kitchen's folder, else in the folder itself.

    That of "put the onion into the pot" is `put_the_onion_into_the_pot.py`.
    """
    name = f"{file_name(subgoal)}.py"
    own = folder / layout / name
    return own if own.exists() or not (folder / name).exists() else folder / name


@dataclass
class RewardCodeScores:
    """Compares reward code with the hand-written tests, over all subgoals of kitchens.

    Attributes:
        folder: Folder of reward code; code of a model is kept there and not asked for again.
        model: The model that writes the code of subgoals that have none; `None` leaves them out.
        steps: Steps of disturbed scripted cooks per kitchen.
        seed: Seed of these steps.
        done: The measurements so far, by kitchen and subgoal: `code` (a digest; empty if there is none), `refused`
            (why, if the code may not run or the model wrote none) and the counts of `Agreement`.
    """

    folder: Path
    model: ChatModel | None = None
    steps: int = 300
    seed: int = 0
    done: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def take_over(self, text: str) -> None:
        """Takes over what a file holds that `to_json` wrote; code that has changed is measured anew.

        Raises:
            UserError: If it is none, or of other steps.
        """
        try:
            record = json.loads(text)
            same = [record["study"], record["format"], record["steps"], record["seed"]]
            done = {layout: kitchen["by_subgoal"] for layout, kitchen in record["kitchens"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"The file of figures cannot be continued ({type(error).__name__}: {error}); give another --json."
            ) from error
        if same != [STUDY, _FORMAT, self.steps, self.seed]:
            raise UserError("The file holds figures of something else, or of other --steps; give another --json.")
        self.done = done

    def measure(
        self, layouts: Sequence[str], keep: Callable[[str], None], progress: Callable[[int, int], None]
    ) -> None:
        """Measures what is not measured yet.

        Args:
            layouts: Kitchens.
            keep: Called with the content of the file after each kitchen, and after each subgoal that a model was asked
                about.
            progress: Called with the number of finished subgoals and that of all.

        Raises:
            ChatError: If a request failed for good.
            UserError: If there is no such kitchen, or the user has to do something first.
        """
        games = {layout: open_game(ENV_ID, {"layout": layout}) for layout in layouts}
        kitchens = {layout: get_layout(layout) for layout in layouts}
        work = [
            (name, subgoal_text(kitchen, one)) for name, kitchen in kitchens.items() for one in all_subgoals(kitchen)
        ]
        steps: dict[str, list[Transition]] = {}
        for number, (layout, text) in enumerate(work):
            source, why = self._source(games[layout], layout, text)
            digest = hashlib.sha256(source.encode()).hexdigest()[:16] if source else ""
            found = self.done.setdefault(layout, {})
            if found.get(text, {}).get("code") != digest or (why and found[text].get("refused") != why):
                if layout not in steps:
                    steps = {layout: list(preparation_of(games[layout]).steps(self.steps, self.seed))}
                found[text] = {"code": digest, **_measured(source, why, games[layout], text, steps[layout])}
            if self.model is not None or number + 1 == len(work) or work[number + 1][0] != layout:
                keep(self.to_json())
            progress(number + 1, len(work))

    def summary(self) -> dict[str, dict[str, Any]]:
        """Per kitchen: how many subgoals there are, have code, and have refused code; agreement of those with code."""
        told = {}
        for layout, subgoals in self.done.items():
            total = Agreement()
            for one in subgoals.values():
                total += Agreement(**one.get("counts", {}))
            told[layout] = {
                "subgoals": len(subgoals),
                "with_code": sum("counts" in one for one in subgoals.values()),
                "refused": sum(bool(one.get("refused")) for one in subgoals.values()),
                "exact": sum("counts" in one and Agreement(**one["counts"]).share == 1 for one in subgoals.values()),
                "judgements": total.steps,
                "share": round(total.share, 6),
                "precision": round(total.precision, 6),
                "recall": round(total.recall, 6),
            }
        return told

    def to_json(self) -> str:
        """The figures as JSON."""
        summary = self.summary()
        record = {
            "study": STUDY,
            "format": _FORMAT,
            "version": rllib_llm_comm.__version__,
            "measures": "how far reward code agrees with the hand-written tests of completion",
            "steps": self.steps,
            "seed": self.seed,
            "kitchens": {layout: {**summary[layout], "by_subgoal": found} for layout, found in self.done.items()},
        }
        return json.dumps(record, indent=1) + "\n"

    def _source(self, game: PlanningGame, layout: str, text: str) -> tuple[str, str]:
        """The code of a subgoal, and why there is none."""
        path = code_path(self.folder, layout, text)
        if path.exists():
            return read_text(path), ""
        if self.model is None:
            return "", ""
        agent = next(agent for agent in game.agents if text in game.library(agent))
        try:
            written = write_reward(self.model, text, game.plain(game.state()), agent=agent, manual=game.manual())
        except AnswerError as error:
            return "", str(error)
        write_atomically(path, written.source)
        return written.source, ""


def _measured(source: str, why: str, game: PlanningGame, subgoal: str, steps: Sequence[Transition]) -> dict[str, Any]:
    if not source:
        return {"refused": why} if why else {}
    try:
        reward = CodeReward(source)
    except RefusedCodeError as error:
        return {"refused": error.reason}
    return {"counts": asdict(measure_agreement(reward, game, subgoal, steps))}
