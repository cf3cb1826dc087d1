"""A shared trunk against adapters on all layers: roll-out, update and both, on a model of SmolLM2-135M's shape.

    python benchmarks/trunk.py --json docs/results/benchmarks/trunk.json
    python benchmarks/trunk.py --base-model smollm2 --json docs/results/benchmarks/trunk_smollm2.json

By default the model has SmolLM2-135M's exact shape, random weights and the embedded model's tokenizer: speed does not
ask what the weights know. Rows of its head that stand for no word are zero (so it is not tied to the embedding): every
message has the ten words that are allowed. Texts and actions come from the middle of a recorded roll-out of the main
job's kitchen. Both sides get the same ones and take turns part by part, and the clock counts CPU seconds: other jobs
were busy on the machine. What RLlib and the game do themselves, milliseconds per decision, is not in it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from harness import Row, main
from rllib_llm_comm.language.base_model import BaseModel, load_base_model, wrap_base_model
from rllib_llm_comm.language.engines import plain_scores
from rllib_llm_comm.language.prompts import message_prompt
from rllib_llm_comm.policies.decision import CRITIC_IDS
from rllib_llm_comm.rl.multi_agent_ppo import adamw, clipped_surrogate, value_loss
from rllib_llm_comm.verco.encoding import ObservationEncoder
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.settings import ModuleSettings
from stream import Ask, record_stream, to_batch

SMOLLM2 = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
           "num_key_value_heads": 3, "vocab_size": 49152}  # fmt: skip
TINY = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 5, "num_attention_heads": 3,
        "num_key_value_heads": 1, "vocab_size": 4096}  # fmt: skip
GOALS = {"roll-out": 1.5, "update": 4.0, "whole iteration": 2.5}
EPOCHS, CLIP, ENTROPY_WEIGHT, VALUE_WEIGHT = 2, 0.2, 0.01, 0.5

Parts = Iterator[tuple[str, float]]


def build(sizes: dict[str, int]) -> BaseModel:
    """A LLaMA of random weights that says words."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = load_base_model().tokenizer
    config = LlamaConfig(**sizes, max_position_embeddings=2048, tie_word_embeddings=False,
                         pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id)  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        words = [token.startswith("Ġ") and token[1:].isalpha() for token in tokens]  # with the blank in front
        said = torch.zeros(sizes["vocab_size"], dtype=torch.bool)
        said[: len(words)] = torch.tensor(words)
        model.get_output_embeddings().weight[~said] = 0
    return wrap_base_model("random SmolLM2-135M", model, tokenizer)


def new_network(base: BaseModel, layers: int | str) -> LanguageNetwork:
    """A network with adapters that are not the identity, ready for PPO."""
    network = LanguageNetwork(ModuleSettings(lora_layers=layers, temperature=1.5, init_seed=0), base)
    torch.manual_seed(1)
    for _, parameter in network.lm.named_adapter_parameters():
        parameter.data.normal_(std=0.02)
    for _, parameter in network.lm.named_adapter_parameters("action"):
        parameter.requires_grad_(True)
    return network


def timed(work: Callable[[], Any]) -> float:
    """CPU seconds of some work: beside other jobs the wall clock tells how busy they are."""
    start = time.process_time()
    work()
    return time.process_time() - start


def iteration(network: LanguageNetwork, steps: Sequence[Sequence[Ask]], minibatch_size: int) -> Parts:
    """Seconds of each step of a roll-out and of each minibatch of the update behind it."""
    network.forget()  # what a round has read is new to the next one
    encoder = ObservationEncoder(network.lm.base, network.settings)
    batches = [to_batch(encoder, list(step)) for step in steps]

    @torch.no_grad()
    def act(step: Sequence[Ask], batch: dict[str, torch.Tensor]) -> None:
        """Messages, scores and values."""
        network.write_messages([message_prompt(ask.seen.text) for ask in step])
        network.remembered_logits(batch)
        network.values(batch)

    for step, batch in zip(steps, batches, strict=True):
        yield "roll-out", timed(lambda step=step, batch=batch: act(step, batch))  # type: ignore[misc]
    yield from update(network, {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]},
                      minibatch_size)  # fmt: skip


