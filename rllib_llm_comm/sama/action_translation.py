"""Effects of actions in the words of a chat model that reads the game's code, each checked against the game.

The other half of SAMA's translation ("state and action translation", Section 3.1). The model sees the action as the
code names it, the state, and the pieces of code that fit; the game knows what the action would really do, so that no
wrong word has to be believed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field, create_model

from rllib_llm_comm.chat.answers import ask_for
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.chat.purposes import TRANSLATION
from rllib_llm_comm.language.prompt_files import fill
from rllib_llm_comm.sama.code_index import CodeIndex
from rllib_llm_comm.sama.state_translation import Checked

Check = Callable[[str], bool | None]
"""True if words say what an action does; `None` if that cannot be told."""


@dataclass(frozen=True)
class ActionWords(Checked):
    """Words for the effects of actions, sorted by the result of their check.

    Attributes:
        true: Action to words that say what it does.
        false: Words that say something else: thrown away.
        unclear: Words of which it cannot be told.
    """

    true: dict[str, str] = field(default_factory=dict)
    false: dict[str, str] = field(default_factory=dict)
    unclear: dict[str, str] = field(default_factory=dict)


def translate_actions(
    model: ChatModel,
    index: CodeIndex,
    state: Mapping[str, Any],
    agent: str,
    actions: Mapping[str, Check],
    *,
    manual: str = "",
    beside: Mapping[str, str] | None = None,
    pieces: int = 5,
) -> ActionWords:
    """Puts into words what the actions of an agent would do.

    Args:
        model: The chat model.
        index: The game's code.
        state: The state as plain values.
        agent: The agent that acts.
        actions: Each action as the code names it, and the game's check of it; at least one.
        manual: The game in words.
        beside: Things on each side of the agent, for states without a map.
        pieces: Number of pieces of code that the model is shown.

    Raises:
        ChatError: If a request failed for good, or both answers have not the right form.
        UserError: If the budget is spent or the key is missing.
    """
    shown, named = json.dumps(state), list(actions)
    found = index.search(f"{' '.join(named)} {agent} action effect interact", pieces)
    prompt = fill(
        __package__,
        "translate_actions",
        manual=manual or "It is told nowhere.",
        code="\n\n".join(f"# {piece.file}: {piece.name}\n{piece.code}" for piece in found),
        state=shown,
        beside=f"Beside {agent}: {', '.join(f'{way} {place}' for way, place in beside.items())}\n" if beside else "",
        agent=agent,
        actions="\n".join(f"{number}. {action}" for number, action in enumerate(named, 1)),
        count=len(named),
    )
    effects: Any = (list[str], Field(min_length=len(named), max_length=len(named)))
    form: type[BaseModel] = create_model("Effects", effects=effects)
    said: list[str] = ask_for(model, prompt, form, purpose=TRANSLATION).model_dump()["effects"]
    sorted_: dict[bool | None, dict[str, str]] = {True: {}, False: {}, None: {}}
    for action, words in zip(named, said, strict=True):
        sorted_[actions[action](words)][action] = words
    return ActionWords(sorted_[True], sorted_[False], sorted_[None])
