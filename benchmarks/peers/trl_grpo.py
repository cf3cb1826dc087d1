"""TRL's GRPOTrainer with the candidates of a decision as the completions of a prompt.

`rollout_func` hands the trainer the candidates instead of generated texts. The trainer then does what it does with
completions: log-probabilities of all of them without gradient, and clipped gradient steps through all of them.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
import transformers
import trl
from datasets import Dataset
from peft import PeftModel
from trl import GRPOConfig, GRPOTrainer

from party import padded_rows, serve, start

ROWS_PER_PASS = 16


def main() -> None:
    """Serves scores and iterations."""
    folder, problem = start()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model", padding_side="left")
    base = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    model = PeftModel.from_pretrained(base, folder / "action", is_trainable=True)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = _trainer(model, tokenizer, problem, scratch)

        @torch.no_grad()
        def scores() -> Any:
            """Log-probabilities of all candidates, by the function with which the trainer computes its own."""
            ids, mask, long = padded_rows(problem, tokenizer.pad_token_id)
            logps = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, long, ROWS_PER_PASS)[0]
            return (logps * mask[:, -long:]).sum(1).reshape(len(problem["prompts"]), -1).tolist()

        versions = {"trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
        serve({"scores": scores, "iteration": lambda: trainer.train() and None}, versions)


def _trainer(model: Any, tokenizer: Any, problem: dict[str, Any], scratch: str) -> GRPOTrainer:
    many = len(problem["candidates"][0])
    rows = len(problem["prompts"]) * many
    per_step = problem["minibatch_size"] * many
    per_pass = min(ROWS_PER_PASS, per_step)
    settings = GRPOConfig(
        output_dir=scratch, use_cpu=True, bf16=False, fp16=False, report_to="none", save_strategy="no",
        logging_strategy="no", disable_tqdm=True, shuffle_dataset=False, remove_unused_columns=False,
        gradient_checkpointing=False,  # it would compute every forward pass twice
        learning_rate=problem["lr"], lr_scheduler_type="constant", epsilon=0.2, beta=0.0, num_generations=many,
        num_iterations=problem["epochs"], per_device_train_batch_size=per_pass,
        gradient_accumulation_steps=per_step // per_pass, steps_per_generation=rows // per_pass,
        max_steps=rows // per_step * problem["epochs"], max_completion_length=32, temperature=1.0,
    )  # fmt: skip
    number = {prompt: index for index, prompt in enumerate(problem["prompts"])}

    def candidates(prompts: list[str], _: Any) -> dict[str, Any]:
        """The candidates in place of generated completions, and their rewards."""
        seen: Counter[str] = Counter()
        heads, tails, rewards = [], [], []
        for prompt in prompts:
            decision, candidate = number[prompt], seen[prompt]
            seen[prompt] += 1
            heads.append(problem["prompt_ids"][decision])
            tails.append(problem["candidate_ids"][decision][candidate])
            taken = candidate == problem["actions"][decision]
            rewards.append(problem["advantages"][decision] if taken else 0.0)
        return {"prompt_ids": heads, "completion_ids": tails, "logprobs": None, "given": rewards}

    def reward(given: list[float], **_: Any) -> list[float]:
        """Rewards as the roll-out says."""
        return given

    return GRPOTrainer(
        model=model, reward_funcs=reward, args=settings, processing_class=tokenizer, rollout_func=candidates,
        train_dataset=Dataset.from_dict({"prompt": problem["prompts"]}),
    )  # fmt: skip


if __name__ == "__main__":
    main()
