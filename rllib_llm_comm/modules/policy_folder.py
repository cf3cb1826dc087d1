"""The folder `policy/` of a checkpoint: what is needed to act, in files that anybody can open.

    policy.json                  settings, environment, provenance
    adapters/message/            PEFT adapter (adapter_config.json, adapter_model.safetensors)
    adapters/action/             PEFT adapter
    critic.safetensors           the critic's weights

or, of agents that see numbers or maps, policy.json and network.safetensors.

Nothing is pickled, and no base weights are in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.files import replace_folder
from rllib_llm_comm.language.adapters import ACTION, MESSAGE
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.language.weights import read_weights
from rllib_llm_comm.modules.core import LLMCommCore
from rllib_llm_comm.modules.emma_network import EmmaNetwork
from rllib_llm_comm.modules.emma_settings import EmmaSettings
from rllib_llm_comm.modules.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.modules.settings import LanguageModelSettings

POLICY_FOLDER = "policy"
MANIFEST = "policy.json"
FORMAT = 1
LANGUAGE, NUMERIC, GROUNDED = "language", "numeric", "grounded"
_CRITIC = "critic.safetensors"
_NETWORK = "network.safetensors"
_PEFT_CONFIG = "adapter_config.json"


@dataclass(frozen=True)
class PolicyManifest:
    """What `policy.json` says.

    Attributes:
        algorithm: Name of the algorithm that wrote it.
        model_config: Fields of `LanguageModelSettings`; of a numeric policy those of `NumericSettings`, `size`,
            `actions` and `critic_size`; of a grounded one those of `EmmaSettings` and the network's `sizes`.
        communication: Fields of `CommunicationSettings`.
        env: Id of the environment it was trained on, if it has one.
        env_config: That environment's settings.
        teacher: The teacher of `messages="teacher"`.
        planning: Who gave subgoals, how: `planner`, `patience`, `replan` and `in_vector` of `PlannedSubgoals`; `None`
            if nobody did, or the environment itself.
        base_model_digest: Identifies the base model's weights.
        provenance: How it came about (iteration, message checkpoint, ...).
        kind: `"language"`, `"numeric"` or `"grounded"`.
        format: Version of this format.
    """

    algorithm: str
    model_config: Mapping[str, Any]
    communication: Mapping[str, Any]
    env: str | None = None
    env_config: Mapping[str, Any] = field(default_factory=dict)
    teacher: Any = None
    planning: Mapping[str, Any] | None = None
    base_model_digest: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    kind: str = LANGUAGE
    format: int = FORMAT

    def to_json(self) -> str:
        """The text of `policy.json`."""
        return json.dumps(self.__dict__, indent=2, default=str) + "\n"


@dataclass(frozen=True)
class PolicyExport:
    """A module's part of its policy folder.

    Attributes:
        kind: `"language"`, `"numeric"` or `"grounded"`.
        files: Contents by relative path.
        model_config: As of `PolicyManifest`.
        base_model_digest: As of `PolicyManifest`.
    """

    kind: str
    files: Mapping[str, bytes]
    model_config: Mapping[str, Any]
    base_model_digest: str = ""


def base_model_digest(base: BaseModel) -> str:
    """A short fingerprint of a base model: its shape and a few rows of its embedding."""
    weight = base.model.get_input_embeddings().weight
    sample = weight[:: max(1, len(weight) // 16)][:16].detach().float().cpu().numpy()
    shape = [list(weight.shape), sum(p.numel() for p in base.model.parameters())]
    return hashlib.blake2b(json.dumps(shape).encode() + sample.tobytes(), digest_size=8).hexdigest()


def policy_files(core: LLMCommCore) -> dict[str, bytes]:
    """Adapters and critic as file contents by relative path."""
    from safetensors.torch import save

    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for role in (MESSAGE, ACTION):
            core.lm.save_adapter(role, Path(scratch) / role)
            for path in sorted((Path(scratch) / role).iterdir()):
                files[f"adapters/{role}/{path.name}"] = path.read_bytes()
    files[_CRITIC] = save({name: tensor.cpu().contiguous() for name, tensor in core.critic.state_dict().items()})
    return files


def network_file(network: nn.Module) -> dict[str, bytes]:
    """A network's weights as file contents by relative path."""
    from safetensors.torch import save

    return {_NETWORK: save({name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()})}


def load_network(folder: str | os.PathLike[str], manifest: PolicyManifest) -> NumericNetwork | EmmaNetwork:
    """Builds the network of a policy folder of agents that see numbers or maps.

    Args:
        folder: The policy folder.
        manifest: Its manifest.

    Raises:
        UserError: If files are missing or damaged.
    """
    weights = read_weights(Path(folder) / _NETWORK)
    try:
        network = _BUILDERS[manifest.kind](dict(manifest.model_config))
        network.load_state_dict(weights)
    except (KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"policy folder {str(folder)!r} cannot be read ({reason}); save the checkpoint again."
        ) from error
    return network.eval()


def _numeric(settings: dict[str, Any]) -> NumericNetwork:
    size, actions = int(settings.pop("size")), int(settings.pop("actions"))
    critic_size = settings.pop("critic_size", None)
    return NumericNetwork(NumericSettings.from_mapping(settings), size, actions, critic_size)


def _grounded(settings: dict[str, Any]) -> EmmaNetwork:
    sizes = {name: settings.pop(name) for name in ("symbols", "shape", "actions", "state_size")}
    checked = EmmaSettings.from_mapping(settings)
    return EmmaNetwork(checked, **sizes, encoder=load_text_encoder(checked.text_encoder))


_BUILDERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {NUMERIC: _numeric, GROUNDED: _grounded}


def write_policy(folder: str | os.PathLike[str], files: Mapping[str, bytes], manifest: PolicyManifest) -> Path:
    """Writes a policy folder, which appears at once or not at all; one of that name is replaced.

    Args:
        folder: Where to.
        files: From `policy_files`.
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
            of which the last is taken, or the folder of a stage or Tune run with one such trial.

    Raises:
        UserError: If there is none.
    """
    root = Path(path).expanduser()
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
    held = ", ".join(sorted(entry.name for entry in root.iterdir())[:8]) or "nothing"
    raise UserError(
        f"checkpoint {str(path)!r} has no `{POLICY_FOLDER}/{MANIFEST}` (it holds {held}); give a checkpoint "
        "folder of Verco or MessageSFT, such as .../checkpoint_000010."
    )


def read_manifest(folder: str | os.PathLike[str]) -> PolicyManifest:
    """Reads `policy.json`.

    Raises:
        UserError: If it is damaged or of a later format.
    """
    path = Path(folder) / MANIFEST
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        manifest = PolicyManifest(**values)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{str(path)!r} cannot be read ({error}); save the checkpoint again.") from error
    if manifest.format > FORMAT:
        raise UserError(
            f"{str(path)!r} has format {manifest.format} but this version reads up to {FORMAT}; update rllib_llm_comm."
        )
    return manifest


def load_core(folder: str | os.PathLike[str], manifest: PolicyManifest, **overrides: Any) -> LLMCommCore:
    """Builds the network of a policy folder.

    Args:
        folder: The policy folder.
        manifest: Its manifest.
        **overrides: Language-model settings to change, such as `device` or `base_model` (a new place of the
            same model).

    Raises:
        UserError: If files are missing or the base model is another one.
    """
    core = LLMCommCore(LanguageModelSettings.from_mapping({**manifest.model_config, **overrides}))
    _require_same_base(core.lm.base, manifest, str(folder))
    for role in (MESSAGE, ACTION):
        core.lm.load_adapter(role, Path(folder) / "adapters" / role)
    try:
        core.critic.load_state_dict(read_weights(Path(folder) / _CRITIC))
    except RuntimeError as error:
        raise UserError(
            f"the critic in {str(folder)!r} does not fit its own settings ({str(error).splitlines()[0]}); save the "
            "checkpoint again."
        ) from error
    return core


def load_message_adapter(core: LLMCommCore, path: str | os.PathLike[str]) -> None:
    """Loads the message adapter of a checkpoint, and nothing else of it.

    Args:
        core: The network it goes into.
        path: A checkpoint (see `find_policy`), or a PEFT adapter folder.

    Raises:
        UserError: If there is none, or it belongs to another base model.
    """
    root = Path(path).expanduser()
    base = core.lm.base
    if (root / _PEFT_CONFIG).is_file():
        settings = json.loads((root / _PEFT_CONFIG).read_text(encoding="utf-8"))
        trained_on = settings.get("base_model_name_or_path")
        if trained_on and not _same_name(trained_on, base.name):
            raise _other_base(str(root), trained_on, base.name)
        core.lm.load_adapter(MESSAGE, root)
        return
    folder = find_policy(root)
    _require_same_base(base, read_manifest(folder), str(path))
    core.lm.load_adapter(MESSAGE, folder / "adapters" / MESSAGE)


def check_message_adapter(path: str | os.PathLike[str], base_model: str) -> None:
    """Finds out whether a message adapter for a base model is at a path, without loading either.

    Args:
        path: As for `load_message_adapter`.
        base_model: The name of the base model it is to be used with.

    Raises:
        UserError: If there is none, or it belongs to another base model.
    """
    root = Path(path).expanduser()
    if (root / _PEFT_CONFIG).is_file():
        adapter = root
        trained_on = _peft_settings(root / _PEFT_CONFIG).get("base_model_name_or_path")
    else:
        folder = find_policy(root)
        adapter = folder / "adapters" / MESSAGE
        trained_on = read_manifest(folder).model_config.get("base_model")
        if not (adapter / _PEFT_CONFIG).is_file():
            raise UserError(
                f"checkpoint {str(path)!r} has no message adapter; give a checkpoint of MessageSFT or of Verco."
            )
        _peft_settings(adapter / _PEFT_CONFIG)
    if not (adapter / "adapter_model.safetensors").is_file():
        raise UserError(f"the message adapter {str(adapter)!r} has no adapter_model.safetensors; save it again.")
    # Two paths may be the same model; whether they are is known only when it is loaded.
    if trained_on and {trained_on, base_model} & {"embedded", "smollm2"} and not _same_name(trained_on, base_model):
        raise _other_base(str(path), trained_on, base_model)


def _peft_settings(path: Path) -> Mapping[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{str(path)!r} cannot be read ({error}); save the adapter again.") from error
    if not isinstance(settings, dict):
        raise UserError(f"{str(path)!r} is no mapping; save the adapter again.")
    return settings


def _require_same_base(base: BaseModel, manifest: PolicyManifest, where: str) -> None:
    if manifest.base_model_digest and manifest.base_model_digest != base_model_digest(base):
        raise _other_base(where, str(manifest.model_config.get("base_model")), base.name)


def _same_name(one: str, other: str) -> bool:
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def _other_base(where: str, trained_on: str, base: str) -> UserError:
    return UserError(
        f"the adapters in {where!r} were trained on base model {trained_on!r}, whose weights are not those "
        f"of `base_model` {base!r}; use the base model that they were trained on, or train new ones."
    )
