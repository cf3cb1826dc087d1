"""Inputs of EMMA's network, made from an agent's observation: frames of symbols, and texts as token numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.interface import ACTION_MASK, SUBGOAL
from rllib_llm_comm.language.text_encoder import PAD, TextEncoder
from rllib_llm_comm.policies.numeric_network import AUTO, BY_STATE, CRITIC_STATE, STATE
from rllib_llm_comm.sama.emma.settings import EmmaSettings

ENTITIES = "entities"
MANUAL = "manual"
FRAMES = "frames"
SUBGOAL_TOKENS = "subgoal_tokens"
MANUAL_TOKENS = "manual_tokens"
END_OF_SENTENCE = -1
_SENTENCES = re.compile(r"(?<=[.!?])\s+")


class EmmaEncoder:
    """Turns observations into arrays.

    Args:
        encoder: The text encoder, of which only the tokenizer is used.
        settings: Sizes.
    """

    def __init__(self, encoder: TextEncoder, settings: EmmaSettings) -> None:
        self._encoder, self._settings = encoder, settings
        self._manuals: dict[str, np.ndarray] = {}

    def encode(
        self, observation: Mapping[str, Any], frames: Sequence[np.ndarray], with_state: bool
    ) -> dict[str, np.ndarray]:
        """The arrays of one agent.

        Args:
            observation: `entities`, `manual`, `subgoal`, and optionally `action_mask` and `state`.
            frames: Its earlier `entities`, oldest first; the newest are used.
            with_state: True if the critic wants the state.

        Returns:
            `frames` (T, H, W, K), zero where there was no time yet, `subgoal_tokens`, `manual_tokens`, `action_mask`
            and, if asked for, `critic_state`.

        Raises:
            UserError: If a text is too long.
        """
        newest = np.asarray(observation[ENTITIES], np.int16)
        kept = [*frames, newest][-self._settings.frames :]
        missing = self._settings.frames - len(kept)
        arrays = {
            FRAMES: np.stack([*[np.zeros_like(newest)] * missing, *kept]),
            **self.texts(str(observation[SUBGOAL]), str(observation[MANUAL])),
        }
        if ACTION_MASK in observation:
            arrays[ACTION_MASK] = np.array(observation[ACTION_MASK], np.int8)
        if with_state:
            arrays[CRITIC_STATE] = np.array(observation[STATE], np.float32).reshape(-1)
        return arrays

    def texts(self, subgoal: str, manual: str) -> dict[str, np.ndarray]:
        """`subgoal_tokens` and `manual_tokens`.

        Args:
            subgoal: The subgoal; empty for none.
            manual: The manual.

        Raises:
            UserError: If a text is too long.
        """
        return {SUBGOAL_TOKENS: self._subgoal(subgoal), MANUAL_TOKENS: self._manual(manual)}

    def _subgoal(self, text: str) -> np.ndarray:
        tokens = self._encoder.tokens(text) if text.strip() else []
        return _filled(tokens, self._settings.max_subgoal_tokens, "subgoal", text)

    def _manual(self, text: str) -> np.ndarray:
        if text not in self._manuals:
            tokens: list[int] = []
            for sentence in _SENTENCES.split(text.strip()):
                if sentence:
                    tokens += [*self._encoder.tokens(sentence), END_OF_SENTENCE]
            self._manuals[text] = _filled(tokens, self._settings.max_manual_tokens, "manual", text)
        return self._manuals[text]


def _filled(tokens: Sequence[int], length: int, what: str, text: str) -> np.ndarray:
    if len(tokens) > length:
        raise UserError(
            f"the {what} {text[:60]!r}... has {len(tokens)} tokens, but `max_{what}_tokens` is {length}; raise it."
        )
    row = np.full(length, PAD, np.int32)
    row[: len(tokens)] = tokens
    return row


def sentences(tokens: np.ndarray) -> list[list[int]]:
    """The token numbers of each sentence of a row of `manual_tokens`.

    Args:
        tokens: (L,) with `END_OF_SENTENCE` behind each sentence.
    """
    ends = np.flatnonzero(tokens == END_OF_SENTENCE)
    starts = [0, *(ends[:-1] + 1)]
    return [tokens[start:end].tolist() for start, end in zip(starts, ends, strict=True)]


def emma_space(agent: Any, space: gym.Space, actions: gym.Space, settings: EmmaSettings) -> gym.spaces.Dict:
    """The space of an agent's arrays.

    Args:
        agent: Its name, for messages.
        space: The space of its observations.
        actions: The space of its actions.
        settings: Sizes, and whether the critic sees the state.

    Raises:
        UserError: If the spaces do not hold what is needed.
    """
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
    symbols = parts.get(ENTITIES)
    if (
        not isinstance(symbols, gym.spaces.Box)
        or len(symbols.shape) != 3
        or MANUAL not in parts
        or SUBGOAL not in parts
    ):
        raise UserError(
            f"the observation space of agent {agent!r} is {space}, but EMMA needs a Dict with a Box `{ENTITIES}` "
            f"(height, width, symbols per cell) and the texts `{MANUAL}` and `{SUBGOAL}`; in our kitchens set "
            "`env_config.observe` to ['entities', 'state']."
        )
    if not isinstance(actions, gym.spaces.Discrete):
        raise UserError(f"the action space of agent {agent!r} is {actions}, but must be Discrete.")
    highest = int(symbols.high.max())
    shapes: dict[str, gym.spaces.Space[Any]] = {
        FRAMES: gym.spaces.Box(0, highest, (settings.frames, *symbols.shape), np.int16),
        SUBGOAL_TOKENS: _tokens(settings.max_subgoal_tokens),
        MANUAL_TOKENS: _tokens(settings.max_manual_tokens),
        ACTION_MASK: gym.spaces.Box(0, 1, (int(actions.n),), np.int8),
    }
    state = parts.get(STATE)
    if isinstance(state, gym.spaces.Box) and settings.critic_observation in (AUTO, BY_STATE):
        shapes[CRITIC_STATE] = gym.spaces.Box(-np.inf, np.inf, (int(np.prod(state.shape)),), np.float32)
    elif settings.critic_observation == BY_STATE:
        raise UserError(
            f"`critic_observation` is 'state' but the observation space of agent {agent!r} has no Box `{STATE}`; make "
            "the environment tell its state, or use 'own'."
        )
    return gym.spaces.Dict(shapes)


def _tokens(length: int) -> gym.spaces.Box:
    return gym.spaces.Box(END_OF_SENTENCE, np.iinfo(np.int32).max, (length,), np.int32)
