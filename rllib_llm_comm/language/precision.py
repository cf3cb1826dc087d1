"""Names of number formats of base models."""

from __future__ import annotations

DTYPE_NAMES = ("float32", "bfloat16", "float16")
"""Formats of a base model's weights."""
QUANTIZATIONS = ("none", "8bit", "4bit")
"""Quantizations of the frozen weights, which need the extra `quantized`."""
KEPT_DTYPES = ("same", "bfloat16", "int8")
"""Formats in which hidden states, keys and values below the adapted layers are kept; `same`: as they are computed."""
