"""Speed and memory on one GPU: LLaMA shapes of 135M, 1B and 7B in bfloat16, with random weights.

    python benchmarks/gpu.py --json docs/results/benchmarks/gpu.json

Speed and memory do not ask what the weights know, so nothing is downloaded: the models are built on the GPU. Per shape:
messages, scores and whole roll-out, supervised step, PPO step, peak memory, and the share of the roofline. On the
middle one: a shared trunk, attention kernels, `torch.compile` with CUDA graphs, and 4-bit weights. Without a GPU there
is nothing to measure, and the script says so. `--smoke` runs every step with tiny models wherever it is.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib.util
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from scoring import padded, questions

from harness import Row, compare, main
from rllib_llm_comm.agents.encoding import CANDIDATE_IDS, CANDIDATE_WORDS, PROMPT_IDS
from rllib_llm_comm.agents.label_loss import MESSAGE_IDS, MESSAGE_LABELS, encode_examples, message_log_probs
from rllib_llm_comm.agents.language_agent import LLMCommCore
from rllib_llm_comm.agents.settings import LanguageModelSettings
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.language.base_model import BaseModel, load_base_model, wrap_base_model
from rllib_llm_comm.language.features import prompt_features
from rllib_llm_comm.language.generation import generate_messages
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.language.scoring import score_candidates
from rllib_llm_comm.learners.optimizers import adamw

MOST_GB_7B = 24.0
LAST_START = 480  # seconds after which no part begins, so that the command ends in ten minutes
PROMPT_TOKENS, CANDIDATES = 90, 8


@dataclass(frozen=True)
class Shape:
    """A model without its weights.

    Attributes:
        name: Its size in words.
        sizes: Arguments of `LlamaConfig`.
        rows: Decisions of a roll-out's step, and of a minibatch.
        micro_batch_tokens: As of `LanguageModelSettings`.
        checkpointing: `gradient_checkpointing`, as there.
        most_gb: Goal for a PPO step's peak memory; `None` has none.
    """

    name: str
    sizes: dict[str, Any] = field(repr=False)
    rows: int
    micro_batch_tokens: int
    checkpointing: bool = False
    most_gb: float | None = None


SHAPES = (
    Shape("135M", {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
                   "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True}, 256, 16384),
    Shape("1B", {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
                 "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True}, 128, 8192),
    Shape("7B", {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
                 "vocab_size": 32000}, 32, 2048, True, MOST_GB_7B),
)  # fmt: skip
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "vocab_size": 4096}  # fmt: skip


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Fresh tensors have this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def build(device: str, shape: Shape, attention: str = "sdpa") -> BaseModel:
    """A frozen model of random weights in bfloat16, with the embedded model's tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = load_base_model().tokenizer
    config = LlamaConfig(**shape.sizes, max_position_embeddings=2048, eos_token_id=tokenizer.eos_token_id)
    config._attn_implementation = attention
    with default_dtype(torch.bfloat16), torch.device(device):
        model = LlamaForCausalLM(config)
    return wrap_base_model(f"random {shape.name}", model, tokenizer)


def with_adapters(base: BaseModel, device: str, shape: Shape, layers: int | str = "all") -> LLMCommCore:
    """Both adapters and the critic on a base; `layers` is `lora_layers`."""
    settings = LanguageModelSettings(
        dtype="bfloat16",
        device=device,
        lora_layers=layers,
        micro_batch_tokens=shape.micro_batch_tokens,
        gradient_checkpointing=shape.checkpointing,
    )
    core = LLMCommCore(settings, base)
    for _, parameter in core.lm.named_adapter_parameters():
        parameter.data = parameter.data.to(device)
        parameter.requires_grad_(True)
    return core


