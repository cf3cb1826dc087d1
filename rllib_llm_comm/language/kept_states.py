"""Numbers that are kept in a bounded table: as they are, in bfloat16, or in int8."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from rllib_llm_comm.language.precision import KEPT_DTYPES

_INT8_MOST = 127


class KeptStates:
    """A table of arrays of one shape.

    In `int8` each last dimension has a scale of its own, its largest absolute value over 127. The memory is asked for
    when the first arrays come; a CPU's operating system gives it page by page as it is written.

    Args:
        max_bytes: Most bytes.
        shape: Of one array.
        dtype: The widest format in which arrays come.
        kept: A name of `KEPT_DTYPES`.
    """

    def __init__(self, max_bytes: int, shape: Sequence[int], dtype: torch.dtype, kept: str) -> None:
        assert kept in KEPT_DTYPES
        self._shape, self._dtype, self._kept = tuple(shape), dtype, kept
        width = {"same": dtype.itemsize, "bfloat16": 2, "int8": 1}[kept]
        scales = 4 * math.prod(self._shape[:-1]) if kept == "int8" else 0
        self.bytes_each = width * math.prod(self._shape) + scales
        self.capacity = max_bytes // self.bytes_each
        self.clear()

    def clear(self) -> None:
        """Gives the memory back."""
        self._table: torch.Tensor | None = None
        self._scales: torch.Tensor | None = None

    def put(self, places: torch.Tensor, arrays: torch.Tensor) -> None:
        """Writes arrays (N, ...) to places (N,)."""
        if self._table is None:
            self._dtype = arrays.dtype
            self._allocate(arrays.device)
        assert self._table is not None
        places = places.to(arrays.device)
        if self._scales is not None:
            arrays = arrays.float()
            scales = (arrays.abs().amax(-1, keepdim=True) / _INT8_MOST).clamp(min=torch.finfo(torch.float32).tiny)
            self._scales[places] = scales
            arrays = (arrays / scales).round()
        self._table[places] = arrays.to(self._table.dtype)

    def take(self, places: torch.Tensor) -> torch.Tensor:
        """Arrays of places (...); some must have been written."""
        assert self._table is not None
        places = places.to(self._table.device)
        arrays = self._table[places]
        if self._scales is not None:
            arrays = arrays.float() * self._scales[places]
        return arrays.to(self._dtype)

    def _allocate(self, device: torch.device) -> None:
        inside = {"same": self._dtype, "bfloat16": torch.bfloat16, "int8": torch.int8}[self._kept]
        with torch.inference_mode(False):  # what is read from it later goes into passes with gradients
            self._table = torch.empty((self.capacity, *self._shape), dtype=inside, device=device)
            if self._kept == "int8":
                self._scales = torch.empty((self.capacity, *self._shape[:-1], 1), device=device)
