"""Drift of trained messages from the taught ones: divergence of the adapters, new words, legibility."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.language.adapters import REFERENCE
from rllib_llm_comm.language.generation import Written
from rllib_llm_comm.policies.decision import Policy
from rllib_llm_comm.verco.encoding import TextObservation, read_observation
from rllib_llm_comm.verco.language_agent import LLMCommCore
from rllib_llm_comm.verco.message_loss import UtteranceEncoder
from rllib_llm_comm.verco.policy import LanguagePolicy
from rllib_llm_comm.verco.settings import DRAWN, CommunicationSettings

PROMPTS = 400
"""Message prompts of the played episodes that are judged at most; of more, so many are drawn (ours)."""
_BATCH = 32
_WRITTEN_BY_ADAPTER = ("student", "menu", *DRAWN)


@dataclass(frozen=True)
class Drift:
    """Trained messages compared with those of the reference, the adapter that training began with.

    Both adapters draw one message at temperature 1 behind the same prompts of played episodes, with the same random
    numbers: equal adapters draw equal messages.

    Attributes:
        kl: KL(message adapter || reference) in nats per message: the exact divergence of the next token, summed over
            the tokens of messages drawn by the message adapter; of a menu that of the choice.
        kl_per_token: The same per token; `None` for a menu.
        new_words: Share of the messages with a word that the reference, at temperature 0 behind the same prompts,
            never uses; `None` for a menu.
        new_words_reference: The same share of the reference's own messages, which is not 0: they are drawn, too.
        unreadable: Share of the messages that are none of the game's own sentences; `None` for a game without any,
            and for a menu.
        unreadable_reference: The same share of the reference's own messages.
        messages: Messages drawn by each adapter.
    """

    kl: float
    kl_per_token: float | None
    new_words: float | None
    new_words_reference: float | None
    unreadable: float | None
    unreadable_reference: float | None
    messages: int


def measure_drift(
    policy: Policy,
    spoken: Sequence[tuple[Any, Mapping[str, Any]]],
    reads: Callable[[str], bool | None] | None = None,
    *,
    seed: int = 0,
) -> Drift | None:
    """Measures the drift of a policy's messages.

    Args:
        policy: The policy that `load_policy` gives.
        spoken: Agents and their observations at decisions at which they said something.
        reads: True if a message is one of the game's own sentences, if it has any.
        seed: Fixes which prompts are judged and what is drawn.

    Returns:
        The figures; `None` where no reference is known, nothing was said, or others than the message adapter spoke.
    """
    if not spoken or not isinstance(policy, LanguagePolicy):
        return None
    talk = policy.communication
    if talk.messages not in _WRITTEN_BY_ADAPTER or talk.message_server is not None:
        return None
    if not knows_reference(policy, [agent for agent, _ in spoken]):
        return None
    rng = np.random.default_rng(seed)
    if len(spoken) > PROMPTS:
        spoken = [spoken[index] for index in sorted(rng.choice(len(spoken), PROMPTS, replace=False))]
    views: dict[LLMCommCore, list[TextObservation]] = {}
    for agent, seen in spoken:
        views.setdefault(policy.core_of(agent), []).append(read_observation(seen))
    parts = [_of_core(core, own, talk, seed + number) for number, (core, own) in enumerate(views.items())]
    return _figures(parts, reads, menu=talk.messages == "menu")


def knows_reference(policy: LanguagePolicy, agents: Sequence[Any]) -> bool:
    """True if the drift of the messages of these agents can be measured: all have a reference.

    Args:
        policy: The policy that `load_policy` gives.
        agents: Their names.
    """
    return all(REFERENCE in policy.core_of(agent).lm.roles for agent in agents)


@dataclass(frozen=True)
class _Part:
    """The messages that the adapters of one network drew, and the divergence (B,) of each."""

    kl: np.ndarray
    own: Sequence[Written]
    taught: Sequence[Written] = ()
    greedy: Sequence[Written] = ()


def _of_core(core: LLMCommCore, views: Sequence[TextObservation], talk: CommunicationSettings, seed: int) -> _Part:
    prompts = [core.settings.templates.message(view.text, view.subgoal) for view in views]
    menu = talk.message_menu if talk.messages == "menu" else ()
    longest = talk.max_message_words
    if menu:
        chosen = core.write_messages(prompts, menu=menu, temperature=1.0, seed=seed)
        own = [Written(text) for text in chosen]
        return _Part(_divergence(core, views, own, longest, menu), own)
    own = core.draw_messages(prompts, max_words=longest, temperature=1.0, seed=seed)
    return _Part(
        _divergence(core, views, own, longest, menu),
        own,
        core.draw_messages(prompts, max_words=longest, temperature=1.0, seed=seed, role=REFERENCE),
        core.draw_messages(prompts, max_words=longest, role=REFERENCE),
    )


@torch.no_grad()
def _divergence(
    core: LLMCommCore, views: Sequence[TextObservation], said: Sequence[Written], longest: int, menu: Sequence[str]
) -> np.ndarray:
    settings = core.settings
    encoder = UtteranceEncoder(core.lm.base, settings.max_prompt_tokens, longest, menu, settings.templates)
    rows = [encoder.encode(view, message) for view, message in zip(views, said, strict=True)]
    found = []
    for start in range(0, len(rows), _BATCH):
        part = rows[start : start + _BATCH]
        batch = {name: torch.from_numpy(np.stack([row[name] for row in part])) for name in part[0]}
        found.append(core.utterance_terms(batch, drift=True).kl.cpu().numpy())
    return np.concatenate(found)


def _figures(parts: Sequence[_Part], reads: Callable[[str], bool | None] | None, menu: bool) -> Drift:
    kl = np.concatenate([part.kl for part in parts]).astype(np.float64)
    own = [message for part in parts for message in part.own]
    taught = [message for part in parts for message in part.taught]
    known = {word for part in parts for message in part.greedy for word in message.text.split()}
    tokens = sum(len(message.ids) for message in own)

    def share(messages: Sequence[Written], flagged: Callable[[str], bool]) -> float | None:
        texts = [message.text for message in messages if message.text]
        return None if menu or not texts else float(np.mean([flagged(text) for text in texts]))

    def new(text: str) -> bool:
        return not known.issuperset(text.split())

    def unreadable(text: str) -> bool:
        return reads is not None and not reads(text)

    return Drift(
        kl=float(kl.mean()),
        kl_per_token=float(kl.sum() / tokens) if tokens else None,
        new_words=share(own, new),
        new_words_reference=share(taught, new),
        unreadable=None if reads is None else share(own, unreadable),
        unreadable_reference=None if reads is None else share(taught, unreadable),
        messages=len(own),
    )
