"""Interface of chat models: a client, a recording, or a class of one's own."""

from __future__ import annotations

from typing import Protocol

from typing_extensions import Self

from rllib_llm_comm.chat.usage import ChatCounters


class ChatAnswer(str):
    """An answer that may be cut off; otherwise a text like any other.

    Attributes:
        cut_at: Tokens after which it was cut off; 0 for a whole one.
    """

    cut_at: int = 0

    def __new__(cls, text: str, cut_at: int = 0) -> Self:
        """Makes one.

        Args:
            text: The answer.
            cut_at: See above.
        """
        made = super().__new__(cls, text)
        made.cut_at = cut_at
        return made


def cut_at(answer: str) -> int:
    """Tokens after which an answer was cut off; 0 for a whole one.

    Args:
        answer: A chat model's answer.
    """
    return answer.cut_at if isinstance(answer, ChatAnswer) else 0


class ChatModel(Protocol):
    """Answers prompts. `ChatClient` and `Cassette` are such; all that plans takes either.

    Attributes:
        counters: Counts so far.
    """

    counters: ChatCounters

    def complete(self, prompt: str, system: str = "") -> str:
        """The answer.

        Args:
            prompt: The user's text.
            system: System prompt.

        Raises:
            ChatError: If there is none after all repetitions.
            UserError: If the user has to do something first.
        """

    def recall(self, prompt: str, system: str = "") -> str | None:
        """The answer if it is kept, else `None`; costs nothing."""

    def remember(self, prompt: str, answer: str, system: str = "") -> None:
        """Keeps an answer that came in another way."""
