"""Messages per second, ours against the library's `generate` on a padded batch.

python benchmarks/messages.py --json docs/results/benchmarks/messages.json
"""

from __future__ import annotations

import argparse

import torch

from harness import Row, compare, main
from models import SIZES, parameter_count, random_model
from rllib_llm_comm.language.generation import generate_messages
from rllib_llm_comm.language.prompts import message_prompt
from stream import new_network, record_stream
from twosome_reference import TwosomeReference


def by_size(size: str, rows: int, rounds: int) -> Row:
    """All texts different, random weights: nothing ends early by itself, nothing is remembered."""
    model = random_model(size)
    reference = TwosomeReference(model, torch.nn.Identity())
    texts = dict.fromkeys(message_prompt(ask.seen.text) for step in record_stream(rows * 6) for ask in step)
    prompts = list(texts)[:rows]
    seconds, other = compare(lambda: generate_messages(model, prompts), lambda: reference.messages(prompts), rounds)
    settings = {"parameters": parameter_count(model), "prompts": len(prompts), "max_words": 10}
    return Row(f"messages/different texts {size}", rows / seconds, rows / other, "messages/s", None, settings)


def on_stream(decisions: int, rounds: int) -> Row:
    """The texts of a real roll-out with the embedded model, in their order; texts come back."""
    steps = [[message_prompt(ask.seen.text) for ask in step] for step in record_stream(decisions)]
    reference = TwosomeReference(new_network().lm, torch.nn.Identity())

    def ours() -> list[list[str]]:
        """Messages by the network."""
        network = new_network()
        return [network.write_messages(step) for step in steps]

    def theirs() -> list[list[str]]:
        """Messages by the reference."""
        return [reference.messages(step) for step in steps]

    pairs = [pair for a, b in zip(ours(), theirs(), strict=True) for pair in zip(a, b, strict=True)]
    same = sum(a == b for a, b in pairs) / len(pairs)
    assert same > 0.99, f"only {same:.3f} of the messages are the same"
    seconds, other = compare(ours, theirs, rounds)
    settings = {"messages": len(pairs), "distinct": len({p for step in steps for p in step}), "same": same}
    return Row("messages/recorded roll-out", len(pairs) / seconds, len(pairs) / other, "messages/s", None, settings)


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    rows, decisions = (8, 32) if options.smoke else (64, 1024)
    sizes = list(SIZES)[:1] if options.smoke else list(SIZES)
    found = [by_size(size, rows, options.rounds) for size in sizes]
    return [*found, on_stream(decisions, min(options.rounds, 3))]


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
