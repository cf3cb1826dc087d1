"""Turns what pydantic found wrong into one sentence."""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from rllib_llm_comm.cli.console import one_line
from rllib_llm_comm.errors import UserError, did_you_mean


def one_sentence(name: str, error: ValidationError, model: type[BaseModel]) -> str:
    """The first problem of a validation as one sentence that names the setting.

    Args:
        name: Full name of what was validated, such as `verco` or `verco.config`.
        error: What pydantic raised.
        model: The model that was validated.
    """
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    setting = ".".join([name, *location])
    if first["type"] == "extra_forbidden":
        for part in location[:-1]:
            nested = model.model_fields[part].annotation
            if isinstance(nested, type) and issubclass(nested, BaseModel):
                model = nested
        known = list(model.model_fields)
        return (
            f"`{setting}` is no known key; known are {', '.join(known)}.{did_you_mean(location[-1], known)}"
        )
    if first["type"] == "missing":
        examples = model.model_fields[location[-1]].examples or []
        return f"`{setting}` is missing{f'; write for example `{examples[0]}`' if examples else ''}."
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, UserError):
        return f"In `{name}`: {cause}"
    demand = first["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    return f"`{setting}` is {one_line(repr(first['input']), 80)} but must be {demand}."