def wait(device: str) -> None:
    """Waits until the GPU has done all that it was asked for."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed(device: str, work: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Median of the seconds, and peak GB, of some work; a first run does not count."""
    work()
    wait(device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        wait(device)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else 0.0


def matmul_rate(device: str, size: int) -> float:
    """Multiplications and additions per second of a large product in bfloat16: the roof."""
    left, right = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    seconds, _ = timed(device, lambda: [left @ right for _ in range(8)], 3)
    return 8 * 2 * size**3 / seconds


class Work:
    """The steps of training with a model, as functions that forget what they have read before."""

    def __init__(self, core: LLMCommCore, rows: int) -> None:
        """Makes the texts: different prompts with nothing in common, eight candidates each."""
        self.core, self.rows, self.model = core, rows, core.lm
        self.prompts, candidates = questions(self.model, rows, 0)
        self.heads, self.tails, self.mask = padded(self.model, self.prompts, candidates)
        self.observations = {
            PROMPT_IDS: self.heads,
            CANDIDATE_IDS: self.tails,
            ACTION_MASK: self.mask,
            CANDIDATE_WORDS: torch.ones(self.tails.shape[:2]),
        }
        words = encode_examples(self.model.base, self.prompts, ["please bring the tomato"] * rows, 512)
        self.labels = {name: torch.from_numpy(array).long() for name, array in words.items()}
        self.optimizers = {
            role: adamw([p for _, p in self.model.named_adapter_parameters(role)], 1e-6) for role in self.model.roles
        }

    @torch.no_grad()
    def messages(self) -> None:
        """One message per prompt."""
        self.model.forget()
        generate_messages(self.model, self.prompts)

    @torch.no_grad()
    def scores(self) -> None:
        """Scores of all candidates."""
        self.model.forget()
        score_candidates(self.model, self.heads, self.tails, self.mask)

    @torch.no_grad()
    def rollout(self) -> None:
        """Messages, scores and the critic's features."""
        self.messages()
        score_candidates(self.model, self.heads, self.tails, self.mask)
        prompt_features(self.model, self.heads)

    def supervised(self) -> None:
        """A step of the message adapter on labels."""
        self.optimizers["message"].zero_grad()
        log_probs, _ = message_log_probs(self.model, self.labels[MESSAGE_IDS], self.labels[MESSAGE_LABELS])
        (-log_probs.sum() / self.rows).backward()
        self.optimizers["message"].step()

    def ppo(self) -> None:
        """A step of the action adapter."""
        self.optimizers["action"].zero_grad()
        distribution = torch.distributions.Categorical(logits=self.core.logits(self.observations))
        chosen = torch.zeros(self.rows, dtype=torch.long)
        (-distribution.log_prob(chosen).mean() - distribution.entropy().mean()).backward()
        self.optimizers["action"].step()

    @property
    def least_tokens(self) -> int:
        """Tokens that scoring has to read: the prompts, and all of the candidates but their last ones."""
        return int((self.heads != PAD).sum() + ((self.tails != PAD).sum(2) - 1).clamp(min=0).sum())


def by_shape(shape: Shape, device: str, rounds: int, roof: float) -> Iterator[Row]:
    """All rows of a shape."""
    core = with_adapters(build(device, shape), device, shape)
    work = Work(core, shape.rows)
    settings = {"shape": shape.sizes, "rows": shape.rows, "prompt_tokens": PROMPT_TOKENS, "candidates": CANDIDATES,
                "dtype": "bfloat16", "weights": "random", "lora_r": core.settings.lora_r,
                "micro_batch_tokens": shape.micro_batch_tokens, "gradient_checkpointing": shape.checkpointing,
                "device": device_name(device)}  # fmt: skip
    steps = {
        "messages": ("messages/s", work.messages),
        "scoring": ("decisions/s", work.scores),
        "roll-out": ("decisions/s", work.rollout),
        "PPO step": ("s", work.ppo),
        "supervised step": ("s", work.supervised),
    }
    for name, (unit, step) in steps.items():
        seconds, peak = timed(device, step, rounds)
        figure = seconds if unit == "s" else shape.rows / seconds
        yield Row(f"gpu/{shape.name}, {name}", figure, None, unit, None, settings)
        if name == "scoring":
            yield _of_the_roof(shape, work, seconds, roof, settings)
        if device == "cuda":
            goal = shape.most_gb if name == "PPO step" else None
            yield Row(f"gpu/{shape.name}, peak memory of {name}", peak, goal, "GB", goal and 1.0, settings, True)


def _of_the_roof(shape: Shape, work: Work, seconds: float, roof: float, settings: dict[str, Any]) -> Row:
    """Rate of the linear maps that scoring cannot do without, beside that of a large product."""
    model = work.model
    weights = sum(p.numel() for name, p in model.model.named_parameters() if "lora_" not in name and p.dim() == 2)
    weights -= model.base.model.get_input_embeddings().weight.numel()
    rate = 2.0 * weights * work.least_tokens / seconds
    return Row(f"gpu/{shape.name}, scoring of the roofline", rate / 1e12, roof / 1e12, "TFLOP/s", None, settings)


def kernels(shape: Shape, device: str, rounds: int) -> list[Row]:
    """Scoring with torch's fused attention, the default, against attention in single steps."""
    fused, plain = (
        Work(with_adapters(build(device, shape, how), device, shape), shape.rows) for how in ("sdpa", "eager")
    )
    seconds, other = compare(_waiting(device, fused.scores), _waiting(device, plain.scores), rounds)
    rates = shape.rows / seconds, shape.rows / other
    settings = {"rows": shape.rows, "device": device_name(device), "reference": "eager attention"}
    return [Row(f"gpu/{shape.name}, scoring with fused attention", *rates, "decisions/s", None, settings)]


def trunk(shape: Shape, device: str, rounds: int) -> list[Row]:
    """Roll-out and PPO step with adapters on the upper fifth of the layers against adapters on all.

    A PPO step finds the lower layers' states that the roll-out left, as in training.
    """
    base = build(device, shape)
    layers = max(1, shape.sizes["num_hidden_layers"] // 5)
    upper, whole = (Work(with_adapters(base, device, shape, one), shape.rows) for one in (layers, "all"))
    settings = {"rows": shape.rows, "lora_layers": layers, "reference": "adapters on all layers",
                "device": device_name(device)}  # fmt: skip
    found: list[Row] = []
    for name, goal in (("rollout", 1.5), ("ppo", 4.0)):
        seconds, other = compare(*(_waiting(device, getattr(work, name)) for work in (upper, whole)), rounds)
        label = {"rollout": "roll-out", "ppo": "PPO step"}[name]
        rates = shape.rows / seconds, shape.rows / other
        found.append(Row(f"gpu/{shape.name}, {label} with a shared trunk", *rates, "decisions/s", goal, settings))
    return found


def compiled(shape: Shape, device: str, rounds: int) -> list[Row]:
    """The bare model's pass, with `torch.compile` and CUDA graphs against without; the package uses neither yet."""
    model = build(device, shape).model.base_model
    ids = torch.randint(5, 300, (shape.rows, PROMPT_TOKENS), device=device)
    quick = torch.compile(model, mode="reduce-overhead")

    @torch.no_grad()
    def ours() -> None:
        """The compiled pass."""
        quick(input_ids=ids, use_cache=False)

    @torch.no_grad()
    def reference() -> None:
        """The pass as it is."""
        model(input_ids=ids, use_cache=False)

    seconds, other = compare(_waiting(device, ours), _waiting(device, reference), rounds)
    rates = shape.rows / seconds, shape.rows / other
    settings = {"rows": shape.rows, "tokens": PROMPT_TOKENS, "mode": "reduce-overhead", "device": device_name(device)}
    return [Row(f"gpu/{shape.name}, bare pass compiled", *rates, "rows/s", None, settings)]


def quantized(shape: Shape, device: str, rounds: int) -> list[Row]:
    """Scoring and PPO step with weights in 4 bits against bfloat16, and the memory of both."""
    if importlib.util.find_spec("bitsandbytes") is None:
        print("bitsandbytes is missing, so 4-bit weights are not measured.")
        return []
    plain = build(device, shape)
    with tempfile.TemporaryDirectory() as folder:
        plain.model.save_pretrained(folder)
        plain.tokenizer.save_pretrained(folder)
        small = load_base_model(folder, "bfloat16", device, "4bit")
    found: list[Row] = []
    settings = {"rows": shape.rows, "device": device_name(device), "reference": "bfloat16"}
    both = [Work(with_adapters(base, device, shape), shape.rows) for base in (small, plain)]
    for name in ("scores", "ppo"):
        ours, other = compare(*(_waiting(device, getattr(work, name)) for work in both), rounds)
        label = {"scores": "scoring", "ppo": "PPO step"}[name]
        found.append(
            Row(f"gpu/{shape.name}, {label} in 4 bits", shape.rows / ours, shape.rows / other, "decisions/s",
                None, settings)
        )  # fmt: skip
    sizes = [sum(p.numel() * p.element_size() for p in base.model.parameters()) / 1e9 for base in (small, plain)]
    found.append(Row(f"gpu/{shape.name}, weights in 4 bits", *sizes, "GB", None, settings, True))
    return found


def _waiting(device: str, work: Callable[[], Any]) -> Callable[[], None]:
    def whole() -> None:
        work()
        wait(device)

    return whole


def device_name(device: str) -> str:
    """The GPU's name, or "cpu"."""
    return torch.cuda.get_device_name() if device == "cuda" else device


def _rows_of(name: str, device: str, measured: Callable[[], Iterable[Row]], smoke: bool) -> tuple[list[Row], bool]:
    """Rows of a part, and True if it came to its end; otherwise a sentence tells why. What it held is given back."""
    start = time.perf_counter()
    found: list[Row] = []
    try:
        for row in measured():
            found.append(row)  # what is measured before the part fails is kept
        print(f"{name}: {time.perf_counter() - start:.0f} s")
        return found, True
    except torch.cuda.OutOfMemoryError as error:
        print(f"{name} does not fit into this GPU ({(str(error) or 'out of memory').splitlines()[0]}).")
    except Exception:
        if smoke:
            raise
        traceback.print_exc()  # the other parts of a GPU that is lent for minutes are not lost to this one
        print(f"{name} failed.")
    finally:
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    print(f"{name} is left out from there on: it has {len(found)} rows.")
    return found, False


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows; none without a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not options.smoke:
        print("This machine shows no GPU to torch, so nothing is measured here.")
        return []
    start = time.perf_counter()
    shapes = [replace(shape, sizes=TINY, rows=4) for shape in SHAPES] if options.smoke else list(SHAPES)
    roof = matmul_rate(device, 512 if options.smoke else 8192)
    found: list[Row] = []
    middle = shapes[1]
    complete = True
    work: dict[str, Callable[[], Iterable[Row]]] = {
        shape.name: functools.partial(by_shape, shape, device, options.rounds, roof)
        for shape in (shapes[:1] if options.smoke else shapes)
    }
    for part in (trunk, kernels, quantized) if device == "cpu" else (trunk, kernels, quantized, compiled):
        work[part.__name__] = functools.partial(part, middle, device, options.rounds)
    for name, measured in work.items():
        if time.perf_counter() - start > LAST_START:
            print(f"{name} is left out, as {LAST_START} s have passed.")
            complete = False
            continue
        rows, ended = _rows_of(name, device, measured, options.smoke)
        found, complete = found + rows, complete and ended
    seconds, told = time.perf_counter() - start, {"complete": complete}
    goal = 600.0 if complete else None
    return [*found, Row("gpu/whole command", seconds, goal, "s", goal and 1.0, told, lower_is_better=True)]


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
