"""Pages made from the package's templates, which share a style sheet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def render_page(name: str, filters: Mapping[str, Any], **values: Any) -> str:
    """A page as text.

    Args:
        name: The template in `templates/`; values are escaped if it ends in ".html".
        filters: Filters of its own, by name.
        **values: The names that the template uses, with their values.
    """
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader(__package__), autoescape=name.endswith(".html"), trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= filters
    page: str = environment.get_template(name).render(**values)
    return page
