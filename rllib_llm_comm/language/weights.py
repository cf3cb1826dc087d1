"""Weights in files: safetensors only, damaged ones told in a sentence."""

from __future__ import annotations

from pathlib import Path

import torch

from rllib_llm_comm.errors import UserError


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, by name.

    Args:
        path: The file.

    Raises:
        UserError: If it is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.exists() and not path.is_file():  # a pipe would be waited for without end
        raise UserError(f"{str(path)!r} is no ordinary file; save the checkpoint again.")
    try:
        return load_file(str(path))
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{str(path)!r} cannot be read as safetensors ({str(error).splitlines()[0]}); save the checkpoint again."
        ) from error
