"""What stands behind a question: a client, a recording, or something of one's own."""

from __future__ import annotations

from typing import Protocol

from rllib_llm_comm.language.accounts import ChatCounters


class ChatModel(Protocol):
    """Answers prompts. `ChatClient` and `Cassette` are such; all that plans takes either.

    Attributes:
        counters: What was asked so far.
    """

    counters: ChatCounters

    def complete(self, prompt: str, system: str = "") -> str:
        """The answer.

        Args:
            prompt: What the user says.
            system: What the model is told before.

        Raises:
            ChatError: If there is none after all repetitions.
            UserError: If the user has to do something first.
        """

    def recall(self, prompt: str, system: str = "") -> str | None:
        """The answer if it is kept, else `None`; costs nothing."""

    def remember(self, prompt: str, answer: str, system: str = "") -> None:
        """Keeps an answer that came in another way."""
