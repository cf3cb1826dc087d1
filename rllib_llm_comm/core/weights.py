"""Weights in files: safetensors only, finite numbers only; anything else is told in a sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from rllib_llm_comm.core.errors import UserError, require_choice

FORMATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Formats of weights that are read. All are computed in float32, so a number beyond its range counts as infinite."""
HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
"""Formats in which weights are shipped in half as many bytes: three digits to 65504, or two of any size."""
MOST_BYTES = 2**33
"""Largest file of weights of a policy; base models have files of their own, which transformers reads."""
_NAMES = ("F16", "BF16", "F32", "F64")  # of `FORMATS` in safetensors
_SAVE_AGAIN = "save the checkpoint again"


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, by name: `FORMATS`, and single whole numbers (int64), which count updates.

    Raises:
        UserError: If it is missing, damaged or too large, or a tensor has another format or a number that is not
            finite.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.exists() and not path.is_file():  # a pipe would be waited for without end
        raise UserError(f"{str(path)!r} is no ordinary file; {_SAVE_AGAIN}.")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise OSError(f"it is larger than {MOST_BYTES} bytes")
        weights = load_file(str(path))
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{str(path)!r} cannot be read as safetensors ({str(error).splitlines()[0]}); {_SAVE_AGAIN}."
        ) from error
    for name, tensor in weights.items():
        if tensor.dtype not in FORMATS and not (tensor.dtype == torch.int64 and tensor.dim() == 0):
            raise wrong_format(path, name, tensor.dtype)
    require_finite(weights.items(), path)
    return weights


@torch.no_grad()
def require_finite(weights: Iterable[tuple[str, torch.Tensor]], source: str | os.PathLike[str]) -> None:
    """Refuses tensors with numbers that are NaN or infinite: all that is computed from them would be, too.

    Args:
        weights: Names with tensors; those of other numbers than floating ones are passed over.
        source: The file or model that they are of, for the message.

    Raises:
        UserError: At the first such tensor.
    """
    for name, tensor in weights:
        if not tensor.is_floating_point() or not tensor.numel() or tensor.device.type == "meta":
            continue
        # The largest and the smallest number take no memory, however many there are; NaN is both.
        ends = torch.stack(torch.aminmax(tensor)).float()
        if not ends.isfinite().all():
            what = "NaN" if ends.isnan().any() else "infinite numbers"
            raise UserError(
                f"{os.fspath(source)!r} has {what} in {name!r} (as float32), with which nothing can be computed; "
                "give weights of a training that did not diverge."
            )


def require_formats(folder: str | os.PathLike[str], model: Any) -> None:
    """Refuses a folder's model whose files hold a parameter as other numbers than `FORMATS`; other tensors may be any.

    transformers turns such numbers into floating ones without a word.

    Args:
        folder: The folder; of anything else, such as a hub id, nothing is known.
        model: The `PreTrainedModel` that transformers read from it.

    Raises:
        UserError: At the first such parameter.
    """
    from safetensors import safe_open

    prefix = f"{model.base_model_prefix}."  # in files of a model with a head it stands before the names of one without
    own = {name.removeprefix(prefix) for name, _ in model.named_parameters()}
    for path in sorted(Path(folder).glob("model*.safetensors")):
        with safe_open(str(path), framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (no mapping)
                if name.removeprefix(prefix) in own and (told := file.get_slice(name).get_dtype()) not in _NAMES:
                    raise wrong_format(path, name, told)


def in_half(content: bytes, dtype: str, source: str | os.PathLike[str]) -> bytes:
    """A safetensors file with its float32 tensors in half precision, half the bytes; all else stays as it is.

    Args:
        dtype: A name of `HALVES`.
        source: The file, for the message.

    Raises:
        UserError: If there is no such format, or a weight is beyond its range.
    """
    from safetensors.torch import load, save

    require_choice("dtype", dtype, HALVES)
    to = HALVES[dtype]
    weights = load(content)
    halves = {name: one.to(to) if one.dtype == torch.float32 else one for name, one in weights.items()}
    if lost := [name for name, one in halves.items() if one.isfinite().all() != weights[name].isfinite().all()]:
        raise UserError(
            f"{os.fspath(source)!r} cannot be written in {dtype}: {lost[0]} holds weights beyond "
            f"{torch.finfo(to).max:g}; take another format."
        )
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return save(halves, header.get("__metadata__"))


def wrong_format(source: str | os.PathLike[str], name: str, dtype: object) -> UserError:
    """The error of a tensor that is in no format of weights."""
    known = ", ".join(str(one).removeprefix("torch.") for one in FORMATS)
    return UserError(
        f"{os.fspath(source)!r} has {name!r} as {str(dtype).removeprefix('torch.')} but weights must be one of "
        f"{known}; {_SAVE_AGAIN}."
    )
