"""The folder `policy/` of a checkpoint: what is needed to act, in files that anybody can open.

    policy.json                  settings, environment, provenance
    adapters/message/            PEFT adapter (adapter_config.json, adapter_model.safetensors)
    adapters/action/             PEFT adapter
    adapters/reference/          PEFT adapter, where PPO trained the messages: the message adapter that it began with
    critic.safetensors           the critic's weights, if it has one

or, where each agent has a policy of its own, these in a folder named after each agent; or, of agents that see
numbers or maps, policy.json and network.safetensors (of a team that learned by value decomposition without the mixer).

Nothing is pickled, and no base weights are in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import replace_folder
from rllib_llm_comm.core.weights import read_weights
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from rllib_llm_comm.policies.policy_manifest import MANIFEST, NETWORK, POLICY_FOLDER, POLICY_KINDS, PolicyManifest

_RLLIB_METADATA = "rllib_checkpoint.json"


def build_network(kind: str, model_config: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> Any:
    """Builds the network of a policy of agents that see numbers or maps.

    Args:
        kind: As of `PolicyManifest`.
        model_config: As of `PolicyManifest`.
        weights: By name.

    Raises:
        UserError: If a setting is missing or out of its range.
        RuntimeError: If the weights have other shapes than the settings want.
    """
    build = POLICY_KINDS[kind].network_builder(dict(model_config))
    require_shapes(build, weights)
    network = build()
    network.load_state_dict(weights)
    return network.eval()


class _Unfilled(TorchFunctionMode):
    """Draws no weights: on the meta device that imports PyTorch's compiler, which takes seconds, to fill nothing."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in (torch.Tensor.normal_, nn.init.normal_):
            return args[0] if args else named["tensor"]
        return func(*args, **named)


def require_shapes(build: Callable[[], nn.Module], weights: Mapping[str, torch.Tensor]) -> None:
    """Compares what would be built with a file's weights before it takes memory and time: sizes may be anything.

    Names, shapes, and whether they are whole numbers are compared.

    Raises:
        RuntimeError: As of `Module.load_state_dict`, if they differ.
    """
    with torch.device("meta"), _Unfilled():
        planned = {name: _form(tensor) for name, tensor in build().state_dict().items()}
    held = {name: _form(tensor) for name, tensor in weights.items()}
    for name in {**planned, **held}:
        if planned.get(name) != held.get(name):
            there, wanted = (form.get(name, "nothing") for form in (held, planned))
            raise RuntimeError(f"{name!r} holds {there} but its settings want {wanted}")


def _form(tensor: torch.Tensor) -> str:
    return f"{'' if tensor.is_floating_point() else 'whole '}numbers of shape {tuple(tensor.shape)}"


@dataclass(frozen=True)
class PolicyExport:
    """A module's part of its policy folder.

    Attributes:
        kind: `"language"`, `"numeric"`, `"grounded"`, `"valued"` or `"officer"`.
        files: Contents by relative path.
        model_config: As of `PolicyManifest`.
        base_model_digest: As of `PolicyManifest`.
        base_model_sha256: As of `PolicyManifest`.
    """

    kind: str
    files: Mapping[str, bytes]
    model_config: Mapping[str, Any]
    base_model_digest: str = ""
    base_model_sha256: str = ""


def network_file(network: nn.Module) -> dict[str, bytes]:
    """A network's weights as file contents by relative path."""
    from safetensors.torch import save

    return {NETWORK: save({name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()})}


def read_export(folder: str | os.PathLike[str], manifest: PolicyManifest) -> PolicyExport:
    """A policy folder of agents that share one policy, in memory."""
    root = Path(folder)
    files = {str(one.relative_to(root)): one.read_bytes() for one in sorted(root.rglob("*")) if one.is_file()}
    files.pop(MANIFEST)
    digests = (manifest.base_model_digest, manifest.base_model_sha256)
    return PolicyExport(manifest.kind, files, manifest.model_config, *digests)


