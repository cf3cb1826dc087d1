"""Settings with which the policy of a checkpoint is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from rllib_llm_comm.policies.policy_manifest import KINDS, LANGUAGE
from rllib_llm_comm.policies.signatures import is_own_checkpoint

if TYPE_CHECKING:
    from rllib_llm_comm.policies.policy import TrainedPolicy


@dataclass(frozen=True)
class Loading:
    """Arguments of `load_policy` beside the path; `None` keeps what the checkpoint recorded.

    Attributes:
        messages: Another message mode than in training.
        teacher: The teacher, if not the recorded one.
        message_server: The server of messages, if not the recorded one; "none": the policy itself.
        base_model: Path of the base model.
        reference: The checkpoint whose message adapter the drift of messages is measured from, if not the one that is
            carried.
        trust: True if recorded settings that reach beyond this program are used, wherever they were written.
        trust_own: True if they are used in checkpoints that were written here (`checkpoints.signatures`), as in a stage
            of a file whose checkpoints come from that file or another of the user's.
    """

    messages: str | None = None
    teacher: str | Mapping[str, Any] | None = None
    message_server: str | Mapping[str, Any] | None = None
    base_model: str | None = None
    trust: bool = False
    trust_own: bool = False
    reference: str | None = None

    def check(self) -> None:
        """Refuses settings that fit no checkpoint; nothing is loaded.

        Raises:
            UserError: If one is not allowed.
        """
        KINDS[LANGUAGE].check_options(self.messages, self.teacher, self.message_server, self.base_model)

    def load(self, path: str | Path) -> TrainedPolicy:
        """The policy of a checkpoint.

        Args:
            path: A path that `find_checkpoint` understands.

        Raises:
            UserError: If it cannot be loaded with these settings.
        """
        from rllib_llm_comm.policies.load_policy import load_policy

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
