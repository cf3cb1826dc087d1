"""Speed and memory on one GPU: LLaMA shapes of 135M, 1B and 7B in bfloat16, with random weights.

    python benchmarks/gpu.py --json docs/results/benchmarks/gpu.json

Speed and memory do not ask what the weights know, so nothing is downloaded: the models are built on the GPU. First
the textual kitchen's own texts, with goals, beside the forward pass of Hugging Face's model with PEFT's layers in it;
then what others do on the same work, each timed only after its log-probabilities agree with Hugging Face's; then a
whole iteration of Verco with RLlib, where Ray is installed. Per shape: messages, scores and whole roll-out,
supervised step, PPO step, peak memory, and the share of the roofline, on longer texts. On the middle one: a shared
trunk and 4-bit weights. Without a GPU there is nothing to measure, and the script says so. `--smoke` runs every step
with tiny models wherever it is.
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

import numpy as np
import torch
from scoring import padded, questions

from harness import Row, compare, main
from rllib_llm_comm.core.phases import PHASES
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.envs.overcooked_text import parallel_env as make_kitchen
from rllib_llm_comm.language import llama
from rllib_llm_comm.language.base_model import BaseModel, load_base_model, wrap_base_model
from rllib_llm_comm.language.generation import draw_messages, generate_messages
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.language.prompts import message_prompt
from rllib_llm_comm.language.scoring import MASKED, prompt_features, score_candidates
from rllib_llm_comm.policies.decision import CANDIDATE_IDS, PROMPT_IDS
from rllib_llm_comm.rl.multi_agent_ppo import adamw
from rllib_llm_comm.verco.encoding import (
    CANDIDATE_WORDS,
    LABEL_IDS,
    LABEL_TARGETS,
    ObservationEncoder,
    TextObservation,
    encode_examples,
    read_observation,
)
from rllib_llm_comm.verco.language_network import LanguageNetwork, label_log_probs
from rllib_llm_comm.verco.settings import ModuleSettings

MOST_GB_7B = 24.0
LAST_START = 240  # seconds after which no part begins, so that the command ends in five minutes
PROMPT_TOKENS, CANDIDATES = 90, 8


@dataclass(frozen=True)
class Shape:
    """A model without its weights.

    Attributes:
        name: Its size in words.
        sizes: Arguments of `LlamaConfig`.
        rows: Decisions of a roll-out's step, and of a minibatch.
        micro_batch_tokens: As of `ModuleSettings`.
        checkpointing: `gradient_checkpointing`, as there.
        most_gb: Goal for a PPO step's peak memory; `None` has none.
    """

    name: str
    sizes: dict[str, Any] = field(repr=False)
    rows: int
    micro_batch_tokens: int | None
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


@dataclass(frozen=True)
class Goals:
    """What is aimed at in the kitchen.

    Attributes:
        messages: Per second.
        scores: Decisions per second.
        update: Rows per second.
        rows: Of messages and scores.
        minibatch: Rows of an update.
    """

    messages: float
    scores: float
    update: float
    rows: int
    minibatch: int


GOALS = {"135M": Goals(4000, 8000, 2500, 512, 512), "7B": Goals(400, 400, 180, 256, 64)}
DECISIONS_PER_SECOND = 1000


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


def with_adapters(base: BaseModel, device: str, shape: Shape, layers: int | str = "all") -> LanguageNetwork:
    """Both adapters and the critic on a base; `layers` is `lora_layers`."""
    settings = ModuleSettings(
        dtype="bfloat16",
        device=device,
        lora_layers=layers,
        micro_batch_tokens=shape.micro_batch_tokens,
        gradient_checkpointing=shape.checkpointing,
    )
    network = LanguageNetwork(settings, base)
    for _, parameter in network.lm.named_adapter_parameters():
        parameter.data = parameter.data.to(device)
        parameter.requires_grad_(True)
    return network


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


def kitchen_observations(rows: int) -> list[TextObservation]:
    """Different observations of cooks that play at random."""
    env = make_kitchen(map_name="B", recipe="lettuce-tomato salad")
    rng, seen, seed = np.random.default_rng(0), {}, 0
    while len(seen) < rows:
        observations, _ = env.reset(seed=seed)
        seed += 1
        while env.agents:
            for one in map(read_observation, observations.values()):
                seen.setdefault((one.text, one.mask), one)
            observations = env.step(
                {agent: int(rng.choice(np.flatnonzero(one[ACTION_MASK]))) for agent, one in observations.items()}
            )[0]
    return list(seen.values())[:rows]


class Work:
    """The steps of training with a model, as functions that forget what they have read before."""

    def __init__(self, network: LanguageNetwork, prompts: list[str], observations: dict[str, torch.Tensor]) -> None:
        """Takes message prompts, and as many observations in token ids."""
        self.network, self.rows, self.model = network, len(prompts), network.lm
        self.prompts, self.observations = prompts, observations
        self.heads, self.tails, self.mask = (observations[n] for n in (PROMPT_IDS, CANDIDATE_IDS, ACTION_MASK))
        words = encode_examples(self.model.base, prompts, ["please bring the tomato"] * self.rows, 512)
        self.labels = {name: torch.from_numpy(array).long() for name, array in words.items()}
        self.optimizers = {
            role: adamw([p for _, p in self.model.named_adapter_parameters(role)], 1e-6) for role in self.model.roles
        }

    @classmethod
    def of_long_texts(cls, network: LanguageNetwork, rows: int) -> Work:
        """Different prompts of 90 tokens with nothing in common, eight candidates each."""
        prompts, candidates = questions(network.lm, rows, 0)
        heads, tails, mask = padded(network.lm, prompts, candidates)
        observations = {PROMPT_IDS: heads, CANDIDATE_IDS: tails, ACTION_MASK: mask}
        return cls(network, prompts, {**observations, CANDIDATE_WORDS: torch.ones(tails.shape[:2])})

    @classmethod
    def of_the_kitchen(cls, network: LanguageNetwork, rows: int) -> Work:
        """Different observations of random play, some 40 tokens and 4 to 6 allowed candidates each."""
        seen = kitchen_observations(rows)
        encoder = ObservationEncoder(network.lm.base, network.settings)
        arrays = [encoder.encode(one, {}) for one in seen]
        stacked = {name: torch.from_numpy(np.stack([each[name] for each in arrays])) for name in arrays[0]}
        return cls(network, [message_prompt(one.text) for one in seen], stacked)

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
        log_probs, _ = label_log_probs(self.model, self.labels[LABEL_IDS], self.labels[LABEL_TARGETS])
        (-log_probs.sum() / self.rows).backward()
        self.optimizers["message"].step()

    def ppo(self) -> None:
        """A step of the action adapter."""
        self.optimizers["action"].zero_grad()
        distribution = torch.distributions.Categorical(logits=self.network.logits(self.observations))
        chosen = torch.zeros(self.rows, dtype=torch.long)
        (-distribution.log_prob(chosen).mean() - distribution.entropy().mean()).backward()
        self.optimizers["action"].step()

    @property
    def least_tokens(self) -> int:
        """Tokens that scoring has to read: the prompts, and all of the candidates but their last ones."""
        return int((self.heads != PAD).sum() + ((self.tails != PAD).sum(2) - 1).clamp(min=0).sum())


def in_the_kitchen(shape: Shape, device: str, rounds: int) -> Iterator[Row]:
    """Messages, scores and updates on the kitchen's texts against their goals, and beside Hugging Face's model."""
    goals = GOALS[shape.name]
    rows, minibatch = (4, 4) if shape.rows == 4 else (goals.rows, goals.minibatch)
    shape = replace(shape, micro_batch_tokens=None if shape.most_gb is None else shape.micro_batch_tokens)
    network = with_adapters(build(device, shape), device, shape)
    works = {"messages": Work.of_the_kitchen(network, rows), "update": Work.of_the_kitchen(network, minibatch)}
    works["scores"] = works["messages"]
    settings = {"shape": shape.sizes, "texts": "textual kitchen", "dtype": str(network.lm.base.model.dtype),
                "weights": "random", "lora_r": network.settings.lora_r, "device": device_name(device)}  # fmt: skip
    rates = {}
    for name, goal in (("messages", goals.messages), ("scores", goals.scores), ("update", goals.update)):
        work = works[name]
        own = {**settings, "rows": work.rows, "reference": "goal"}
        seconds, peak = timed(device, work.ppo if name == "update" else getattr(work, name), rounds)
        rates[name] = work.rows / seconds
        yield Row(f"gpu/{shape.name} in the kitchen, {name}", rates[name], goal, "rows/s", 1.0, own)
        if device == "cuda" and name == "update":
            goal_gb = shape.most_gb
            yield Row(f"gpu/{shape.name} in the kitchen, peak memory of {name}", peak, goal_gb, "GB", goal_gb and 1.0,
                      own, True)  # fmt: skip
    if shape.most_gb is None:
        base = build(device, shape)
        llama.compute_by_hugging_face(base)
        slow = with_adapters(base, device, shape)
        for name, own_rate in rates.items():
            work = Work.of_the_kitchen(slow, works[name].rows)
            seconds, _ = timed(device, work.ppo if name == "update" else getattr(work, name), 1)
            told = {**settings, "rows": work.rows, "reference": "Hugging Face's forward pass with PEFT's layers"}
            yield Row(f"gpu/{shape.name} in the kitchen, {name} beside Hugging Face", own_rate, work.rows / seconds,
                      "rows/s", None, told)  # fmt: skip


# ---- others on the same work ------------------------------------------------------------------------------------


AGREEING = 4  # texts whose log-probabilities are compared
APART = 0.05  # share of the largest log-probability by which half precision may differ
SCORED_AT_ONCE = 16  # decisions whose candidates others hold at once


def require_agreement(name: str, theirs: torch.Tensor, known: torch.Tensor) -> None:
    """Refuses a party whose log-probabilities are not those of Hugging Face's model."""
    apart, largest = float((theirs - known).abs().max()), float(known.abs().max())
    if not apart <= APART * max(1.0, largest):
        raise RuntimeError(
            f"{name} is not timed: its log-probabilities differ by {apart:.3g}, the largest is {largest:.3g}"
        )


