"""Import of modules that register a user's own environments, algorithms or teachers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.trust import vouch_for
from rllib_llm_comm.experiments.console import one_line


def import_modules(modules: Sequence[str] | None) -> None:
    """Imports modules that register a user's own environments, algorithms or teachers.

    From then on settings may name what is in them, such as a class of callbacks.

    Args:
        modules: Dotted names; the current folder is searched too.

    Raises:
        UserError: If one cannot be imported.
    """
    vouch_for(modules or ())
    for module in modules or []:
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        try:
            importlib.import_module(module)
        except UserError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {one_line(str(error))}"
            raise UserError(f"`--import` module {module!r} cannot be imported: {reason}") from error
