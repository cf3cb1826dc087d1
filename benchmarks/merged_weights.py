"""How much of an adapter is left when it is added to weights in half precision, and when it stays beside them.

    python benchmarks/merged_weights.py --json docs/results/benchmarks/merged_weights.json

SmolLM2-135M's own weights in bfloat16. An adapter after N steps of AdamW, in the first of which every number of B moves
by the learning rate: all of them in one direction. What it adds to a map's outputs on random inputs, as a share of what
it adds in float32. `reference` is the adapter beside the weights, its products in bfloat16. A CPU rounds as a GPU does.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F  # noqa: N812

from harness import Row, main
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.llama import llama_weights

LEARNING_RATE = 3e-4
RANK, SCALE = 8, 2.0
STEPS = (1, 10, 100, 1000)
ROWS = 64


def effect(weight: torch.Tensor, steps: int, generator: torch.Generator) -> tuple[float, float, float]:
    """Shares of an adapter's effect that are left in and beside a map, and what merging errs by beside its outputs."""
    outputs, inputs = weight.shape
    a = (torch.rand(RANK, inputs, generator=generator) * 2 - 1) / inputs**0.5
    b = SCALE * LEARNING_RATE * steps * torch.randn(outputs, RANK, generator=generator).sign()
    x = torch.randn(ROWS, inputs, generator=generator)
    wanted = x @ (b @ a).T
    moved = (weight.float() + b @ a).bfloat16().float() - weight.float()
    merged = x @ moved.T
    beside = F.linear(F.linear(x.bfloat16(), a.bfloat16()), b.bfloat16()).float()
    shares = [float((one * wanted).sum() / wanted.square().sum()) for one in (merged, beside)]
    return shares[0], shares[1], float((merged - wanted).norm() / (x @ weight.float().T).norm())


def measure(options: argparse.Namespace) -> list[Row]:
    """A row per number of steps."""
    base = load_base_model("embedded" if options.smoke else "smollm2", "bfloat16")
    weights = llama_weights(base)
    assert weights is not None
    maps = [matrix for layer in weights.layers[::6] for one in layer.maps.values() for matrix in one.weights]
    rows = []
    for steps in STEPS:
        generator = torch.Generator().manual_seed(0)
        merged, beside, error = torch.tensor([effect(one, steps, generator) for one in maps]).mean(0).tolist()
        settings = {"lr": LEARNING_RATE, "lora_r": RANK, "scale": SCALE, "maps": len(maps), "dtype": "bfloat16",
                    "error beside the map's outputs": error, "reference": "adapter beside the weights"}  # fmt: skip
        name = f"merged_weights/effect left after {steps} step{'s' * (steps > 1)}"
        rows.append(Row(name, merged, beside, "share", None, settings))
    return rows


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
