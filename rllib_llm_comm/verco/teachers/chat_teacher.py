"""The chat teacher: a large language model says what each agent should say (Verco Section 4.1)."""

from __future__ import annotations

import json
import logging
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rllib_llm_comm.chat.chat_model import LABEL, ChatDownError, ChatError, asking_for, cut_at
from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.chat.settings import WITHOUT_EFFECT, ChatSettings
from rllib_llm_comm.chat.thoughts import without_thoughts
from rllib_llm_comm.language.prompts import (
    DEFAULT,
    TEACHER_TEMPLATES,
    PromptSet,
    fill_pieces,
    limit_words,
    pieces_of,
    read_prompts,
)
from rllib_llm_comm.verco.teachers.base import Teacher, TeacherRequest

logger = logging.getLogger(__name__)

_PROMPTS = "teacher.prompts"
_MAX_ANSWER = 20_000
_MAX_LINE = 500
_TYPOGRAPHY = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "...", "：": ":"})
_REFUSAL = re.compile(
    r"\bas an? (ai|artificial|(large )?language model)\b"
    r"|^(i'?m|i am|we are)? ?(very |so )?sorry,? (but )?(i|we|that|this)\b"
    r"|\b(i|we) (can ?not|can'?t|won'?t|will not|am not able to|am unable to)"
    r" (assist|comply|fulfil|fulfill|provide|answer|respond|generate|continue)\b"
    r"|\b(i|we) (can ?not|can'?t) help (you )?with (that|this|your)\b|\bagainst my (guidelines|policy|policies)\b"
)
_EMPTY = frozenset({"message", "name", "none", "null", "nil", "na", "nan", "nothing", "undefined", "your message"})


class ChatTeacherSettings(ChatSettings):
    """Settings of the teacher `chat`: those of a chat model (Verco: GPT-4), and how it is asked.

    Without `max_tokens` an answer has at most 400 (ours); without `cache_dir` `collect_labels` keeps answers beside its
    labels.
    """

    on_error: Literal["skip", "raise"] = "skip"
    """"skip" (ours): a request that fails for good is counted and gives no labels; "raise": it raises. A server that
    seems dead raises in any case."""
    prompts: PromptSet = DEFAULT
    """"default" (ours), "verco" (the paper's form, in our words), a folder with the template files `teacher` and
    `observation`, or a mapping of these templates."""


