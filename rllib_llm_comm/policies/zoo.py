"""Trained policies that come with the package, by name: `zoo:NAME` stands for a checkpoint's path."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.core.files import read_regular
from rllib_llm_comm.core.markdown import in_markdown

PREFIX = "zoo:"
CARD = "card.json"
_MOST_BYTES = 2**22
_WORDS = {"name", "what", "game", "algorithm", "licence", "trained", "limits"}
FOLDER = Path(__file__).with_name("zoo_policies")


class Figures(BaseModel):
    """Figures of a shipped policy, measured with `rllib evaluate` as it is shipped.

    Attributes:
        seed: Seed of the first episode; the others count up.
        episodes: Number of episodes.
        sampled: True if actions were sampled.
        messages: The message mode, if not the policy's own; `None` for its own.
        planner: The planner that tells subgoals; `None` where none does.
        return_mean: Mean team return.
        success_rate: Share of episodes that were solved.
        metrics: Means of what the game counts itself.
        returns: Team return of each episode.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    seed: int
    episodes: int
    sampled: bool
    messages: str | None
    planner: str | None = None
    return_mean: float
    success_rate: float
    metrics: dict[str, float]
    returns: list[float]

    @property
    def played(self) -> str:
        """The way of playing: the planner, or the messages."""
        return f"planner {self.planner}" if self.planner else self.messages or "its own"

    @property
    def solved(self) -> str:
        """Share of episodes that were solved; "-" in games that go on for a score."""
        return "-" if "score" in self.metrics else f"{self.success_rate:.2f}"


class ModelCard(BaseModel):
    """The card of a shipped policy.

    Attributes:
        name: Its name behind `zoo:`.
        what: One sentence: who plays what.
        game: Id of the environment.
        algorithm: The algorithm that trained it.
        trained: Its training: file, seed, steps, model, teacher.
        limits: Things that it cannot do, or that its figures do not tell.
        licence: Licence of the weights.
        seats: Names of the agents.
        talks: True if it says and hears messages in words.
        figures: Measured figures.
        files: File -> SHA-256 of its content, of every file of the policy.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    name: str
    what: str
    game: str
    algorithm: str
    trained: str
    limits: str
    licence: str
    seats: list[str]
    talks: bool
    figures: list[Figures]
    files: dict[str, str]


@dataclass(frozen=True)
class _Entry:
    folder: Path
    card: ModelCard


def is_shipped(path: str | os.PathLike[str]) -> bool:
    """True if a path is `zoo:` and a name; whether there is such a policy is not asked."""
    return os.fspath(path).startswith(PREFIX)


def shipped_policies() -> dict[str, ModelCard]:
    """Name -> card of all policies that come with the package."""
    names = sorted(path.parent.name for path in FOLDER.glob(f"*/{CARD}"))
    return {name: _entry(name).card for name in names}


def shipped_policy(path: str | os.PathLike[str]) -> Path:
    """The policy folder behind `zoo:NAME`, after its files were compared with their digests.

    Args:
        path: `zoo:` and a name.

    Raises:
        UserError: If there is no such policy, or its files are not those that were shipped.
    """
    name = os.fspath(path).removeprefix(PREFIX)
    known = shipped_policies()
    if name not in known:
        raise UserError(
            f"there is no shipped policy {PREFIX + name!r}; `rllib zoo list` shows them: "
            f"{', '.join(known) or 'none'}.{did_you_mean(name, known)}"
        )
    return _checked(name)


@lru_cache
def _checked(name: str) -> Path:
    entry = _entry(name)
    there = digests(entry.folder)
    if there != entry.card.files:
        wrong = sorted(set(there.items()) ^ set(entry.card.files.items()))[0][0]
        raise UserError(
            f"the shipped policy {PREFIX + name!r} is damaged: {wrong!r} is not the file that was shipped; install "
            "rllib_llm_comm again."
        )
    return entry.folder


@lru_cache
def _entry(name: str) -> _Entry:
    path = FOLDER / name / CARD
    try:
        card = ModelCard.model_validate_json(read_regular(path, _MOST_BYTES))
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{str(path)!r} cannot be read ({reason}); install rllib_llm_comm again.") from error
    return _Entry(path.parent, card)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a policy folder but its card.

    Args:
        folder: The folder.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CARD)
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def card_text(card: ModelCard) -> str:
    """A card as Markdown.

    Args:
        card: The card.
    """
    told = {name: in_markdown(value) for name, value in card.model_dump(include=_WORDS).items()}
    rows = "\n".join(
        f"| {in_markdown(one.played)} | {one.episodes} from seed {one.seed} | {one.return_mean:.3f} | "
        f"{one.solved} | {', '.join(f'{in_markdown(name)} {value:g}' for name, value in one.metrics.items()) or '-'} |"
        for one in card.figures
    )
    return (
        f"# zoo:{told['name']}\n\n{told['what']}\n\n"
        f"| | |\n| --- | --- |\n| Game | `{told['game']}` |\n| Seats | {', '.join(map(in_markdown, card.seats))} |\n"
        f"| Algorithm | {told['algorithm']} |\n| Licence | {told['licence']} |\n\n"
        f"**Trained.** {told['trained']}\n\n**Limits.** {told['limits']}\n\n"
        f"| Played with | Episodes | Return | Solved | The game's counts |\n| --- | --- | --- | --- | --- |\n{rows}\n"
    )


def write_card(folder: Path, told: dict[str, Any]) -> ModelCard:
    """Writes the card of a policy folder, digests included.

    Args:
        folder: The policy folder, named as the policy.
        told: All other fields but `name`.
    """
    card = ModelCard(name=folder.name, files=digests(folder), **told)
    (folder / CARD).write_text(json.dumps(card.model_dump(), indent=1) + "\n", encoding="utf-8")
    return card
