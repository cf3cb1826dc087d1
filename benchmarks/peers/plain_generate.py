"""Messages by the `generate` of transformers: one left-padded batch, greedy, the adapter by PEFT."""

from __future__ import annotations

from typing import Any

import peft
import torch
import transformers

from party import serve, start

TOKENS_PER_WORD = 4


def main() -> None:
    """Serves messages."""
    folder, problem = start()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model", padding_side="left")
    base = transformers.AutoModelForCausalLM.from_pretrained(folder / "model").float()
    model = peft.PeftModel.from_pretrained(base, folder / "message").eval()

    @torch.inference_mode()
    def messages() -> Any:
        """Texts as they come: up to the end token, or 40 tokens."""
        batch = tokenizer(problem["message_prompts"], return_tensors="pt", padding=True)
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        written = model.generate(
            **inputs, do_sample=False, max_new_tokens=TOKENS_PER_WORD * problem["max_words"],
            pad_token_id=tokenizer.pad_token_id,
        )  # fmt: skip
        return tokenizer.batch_decode(written[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)

    serve({"messages": messages}, {"transformers": transformers.__version__, "torch": torch.__version__})


if __name__ == "__main__":
    main()
