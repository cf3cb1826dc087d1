"""Settings with which the policy of a checkpoint is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from rllib_llm_comm.policies.policy_manifest import KINDS, LANGUAGE
from rllib_llm_comm.policies.signatures import is_own_checkpoint

if TYPE_CHECKING:
    from rllib_llm_comm.policies.policy import TrainedPolicy


class Loading(Settings):
    """Arguments of `load_policy` beside the path; what is not given is as the checkpoint recorded it."""

    messages: str | None = None
    """Another message mode: none, student, teacher, other_moments, other_fact, constant, menu or swapped."""
    teacher: str | dict[str, Any] | None = None
    """Who speaks with messages "teacher": scripted, or a mapping with `name` and settings."""
    message_server: str | dict[str, Any] | None = None
    """Who writes messages: a mapping with `base_url`, ..., or "none": the policy itself."""
    base_model: str | None = None
    """Where the base model lies, if not where it lay in training."""
    trust: bool = Field(False, exclude=True)
    """Take the addresses, names of keys, paths and hub ids that the checkpoint recorded as they are."""
    trust_own: bool = Field(False, exclude=True)
    """Take them from checkpoints that were written here (`policies.signatures`), as in a stage of a file whose
    checkpoints come from that file or another of the user's."""

    def check(self) -> None:
        """Refuses settings that fit no checkpoint; nothing is loaded.

        Raises:
            UserError: If one is not allowed.
        """
        KINDS[LANGUAGE].check_options(self.messages, self.teacher, self.message_server, self.base_model)

    def load(self, path: str | Path, reference: str | None = None) -> TrainedPolicy:
        """The policy of a checkpoint.

        Args:
            path: A path that `find_checkpoint` understands.
            reference: The checkpoint whose message adapter the drift of messages is measured from, if the checkpoint
                carries none.

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
            reference=None if reference is None else find_checkpoint(reference),
            trust=self.trust or (self.trust_own and is_own_checkpoint(found)),
        )
