"""From an agent's words to the arrays that the module reads, and the space of these arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rllib_llm_comm.core.bounded_cache import Memo
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.interface import ACTION_MASK, CRITIC_TEXT, SUBGOAL, TEACHER_MESSAGE
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.language.prompts import Prompt
from rllib_llm_comm.language.scoring import encode_candidates
from rllib_llm_comm.rl.columns import CANDIDATE_IDS, CRITIC_IDS, PROMPT_IDS
from rllib_llm_comm.verco.settings import LanguageModelSettings

CANDIDATE_WORDS = "candidate_words"

TEXT = "text"
CANDIDATES = "candidates"

_REMEMBERED = 16384  # entries of each memory


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
    top = np.iinfo(np.int32).max
    prompt, length = settings.max_prompt_tokens, settings.max_candidate_tokens
    return gym.spaces.Dict(
        {
            PROMPT_IDS: gym.spaces.Box(PAD, top, (prompt,), np.int32),
            CANDIDATE_IDS: gym.spaces.Box(PAD, top, (num_actions, length), np.int32),
            CANDIDATE_WORDS: gym.spaces.Box(0, top, (num_actions,), np.int32),
            ACTION_MASK: gym.spaces.Box(0, 1, (num_actions,), np.int8),
            CRITIC_IDS: gym.spaces.Box(PAD, top, (prompt,), np.int32),
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
    count = len(ids)
    if count > len(row):
        raise UserError(
            f"{what} has {count} tokens but `{setting}` is {len(row)}; set `{setting}` to {count} or "
            "more, or shorten the environment's text."
        )
    row[:count], row[count:] = ids, PAD
    return row
