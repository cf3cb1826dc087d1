"""The prompts of the three roles, filled from the template files in `prompts/`.

All three begin with the same observation text, so that what is frozen can be computed once. The critic's
prompt carries no messages: Verco Eq. 5 conditions the value on the observation alone.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from rllib_llm_comm.language.prompt_files import fill, template

_MAX_SUBGOAL_CHARACTERS = 200


_fill = functools.partial(fill, __package__)


class Prompt(str):
    """A prompt that knows its last words, with which the agent's own words begin.

    Attributes:
        body: The text without the cue.
        cue: The last words, such as " i say:". In the form of a chat they begin the model's answer.
    """

    body: str
    cue: str

    def __new__(cls, body: str, cue: str) -> Prompt:
        """Joins both parts."""
        made = super().__new__(cls, body + cue)
        made.body, made.cue = body, cue
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.body, self.cue


def _prompt(name: str, **values: Any) -> Prompt:
    """A filled template whose words behind its last slot are the cue."""
    cue = _cue(name)
    return Prompt(_fill(name, **values).removesuffix(cue), cue)


@functools.cache
def _cue(name: str) -> str:
    return template(__package__, name).rsplit("}", 1)[1]


def _subgoal(subgoal: str) -> str:
    words = " ".join(subgoal.split())[:_MAX_SUBGOAL_CHARACTERS]
    return _fill("subgoal", subgoal=words) if words else ""


def message_prompt(text: str, subgoal: str = "") -> Prompt:
    """The prompt behind which an agent's message is generated (rho_m of Verco Eq. 1).

    Args:
        text: The agent's observation in words.
        subgoal: A subgoal given to this agent, or the empty string.
    """
    return _prompt("message", text=text, subgoal=_subgoal(subgoal))


def action_prompt(text: str, heard: Mapping[str, str] | None = None, subgoal: str = "") -> Prompt:
    """The prompt behind which candidate actions are scored (rho_u of Verco Eq. 2).

    Args:
        text: The agent's observation in words.
        heard: Speaker to message, in the order in which they shall appear; empty messages are left out.
        subgoal: A subgoal given to this agent, or the empty string.
    """
    sentences = [
        _fill("heard", speaker=speaker, message=message.rstrip(" ."))
        for speaker, message in (heard or {}).items()
        if message.strip(" .")
    ]
    return _prompt("action", text=text, subgoal=_subgoal(subgoal), heard="".join(sentences))


def critic_prompt(text: str, subgoal: str = "") -> Prompt:
    """The prompt whose frozen features the critic reads (Verco Eq. 5: no messages).

    Args:
        text: The agent's observation in words.
        subgoal: A subgoal given to this agent, or the empty string.
    """
    return _prompt("critic", text=text, subgoal=_subgoal(subgoal))
