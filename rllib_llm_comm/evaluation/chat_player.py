"""Direct play by a chat model: it reads what an agent sees and its candidates, and names one; nothing is learned."""

from __future__ import annotations

import difflib
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.chat.cassettes import open_chat
from rllib_llm_comm.chat.chat_model import PLAY, ChatDownError, ChatError, asking_for, cut_at
from rllib_llm_comm.chat.thoughts import without_thoughts
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.policies.decision import Decision, OneGamePolicy
from rllib_llm_comm.sama.recordings import with_recording
from rllib_llm_comm.verco.encoding import read_observation

logger = logging.getLogger(__name__)

WAYS = ("exact", "folded", "number", "contained", "nearest", "fallback")
_LIKE_ENOUGH = 0.75
_CLEARER_BY = 0.05
_MAX_ANSWER = 4000
_MOST_FAILURES = 5


def keeping_answers(chat: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Settings of a chat model that keeps its answers in a folder by default: a killed run pays for none twice.

    Above temperature 0 it keeps none: the same question then has several answers.
    """
    asks = "model" in chat and "cassette" not in chat and not chat.get("temperature")
    return {**chat, "cache_dir": str(folder)} if asks and chat.get("cache_dir") is None else dict(chat)


class ChatPlayer(OneGamePolicy):
    """Plays for all agents of an episode; each agent is asked on its own and says nothing.

    The paper's "GPT-4 direct play". With `cache_dir` in the settings the same question is never paid twice.

    Attributes:
        client: The chat model, with its counters of requests and cost.
        counts: Decisions by how the answer was understood (`WAYS`); `failures`: requests that failed for good;
            `truncated`: answers that were cut off.
        understood: How the latest answer about each agent was understood (`WAYS`).

    Args:
        settings: For `open_chat`: a server's model, a model in this process, a recording, also one of the package.
        task: The goal in words.
        brief: The game in a few sentences.
    """

    def __init__(self, settings: Mapping[str, Any], task: str = "", brief: str = "") -> None:
        self.client = open_chat(with_recording(settings))
        self.counts: Counter[str] = Counter()
        self.understood: dict[str, str] = {}
        self._task, self._brief = task, brief
        self._team: set[str] = set()
        self._failures = 0
        self._template = resources.files(__package__).joinpath("prompts/chat_player.txt").read_text(encoding="utf-8")

    def reset(self, seed: int | None = None) -> None:
        """Begins an episode; the model has no memory and draws nothing here."""
        self._team = set()

    def act(self, observations: Mapping[Any, Mapping[str, Any]], explore: bool = True) -> dict[Any, Decision]:
        """Lets the model choose for the agents that are asked now.

        Args:
            observations: The environment's observations of these agents.
            explore: Not used: the model's own temperature decides.

        Raises:
            UserError: If an observation is not one in words, the budget is spent, the key is missing, the server seems
                dead, or five requests in a row failed: what the first candidate leads to is not the model's play.
        """
        self._team.update(map(str, observations))
        return {agent: self._decide(str(agent), seen) for agent, seen in observations.items()}

    def _decide(self, agent: str, raw: Mapping[str, Any]) -> Decision:
        seen = read_observation(raw)
        allowed = [index for index, flag in enumerate(seen.mask) if flag]
        phrases = [seen.candidates[index] for index in allowed]
        prompt = self.prompt(agent, seen.text, phrases)
        try:
            with asking_for(PLAY):
                answer = self.client.complete(prompt)
            chosen, how = parse_choice(answer, phrases)
            self.counts["truncated"] += bool(cut_at(answer))
            self._failures = 0
        except ChatDownError:
            raise
        except ChatError as error:
            self._fail(error)
            chosen, how = 0, "fallback"
        self.counts[how] += 1
        self.understood[agent] = how
        probabilities = np.zeros(len(seen.candidates))
        probabilities[allowed[chosen]] = 1.0
        return Decision(allowed[chosen], "", {}, list(seen.candidates), probabilities, 0.0, prompt)

    def _fail(self, error: ChatError) -> None:
        if not self.counts["failures"]:
            logger.warning("%s The first candidate is taken; further failures are only counted.", error)
        self.counts["failures"] += 1
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            raise UserError(f"{error} That were {self._failures} failures in a row; play ends here.") from None

    def require_answers(self) -> None:
        """Refuses play in which no request was answered, with a `UserError`: it tells nothing of the model."""
        if self.counts["failures"] and self.counts["failures"] == sum(self.counts[way] for way in WAYS):
            raise UserError("The chat model answered no request at all, so nothing was played by it.")

    def prompt(self, agent: str, text: str, phrases: Sequence[str]) -> str:
        """The prompt for an agent: its name in the game, the observation's text, and the candidates' phrases."""
        return self._template.format(
            name=agent,
            count=max(1, len(self._team)),
            brief=self._brief or "A game for a team.",
            task=self._task or "Do well together.",
            observation=" ".join(text.split()),
            options="\n".join(f"{number}. {phrase}" for number, phrase in enumerate(phrases, 1)),
        )


def parse_choice(answer: str, phrases: Sequence[str]) -> tuple[int, str]:
    """The index of the candidate (of at least one) that an answer means, and the way it was understood.

    Tried in this order: a line that is a candidate (`exact`); one that is but for case, marks and numbering (`folded`);
    a line that begins with a candidate's number (`number`); the only candidate that the answer contains (`contained`);
    the clearly likest one (`nearest`). Otherwise the first candidate is taken (`fallback`), which in our games is to
    wait.
    """
    text = without_thoughts(answer)[:_MAX_ANSWER]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if line in phrases:
            return phrases.index(line), "exact"
    folded = [_folded(phrase) for phrase in phrases]
    for line in lines:
        if _folded(line) in folded:
            return folded.index(_folded(line)), "folded"
    for line in lines:
        number = re.match(r"\W{0,4}(\d{1,3})\b", line)
        if number and 1 <= int(number.group(1)) <= len(phrases):
            return int(number.group(1)) - 1, "number"
    whole = f" {_folded(text)} "
    inside = [index for index, phrase in enumerate(folded) if f" {phrase} " in whole]
    if len(inside) == 1:
        return inside[0], "contained"
    return _nearest(lines, folded)


def _nearest(lines: Sequence[str], folded: Sequence[str]) -> tuple[int, str]:
    likeness = [
        max((difflib.SequenceMatcher(None, _folded(line)[:200], phrase).ratio() for line in lines[:20]), default=0.0)
        for phrase in folded
    ]
    order = sorted(range(len(folded)), key=lambda index: -likeness[index])
    best = likeness[order[0]]
    second = likeness[order[1]] if len(order) > 1 else 0.0
    if best >= _LIKE_ENOUGH and best - second >= _CLEARER_BY:
        return order[0], "nearest"
    return 0, "fallback"


def _folded(text: str) -> str:
    """Words in small letters, without marks and a number in front."""
    text = re.sub(r"^\W*\d{1,3}\s*[.):]\s*", "", text.casefold())
    return " ".join(re.findall(r"\w+", text))
