"""From words to the arrays that the module reads, and their spaces: observations, and messages that are learned from.

Names with LABEL are of the message that a teacher would write; those with MESSAGE of what an agent wrote in a roll-out:
the token ids that were drawn, or its choice from a menu, as columns of the observation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rllib_llm_comm.core.bounded_cache import Memo
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.interface import ACTION_MASK, CRITIC_TEXT, SUBGOAL, TEACHER_MESSAGE
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.generation import Written
from rllib_llm_comm.language.packing import PAD, common_prefix
from rllib_llm_comm.language.prompts import DEFAULT_TEMPLATES, Prompt, PromptTemplates, most_tokens
from rllib_llm_comm.language.scoring import encode_candidates
from rllib_llm_comm.policies.decision import CANDIDATE_IDS, CRITIC_IDS, PROMPT_IDS
from rllib_llm_comm.verco.settings import LanguageModelSettings

CANDIDATE_WORDS = "candidate_words"

TEXT = "text"
CANDIDATES = "candidates"

_REMEMBERED = 16384  # entries of each memory
_TOP = np.iinfo(np.int32).max


class TextObservation(NamedTuple):
    """Observation of one agent at a decision.

    Attributes:
        text: The observation in words.
        candidates: One phrase per action index.
        mask: True for each action that is allowed.
        subgoal: A subgoal given to it, or the empty string.
        teacher_message: Message of a teacher in its place (only where a teacher is present).
        critic_text: Prompt of the critic in place of `text`, or None (only with a centralised critic).
    """

    text: str
    candidates: tuple[str, ...]
    mask: tuple[bool, ...]
    subgoal: str = ""
    teacher_message: str | None = None
    critic_text: str | None = None


def is_text_observation(raw: Any) -> bool:
    """True if this is an observation in words (and not yet one in token ids)."""
    return (type(raw) is dict or isinstance(raw, Mapping)) and TEXT in raw


def read_observation(raw: Mapping[str, Any]) -> TextObservation:
    """Reads an environment's observation.

    Args:
        raw: Has `text` and `candidates` (one phrase per action); may have `action_mask`, `subgoal`,
            `teacher_message` and `critic_text`.

    Raises:
        UserError: If a part is missing or no action is allowed.
    """
    for key in (TEXT, CANDIDATES):
        if key not in raw:
            raise UserError(
                f"an observation has no `{key}` (it has {', '.join(sorted(map(str, raw)))}); language-model "
                "agents need a dict with `text`, `candidates` and, if actions can be forbidden, "
                "`action_mask`."
            )
    candidates = tuple([str(phrase) for phrase in raw[CANDIDATES]])
    flags = np.asarray(raw[ACTION_MASK]).tolist() if ACTION_MASK in raw else [True] * len(candidates)
    mask = tuple([bool(flag) for flag in flags])
    if len(mask) != len(candidates) or not any(mask):
        raise UserError(
            f"an observation has {len(candidates)} `candidates` and an `action_mask` of {len(mask)} entries, "
            f"{sum(mask)} of them allowed; both must be as long as the action space and allow at least one."
        )
    said, critic = raw.get(TEACHER_MESSAGE), raw.get(CRITIC_TEXT)
    return TextObservation(
        text=str(raw[TEXT]),
        candidates=candidates,
        mask=mask,
        subgoal=str(raw.get(SUBGOAL, "")),
        teacher_message=None if said is None else str(said),
        critic_text=None if critic is None else str(critic),
    )


def encoded_space(settings: LanguageModelSettings, num_actions: int) -> gym.spaces.Dict:
    """The space of one agent's observation in token ids.

    Args:
        settings: Give the widths.
        num_actions: Number of candidates K.

    Returns:
        Dict(prompt_ids (P,), candidate_ids (K, C), candidate_words (K,), action_mask (K,), critic_ids (P,)).
    """
    prompt, length = settings.max_prompt_tokens, settings.max_candidate_tokens
    return gym.spaces.Dict(
        {
            PROMPT_IDS: gym.spaces.Box(PAD, _TOP, (prompt,), np.int32),
            CANDIDATE_IDS: gym.spaces.Box(PAD, _TOP, (num_actions, length), np.int32),
            CANDIDATE_WORDS: gym.spaces.Box(0, _TOP, (num_actions,), np.int32),
            ACTION_MASK: gym.spaces.Box(0, 1, (num_actions,), np.int8),
            CRITIC_IDS: gym.spaces.Box(PAD, _TOP, (prompt,), np.int32),
        }
    )


class ObservationEncoder:
    """Writes observations as token ids; equal observations are encoded once.

    Args:
        base: Its tokenizer is used.
        settings: Give the widths and the prompts.
    """

    def __init__(self, base: BaseModel, settings: LanguageModelSettings) -> None:
        self._base = base
        self._settings = settings
        self._templates = settings.templates
        # Messages make most prompts new; the observation in front of them and the candidates recur, and are kept apart.
        self._prompts: Memo[tuple[np.ndarray, dict[str, np.ndarray]]] = Memo(_REMEMBERED)
        self._texts: Memo[tuple[np.ndarray, int]] = Memo(_REMEMBERED)
        self._candidates: Memo[dict[str, np.ndarray]] = Memo(_REMEMBERED)
        self._critics: Memo[np.ndarray] = Memo(_REMEMBERED)

    def encode(self, observation: TextObservation, heard: Mapping[str, str]) -> dict[str, np.ndarray]:
        """The arrays of one observation.

        Args:
            observation: The agent's observation.
            heard: Speaker to message, in the order of the prompt.

        Returns:
            Arrays as in `encoded_space`; treat them as read-only. Forbidden candidates are all padding.

        Raises:
            UserError: If a prompt or a phrase is longer than its setting allows.
        """
        prompt = self.prompt(observation, heard)
        key = (prompt, observation.candidates, observation.mask)
        known = self._prompts.get(key)
        if known is None:
            known = self._encode_from_parts(observation, prompt) or self._encode_whole(observation, prompt)
            self._prompts.put(key, known)
        row, candidates = known
        return {PROMPT_IDS: row, **candidates, CRITIC_IDS: self._critic_array(observation)}

    def prompt(self, observation: TextObservation, heard: Mapping[str, str]) -> Prompt:
        """The action prompt of one observation, in words.

        Args:
            observation: The agent's observation.
            heard: Speaker to message, in the order of the prompt.
        """
        allowed: Sequence[str] = ()
        if self._templates.lists_options:
            allowed = [phrase for phrase, flag in zip(observation.candidates, observation.mask, strict=True) if flag]
        return self._templates.action(observation.text, heard, observation.subgoal, allowed)

    def _encode_whole(self, observation: TextObservation, prompt: Prompt) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Row of a prompt and arrays of the candidates behind it."""
        allowed = [index for index, flag in enumerate(observation.mask) if flag]
        ids, tails = encode_candidates(self._base, prompt, [observation.candidates[index] for index in allowed])
        key = (observation.candidates, observation.mask, tuple(map(tuple, tails)))
        candidates = self._candidates.get(key)
        if candidates is None:
            candidates = self._candidate_arrays(observation, dict(zip(allowed, tails, strict=True)))
            self._candidates.put(key, candidates)
            if not any(phrase[:1].isspace() for phrase in observation.candidates):
                self._candidates.put(key[:2], candidates)  # for prompts behind which their ids are always these
        return self._prompt_array(ids, "an action prompt"), candidates

    def _encode_from_parts(
        self, observation: TextObservation, prompt: Prompt
    ) -> tuple[np.ndarray, dict[str, np.ndarray]] | None:
        """The same of a prompt that begins with the observation's text; `None` if the candidates are new, the prompt is
        too long, or the tokenizer may join what stands on both sides of a border."""
        text = observation.text
        candidates = self._candidates.get((observation.candidates, observation.mask))
        apart = prompt.startswith(text) and self._base.splits_at(prompt, len(text)) and not prompt[-1:].isspace()
        if candidates is None or not apart:
            return None
        begun = self._texts.get(text)
        if begun is None:
            ids = self._base.encode(text)
            begun = np.full(self._settings.max_prompt_tokens, PAD, np.int32), len(ids)
            begun[0][: len(ids)] = ids[: len(begun[0])]
            self._texts.put(text, begun)
        row, count = begun[0].copy(), begun[1]
        behind = self._base.encode_after_blank(prompt[len(text) + 1 :])
        if count + len(behind) > len(row):
            return None
        row[count : count + len(behind)] = behind
        return row, candidates

    def _prompt_array(self, ids: Sequence[int], what: str) -> np.ndarray:
        return _filled(np.empty(self._settings.max_prompt_tokens, np.int32), ids, "max_prompt_tokens", what)

    def _critic_array(self, observation: TextObservation) -> np.ndarray:
        # The critic reads no messages, so the same texts recur more often than in action prompts.
        seen = observation.text if observation.critic_text is None else observation.critic_text
        key = (seen, observation.subgoal)
        critic = self._critics.get(key)
        if critic is None:
            critic = self._prompt_array(self._base.encode(self._templates.critic(*key)), "a critic prompt")
            self._critics.put(key, critic)
        return critic

    def _candidate_arrays(self, observation: TextObservation, tails: Mapping[int, list[int]]) -> dict[str, np.ndarray]:
        count, length = len(observation.mask), self._settings.max_candidate_tokens
        candidates = np.full((count, length), PAD, np.int32)
        words = np.zeros(count, np.int32)
        for index, tail in tails.items():
            phrase = observation.candidates[index]
            _filled(candidates[index], tail, "max_candidate_tokens", f"the candidate {phrase!r}")
            words[index] = len(phrase.split())
        return {
            CANDIDATE_IDS: candidates,
            CANDIDATE_WORDS: words,
            ACTION_MASK: np.asarray(observation.mask, np.int8),
        }