class PlainGenerate:
    """`generate` of transformers: one left-padded batch, the adapter by PEFT, to the end token or 40 tokens."""

    name = "generate of transformers"

    def __init__(self, work: Work, device: str) -> None:
        self._model, self._device = work.model, device

    @torch.no_grad()
    def log_probs(self, texts: list[list[int]]) -> torch.Tensor:
        """Log-probability (N,) of each text behind its first token."""
        sums = []
        for ids in texts:
            row = torch.tensor([ids], device=self._device)
            with self._model.use("message"):
                logits = self._model.model(input_ids=row).logits.float().log_softmax(-1)
            sums.append(logits[0, :-1].gather(1, row[0, 1:, None]).sum().cpu())
        return torch.stack(sums)

    @torch.no_grad()
    def messages(self, prompts: list[list[int]], lengths: list[int], temperature: float) -> None:
        """One message per prompt."""
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in prompts], device=self._device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts], device=self._device)
        how = (
            {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
            if temperature
            else {"do_sample": False}
        )
        with self._model.use("message"):
            self._model.model.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=max(lengths), pad_token_id=0, **how
            )


class VLLM:
    """vLLM in this process, without its prefix cache, as ours forgets; as many tokens per message as ours wrote."""

    name = "vLLM"

    def __init__(self, work: Work, device: str) -> None:
        import vllm

        if device == "cuda":
            torch.cuda.empty_cache()  # it takes its share of what is free
        self._vllm = vllm
        with tempfile.TemporaryDirectory() as folder:
            work.model.base.model.save_pretrained(folder)
            work.model.base.tokenizer.save_pretrained(folder)
            self._engine = vllm.LLM(model=folder, dtype="bfloat16", gpu_memory_utilization=0.4, max_model_len=1024,
                                    enable_prefix_caching=False, seed=0)  # fmt: skip

    def _run(self, rows: list[list[int]], how: Any) -> Any:
        return self._engine.generate([{"prompt_token_ids": row} for row in rows], how, use_tqdm=False)

    def log_probs(self, texts: list[list[int]]) -> torch.Tensor:
        """Log-probability (N,) of each text behind its first token."""
        read = self._run(texts, self._vllm.SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=1))
        return torch.tensor(
            [
                sum(at[token].logprob for at, token in zip(one.prompt_logprobs[1:], ids[1:], strict=True))
                for one, ids in zip(read, texts, strict=True)
            ]
        )

    def messages(self, prompts: list[list[int]], lengths: list[int], temperature: float) -> None:
        """One message per prompt, of a given length."""
        how = [
            self._vllm.SamplingParams(max_tokens=n, temperature=temperature, ignore_eos=True, seed=0) for n in lengths
        ]
        self._run(prompts, how)


