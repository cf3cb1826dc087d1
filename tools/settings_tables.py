"""Writes the tables of settings in the docs, of the fields that declare them.

A page says which settings it shows; what stands between both comments is written by this tool:

    <!-- settings: rllib_llm_comm.baselines.numeric.mappo:MAPPOConfig policy_network lr rllib -->
    <!-- end of settings -->

Behind a config or a model stand the fluent methods (all their settings) or the single settings that are shown; all
where nothing stands. Two more words:

* `rllib`: settings of RLlib's own that begin with other values, too;
* `published:NAME`: what `published(NAME)` of a config sets; several stand side by side.

Of a command (`module:function`) its options are shown.

    python tools/settings_tables.py          # writes all tables anew
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.models import OptionInfo

from rllib_llm_comm.core.errors import LARGEST
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.core.settings import describe
from rllib_llm_comm.experiments.algorithm_settings import config_settings, default_of

ROOT = Path(__file__).resolve().parents[1]
TABLE = re.compile(r"(<!-- settings: ([^>]+?) -->\n).*?(<!-- end of settings -->)", re.DOTALL)
_QUOTED = re.compile(r"'([^']*)'")
_PUBLISHED = "published:"


def pages() -> Iterator[Path]:
    """The pages with such tables."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if "<!-- settings:" in path.read_text(encoding="utf-8"):
            yield path


def written(text: str) -> str:
    """The text of a page with its tables as they should be."""
    return TABLE.sub(lambda match: f"{match[1]}{table(*match[2].split())}{match[3]}", text)


def table(place: str, *words: str) -> str:
    """A table of settings.

    Args:
        place: Of a config, model or command, such as `module:Config`.
        *words: What the page's comment says behind it.
    """
    source: Any = load(place)
    if not isinstance(source, type):
        return _options(source)
    if published := [word.removeprefix(_PUBLISHED) for word in words if word.startswith(_PUBLISHED)]:
        return _side_by_side(source, published)
    models: Mapping[str, type[BaseModel]] = {"": source} if issubclass(source, BaseModel) else source.settings_models
    rows = [["key", "default", "allowed", "meaning"]]
    chosen = _chosen(models, [word for word in words if word != "rllib"])
    for name, field in sorted(chosen, key=lambda one: not one[1].is_required()):
        shown = "required" if field.is_required() else value(field.get_default(call_default_factory=True))
        rows.append([f"`{name}`", shown, _allowed(field), " ".join((field.description or "").split())])
    return _rows(rows) + (_of_rllib(source()) if "rllib" in words else "")


def _chosen(models: Mapping[str, type[BaseModel]], words: Sequence[str]) -> list[tuple[str, FieldInfo]]:
    known = {name: field for model in models.values() for name, field in model.model_fields.items()}
    names = [name for word in words or models for name in (models[word].model_fields if word in models else [word])]
    return [(name, known[name]) for name in dict.fromkeys(names) if not known[name].exclude]


def _rows(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rest))


def _allowed(field: FieldInfo) -> str:
    bounds = [one for one in field.metadata if abs(getattr(one, "le", getattr(one, "ge", 0))) != LARGEST]
    null = " or null" if type(None) in getattr(field.annotation, "__args__", ()) else ""
    return _QUOTED.sub(lambda match: value(match[1]), describe(field.annotation, bounds)) + null


def value(given: Any) -> str:
    """A value as a file of settings has it."""
    if given is None or isinstance(given, bool):
        return {None: "null", True: "true", False: "false"}[given]
    if isinstance(given, float) and "e" in repr(given):  # YAML takes 1e-5 for a text
        digits, power = repr(given).split("e")
        return f"{digits if '.' in digits else f'{digits}.0'}e{int(power)}"
    if isinstance(given, BaseModel):  # settings within settings, all at their defaults
        return "{}"
    if isinstance(given, list | tuple):
        return f"[{', '.join(map(value, given))}]"
    if isinstance(given, Mapping):
        return "{" + ", ".join(f"{name}: {value(one)}" for name, one in given.items()) + "}"
    return (f"`{given}`" if given else '`""`') if isinstance(given, str) else str(given)


def _options(command: Any) -> str:
    rows = [["option", "default", "meaning"]]
    for parameter in inspect.signature(command).parameters.values():
        option = next((one for one in parameter.annotation.__metadata__ if isinstance(one, OptionInfo)), None)
        if option is not None:
            given = [str(one) for one in (option.default, *(option.param_decls or ())) if str(one).startswith("-")]
            names = given or [f"--{parameter.name.replace('_', '-')}"]
            told = "" if parameter.default is None else value(parameter.default)
            rows.append([", ".join(f"`{name}`" for name in names), told, str(option.help)])
    return _rows(rows)


def _of_rllib(config: Any) -> str:
    """Settings of RLlib's own that begin with other values than in RLlib."""
    rllib = next(base for base in type(config).__mro__ if base.__module__.startswith("ray."))
    told = [
        f"`{name}` {value(getattr(config, name))}"
        for name, theirs in vars(rllib()).items()
        if not name.startswith("_") and name not in ("env", *config.setting_types())
        if isinstance(getattr(config, name), int | float | str) and getattr(config, name) != theirs
    ]
    return f"\nRLlib's own settings that begin with other values: {', '.join(told)}.\n"


def _side_by_side(config: Any, names: Sequence[str]) -> str:
    """What a config's `published` sets."""
    ours, published = config(), [config().published(name) for name in names]
    rows = []
    for name in config_settings(ours):
        values = [default_of(one, name) for one in (ours, *published)]
        if any(one != values[0] for one in values) and not callable(values[0]):
            rows.append([f"`{name}`", *map(value, values)])
    return _rows([["key", "default", *(f"`{name}`" for name in names)], *rows])


def main() -> None:
    """Writes the tables of all pages."""
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (new := written(text)) != text:
            path.write_text(new, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