def _filled(row: np.ndarray, ids: Sequence[int], setting: str, what: str) -> np.ndarray:
    _require_room(len(ids), len(row), setting, what)
    row[: len(ids)], row[len(ids) :] = ids, PAD
    return row


def _require_room(count: int, room: int, setting: str, what: str) -> None:
    if count > room:
        raise UserError(
            f"`{setting}` is {room} but {what} has {count} tokens; set it to {count} or more, or shorten the "
            "environment's text or messages (`max_message_words`)."
        )


# ---- labels -----------------------------------------------------------------------------------------------------


LABEL_IDS = "label_ids"
LABEL_TARGETS = "label_targets"
IGNORED = -100


def encode_examples(
    base: BaseModel, prompts: Sequence[str], messages: Sequence[str], max_tokens: int, max_labels: int | None = None
) -> dict[str, np.ndarray]:
    """Token ids and labels of (message prompt, message) pairs.

    Prompt and message are encoded together; labels begin where the encoding leaves that of the bare prompt,
    and end with the end token, or after `max_labels` tokens.

    Returns:
        `label_ids` (B, T) int32, padded on the right, and `label_targets` (B, T) int32, -100
        where nothing is learned.

    Raises:
        UserError: If a row is too long.
    """
    rows = []
    for prompt, message in zip(prompts, messages, strict=True):
        alone = base.encode(prompt)
        whole = base.encode_with(prompt, message) if message else alone
        shared = common_prefix(alone, whole)
        rows.append((whole[:shared], (whole[shared:] + [base.eos_id])[:max_labels]))
    width = max((len(head) + len(tail) for head, tail in rows), default=0)
    _require_room(width, max_tokens, "max_prompt_tokens", "a prompt with its message")
    ids = np.full((len(rows), width), PAD, np.int32)
    labels = np.full((len(rows), width), IGNORED, np.int32)
    for index, (head, tail) in enumerate(rows):
        ids[index, : len(head) + len(tail)] = head + tail
        labels[index, len(head) : len(head) + len(tail)] = tail
    return {LABEL_IDS: ids, LABEL_TARGETS: labels}