class ChatTeacher(Teacher):
    """Asks a chat model once per moment for one message per agent; nothing is sent before.

    It sees each agent's own observation, the task and the game's brief, but never the game's true state.

    Args:
        **settings: Those of `ChatTeacherSettings`.

    Raises:
        UserError: If a setting is not allowed.

    Attributes:
        chat_model: The client, with its counters of requests and cost.
        settings: The settings that decide its answers.
        counts: Requests to this teacher, and agents by what became of them: labels, missing, refusals, garbage,
            failures; and `truncated`, answers that were cut off (what came before counts).
    """

    name, settings_model = "chat", ChatTeacherSettings
    without_effect = WITHOUT_EFFECT | {"on_error", "forms"}

    def __init__(self, **settings: Any) -> None:
        chosen = self.settings_model(**settings)
        self.chat_model: ChatClient = ChatClient(chosen)
        self.on_error = chosen.on_error
        self.settings = {
            **{name: getattr(chosen, name) for name in ("model", "base_url", "temperature", "max_tokens")},
            **({"extra_body": dict(chosen.extra_body)} if chosen.extra_body else {}),
            **_own_prompts(chosen.prompts),
        }
        self.counts: Counter[str] = Counter()
        texts = read_prompts(chosen.prompts, TEACHER_TEMPLATES, _PROMPTS)
        self._question, self._observation = (pieces_of(texts[name]) for name in TEACHER_TEMPLATES)

    @classmethod
    def portable(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with the texts of `prompts` in place of a name or folder; without those of the default."""
        rest = {name: value for name, value in settings.items() if name != "prompts"}
        return {**rest, **_own_prompts(settings.get("prompts", DEFAULT))}

    def keep_answers(self, folder: str | os.PathLike[str]) -> None:
        """Keeps answers and spent money there, unless `cache_dir` is set."""
        self.chat_model.keep_answers(folder)

    def messages(self, request: TeacherRequest, *, rng: np.random.Generator) -> dict[str, str]:
        """One message per agent, as far as the model gave usable ones.

        Args:
            request: Its `state` is not looked at.
            rng: Not used: the same moment gets the same messages.

        Raises:
            UserError: If the budget is spent or the key is missing.
            ChatDownError: If the server seems dead.
            ChatError: If a request failed for good and `on_error` is `"raise"`.
        """
        self.counts["requests"] += 1
        try:
            with asking_for(LABEL):
                answer = self.chat_model.complete(self.prompt(request))
        except ChatDownError:
            raise
        except ChatError as error:
            if self.on_error == "raise":
                raise
            if not self.counts["failures"]:
                logger.warning("%s Its moment gets no labels; further ones are only counted.", error)
            self.counts["failures"] += len(request.agents)
            return {}
        if cut_at(answer):
            self.counts["truncated"] += 1
        found = parse_messages(answer, request.agents)
        refused = not found and is_refusal(without_thoughts(answer))
        labels: dict[str, str] = {}
        for agent in request.agents:
            message = found.get(agent)
            if message is None:
                self.counts["refusals" if refused else "missing"] += 1
            elif is_refusal(message):
                self.counts["refusals"] += 1
            elif is_garbage(message):
                self.counts["garbage"] += 1
            else:
                self.counts["labels"] += 1
                labels[agent] = message
        return labels

    def prompt(self, request: TeacherRequest) -> str:
        """The question to the model."""
        seen = "\n".join(
            fill_pieces(self._observation, agent=agent, text=" ".join(request.observations[agent].split()))
            for agent in request.agents
        )
        return fill_pieces(
            self._question,
            count=len(request.agents),
            brief=request.brief or "A game for a team.",
            task=request.task or "Do well together.",
            observations=seen,
            form="\n".join(f"{agent}: message" for agent in request.agents),
        )


def _own_prompts(prompts: PromptSet) -> dict[str, Any]:
    """The setting `prompts` as texts, if they are not the default's."""
    texts = read_prompts(prompts, TEACHER_TEMPLATES, _PROMPTS)
    return {} if texts == read_prompts(DEFAULT, TEACHER_TEMPLATES) else {"prompts": texts}


def parse_messages(answer: str, agents: Sequence[str]) -> dict[str, str]:
    """Finds `name: message` for each agent, however the model dressed it up.

    Understood are plain, numbered, bulleted, quoted and bold lines, a name with the message on the line below it,
    and a JSON object; names in any case. The first message of a name counts.

    Args:
        answer: The model's answer; anything may stand in it.
        agents: The names.

    Returns:
        One plain line for each agent that was found.
    """
    text = without_thoughts(answer)[:_MAX_ANSWER].translate(_TYPOGRAPHY)
    raw = _from_json(text, agents) or _from_lines(text, agents)
    plain = {agent: _plain(message) for agent, message in raw.items()}
    return {agent: plain[agent] for agent in agents if plain.get(agent)}


def is_refusal(message: str) -> bool:
    """True if the model refuses to answer, instead of talking as an agent."""
    return _REFUSAL.search(" ".join(message[:_MAX_LINE].translate(_TYPOGRAPHY).lower().split())) is not None


def is_garbage(message: str) -> bool:
    """True if a message is no sentence: no words, a placeholder, an address, code, or one endless word."""
    words = re.findall(r"[^\W\d_]{2,}", message)
    letters = sum(len(word) for word in words)
    return (
        not words
        or " ".join(words).lower() in _EMPTY
        or letters * 2 < len(message.replace(" ", ""))
        or max(len(word) for word in message.split()) > 30
        or re.search(r"://|<\||\|>|[{}\\]", message) is not None
    )


def _from_json(text: str, agents: Sequence[str]) -> dict[str, str]:
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return {}
    try:
        document = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return {}
    if isinstance(document.get("messages"), dict):
        document = document["messages"]
    values = {str(key).strip().casefold(): value for key, value in document.items()}
    found = {agent: values.get(agent.casefold()) for agent in agents}
    return {agent: value for agent, value in found.items() if isinstance(value, str)}


def _from_lines(text: str, agents: Sequence[str]) -> dict[str, str]:
    patterns = {
        agent: re.compile(
            # bullet or number, quotes or stars, name, a remark in brackets, colon or dash, message
            rf"^\W{{0,12}}(?:\d{{1,3}}\s?[.):]\W{{0,12}})?{re.escape(agent)}(?!\w)\W{{0,6}}?(?:\([^)]{{0,40}}\)\W{{0,6}}?)?"
            r"(?::|=|\s-+>?\s)(.*)$",
            re.IGNORECASE,
        )
        for agent in agents
    }
    found: dict[str, str] = {}
    waiting: str | None = None
    for line in text.splitlines():
        line = line.strip()[:_MAX_LINE]
        if not line:
            continue
        named = next(((a, m.group(1)) for a, p in patterns.items() if (m := p.match(line))), None)
        if named is None:
            if waiting is not None:
                found.setdefault(waiting, line)
            waiting = None
            continue
        agent, message = named
        waiting = None
        if _plain(message):
            found.setdefault(agent, message)
        elif agent not in found:
            waiting = agent
    return found


def _plain(message: str) -> str:
    """One line without markup, emoji and quotes; who asks cuts it to the words that a message may have."""
    line = message.translate(_TYPOGRAPHY).strip()[:_MAX_LINE]
    line = re.sub(r"[*`#]+|^\s*[->•]+\s", " ", line)
    line = "".join(" " if unicodedata.category(c) in ("So", "Sk", "Cs") else c for c in line)
    return limit_words(line.strip(" \t\"',;_"), _MAX_LINE).strip(" \"',;_")
