"""A server's dialect: which parameters of OpenAI's protocol it takes, learnt from what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_llm_comm.chat.answer_schemas import UnknownFormError, strict_form
from rllib_llm_comm.chat.purposes import Asking
from rllib_llm_comm.core.errors import UserError

_OLD, _NEW = "max_tokens", "max_completion_tokens"
_FORM = "response_format"
# Statuses of a server that does not know a parameter.
_UNKNOWN = frozenset({400, 422})
# Parameters that the client itself answers for: they say whom and what to ask, and bound the cost.
_OWN: Mapping[str, str] = {
    "model": "model",
    "messages": "",
    "stream": "",
    "n": "",
    "temperature": "temperature",
    _OLD: _OLD,
    _NEW: _OLD,
}


class Dialect:
    """Writes requests so that a server takes them.

    Args:
        forms: Whether the server is asked to write by a JSON schema (`response_format`) where there is one.
    """

    def __init__(self, forms: bool) -> None:
        self._tokens, self._temperature = _OLD, True
        self._forms, self._proven = forms, False
        self._doubt = ""

    def parameters(self, tokens: int, temperature: float, asked: Asking, extra: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a request beside model and messages.

        Args:
            tokens: Most tokens of the answer.
            temperature: Of sampling.
            asked: The purpose.
            extra: The user's own; they go before ours.
        """
        body: dict[str, Any] = {self._tokens: tokens}
        if self._temperature:
            body["temperature"] = temperature
        if self._forms and asked.schema is not None:
            try:
                form = {"name": asked.form, "schema": strict_form(asked.schema), "strict": True}
                body[_FORM] = {"type": "json_schema", "json_schema": form}
            except UnknownFormError:
                pass
        return body | dict(extra)

    def learn(self, status: int, text: str, sent: Mapping[str, Any]) -> str:
        """Drops the parameter that a server refused; returns its name.

        Args:
            status: The HTTP status.
            text: The server's words.
            sent: The parameters that it refused.

        Returns:
            One sentence; empty if nothing can be changed, and the refusal stands.
        """
        words = text.lower()
        if status not in _UNKNOWN:
            return self._undo()
        if _OLD in sent and _NEW in words:
            self._tokens = _NEW
            return f"It wants `{_NEW}` in place of `{_OLD}`."
        if "temperature" in sent and self._temperature and "temperature" in words and "support" in words:
            self._temperature = False
            return "It takes no such `temperature`; its own default is used."
        if _FORM in sent and self._forms and (not self._proven or _FORM in words or "schema" in words):
            self._forms = False
            self._doubt = f"It refuses `{_FORM}` with a JSON schema; the form is told in the prompt only."
            return self._doubt
        return self._undo()

    def accepted(self, sent: Mapping[str, Any]) -> str:
        """Notes that a request was taken.

        Args:
            sent: Its parameters.

        Returns:
            A sentence on what was found out by that; empty if nothing was.
        """
        self._proven |= _FORM in sent
        found, self._doubt = self._doubt, ""
        return found

    def _undo(self) -> str:
        """The form was not the reason."""
        if self._doubt:
            self._forms, self._doubt = True, ""
        return ""


def check_extra_body(extra: Any) -> None:
    """Refuses further parameters that are none, or that the client itself sets.

    Raises:
        UserError: Says what is wrong.
    """
    if not isinstance(extra, Mapping) or not all(isinstance(name, str) for name in extra):
        raise UserError(f"`extra_body` is {extra!r} but must be a mapping of request parameters.")
    for name in extra:
        if name in _OWN:
            remedy = f"give `{_OWN[name]}` instead" if _OWN[name] else "leave it out"
            raise UserError(f"`extra_body` holds `{name}`, which the client sets itself; {remedy}.")