# ---- messages of a roll-out -------------------------------------------------------------------------------------


MESSAGE_IDS = "message_ids"
MESSAGE_TARGETS = "message_targets"
MENU_IDS = "menu_ids"
MESSAGE_CHOICE = "message_choice"
MESSAGE_LOGP = "message_logp"
MESSAGE_MOMENT = "message_moment"
SILENT = -1


def encode_menu(base: BaseModel, menu: Sequence[str], templates: PromptTemplates = DEFAULT_TEMPLATES) -> np.ndarray:
    """Token ids (K, C) of a menu's phrases, padded on the right."""
    _, tails = encode_candidates(base, templates.message("."), menu)
    ids = np.full((len(menu), max(map(len, tails))), PAD, np.int32)
    for row, tail in zip(ids, tails, strict=True):
        row[: len(tail)] = tail
    return ids


class MessageEncoder:
    """Writes messages as arrays of an observation.

    Args:
        base: Its tokenizer is used.
        max_tokens: Longest message prompt in tokens.
        max_words: Longest message in words, which bounds its tokens.
        menu: The phrases of a menu; empty for free text.
        templates: The prompts behind which messages stand.
    """

    def __init__(
        self,
        base: BaseModel,
        max_tokens: int,
        max_words: int,
        menu: Sequence[str] = (),
        templates: PromptTemplates = DEFAULT_TEMPLATES,
    ) -> None:
        self._base, self._max_tokens, self._templates = base, max_tokens, templates
        # Whatever is drawn behind the longest prompt has room: a roll-out must not fail by a message.
        self._width = max_tokens + (0 if menu else most_tokens(max_words))
        self._menu = tuple(menu)
        self._menu_ids = encode_menu(base, self._menu, templates) if menu else None

    def space(self) -> dict[str, gym.spaces.Box]:
        """The spaces of the arrays."""
        row = gym.spaces.Box(PAD, _TOP, (self._width,), np.int32)
        common = {
            MESSAGE_IDS: row,
            MESSAGE_LOGP: gym.spaces.Box(-np.inf, 0.0, (1,), np.float32),
            MESSAGE_MOMENT: gym.spaces.Box(0, _TOP, (1,), np.int32),
        }
        if self._menu_ids is None:
            return {**common, MESSAGE_TARGETS: gym.spaces.Box(IGNORED, _TOP, (self._width,), np.int32)}
        return {
            **common,
            MENU_IDS: gym.spaces.Box(PAD, _TOP, self._menu_ids.shape, np.int32),
            MESSAGE_CHOICE: gym.spaces.Box(SILENT, len(self._menu) - 1, (1,), np.int32),
        }

    def encode(self, view: TextObservation, said: Written | None, moment: int = 0) -> dict[str, np.ndarray]:
        """The arrays of one row, with a log-probability of 0 that the caller puts right.

        Args:
            view: The speaker's observation.
            said: Its message; `None` if it was not asked for one.
            moment: Time of the message, on a clock that all agents of the episode share.

        Raises:
            UserError: If the prompt is too long.
        """
        prompt = self._base.encode(self._templates.message(view.text, view.subgoal))
        _require_room(len(prompt), self._max_tokens, "max_prompt_tokens", "a message prompt")
        ids = np.full(self._width, PAD, np.int32)
        ids[: len(prompt)] = prompt
        arrays: dict[str, np.ndarray] = {
            MESSAGE_IDS: ids,
            MESSAGE_LOGP: np.zeros(1, np.float32),
            MESSAGE_MOMENT: np.array([moment], np.int32),
        }
        if self._menu_ids is not None:
            choice = SILENT if said is None else self._menu.index(said.text)
            return {**arrays, MENU_IDS: self._menu_ids, MESSAGE_CHOICE: np.array([choice], np.int32)}
        labels = np.full(self._width, IGNORED, np.int32)
        if said is not None:
            end = len(prompt) + len(said.ids)
            ids[len(prompt) : end] = labels[len(prompt) : end] = said.ids
        return {**arrays, MESSAGE_TARGETS: labels}