def other_writers(shape: Shape, device: str, rounds: int) -> Iterator[Row]:
    """Messages beside those of other programs, greedy and sampled."""
    goals = GOALS[shape.name]
    network = with_adapters(build(device, shape), device, shape)
    work = Work.of_the_kitchen(network, 4 if shape.rows == 4 else goals.rows)
    prompts = [network.lm.base.encode(prompt) for prompt in work.prompts]
    texts = [row + network.lm.base.encode("please bring the tomato") for row in prompts[:AGREEING]]
    known = PlainGenerate(work, device).log_probs(texts)
    for kind in (PlainGenerate, VLLM):
        if kind is VLLM and importlib.util.find_spec("vllm") is None:
            print("missing: vllm")
            continue
        party = kind(work, device)
        require_agreement(party.name, party.log_probs(texts), known)
        for temperature in (0.0, 1.0):
            written = draw_messages(network.lm, work.prompts, temperature=temperature, seed=0)
            lengths = [max(1, len(one.ids)) for one in written]

            def ours(how: float = temperature) -> None:
                work.model.forget()
                draw_messages(network.lm, work.prompts, temperature=how, seed=0)

            def theirs(how: float = temperature, most: list[int] = lengths, party: Any = party) -> None:
                party.messages(prompts, most, how)

            seconds, other = compare(
                _waiting(device, ours), _waiting(device, theirs), 1 if kind is PlainGenerate else rounds
            )
            told = {"shape": shape.sizes, "rows": work.rows, "temperature": temperature, "tokens": sum(lengths),
                    "reference": party.__doc__, "device": device_name(device)}  # fmt: skip
            label = "sampled" if temperature else "greedy"
            yield Row(f"gpu/{shape.name}, {label} messages beside {party.name}", work.rows / seconds, work.rows / other,
                      "messages/s", None, told)  # fmt: skip
        del party
        gc.collect()


