"""How checkpoints are loaded: options of `rllib evaluate` and `rllib replay`, and the same of their stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from rllib_llm_comm.checkpoints.find_checkpoint import find_checkpoint
from rllib_llm_comm.checkpoints.signatures import is_own_checkpoint
from rllib_llm_comm.experiments.experiment_file import load_json_option

if TYPE_CHECKING:
    from rllib_llm_comm.agents.array_policy import ArrayPolicy
    from rllib_llm_comm.agents.load_policy import Policy

MessagesOption = Annotated[
    str | None, Option(help="Another message mode: none, student, teacher, shuffled, constant, menu or swapped.")
]
TeacherOption = Annotated[
    str | None,
    Option(metavar="NAME|JSON", help="Who speaks with --messages teacher: scripted, or a JSON object with name, ..."),
]
ServerOption = Annotated[
    str | None,
    Option(
        "--message-server", metavar="JSON", help="Who writes messages: a JSON object with base_url, ..., or 'none'."
    ),
]
BaseModelOption = Annotated[str | None, Option(help="Where the base model lies, if not where it lay in training.")]

ReferenceOption = Annotated[
    str | None,
    Option(
        metavar="PATH",
        help="With --communication: whose message adapter the drift of messages is measured from, if the checkpoint "
        "carries none.",
    ),
]


@dataclass(frozen=True)
class Loading:
    """What a user says about loading a checkpoint; see `load_policy`.

    Attributes:
        messages: Another message mode than in training.
        teacher: The teacher, if not the recorded one.
        message_server: The server of messages, if not the recorded one; "none": the policy itself.
        base_model: Where the base model lies.
        reference: Whose message adapter the drift of messages is measured from, if not the one that is carried.
        trust: Whether recorded settings that reach beyond this program are used, wherever they were written.
        trust_own: Whether they are used if the checkpoint was written here (`own_work`): in a stage of a file whose
            checkpoints come from that file or another of the user's.
    """

    messages: str | None = None
    teacher: str | Mapping[str, Any] | None = None
    message_server: str | Mapping[str, Any] | None = None
    base_model: str | None = None
    trust: bool = False
    trust_own: bool = False
    reference: str | None = None

    @classmethod
    def of_options(
        cls,
        messages: str | None = None,
        teacher: str | None = None,
        message_server: str | None = None,
        base_model: str | None = None,
        trust: bool = False,
        reference: str | None = None,
    ) -> Loading:
        """From the texts of command-line options.

        Raises:
            UserError: If one is no JSON object and should be one.
        """
        server: str | dict[str, Any] | None = message_server
        if message_server is not None and message_server.strip() != "none":
            server = load_json_option("--message-server", message_server)
        return cls(messages, _parsed("--teacher", teacher), server, base_model, trust, reference=reference)

    def load(self, path: str | Path) -> Policy | ArrayPolicy:
        """Loads the policy of a path that `find_checkpoint` understands.

        Args:
            path: The path.
        """
        from rllib_llm_comm import load_policy

        found = find_checkpoint(path)
        return load_policy(
            found,
            messages=self.messages,
            teacher=self.teacher,
            message_server=self.message_server,
            base_model=self.base_model,
            reference=None if self.reference is None else find_checkpoint(self.reference),
            trust=self.trust or (self.trust_own and is_own_checkpoint(found)),
        )


AS_RECORDED = Loading()


def _parsed(option: str, text: str | None) -> str | dict[str, Any] | None:
    """A name as it is, a JSON object as a mapping."""
    return load_json_option(option, text) if text is not None and text.lstrip().startswith("{") else text
