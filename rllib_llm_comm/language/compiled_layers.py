"""Layers under `torch.compile`, where they have read so much that compiling them pays.

Attention and its cache stay as they are: what is compiled is the arithmetic in front of it and behind it, in which many
small kernels become few. It takes a number of tokens, whatever rows they lie in, so that each kind of layer is compiled
once for batches of all shapes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from typing import Any

import torch

logger = logging.getLogger(__name__)

LEAST_TOKENS = 1024
"""Smaller passes are not compiled: the host is what they wait for."""
_PAYS = 10**12
"""Tokens times the numbers of all layers' hidden states, after which half a minute of compiling has paid: on an H200 it
saved some 0.7 microseconds per token of a model of 30 layers of 576."""
_TOLERANCE, _TOLERANCE_OF_HALF = 1e-4, 0.05  # shares of the largest number

Part = Callable[..., Any]


class CompiledLayers:
    """Parts of layers, compiled from some token on; where that fails, as they are.

    Args:
        parts: Functions of tensors (N, ...), N tokens, that give tensors of such a kind.
        pays_after: Numbers of hidden states that are computed before anything is compiled.
        backend: As of `torch.compile`.
    """

    def __init__(self, *parts: Part, pays_after: int = _PAYS, backend: str = "inductor") -> None:
        self._compiled = {part: torch.compile(part, backend=backend, dynamic=False) for part in parts}
        self._pays_after, self._read = pays_after, 0
        self._tried: set[Hashable] = set()
        self.usable = True
        """False once compiling has failed, or has given other results."""

    def wants(self, tokens: int, numbers: int) -> bool:
        """Counts a pass; True if its layers should be compiled.

        Args:
            tokens: Tokens of the pass.
            numbers: Hidden sizes of all its layers, added up.
        """
        self._read += tokens * numbers
        return self.usable and tokens >= LEAST_TOKENS and self._read > self._pays_after

    def __call__(self, part: Part, kind: Hashable, *arguments: Any) -> Any:
        """A part's results.

        Args:
            part: One of the parts.
            kind: The kind of layer. The first time that a part gets one, its results are compared.
            arguments: Of the part; tensors with N rows come first.
        """
        if not self.usable:
            return part(*arguments)
        try:
            for tensor in arguments:
                if not isinstance(tensor, torch.Tensor):
                    break
                torch._dynamo.mark_dynamic(tensor, 0)
            if (part, kind) in self._tried:
                return self._compiled[part](*arguments)
            start = time.perf_counter()
            ours, known = self._compiled[part](*arguments), part(*arguments)
            apart = difference(ours, known)
        except Exception as error:
            told = [line for line in str(error).splitlines() if line.strip()]
            self._give_up(" ".join([f"{type(error).__name__}:", *told[:2]]))  # the compiler's own error comes second
            return part(*arguments)
        if apart:
            self._give_up(apart)
            return known
        self._tried.add((part, kind))
        logger.info("Compiling %s took %.0f s.", part.__name__.strip("_"), time.perf_counter() - start)
        return ours

    def _give_up(self, reason: str) -> None:
        self.usable = False
        logger.warning("Layers are computed without `torch.compile`, which is slower (%s).", reason)


def difference(ours: Any, known: Any) -> str:
    """The way in which tensors, or tuples of tensors, differ by more than rounding; empty if they do not."""
    both = (ours, known) if isinstance(ours, tuple) else ((ours,), (known,))
    for one, other in zip(*both, strict=True):
        allowed = _TOLERANCE if other.dtype == torch.float32 else _TOLERANCE_OF_HALF
        apart, largest = (float(x.float().abs().max()) for x in (one.float() - other.float(), other))
        if not apart <= allowed * max(1.0, largest):
            return f"results differ by {apart:.2g}"
    return ""
