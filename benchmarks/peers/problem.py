"""The problem that all parties get: a folder with a model, two adapters and a batch of decisions.

Prompts and candidates come from a recorded roll-out of the main job's kitchen. All texts differ, so nobody gains by
remembering one. Token ids are in the file, too: who tokenizes by itself must come to the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from rllib_llm_comm.language.base_model import BaseModel, load_base_model, wrap_base_model
from rllib_llm_comm.language.prompts import action_prompt, critic_prompt, message_prompt
from rllib_llm_comm.language.scoring import encode_candidates
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.settings import ModuleSettings
from stream import Ask, record_stream
from trunk import SMOLLM2, TINY

PROBLEM, MODEL, ACTION_ADAPTER, MESSAGE_ADAPTER = "problem.json", "model", "action", "message"
RANDOM = "random"
MAX_WORDS = 10


@dataclass(frozen=True)
class Problem:
    """A batch of decisions and how it is learned from.

    Attributes:
        prompts: B action prompts.
        candidates: B lists of K phrases; one blank stands between prompt and phrase.
        prompt_ids: Their tokens.
        candidate_ids: Their tokens behind the prompt.
        critic_ids: Tokens of the B critic prompts.
        actions: Indices of the candidates taken.
        advantages: Made-up advantages.
        message_prompts: Prompts for messages.
        minibatch_size: Decisions per gradient step.
        epochs: Passes over the batch.
        lr: Step size.
        max_words: Most words of a message.
    """

    prompts: list[str]
    candidates: list[list[str]]
    prompt_ids: list[list[int]]
    candidate_ids: list[list[list[int]]]
    critic_ids: list[list[int]]
    actions: list[int]
    advantages: list[float]
    message_prompts: list[str]
    minibatch_size: int
    epochs: int = 2
    lr: float = 1e-5
    max_words: int = MAX_WORDS


def write_problem(folder: Path, base_model: str, decisions: int, candidates: int, *, tiny: bool = False) -> Problem:
    """Writes model, adapters and batch into a folder.

    Args:
        folder: The target; it is made.
        base_model: A name that `base_model` of a run takes, or `"random"` for SmolLM2-135M's shape.
        decisions: Number of decisions, >= 2.
        candidates: Candidates of each decision.
        tiny: True for a random model that is there to show that all runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    base = _random_base(TINY if tiny else SMOLLM2) if base_model == RANDOM else load_base_model(base_model)
    _save_base(base, folder / MODEL)
    problem = _draw(base, decisions, candidates)
    network = LanguageNetwork(ModuleSettings(init_seed=0, max_prompt_tokens=1024), base)
    torch.manual_seed(1)
    for _, parameter in network.lm.named_adapter_parameters():
        parameter.data.normal_(std=0.02)
    for role in (ACTION_ADAPTER, MESSAGE_ADAPTER):
        network.lm.save_adapter(role, folder / role)
    (folder / PROBLEM).write_text(json.dumps(asdict(problem)), encoding="utf-8")
    return problem


def read_problem(folder: Path) -> Problem:
    """The batch of a folder."""
    return Problem(**json.loads((folder / PROBLEM).read_text(encoding="utf-8")))


def sizes(problem: Problem) -> Mapping[str, Any]:
    """Sizes of a problem, as the rows tell them."""
    tails = [tail for tails in problem.candidate_ids for tail in tails]
    return {
        "decisions": len(problem.prompts),
        "candidates": len(problem.candidates[0]),
        "prompt_tokens": round(sum(map(len, problem.prompt_ids)) / len(problem.prompt_ids), 1),
        "candidate_tokens": round(sum(map(len, tails)) / len(tails), 1),
        "minibatch_size": problem.minibatch_size,
        "epochs": problem.epochs,
    }


def _draw(base: BaseModel, decisions: int, candidates: int) -> Problem:
    # All kitchens begin alike, so there are many more asks than texts.
    asks = {ask.seen.text: ask for step in record_stream(256 + 16 * decisions) for ask in step}
    chosen = list(asks.values())[-decisions:]
    assert len(chosen) == decisions, f"only {len(chosen)} different texts were seen"
    phrases = list(dict.fromkeys(phrase for ask in asks.values() for phrase in ask.seen.candidates))
    menus = [list(dict.fromkeys([*ask.seen.candidates, *phrases]))[:candidates] for ask in chosen]
    prompts = [str(action_prompt(ask.seen.text, ask.heard)) for ask in chosen]
    encoded = [encode_candidates(base, prompt, menu) for prompt, menu in zip(prompts, menus, strict=True)]
    random = torch.Generator().manual_seed(0)
    return Problem(
        prompts=prompts,
        candidates=menus,
        prompt_ids=[head for head, _ in encoded],
        candidate_ids=[tails for _, tails in encoded],
        critic_ids=[base.encode(str(critic_prompt(ask.seen.text))) for ask in chosen],
        actions=torch.randint(candidates, (decisions,), generator=random).tolist(),
        advantages=torch.randn(decisions, generator=random).tolist(),
        message_prompts=_message_prompts(chosen),
        minibatch_size=max(1, decisions // 2),
    )


def _message_prompts(asks: list[Ask]) -> list[str]:
    return list(dict.fromkeys(str(message_prompt(ask.seen.text)) for ask in asks))


def _random_base(shape: Mapping[str, int]) -> BaseModel:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = load_base_model().tokenizer
    config = LlamaConfig(**shape, max_position_embeddings=2048, tie_word_embeddings=True,
                         pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id)  # fmt: skip
    return wrap_base_model("random SmolLM2-135M", LlamaForCausalLM(config), tokenizer)


def _save_base(base: BaseModel, folder: Path) -> None:
    """Writes the base so that transformers 4 can read it, too: some parties need it."""
    base.model.save_pretrained(folder)
    base.tokenizer.save_pretrained(folder)
    config = folder / "config.json"
    content = json.loads(config.read_text(encoding="utf-8"))
    content["rope_theta"] = content.get("rope_parameters", {}).get("rope_theta", content.get("rope_theta", 10000.0))
    content["torch_dtype"] = "float32"
    content.pop("rope_scaling", None)
    config.write_text(json.dumps(content, indent=1), encoding="utf-8")
    settings = folder / "tokenizer_config.json"
    content = json.loads(settings.read_text(encoding="utf-8"))
    content["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings.write_text(json.dumps(content, indent=1), encoding="utf-8")