def padded_scores(work: Work, part: torch.Tensor, device: str, kept: bool) -> torch.Tensor:
    """Scores (rows, K) by Hugging Face's model with PEFT's layers, every candidate in a row of its own.

    Args:
        work: The texts.
        part: Numbers of the rows.
        device: Of the model.
        kept: Whether a prompt's keys and values are computed once and copied for each candidate, as lamorel does;
            otherwise each candidate has its own copy of the prompt, as in TRL.
    """
    heads, tails = (array[part] for array in (work.heads, work.tails))
    rows, candidates, length = tails.shape
    width = int((heads != PAD).sum(1).max())
    prompts = [row[row != PAD] for row in heads]
    head = torch.stack([torch.nn.functional.pad(row, (width - len(row), 0), value=PAD) for row in prompts]).to(device)
    tail = tails.reshape(-1, length).to(device)
    real = torch.cat([(head != PAD).repeat_interleave(candidates, 0), tail != PAD], dim=1)
    positions = (real.long().cumsum(1) - 1).clamp(min=0)
    model = work.model.model
    with work.model.use("action"):
        if kept:
            own = head != PAD
            read = model(input_ids=head.clamp(min=0), attention_mask=own.long(), use_cache=True, logits_to_keep=1,
                         position_ids=positions[::candidates, :width])  # fmt: skip
            cache = read.past_key_values
            cache.batch_repeat_interleave(candidates)
            first = read.logits.repeat_interleave(candidates, 0)
            rest = model(input_ids=tail.clamp(min=0), attention_mask=real.long(), position_ids=positions[:, width:],
                         **{work.model.base.cache_argument: cache}).logits  # fmt: skip
            logits = torch.cat([first, rest[:, :-1]], dim=1)
        else:
            ids = torch.cat([head.repeat_interleave(candidates, 0), tail], dim=1).clamp(min=0)
            logits = model(input_ids=ids, attention_mask=real.long(), position_ids=positions,
                           logits_to_keep=length + 1).logits[:, :-1]  # fmt: skip
    log_probs = logits.float().log_softmax(-1).gather(2, tail.clamp(min=0)[..., None])[..., 0]
    sums = (log_probs * (tail != PAD)).sum(1).view(rows, candidates)
    return sums.masked_fill(~work.mask[part].bool().to(device), MASKED)


