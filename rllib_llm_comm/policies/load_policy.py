"""Loads a trained policy of any kind; needs no Ray."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from rllib_llm_comm.chat.settings import MessageWriter
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from rllib_llm_comm.policies.partner_settings import LongestPrompt
from rllib_llm_comm.policies.policy_manifest import LANGUAGE, POLICY_KINDS
from rllib_llm_comm.policies.signatures import is_own_checkpoint

if TYPE_CHECKING:
    from rllib_llm_comm.policies.policy import TrainedPolicy


def load_policy(
    checkpoint: str | os.PathLike[str],
    *,
    device: str | None = None,
    base_model: str | None = None,
    messages: str | None = None,
    teacher: str | Mapping[str, Any] | None = None,
    message_server: str | Mapping[str, Any] | None = None,
    reference: str | os.PathLike[str] | None = None,
    max_prompt_tokens: int | None = None,
    trust: bool = False,
) -> TrainedPolicy:
    """Loads a policy from a checkpoint of one of our algorithms. Reads safetensors and JSON, never pickles.

    What the checkpoint recorded of addresses, names of keys and paths is used only where the caller gives it or says
    `trust`; see `rllib_llm_comm.policies.recorded_settings`.

    Args:
        checkpoint: A checkpoint folder, its `policy/` folder, a trial's folder (the last checkpoint is taken), or the
            folder of a stage or run of `rllib train`: the same folders as `rllib evaluate` takes. Or `zoo:NAME` for a
            policy that comes with the package, or `hf:user/repo` for one on the Hugging Face hub.
        device: Device to compute on, if not as in training (then `"cpu"` where this process sees no GPU).
        base_model: Place of the base model, if not that of the training.
        messages: Another message mode than in training: `"none"`, `"student"`, `"teacher"`, `"constant"`,
            `"other_moments"`, `"other_fact"`, `"swapped"`.
        teacher: The teacher for `messages="teacher"`.
        message_server: Keys of `MessageServerSettings`, or `"none"`: the policy itself writes its messages.
        reference: A checkpoint or PEFT folder whose message adapter is the one from which the drift of messages is
            measured, in place of the one that the checkpoint carries if PPO trained its messages.
        max_prompt_tokens: Longest prompt in tokens, if not that of the training: other games may have longer texts.
        trust: True if recorded settings that reach beyond this program (the teacher's and planner's servers, keys and
            files, the message server, a base model's folder or hub id) are used as they are.

    Raises:
        UserError: If the path is wrong, pieces are missing, a setting is out of its range, the base model is another
            one, or a recorded setting is needed that is neither given nor trusted.
    """
    # What loads torch; settings of loading are read by commands that load nothing.
    from rllib_llm_comm.policies.policy_folder import find_policy
    from rllib_llm_comm.policies.policy_manifest import read_manifest
    from rllib_llm_comm.policies.recorded_settings import vouched_for, withhold

    folder = find_policy(checkpoint)
    manifest = read_manifest(folder)
    policy: TrainedPolicy = POLICY_KINDS[manifest.kind].load(
        folder,
        vouched_for(manifest) if trust else withhold(manifest),
        device=device,
        base_model=base_model,
        messages=messages,
        teacher=teacher,
        message_server=message_server,
        reference=reference,
        max_prompt_tokens=max_prompt_tokens,
    )
    return policy


class Trust(Settings):
    """Whether what checkpoints recorded is used where it reaches beyond this program."""

    trust: bool = Field(False, exclude=True)
    """Take the addresses, names of keys, paths and hub ids that checkpoints recorded as they are."""


class Elsewhere(LongestPrompt):
    """What differs where a checkpoint is loaded."""

    base_model: str | None = None
    """Where the base model lies, if not where it lay in training."""


class Loading(Elsewhere, Trust):
    """Arguments of `load_policy` beside the path; what is not given is as the checkpoint recorded it."""

    messages: str | None = None
    """Another message mode: none, student, teacher, other_moments, other_fact, constant, menu or swapped."""
    teacher: str | dict[str, Any] | None = None
    """Who speaks with messages "teacher": scripted, or a mapping with `name` and settings."""
    message_server: Literal["none"] | MessageWriter | None = None
    """Who writes messages: a mapping with `base_url`, ..., or "none": the policy itself."""
    trust_own: bool = Field(False, exclude=True)
    """Take them from checkpoints that were written here (`policies.signatures`), as in a stage of a file whose
    checkpoints come from that file or another of the user's."""

    def check(self) -> None:
        """Refuses settings that fit no checkpoint; nothing is loaded.

        Raises:
            UserError: If one is not allowed.
        """
        POLICY_KINDS[LANGUAGE].check_options(self.messages, self.teacher, self.base_model)

    def load(
        self, path: str | Path, reference: str | None = None, max_prompt_tokens: int | None = None
    ) -> TrainedPolicy:
        """The policy of a checkpoint.

        Args:
            path: A path that `find_checkpoint` understands.
            reference: The checkpoint whose message adapter the drift of messages is measured from, if the checkpoint
                carries none.
            max_prompt_tokens: That of this checkpoint, if not that of these settings.

        Raises:
            UserError: If it cannot be loaded with these settings.
        """
        found = find_checkpoint(path)
        return load_policy(
            found,
            messages=self.messages,
            teacher=self.teacher,
            message_server=self.message_server,
            base_model=self.base_model,
            reference=None if reference is None else find_checkpoint(reference),
            max_prompt_tokens=max_prompt_tokens or self.max_prompt_tokens,
            trust=self.trust or (self.trust_own and is_own_checkpoint(found)),
        )
