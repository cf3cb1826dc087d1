"""What tests expect of errors: the setting that is wrong and what is wrong with it, not the sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rllib_llm_comm.core.errors import Code, UserError


@contextmanager
def refused(
    setting: str, code: Code | None = "invalid", match: str | None = None
) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Expects a `UserError` about a setting.

    Args:
        setting: Its full name.
        code: What is wrong with it; `None` for anything.
        match: Words of the sentence, where they are the claim themselves, or tell one problem from another.
    """
    with pytest.raises(UserError, match=match) as told:
        yield told
    found = told.value.setting, told.value.code
    if found != (setting, code or found[1]):
        pytest.fail(f"expected {code!r} of {setting!r}, not {found[1]!r} of {found[0]!r}: {told.value}")
