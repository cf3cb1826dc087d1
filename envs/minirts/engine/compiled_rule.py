"""The decorator of rules that other compiled rules call, and Python never does."""

from __future__ import annotations

from typing import Any

from numba import njit

rule: Any = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]
"""Compiles a function without ways in for Python and C, each of which would be the whole function once more."""
