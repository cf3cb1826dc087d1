"""The language models of a policy as folders that transformers and PEFT take without this package.

    base/        the base model with its tokenizer
    message/     PEFT adapter on it, which names `base/` by its place, with the tokenizer
    action/      the same of the action adapter
    README.md    the base model's name, and the digest of its weights

or, merged, no `base/` and a whole model in each of the others. Where each agent has a policy of its own, `message/` and
`action/` are in a folder named after each agent.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.core.files import disk_error, read_text, replace_folder
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.weights import HALVES, in_half
from rllib_llm_comm.language.adapters import ACTION, ADAPTER_CONFIG, ADAPTER_WEIGHTS, MESSAGE
from rllib_llm_comm.language.model_sources import without_progress_bar
from rllib_llm_comm.policies.find_checkpoint import in_markdown
from rllib_llm_comm.policies.policy_folder import find_policy
from rllib_llm_comm.policies.policy_manifest import LANGUAGE, read_manifest
from rllib_llm_comm.policies.recorded_settings import withhold
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.policy import load_networks

BASE, CARD = "base", "README.md"


def export_models(
    checkpoint: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    merge: bool = False,
    dtype: str | None = None,
    base_model: str | None = None,
    trust: bool = False,
) -> list[Path]:
    """Writes the base model and the adapters of a checkpoint as safetensors, all at once or not at all.

    Args:
        checkpoint: As of `load_policy`.
        folder: The folder to write; it must be empty or not be there. Adapters name their base by its place in it.
        merge: True for one whole model per adapter, in place of a base and adapters on it.
        dtype: Half precision in which the adapters are written; `None` as they are.
        base_model: Place of the base model, if not that of the training.
        trust: True if a recorded base model is taken wherever it is.

    Returns:
        The folders of the adapters, or of the merged models.

    Raises:
        UserError: If the checkpoint has no language model or cannot be loaded, its base is quantized, `dtype` is no
            format of adapters, or the folder holds something or cannot be written.
    """
    if dtype is not None:
        require_choice("dtype", dtype, HALVES)
        if merge:
            raise UserError(f"`dtype` is {dtype!r} with `merge`, which writes no adapters; omit one of the two.")
    target = local_path(folder, "folder").absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"`folder` is {str(folder)!r}, which is there already; give a folder that is empty or new.")
    networks = _load(checkpoint, base_model, trust)
    places = [Path(agent) / role for agent in networks for role in (MESSAGE, ACTION)]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_all(networks, target, merge, dtype)
    except OSError as error:
        doing = f"`folder`: no models can be written to {str(folder)!r}"
        raise disk_error(error, doing, "give another folder") from error
    return [target / place for place in places]


def _load(checkpoint: str | os.PathLike[str], base_model: str | None, trust: bool) -> dict[str, LanguageNetwork]:
    """As of `load_networks`."""
    found = find_policy(checkpoint)
    manifest = read_manifest(found)
    if manifest.kind != LANGUAGE:
        raise UserError(
            f"checkpoint {str(checkpoint)!r} of {manifest.algorithm} holds no language model (its kind is "
            f"{manifest.kind!r}); give one of Verco, MessageSFT or TWOSOME."
        )
    if not trust:
        manifest = withhold(manifest)
    changed: dict[str, Any] = {"device": "cpu"}
    if base_model is not None:
        changed["base_model"] = base_model
    if manifest.model_config.get("quantization", "none") != "none":
        raise UserError(
            f"checkpoint {str(checkpoint)!r} was trained on a base with `quantization` "
            f"{manifest.model_config['quantization']!r}, which is not exported; load its adapters on that base with "
            "PEFT."
        )
    return load_networks(found, manifest, **changed)


def _write_all(networks: Mapping[str, LanguageNetwork], target: Path, merge: bool, dtype: str | None) -> None:
    """Writes the models of each agent beside the target, which they then replace."""
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=".export-"))
    try:
        with without_progress_bar():
            if not merge:
                _write_model(next(iter(networks.values())), scratch / BASE)
            for agent, network in networks.items():
                for role in (MESSAGE, ACTION):
                    place = scratch / agent / role
                    network.lm.save_adapter(role, place)
                    if merge:
                        _merge(network, place)
                    else:
                        _name_base(network, place, target / BASE)
                    if dtype is not None:
                        weights = place / ADAPTER_WEIGHTS
                        weights.write_bytes(in_half(weights.read_bytes(), dtype, weights.name))
        (scratch / CARD).write_text(_card(next(iter(networks.values())), merge, dtype), encoding="utf-8")
        scratch.chmod(0o755)
        replace_folder(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _card(network: LanguageNetwork, merge: bool, dtype: str | None) -> str:
    base = network.lm.base
    what = (
        "whole models with an adapter merged into each" if merge else f"PEFT adapters ({dtype or 'float32'}) on `base`"
    )
    digest = f", sha256 `{base.sha256}`" if base.sha256 else ""
    return f"Written by `rllib export`: {what}.\n\nBase model of the training: `{in_markdown(base.name)}`{digest}.\n"


def _write_model(network: LanguageNetwork, place: Path, model: Any = None) -> None:
    (model or network.lm.base.model).save_pretrained(place, safe_serialization=True)
    network.lm.base.tokenizer.save_pretrained(place)


def _name_base(network: LanguageNetwork, place: Path, base: Path) -> None:
    """Gives an adapter folder the place of its base, and the tokenizer that pipelines look for beside it."""
    path = place / ADAPTER_CONFIG
    settings = json.loads(read_text(path))
    path.write_text(json.dumps({**settings, "base_model_name_or_path": str(base)}, indent=2) + "\n", encoding="utf-8")
    network.lm.base.tokenizer.save_pretrained(place)


def _merge(network: LanguageNetwork, place: Path) -> None:
    """Puts the whole model with an adapter in the place of the adapter."""
    from peft import PeftModel

    adapted = PeftModel.from_pretrained(copy.deepcopy(network.lm.base.model), str(place))
    shutil.rmtree(place)
    _write_model(network, place, adapted.merge_and_unload())
