"""Names of number formats of base models."""

from __future__ import annotations

DTYPE_NAMES = ("float32", "bfloat16", "float16")
"""Formats of a base model's weights."""
QUANTIZATIONS = ("none", "8bit", "4bit")
"""Quantizations of the frozen weights, which need the extra `quantized`."""