def update(network: LanguageNetwork, batch: dict[str, torch.Tensor], minibatch_size: int) -> Parts:
    """Seconds of each minibatch, with made-up advantages and targets."""
    actor = [parameter for _, parameter in network.lm.named_adapter_parameters("action")]
    optimizers = [adamw(actor, 1e-5), adamw(network.critic.parameters(), 1e-4)]
    random = torch.Generator().manual_seed(0)
    count = len(batch[CRITIC_IDS])
    advantages, targets = (torch.randn(count, generator=random) for _ in range(2))
    with torch.no_grad():
        before = torch.distributions.Categorical(logits=network.remembered_logits(batch))
        old_values = network.values(batch)
    actions = before.probs.argmax(1)
    old = before.log_prob(actions)

    def learn(rows: torch.Tensor) -> None:
        """A step of both optimizers."""
        part = {name: array[rows] for name, array in batch.items()}
        distribution = torch.distributions.Categorical(logits=network.logits(part))
        ratio = (distribution.log_prob(actions[rows]) - old[rows]).exp()
        loss = -clipped_surrogate(ratio, advantages[rows], CLIP).mean() - ENTROPY_WEIGHT * distribution.entropy().mean()
        loss = loss + VALUE_WEIGHT * value_loss(network.values(part), old_values[rows], targets[rows], CLIP)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()

    for _ in range(EPOCHS):
        for rows in torch.randperm(count, generator=random).split(minibatch_size):
            yield "update", timed(lambda rows=rows: learn(rows))  # type: ignore[misc]


def in_turn(
    networks: Sequence[LanguageNetwork], steps: Sequence[Sequence[Ask]], minibatch_size: int
) -> list[dict[str, float]]:
    """Seconds of roll-out, update and both of each network; they take turns part by part."""
    totals = [{"roll-out": 0.0, "update": 0.0} for _ in networks]
    for parts in zip(*(iteration(network, steps, minibatch_size) for network in networks), strict=True):
        for total, (name, seconds) in zip(totals, parts, strict=True):
            total[name] += seconds
    return [{**total, "whole iteration": sum(total.values())} for total in totals]


@torch.no_grad()
def largest_difference(network: LanguageNetwork, step: Sequence[Ask]) -> float:
    """Between the scores of some rows and those of the plain engine."""
    batch = to_batch(ObservationEncoder(network.lm.base, network.settings), list(step))
    arrays = [batch[name] for name in ("prompt_ids", "candidate_ids", "action_mask")]
    plain = plain_scores(network.lm, *arrays) / network.settings.temperature
    return float((network.logits(batch) - plain).abs().max())


def memory(network: LanguageNetwork, decisions: int, settings: dict[str, Any]) -> list[Row]:
    """Kilobytes per decision that the trunk keeps after a roll-out."""
    assert network.lm.trunk is not None
    kept = network.lm.trunk.kept_bytes
    return [Row(f"trunk/memory of {name}", size / decisions / 1e3, None, "kB/decision", None, settings)
            for name, size in kept.items()]  # fmt: skip


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    sizes, layers = (TINY, 2) if options.smoke else (SMOLLM2, 6)
    name, weights = "", "random (no pretrained ones), SmolLM2-135M's shape, head untied"
    if options.base_model:
        base, sizes = load_base_model(options.base_model), {}
        name, weights = f"{options.base_model}, ", f"of {options.base_model}"
    else:
        base = build(sizes)
    steps = record_stream(40 if options.smoke else 120, 4 if options.smoke else 16)[-1:]  # the kitchens differ by then
    decisions = sum(map(len, steps))
    ours, today = new_network(base, layers), new_network(base, "all")
    difference = largest_difference(ours, steps[0][:2])
    assert difference < 1e-3, f"scores differ by {difference}"
    minibatch = -(-decisions // 2)
    in_turn([ours, today], [steps[0][:2]], 2)
    rounds = [in_turn([ours, today], steps, minibatch) for _ in range(min(options.rounds, 2))]
    settings = {"clock": "CPU seconds of the process", "decisions": decisions, "minibatch_size": minibatch,
                "epochs": EPOCHS, "num_envs": 16, "lora_layers": layers, "reference": "lora_layers: all",
                "largest_difference_to_plain": difference,
                "message_words": 10, "weights": weights, **sizes}  # fmt: skip
    rows = []
    for part, goal in GOALS.items():
        ratio = statistics.median(theirs[part] / own[part] for own, theirs in rounds)
        seconds = statistics.median(own[part] for own, _ in rounds) / decisions
        label = f"trunk/{name}{part}"
        rows.append(Row(label, seconds, seconds * ratio, "s/decision", goal, settings, lower_is_better=True))
    return rows + ([] if name else memory(ours, decisions, settings))


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base-model", help="such as smollm2, in place of random weights")


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure, _more)
