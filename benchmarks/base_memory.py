"""Memory of a base model that several processes of a node have loaded.

    python benchmarks/base_memory.py --json docs/results/benchmarks/base_memory.json

Processes load the same folder by `load_base_model`, put both adapters on it, score once, and wait for each other. Each
counts what it grew by, adapters included; of what it shares it counts its part (Linux' PSS). In one row the file has
the dtype that is asked for, so that its pages are mapped; in the other one the weights are converted, so that each
process has its own. The yardstick is a copy of the base per process. The weights of the LLaMA shape are random.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from harness import Row, main

_PROCESSES = 3
_LOADS = """
import re, sys
import torch
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.scoring import score_candidates

def grown():
    with open("/proc/self/smaps_rollup") as file:
        return int(re.search(r"^Pss:\\s+(\\d+)", file.read(), re.MULTILINE).group(1)) / 1024

def load(name, dtype):
    model = AdaptedModel(load_base_model(name, dtype=dtype))
    ones = torch.ones(1, 4, dtype=torch.long)
    with torch.no_grad():
        score_candidates(model, ones, ones[:, None], torch.ones(1, 1), role=None)
    return model

torch.set_num_threads(1)
tiny = load("embedded", "bfloat16")  # so that what the libraries take is not counted
first = grown()
model = load(sys.argv[1], sys.argv[2])
print("loaded", flush=True)
sys.stdin.readline()
print(grown() - first, flush=True)
sys.stdin.readline()
"""


def measure(options: argparse.Namespace) -> list[Row]:
    """Both rows."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for stored, name in ((torch.bfloat16, "stored as asked for"), (torch.float32, "converted")):
            size = _save(Path(folder) / name, stored, options.smoke)
            held = _held(Path(folder) / name)
            settings = {"processes": _PROCESSES, "dtype": "bfloat16", "stored": str(stored), "base_mib": size}
            row = Row(f"base_memory/{name}", sum(held), size * _PROCESSES, "MiB", None, settings, lower_is_better=True)
            rows.append(row)
    return rows


def _save(folder: Path, dtype: torch.dtype, smoke: bool) -> float:
    """Writes a LLaMA with random weights and the embedded model's tokenizer; its size in bfloat16 in MiB."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from rllib_llm_comm.language.base_model import embedded_model_path

    layers, hidden = (2, 256) if smoke else (30, 576)
    shape = LlamaConfig(
        vocab_size=49152, hidden_size=hidden, intermediate_size=hidden * 8 // 3, num_hidden_layers=layers,
        num_attention_heads=hidden // 64, num_key_value_heads=hidden // 64, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(shape).to(dtype)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(embedded_model_path()).save_pretrained(folder)
    return sum(weights.numel() for weights in model.parameters()) * 2 / 2**20


def _held(folder: Path) -> list[float]:
    """MiB by which each process grew, all of them loaded."""
    command = [sys.executable, "-c", _LOADS, str(folder), "bfloat16"]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(_PROCESSES)
    ]
    try:
        for process in processes:
            if process.stdout.readline().strip() != "loaded":
                raise RuntimeError("a process could not load the model.")
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        return [float(process.stdout.readline()) for process in processes]
    finally:
        for process in processes:
            process.stdin.close()
            process.wait()


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
