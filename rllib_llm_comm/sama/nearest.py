"""The nearest known subgoal to one that nobody knows: by a frozen text encoder, or by a question to a chat model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel, ConfigDict, Field

from rllib_llm_comm.chat.answers import AnswerError, ask_for
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.language.prompt_files import fill

if TYPE_CHECKING:
    import torch


class Nearest(Protocol):
    """Finds the option that a text is nearest to.

    Attributes:
        by: Author of the last choice: "embedding" or "model".
    """

    by: str

    def __call__(self, text: str, options: Sequence[str]) -> str:
        """One of the options.

        Args:
            text: Any words.
            options: At least one.
        """


class NearestByEmbedding:
    """The option whose mean token vector has the largest cosine with that of the text; of equals the first.

    Args:
        text_encoder: See `rllib_llm_comm.language.text_encoder.load_text_encoder`; loaded when it is first needed.
    """

    by = "embedding"

    def __init__(self, text_encoder: str = "embedded") -> None:
        self.text_encoder = text_encoder

    def __call__(self, text: str, options: Sequence[str]) -> str:
        """Possible subgoal that shares most words with a text."""
        said, known = directions((text, *options), self.text_encoder).split([1, len(options)])
        return options[int((known @ said[0]).argmax())]


def directions(texts: Sequence[str], text_encoder: str = "embedded") -> torch.Tensor:
    """Mean token vectors of texts, each of length 1: float32 (texts, width).

    Args:
        texts: At least one.
        text_encoder: See `rllib_llm_comm.language.text_encoder.load_text_encoder`.
    """
    import torch

    from rllib_llm_comm.language.text_encoder import load_text_encoder, padded

    encoder = load_text_encoder(text_encoder)
    tokens = padded([encoder.tokens(one) for one in texts])
    means = encoder.states(tokens).sum(1) / (tokens != 0).sum(1, keepdim=True).clamp(min=1)
    return torch.nn.functional.normalize(means, dim=1)


class Chosen(BaseModel):
    """Answer to the question for the nearest subgoal; the prompt has its description."""

    model_config = ConfigDict(
        json_schema_extra={"description": "What the model answers when it is asked for the nearest subgoal."}
    )

    number: int = Field(description="number of the line that comes nearest")


class NearestByModel:
    """Asks a chat model which option comes nearest; if it names none, `otherwise` decides.

    Args:
        model: The chat model.
        otherwise: Decides then.
    """

    def __init__(self, model: ChatModel, otherwise: Nearest) -> None:
        self.model, self.otherwise = model, otherwise
        self.by = "model"

    def __call__(self, text: str, options: Sequence[str]) -> str:
        """Possible subgoal that the chat model calls nearest to a text.

        Raises:
            ChatError: If a request failed for good.
            UserError: If the budget is spent or the key is missing.
        """
        self.by = "model"
        if len(options) == 1:
            return options[0]

        def check(answer: Chosen) -> None:
            if not 1 <= answer.number <= len(options):
                raise ValueError(f"number is {answer.number} but must be from 1 to {len(options)}")

        listed = "\n".join(f"{number}. {option}" for number, option in enumerate(options, 1))
        prompt = fill(__package__, "plan_nearest", subgoal=text, options=listed)
        try:
            return options[ask_for(self.model, prompt, Chosen, check=check).number - 1]
        except AnswerError:
            self.by = self.otherwise.by
            return self.otherwise(text, options)