def require_whole_policy(checkpoint: str | os.PathLike[str]) -> None:
    """Reads the weights of a checkpoint, as of `find_policy`, without building a network.

    Raises:
        UserError: If there is none, or a file of weights is cut, damaged, or holds numbers that are not finite.
    """
    for path in sorted(find_policy(checkpoint).rglob("*.safetensors")):
        read_weights(path)


def weights_digest(checkpoint: str | os.PathLike[str]) -> str:
    """A digest of a policy's weights: another training under the same path has another one.

    Raises:
        UserError: As of `find_policy`.
    """
    found = hashlib.sha256()
    for path in sorted(find_policy(checkpoint).rglob("*.safetensors")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def load_array_network(folder: str | os.PathLike[str], manifest: PolicyManifest) -> Any:
    """Builds the network of a policy folder of agents that see numbers or maps.

    Raises:
        UserError: If files are missing or damaged.
    """
    weights = read_weights(Path(folder) / NETWORK)
    try:
        return build_network(manifest.kind, manifest.model_config, weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{str(Path(folder) / NETWORK)!r} cannot be read with the settings in `{MANIFEST}` ({reason}); save the "
            "checkpoint again."
        ) from error


def array_network_of(export: PolicyExport) -> Any:
    """Builds the network of a policy that is in memory."""
    from safetensors.torch import load

    return build_network(export.kind, export.model_config, load(export.files[NETWORK]))


def write_policy(folder: str | os.PathLike[str], files: Mapping[str, bytes], manifest: PolicyManifest) -> Path:
    """Writes a policy folder, which appears at once or not at all; one of that name is replaced.

    Args:
        files: From `verco.policy.policy_files`.
        manifest: The rest.
    """
    target = Path(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=".policy-"))
    try:
        for name, content in files.items():
            path = scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (scratch / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        scratch.chmod(0o755)
        replace_folder(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def find_policy(path: str | os.PathLike[str]) -> Path:
    """The policy folder of a checkpoint.

    Args:
        path: A policy folder, a checkpoint with a `policy/` in it, a trial's folder with `checkpoint_*` folders,
            of which the last is taken, the folder of a Tune run with one such trial, or the folder of a stage or of a
            run with stages, as of `find_checkpoint`.

    Raises:
        UserError: If there is none, or nobody knows which of several is meant.
    """
    root = find_checkpoint(path)
    if not root.is_dir():
        raise UserError(
            f"checkpoint {str(path)!r} is no folder; give the folder of a checkpoint of Verco or another algorithm of "
            "this package."
        )
    checkpoints = sorted(root.glob("checkpoint_*"))
    if not checkpoints:
        trials = sorted({found.parent for found in root.glob("*/checkpoint_*")})
        if len(trials) > 1:
            raise UserError(
                f"checkpoint {str(path)!r} holds {len(trials)} trials; give the folder of one of them, such as "
                f"{str(trials[0])!r}."
            )
        checkpoints = sorted(root.glob("*/checkpoint_*"))
    for candidate in (root, root / POLICY_FOLDER, *(found / POLICY_FOLDER for found in reversed(checkpoints))):
        if (candidate / MANIFEST).is_file():
            return candidate
    if any((found / _RLLIB_METADATA).is_file() for found in (root, *checkpoints[-1:])):
        raise UserError(
            f"checkpoint {str(path)!r} was written by RLlib and lacks `{POLICY_FOLDER}/{MANIFEST}`; write one with "
            "`rllib_llm_comm.export_policy(algo, folder)` where it is trained, with a module that can be exported, "
            "such as LLMCommModule."
        )
    held = ", ".join(sorted(entry.name for entry in root.iterdir())[:8]) or "nothing"
    raise UserError(
        f"checkpoint {str(path)!r} has no `{POLICY_FOLDER}/{MANIFEST}` (it holds {held}); give a checkpoint "
        "folder that training wrote, such as .../checkpoint_000010."
    )