def other_scorers(shape: Shape, device: str, rounds: int) -> Iterator[Row]:
    """Scores beside lamorel's way and updates beside TRL's, both with Hugging Face's model."""
    goals = GOALS[shape.name]
    rows = 4 if shape.rows == 4 else goals.minibatch
    shape = replace(shape, micro_batch_tokens=None)
    work = Work.of_the_kitchen(with_adapters(build(device, shape), device, shape), rows)
    parts = torch.arange(rows).split(SCORED_AT_ONCE)

    @torch.no_grad()
    def lamorel() -> torch.Tensor:
        return torch.cat([padded_scores(work, part, device, kept=True) for part in parts])

    def trl() -> None:
        work.optimizers["action"].zero_grad()
        for part in parts:
            distribution = torch.distributions.Categorical(logits=padded_scores(work, part, device, kept=False))
            chosen = torch.zeros(len(part), dtype=torch.long, device=device)
            ((-distribution.log_prob(chosen) - distribution.entropy()).sum() / rows).backward()
        work.optimizers["action"].step()

    allowed = work.mask.bool().to(device)
    with torch.no_grad():
        known = torch.cat([padded_scores(work, part, device, kept=False) for part in parts])[allowed]
        ours = score_candidates(work.model, work.heads, work.tails, work.mask)[allowed]
    require_agreement("lamorel's way", lamorel()[allowed], known)
    require_agreement("this package", ours, known)
    told = {"shape": shape.sizes, "rows": rows, "decisions at once": SCORED_AT_ONCE, "device": device_name(device)}
    for name, step, other, way in (
        ("scores", work.scores, lamorel, "lamorel's way: keys and values of a prompt once, a padded row per candidate"),
        ("update", work.ppo, trl, "TRL's way: a padded row with its own prompt per candidate"),
    ):
        seconds, theirs = compare(_waiting(device, step), _waiting(device, other), 1)
        yield Row(f"gpu/{shape.name}, {name} beside {way.split(':')[0]}", rows / seconds, rows / theirs, "rows/s", None,
                  {**told, "reference": way})  # fmt: skip


