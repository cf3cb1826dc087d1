"""Names that are imported on first use: a "module:attribute" text, and the lazy contents of a package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from rllib_llm_comm.core.errors import UserError


def load(where: str) -> Any:
    """Imports what a text names.

    Args:
        where: "module:attribute", or "module" for the module itself.

    Raises:
        ImportError: If there is no such module.
        AttributeError: If the module has no such attribute.
        ValueError: If the text names no module.
    """
    module, _, attribute = where.partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


def load_setting(setting: str, where: str, remedy: str = 'name "module:attribute" of a module that can') -> Any:
    """Imports what a setting names.

    Args:
        setting: What names it, as the subject of a sentence.
        where: As of `load`.
        remedy: What to do if it leads nowhere, as the end of a sentence.

    Raises:
        UserError: If it cannot be imported.
    """
    try:
        return load(where)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{setting} is {where!r}, which cannot be imported ({error}); {remedy}.") from error


def lazy_names(
    package: str, names: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names are imported on first use (PEP 562).

    Type checkers see the same names by an `import ... as ...` under `TYPE_CHECKING` in the package.

    Args:
        names: Each module of the package, such as "env" -> the names that it gives.
    """
    homes = {name: f"{package}.{module}:{name}" for module, own in names.items() for name in own}

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return load(homes[name])

    def directory() -> list[str]:
        return sorted({*vars(import_module(package)), *homes})

    return attribute, directory
