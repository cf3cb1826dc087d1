"""Answers in the form of a JSON schema: braces, names and commas are given, words and numbers are the model's.

A small model seldom closes all its braces. What it means by the form is its own all the same: it writes the texts and
numbers, and says after each entry of a list whether there is another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllib_llm_comm.language.decoding import Decoding

_MOST_ENTRIES = 12
_MOST_DIGITS = 4
_DIGITS = tuple("0123456789")
_STRICT = ("type", "enum", "const", "description", "minItems", "maxItems")


class UnknownFormError(ValueError):
    """A schema has something that cannot be filled in here."""


def form_in(prompt: str) -> tuple[dict[str, Any] | None, str]:
    """The last JSON schema of an object that stands on a line of its own in a prompt, as `ask_for` shows it.

    Args:
        prompt: The prompt.

    Returns:
        The schema, and the prompt with the names of the fields in its place: small models copy what stands in a
        schema. `None` and the prompt as it is if there is none, or one of a kind that cannot be filled in.
    """
    for line in reversed(prompt.splitlines()):
        if line.startswith("{") and '"properties"' in line:
            try:
                schema = json.loads(line)
                _check(schema, schema, ())
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
            return schema, prompt.replace(line, ", ".join(schema["properties"]))
    return None, prompt


def strict_form(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in the subset that servers write by (`response_format`): all fields are required, no others allowed.

    What the subset lacks (lengths of texts, defaults) is left to the check of the answer.

    Args:
        schema: A JSON schema, as pydantic makes it.

    Raises:
        UnknownFormError: If it has an object without named fields.
    """
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    if schema.get("type") == "object" and not schema.get("properties"):
        raise UnknownFormError("an object without named fields cannot be written by a server")
    kept: dict[str, Any] = {name: schema[name] for name in _STRICT if name in schema}
    for name in ("properties", "$defs"):
        if name in schema:
            kept[name] = {key: strict_form(inner) for key, inner in schema[name].items()}
    if "items" in schema:
        kept["items"] = strict_form(schema["items"])
    if "anyOf" in schema:
        kept["anyOf"] = [strict_form(inner) for inner in schema["anyOf"]]
    if "properties" in kept:
        kept |= {"required": list(kept["properties"]), "additionalProperties": False}
    return kept


def fill_form(decoding: Decoding, schema: Mapping[str, Any], line_tokens: int = 80) -> str:
    """Lets a model fill in a form.

    Args:
        decoding: The answer in the making; nothing is written yet.
        schema: The JSON schema; see `rllib_llm_comm.chat.answer_schemas.form_in`.
        line_tokens: Most tokens of one text.

    Returns:
        A JSON object.
    """
    return _value(decoding, schema, schema, line_tokens)


def any_answer(schema: Mapping[str, Any]) -> str:
    """An answer that has the right form and says nothing: first options, lists of one entry, ones and single letters.

    Args:
        schema: The JSON schema; see `rllib_llm_comm.chat.answer_schemas.form_in`.
    """
    return json.dumps(_any(schema, schema))


def _any(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    schema = _resolved(schema, root)
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {name: _any(inner, root) for name, inner in schema["properties"].items()}
    if schema["type"] == "array":
        return [_any(schema["items"], root)] * max(1, schema.get("minItems", 0))
    return {"boolean": True, "integer": 1}.get(schema["type"], "x" * max(1, schema.get("minLength", 0)))


def _value(decoding: Decoding, schema: Mapping[str, Any], root: Mapping[str, Any], line_tokens: int) -> str:
    """Writes a value and returns it as JSON."""
    schema = _resolved(schema, root)
    if "enum" in schema:
        return decoding.choose([json.dumps(option) for option in schema["enum"]])
    kind = schema["type"]
    if kind == "object":
        parts = []
        for number, (name, inner) in enumerate(schema["properties"].items()):
            lead = f"{', ' if number else '{'}{json.dumps(name)}: "
            decoding.force(lead)
            parts.append(lead + _value(decoding, inner, root, line_tokens))
        decoding.force("}")
        return "".join(parts) + "}"
    if kind == "array":
        return _list(decoding, schema, root, line_tokens)
    if kind == "boolean":
        return decoding.choose(["true", "false"])
    if kind == "integer":
        return _number(decoding)
    decoding.force('"')
    text = decoding.line(line_tokens, min(1, schema.get("minLength", 0)))[: schema.get("maxLength")]
    decoding.force('"')
    return json.dumps(text)


def _list(decoding: Decoding, schema: Mapping[str, Any], root: Mapping[str, Any], line_tokens: int) -> str:
    """Writes entries until the model ends the list, may write no more, or says an entry twice."""
    least, most = max(1, schema.get("minItems", 0)), min(_MOST_ENTRIES, schema.get("maxItems", _MOST_ENTRIES))
    decoding.force("[")
    entries = [_value(decoding, schema["items"], root, line_tokens)]
    while len(entries) < max(least, most if decoding.open else 0):
        if len(entries) < least:
            decoding.force(", ")
        elif decoding.choose([", ", "]"]) == "]":
            return f"[{', '.join(entries)}]"
        entry = _value(decoding, schema["items"], root, line_tokens)
        if entry in entries and len(entries) >= least:
            break
        entries.append(entry)
    decoding.force("]")
    return f"[{', '.join(entries)}]"


def _number(decoding: Decoding) -> str:
    digits = decoding.choose(_DIGITS)
    while len(digits) < _MOST_DIGITS and digits != "0" and decoding.likes(_DIGITS):
        digits += decoding.choose(_DIGITS)
    return digits


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Any = root
    for part in str(schema["$ref"]).removeprefix("#/").split("/"):
        found = found[part]
    resolved: Mapping[str, Any] = found
    return resolved


def _check(schema: Mapping[str, Any], root: Mapping[str, Any], above: tuple[str, ...]) -> None:
    """Raises if a schema has anything that `_value` does not know."""
    name = str(schema.get("$ref", ""))
    if name in above and name:
        raise UnknownFormError(f"{name} holds itself")
    above = (*above, name) if name else above
    schema = _resolved(schema, root)
    if "enum" in schema:
        return
    kind = schema.get("type")
    if kind == "object" and schema.get("properties"):
        for inner in schema["properties"].values():
            _check(inner, root, above)
    elif kind == "array" and "items" in schema:
        _check(schema["items"], root, above)
    elif kind not in ("string", "integer", "boolean"):
        raise UnknownFormError(f"{kind!r} cannot be filled in")
