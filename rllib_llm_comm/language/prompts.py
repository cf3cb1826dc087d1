"""The prompts of the agents' roles, filled from templates.

Those of the default set all begin with the same observation text, so that what is frozen can be computed once. The
critic's prompt carries no messages: Verco Eq. 5 conditions the value on the observation alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rllib_llm_comm.language.prompt_files import fill_pieces, pieces_of
from rllib_llm_comm.language.prompt_sets import DEFAULT, read_prompts

_ROLES = ("message", "action", "critic")


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


class PromptTemplates:
    """The templates of one set, ready to be filled.

    Args:
        texts: Text by template, as of `read_prompts`.

    Attributes:
        lists_options: True if the action prompt shows the allowed candidates.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._pieces = {name: pieces_of(text) for name, text in texts.items()}
        self._cues = {name: _cue(self._pieces[name][-1]) for name in _ROLES}
        self._bodies = {
            name: [*self._pieces[name][:-1], self._pieces[name][-1].removesuffix(cue)]
            for name, cue in self._cues.items()
        }
        self.lists_options = "options" in self._pieces["action"][1::2]

    def message(self, text: str, subgoal: str = "") -> Prompt:
        """The prompt behind which an agent's message is generated (rho_m of Verco Eq. 1).

        Args:
            text: The agent's observation in words.
            subgoal: A subgoal given to this agent, or the empty string.
        """
        return self._prompt("message", text=text, subgoal=self._subgoal(subgoal))

    def action(
        self, text: str, heard: Mapping[str, str] | None = None, subgoal: str = "", options: Sequence[str] = ()
    ) -> Prompt:
        """The prompt behind which candidate actions are scored (rho_u of Verco Eq. 2).

        Args:
            text: The agent's observation in words.
            heard: Speaker to message, in the order in which they shall appear; empty messages are left out.
            subgoal: A subgoal given to this agent, or the empty string.
            options: The allowed candidates, each shown once, for templates that list them.
        """
        sentences = [
            fill_pieces(self._pieces["heard"], speaker=speaker, message=message.rstrip(" ."))
            for speaker, message in (heard or {}).items()
            if message.strip(" .")
        ]
        listed = ", ".join(dict.fromkeys(options)) if self.lists_options else ""
        return self._prompt(
            "action", text=text, subgoal=self._subgoal(subgoal), heard="".join(sentences), options=listed
        )

    def critic(self, text: str, subgoal: str = "") -> Prompt:
        """The prompt whose frozen features the critic reads (Verco Eq. 5: no messages).

        Args:
            text: The agent's observation in words.
            subgoal: A subgoal given to this agent, or the empty string.
        """
        return self._prompt("critic", text=text, subgoal=self._subgoal(subgoal))

    def _subgoal(self, subgoal: str) -> str:
        words = " ".join(subgoal.split())
        return fill_pieces(self._pieces["subgoal"], subgoal=words) if words else ""

    def _prompt(self, name: str, **values: str) -> Prompt:
        return Prompt(fill_pieces(self._bodies[name], **values), self._cues[name])


def _cue(behind: str) -> str:
    """The cue in the words behind a template's last slot: its last line, or all from the first blank on."""
    lines = behind.rpartition("\n")
    if lines[1]:
        return "\n" + lines[2]
    return "".join(behind.partition(" ")[1:])


DEFAULT_TEMPLATES = PromptTemplates(read_prompts(DEFAULT))
message_prompt = DEFAULT_TEMPLATES.message
action_prompt = DEFAULT_TEMPLATES.action
critic_prompt = DEFAULT_TEMPLATES.critic