def iteration(shape: Shape, device: str, rounds: int) -> list[Row]:
    """Decisions per second of whole iterations of Verco in one process."""
    if importlib.util.find_spec("ray") is None:
        print("Ray is missing, so whole iterations are not measured.")
        return []
    import floor
    import ray

    smoke = shape.rows == 4
    decisions, minibatch, kitchens = (32, 16, 4) if smoke else (4096, 512, 128)
    base = build(device, shape)
    with tempfile.TemporaryDirectory() as folder:
        base.model.save_pretrained(folder)
        base.tokenizer.save_pretrained(folder)
        del base
        config = floor.configure(decisions, minibatch, kitchens).language_model(
            base_model=folder, dtype="bfloat16", device=device
        )
        ray.init(num_cpus=1, num_gpus=0, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
        algorithm = config.build_algo()
        try:
            algorithm.train()
            results = [algorithm.train() for _ in range(rounds)]
        finally:
            algorithm.stop()
            ray.shutdown()
    rate = decisions / statistics.median(result["time_this_iter_s"] for result in results)
    phases = {name: statistics.median(r["phase_seconds"][name] for r in results) for name in PHASES}
    settings = {"decisions": decisions, "minibatch_size": minibatch, "num_epochs": 2, "kitchens": kitchens,
                "phase_seconds": phases, "reference": "goal", "device": device_name(device)}  # fmt: skip
    return [Row(f"gpu/{shape.name}, whole iteration", rate, DECISIONS_PER_SECOND, "decisions/s", 1.0, settings)]


def by_shape(shape: Shape, device: str, rounds: int, roof: float) -> Iterator[Row]:
    """All rows of a shape."""
    network = with_adapters(build(device, shape), device, shape)
    work = Work.of_long_texts(network, shape.rows)
    settings = {"shape": shape.sizes, "rows": shape.rows, "prompt_tokens": PROMPT_TOKENS, "candidates": CANDIDATES,
                "dtype": "bfloat16", "weights": "random", "lora_r": network.settings.lora_r,
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


def trunk(shape: Shape, device: str, rounds: int) -> list[Row]:
    """Roll-out and PPO step with adapters on the upper fifth of the layers against adapters on all.

    A PPO step finds the lower layers' states that the roll-out left, as in training.
    """
    base = build(device, shape)
    layers = max(1, shape.sizes["num_hidden_layers"] // 5)
    upper, whole = (Work.of_long_texts(with_adapters(base, device, shape, one), shape.rows) for one in (layers, "all"))
    settings = {"rows": shape.rows, "lora_layers": layers, "reference": "adapters on all layers",
                "device": device_name(device)}  # fmt: skip
    found: list[Row] = []
    for name, goal in (("rollout", 1.5), ("ppo", 4.0)):
        seconds, other = compare(*(_waiting(device, getattr(work, name)) for work in (upper, whole)), rounds)
        label = {"rollout": "roll-out", "ppo": "PPO step"}[name]
        rates = shape.rows / seconds, shape.rows / other
        found.append(Row(f"gpu/{shape.name}, {label} with a shared trunk", *rates, "decisions/s", goal, settings))
    return found


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
    both = [Work.of_long_texts(with_adapters(base, device, shape), shape.rows) for base in (small, plain)]
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
        f"{shape.name} in the kitchen": functools.partial(in_the_kitchen, shape, device, options.rounds)
        for shape in shapes
        if shape.name in GOALS
    }
    for part in (other_scorers, other_writers, iteration):
        work[part.__name__] = functools.partial(part, shapes[0], device, options.rounds)
    for shape in shapes[:1] if options.smoke else shapes:
        work[shape.name] = functools.partial(by_shape, shape, device, options.rounds, roof)
    for part in (trunk, quantized):
        work[part.__name__] = functools.partial(part, middle, device, options.rounds)
    for name, measured in work.items():
        if time.perf_counter() - start > LAST_START:
            print(f"{name} is left out, as {LAST_START} s have passed.")
            complete = False
            continue
        rows, ended = _rows_of(name, device, measured, options.smoke)
        found, complete = found + rows, complete and ended
    seconds, told = time.perf_counter() - start, {"complete": complete}
    goal = 300.0 if complete else None
    return [*found, Row("gpu/whole command", seconds, goal, "s", goal and 1.0, told, lower_is_better=True)]


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
