"""Memory and traffic of a training run with LLaMA-7B, computed: writes the tables of docs/guides/scale.md.

    python benchmarks/scale_on_paper.py

Nothing is measured here; `benchmarks/gpu.py` measures on a GPU. Only what stands between the page's marks is
replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "scale.md"
RUNNERS = (1, 2, 4, 8, 16, 32, 64)
GB, MB = 1e9, 1e6


@dataclass(frozen=True)
class Architecture:
    """A LLaMA.

    Attributes:
        hidden, intermediate, layers, vocabulary: Its sizes.
    """

    hidden: int = 4096
    intermediate: int = 11008
    layers: int = 32
    vocabulary: int = 32000

    @property
    def linear_shapes(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of the linear maps of a layer."""
        h, m = self.hidden, self.intermediate
        return [(h, h)] * 4 + [(h, m)] * 2 + [(m, h)]

    @property
    def linear_weights(self) -> int:
        """Weights in all layers' linear maps."""
        return self.layers * sum(a * b for a, b in self.linear_shapes)

    @property
    def other_weights(self) -> int:
        """Embedding, head and norms."""
        return 2 * self.vocabulary * self.hidden + (2 * self.layers + 1) * self.hidden

    def adapter_weights(self, rank: int) -> int:
        """Weights of one LoRA adapter on all linear maps."""
        return self.layers * sum(rank * (a + b) for a, b in self.linear_shapes)

    def base_bytes(self, bits: int) -> float:
        """Bytes of the frozen weights; only linear maps are quantized, NF4 has one 8-bit scale per 64 weights."""
        scales = self.linear_weights / 64 if bits == 4 else 0
        return self.linear_weights * bits / 8 + scales + self.other_weights * 2

    def activation_bytes(self, tokens: int, checkpointing: bool) -> float:
        """Bytes in 2-byte numbers that a pass with gradients keeps, attention's own square left out."""
        per_layer = 2 * tokens * (10 * self.hidden + 4 * self.intermediate)
        kept = 2 * tokens * self.hidden * self.layers
        return kept + per_layer if checkpointing else self.layers * per_layer


def critic_weights(inputs: int, hiddens: tuple[int, ...]) -> int:
    """Weights of the critic."""
    total = 0
    for width in (*hiddens, 1):
        total += (inputs + 1) * width
        inputs = width
    return total


def decision_bytes(candidates: int, prompt: int, candidate: int) -> int:
    """Bytes of one decision's observation on its way to the learner (int32 arrays, an int8 mask)."""
    return 4 * (2 * prompt + candidates * candidate + candidates) + candidates


def memory_table(model: Architecture, rank: int = 8, tokens: int = 2048) -> str:
    """Memory of a process that acts and of one that learns, by how the base is held."""
    adapter = model.adapter_weights(rank)
    critic = critic_weights(2 * model.hidden, (128, 128))
    acting = 2 * 4 * adapter
    learning = acting + 4 * critic + 12 * (adapter + critic)  # gradient and AdamW's two moments
    heads = ("Base held in", "Base", "acts: + adapters", "learns: + gradients, AdamW",
             f"+ activations of {tokens:,} tokens", "+ the same, gradient checkpointing")  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for bits, name in ((16, "bfloat16"), (8, "8 bits"), (4, "4 bits")):
        base = model.base_bytes(bits)
        cells = [base, base + acting, base + learning,
                 base + learning + model.activation_bytes(tokens, checkpointing=False),
                 base + learning + model.activation_bytes(tokens, checkpointing=True)]  # fmt: skip
        lines.append(f"| {name} | " + " | ".join(f"{cell / GB:.1f} GB" for cell in cells) + " |")
    return "\n".join(lines)


def traffic_table(model: Architecture, rank: int = 8, decisions: int = 1024, candidates: int = 10) -> str:
    """Bytes per iteration between learner and runners, and memory of the runners' copies of the base."""
    adapters = 2 * 4 * model.adapter_weights(rank)
    samples = decisions * decision_bytes(candidates, 256, 32)
    base = model.base_bytes(16)
    heads = ("EnvRunners", "Weights out", "Samples in", "Memory of their copies of the base")
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for count in RUNNERS:
        cells = [f"{count * adapters / MB:,.0f} MB", f"{samples / MB:.1f} MB", f"{count * base / GB:,.0f} GB"]
        lines.append(f"| {count} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def replaced(text: str, mark: str, table: str) -> str:
    """The page with another table between two marks."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}"


def main() -> None:
    """Writes both tables into the page."""
    model = Architecture()
    text = PAGE.read_text(encoding="utf-8")
    text = replaced(text, "memory", memory_table(model))
    PAGE.write_text(replaced(text, "traffic", traffic_table(model)), encoding="utf-8")


if __name__ == "__main__":
    main()
