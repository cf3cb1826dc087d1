"""Makes an embedded model: corpus, tokenizer, a tiny LLaMA, probes. `python -m tools.embedded_model.train`.

python -m tools.embedded_model.train                   # embedded: kitchens
python -m tools.embedded_model.train --corpus minirts  # embedded_minirts: the strategy game
python -m tools.embedded_model.train --corpus soup     # embedded_soup: planners of onion-soup kitchens
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.core.files import replace_folder
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.language.base_model import EMBEDDED, EMBEDDED_SOUP, embedded_model_path
from tools.embedded_model.corpus import Document

logger = logging.getLogger(__name__)
PROMPT_WEIGHT = 0.1  # descriptions are read, answers are learnt: with equal weights the model ignores what it reads
_PAD, _BOS, _EOS = "<pad>", "<s>", "</s>"
# A chat is the text that it says: the model continues prompts and knows no roles.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% if not loop.last %} {% endif %}{% endfor %}"
)


@dataclass(frozen=True)
class Corpus:
    """Texts that a model reads, and the questions that it is asked afterwards.

    Attributes:
        model: Name of the model that is made of it.
        made_by: Module and name of its `documents`.
        probed_by: Module and name of its `probe`.
        documents: Documents by default.
        vocab: Tokens of the tokenizer by default.
    """

    model: str
    made_by: str
    probed_by: str
    documents: int
    vocab: int

    def read(self, count: int, seed: int) -> list[Document]:
        """Its documents.

        Args:
            count: Number.
            seed: The same seed gives the same documents.
        """
        make: Callable[[int, int], Iterator[Document]] = load(self.made_by)
        return list(make(count, seed))


_HERE = "tools.embedded_model"
CORPORA = {
    "kitchen": Corpus(EMBEDDED, f"{_HERE}.corpus:documents", f"{_HERE}.probe:probe", 80_000, 640),
    "minirts": Corpus(
        "embedded_minirts", f"{_HERE}.minirts_corpus:documents", f"{_HERE}.minirts_probe:probe", 60_000, 768
    ),
    "soup": Corpus(EMBEDDED_SOUP, f"{_HERE}.soup_corpus:documents", f"{_HERE}.soup_probe:probe", 50_000, 640),
}


def train_tokenizer(corpus: Sequence[Document], vocab_size: int) -> Any:
    """A byte-level BPE tokenizer in which every word of the corpus is one token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[_PAD, _BOS, _EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((f"{d.prompt} {d.answer}" for d in corpus), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{_BOS} $A", special_tokens=[(_BOS, tokenizer.token_to_id(_BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=_PAD,
        bos_token=_BOS,
        eos_token=_EOS,
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: Any, *, layers: int, hidden: int, heads: int) -> Any:
    """A LLaMA of this size with random weights and tied embeddings."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden,
            intermediate_size=hidden * 3,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def encode(corpus: Sequence[Document], tokenizer: Any) -> list[tuple[list[int], int]]:
    """Token ids of each document with its end token, and the length of its prompt."""
    whole = tokenizer([f"{d.prompt} {d.answer}" for d in corpus])["input_ids"]
    heads = tokenizer([d.prompt for d in corpus])["input_ids"]
    end = tokenizer.eos_token_id
    return [([*ids, end], len(head)) for ids, head in zip(whole, heads, strict=True)]


def batches(
    rows: list[tuple[list[int], int]], batch_size: int, pad_id: int, rng: np.random.Generator
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """One epoch of batches of documents of like length: ids (B, T) and loss weights (B, T)."""
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i][0]) // 4, rng.random()))
    groups = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    result = []
    for index in rng.permutation(len(groups)):
        part = [rows[i] for i in groups[index]]
        width = max(len(ids) for ids, _ in part)
        ids = torch.full((len(part), width), pad_id)
        weights = torch.zeros((len(part), width))
        for row, (tokens, head) in enumerate(part):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            weights[row, 1:head] = PROMPT_WEIGHT
            weights[row, head : len(tokens)] = 1.0
        result.append((ids, weights))
    return result


def fit(model: Any, rows: list[tuple[list[int], int]], *, epochs: int, batch_size: int, lr: float, seed: int) -> float:
    """Trains by AdamW with warm-up and cosine decay.

    Returns:
        The mean answer loss in nats per token over the last fifty steps.
    """
    rng = np.random.default_rng(seed)
    pad_id = model.config.pad_token_id
    plan = [batch for _ in range(epochs) for batch in batches(rows, batch_size, pad_id, rng)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01, betas=(0.9, 0.98))
    warm_up = max(1, len(plan) // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / warm_up, 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / max(1, len(plan))))),
    )
    model.train()
    recent: list[float] = []
    begun = time.monotonic()
    for step, (ids, weights) in enumerate(plan):
        logits = model(input_ids=ids, attention_mask=(ids != pad_id).long()).logits[:, :-1]
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        weight = weights[:, 1:]
        loss = (losses * weight).sum() / weight.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        answers = weight == 1.0
        recent.append(float(losses.detach()[answers].mean()))
        if step % 100 == 99:
            mean = float(np.mean(recent[-50:]))
            seconds = time.monotonic() - begun
            logger.info("step %d of %d: answer loss %.3f, %.0f s", step + 1, len(plan), mean, seconds)
    model.eval()
    return float(np.mean(recent[-50:]))


def save(model: Any, tokenizer: Any, output: Path, report: dict[str, Any]) -> None:
    """Writes model (fp16 safetensors), tokenizer and report; the folder is replaced at once."""
    output.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=output.parent, prefix=".embedded-"))
    try:
        half = model.half()
        half.save_pretrained(scratch, safe_serialization=True)
        tokenizer.chat_template = CHAT_TEMPLATE
        tokenizer.save_pretrained(scratch, save_jinja_files=False)
        # Weights are in half precision to be small; whoever takes the precision from here computes in the whole one.
        config = json.loads((scratch / "config.json").read_text(encoding="utf-8"))
        (scratch / "config.json").write_text(
            json.dumps({**config, "dtype": "float32"}, indent=2, sort_keys=True) + "\n"
        )
        text = json.dumps(report, indent=2) + "\n"
        (scratch / "pretraining.json").write_text(text, encoding="utf-8")
        scratch.chmod(0o755)
        replace_folder(scratch, output)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    model.float()


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", choices=list(CORPORA), default="kitchen", help="what the model reads")
    parser.add_argument("--output", type=Path, help="folder of the model; that of the package by default")
    parser.add_argument("--documents", type=int, help="80,000 of kitchens, 60,000 of minirts, 50,000 of soup")
    parser.add_argument("--epochs", type=int, default=2, help="passes over the corpus")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--vocab", type=int, help="tokens of the tokenizer; 768 for minirts, else 640")
    parser.add_argument("--batch-size", type=int, default=24, help="documents per step")
    parser.add_argument("--lr", type=float, default=2.5e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--questions", type=int, default=300, help="of each kind, to the model that was made")
    options = parser.parse_args(arguments)
    chosen = CORPORA[options.corpus]
    options.output = options.output or embedded_model_path(chosen.model)
    options.documents, options.vocab = options.documents or chosen.documents, options.vocab or chosen.vocab
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(options.seed)
    begun = time.process_time()
    corpus = chosen.read(options.documents, options.seed)
    tokenizer = train_tokenizer(corpus, options.vocab)
    model = build_model(tokenizer, layers=options.layers, hidden=options.hidden, heads=options.heads)
    rows = encode(corpus, tokenizer)
    size = sum(p.numel() for p in model.parameters())
    tokens = sum(len(ids) for ids, _ in rows)
    logger.info("%d documents, %d tokens; %d parameters", len(corpus), tokens, size)
    loss = fit(model, rows, epochs=options.epochs, batch_size=options.batch_size, lr=options.lr, seed=options.seed)
    report = {
        "settings": {k: v for k, v in vars(options).items() if k != "output"},
        "parameters": size,
        "tokens": tokens,
        "answer_loss": round(loss, 4),
        "cpu_seconds": round(time.process_time() - begun),
    }
    save(model, tokenizer, options.output, report)
    report["probe"] = load(chosen.probed_by)(str(options.output), options.questions)
    save(model, tokenizer, options.output, report)
    logger.info("%s", json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
