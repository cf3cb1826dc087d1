"""Pages made from the package's templates, which share a style sheet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def render_page(name: str, filters: Mapping[str, Any], **values: Any) -> str:
    """A page as text.

    Args:
        name: The template in `templates/`; values are escaped as HTML if it ends in ".html", and in Markdown they
            can hold neither HTML nor links.
        filters: Filters of its own, by name.
        **values: The names that the template uses, with their values.
    """
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=name.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=None if name.endswith(".html") else _plain,
    )
    environment.filters |= filters
    page: str = environment.get_template(name).render(**values)
    return page


def _plain(value: Any) -> Any:
    """A value in Markdown. Templates put columns of tables into values of their own, which stay."""
    return value.replace("<", "&lt;").replace("](", "]\\(") if isinstance(value, str) else value
