"""Load trained adapters with plain transformers and PEFT, without RLlib and without this package's classes.

This example:
    - takes the policy folder of a checkpoint of MessageSFT or Verco (or writes one with fresh adapters);
    - loads the base model with `AutoModelForCausalLM` and puts the message and the action adapter on it with
      `peft.PeftModel.from_pretrained`, as one would with any adapter from a hub;
    - writes a message and scores all candidate actions with them (`score_normalization` "sum", the paper's);
    - checks that this package's own `load_policy` says the same.

How to run this script
----------------------
`python adapters_in_plain_peft.py --checkpoint CHECKPOINT`, for example results/verco/verco after
`rllib train file tuned_examples/verco.yaml`; without a checkpoint (or with `--smoke`) the adapters are fresh ones,
which change nothing about the base model.

Results to expect
-----------------
The message of a cook, as PEFT and as `load_policy` write it (the same words), and the probability of each candidate by
both (the same to about 1e-5).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from rllib_llm_comm import load_policy
from rllib_llm_comm.language.base_model import embedded_model_path
from rllib_llm_comm.language.prompts import message_prompt
from rllib_llm_comm.policies.policy_folder import find_policy


def fresh_checkpoint(folder: str) -> str:
    """A checkpoint of an untrained Verco."""
    import ray

    from rllib_llm_comm import VercoConfig

    ray.init(num_cpus=1, object_store_memory=10**8, include_dashboard=False, log_to_driver=False)
    try:
        algo = VercoConfig().environment("rllib_llm_comm/overcooked_text-v0").debugging(seed=0).build_algo()
        path = algo.save_to_path(folder)
        algo.stop()
    finally:
        ray.shutdown()
    return str(path)


def log_probability(model: torch.nn.Module, tokenizer: object, prompt: str, phrase: str) -> float:
    """Sum of the log-probabilities of a phrase's tokens behind a prompt (Verco Eq. 2)."""
    head = tokenizer(prompt).input_ids  # type: ignore[operator]
    ids = tokenizer(f"{prompt} {phrase}").input_ids  # type: ignore[operator]
    with torch.no_grad():
        log_probs = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    return sum(float(log_probs[place - 1, ids[place]]) for place in range(len(head), len(ids)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Load trained adapters with plain transformers and PEFT.")
    parser.add_argument("--checkpoint", help="checkpoint of MessageSFT or Verco")
    parser.add_argument("--smoke", action="store_true", help="use fresh adapters")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = arguments.checkpoint if arguments.checkpoint and not arguments.smoke else fresh_checkpoint(scratch)
        folder: Path = find_policy(checkpoint)
        name = json.loads((folder / "policy.json").read_text())["model_config"]["base_model"]
        base = str(embedded_model_path()) if name == "embedded" else name

        tokenizer = AutoTokenizer.from_pretrained(base)
        model = PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(base), str(folder / "adapters" / "message"), adapter_name="message"
        )
        model.load_adapter(str(folder / "adapters" / "action"), adapter_name="action")
        model.eval()

        policy = load_policy(checkpoint)
        observations, _ = policy.env().reset(seed=0)
        alice = observations["alice"]

        model.set_adapter("message")
        prompt = message_prompt(alice["text"])
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        written = model.generate(input_ids=ids, max_new_tokens=24, do_sample=False)[0, ids.shape[1] :]
        print("alice sees:", alice["text"])
        words = tokenizer.decode(written, skip_special_tokens=True).splitlines()[0].strip()
        print("PEFT says:       ", words)
        print("load_policy says:", policy.network.write_messages([prompt])[0])

        model.set_adapter("action")
        bob = policy.act(observations)["bob"]
        allowed = [index for index, mask in enumerate(observations["bob"]["action_mask"]) if mask]
        scores = [log_probability(model, tokenizer, bob.prompt, bob.candidates[index]) for index in allowed]
        by_peft = (torch.tensor(scores) / policy.network.settings.temperature).softmax(-1).tolist()
        print("\nbob's prompt:", bob.prompt)
        for index, chance in zip(allowed, by_peft, strict=True):
            print(f"  {bob.candidates[index]:40s} PEFT {chance:.5f}  load_policy {bob.probabilities[index]:.5f}")


if __name__ == "__main__":
    main()
