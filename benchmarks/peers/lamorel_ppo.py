"""lamorel: its Caller and its language-model server in two processes, with an updater and a value head of ours.

lamorel leaves loss and value head to its user. Keys and values of prompts are computed once per decision
(`pre_encode_inputs`), which is its quicker way. It needs its two processes; this program starts the second.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

if "RANK" not in os.environ:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
              "ACCELERATE_USE_CPU": "true"}  # fmt: skip
    os.environ.update(common)
    # Local ranks are swapped: where rank and local rank agree, lamorel asks for a GPU, there or not.
    second = {**os.environ, "RANK": "1", "LOCAL_RANK": "0"}
    subprocess.Popen([sys.executable, *sys.argv], env=second, stdin=subprocess.DEVNULL, stdout=2)
    os.environ.update({"RANK": "0", "LOCAL_RANK": "1"})

import peft
import torch
import transformers
from lamorel import BaseModelInitializer, BaseModuleFunction, BaseUpdater, Caller, lamorel_init
from omegaconf import OmegaConf

from party import serve, start

CLIP, ENTROPY_WEIGHT, VALUE_WEIGHT = 0.2, 0.01, 0.5
SCORE, VALUE = "__score", "value"  # the first is lamorel's own


class Adapters(BaseModelInitializer):
    """Puts the problem's adapter on the model."""

    def __init__(self, folder: Any) -> None:
        super().__init__()
        self._folder = folder

    def initialize_model(self, model: Any) -> Any:
        """The same model with a trainable adapter."""
        model._LLM_model = peft.PeftModel.from_pretrained(model._LLM_model, self._folder, is_trainable=True)
        return model.eval()


class ValueHead(BaseModuleFunction):
    """A value from the prompt's last hidden state, without gradient into the model."""

    def initialize(self) -> None:
        """Makes the layers."""
        layers = (torch.nn.Linear(self.llm_config.hidden_size, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1))
        self.head = torch.nn.Sequential(*layers)

    def forward(self, forward_outputs: Any, **_: Any) -> torch.Tensor:
        """One value per row; with prompts encoded before, a row begins with the prompt's last token."""
        return self.head(forward_outputs["hidden_states"][-1][:, 0].detach())[:, 0]


class Update(BaseUpdater):
    """PPO over the candidates."""

    def perform_update(self, contexts: Any, candidates: Any, _current_batch_ids: Any, **given: Any) -> None:
        """All epochs of one batch."""
        module, size = self._llm_module, given["minibatch_size"]
        optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=given["lr"])
        for _ in range(given["epochs"]):
            for rows in torch.arange(len(contexts)).split(size):
                menus = [candidates[row] for row in rows]
                output = module([SCORE, VALUE], contexts=[contexts[row] for row in rows], candidates=menus,
                                require_grad=True, minibatch_size=sum(map(len, menus)))  # fmt: skip
                loss = _loss(output, {name: given[name][rows] for name in ("actions", "advantages", "old", "values")})
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


def _loss(output: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    chances, values = _policy(output)
    ratio = (chances.log_prob(batch["actions"]) - batch["old"]).exp()
    gain = torch.min(ratio * batch["advantages"], ratio.clamp(1 - CLIP, 1 + CLIP) * batch["advantages"])
    targets = batch["advantages"] + batch["values"]
    near = batch["values"] + (values - batch["values"]).clamp(-CLIP, CLIP)
    value = 0.5 * torch.max((values - targets) ** 2, (near - targets) ** 2).mean()
    return -gain.mean() - ENTROPY_WEIGHT * chances.entropy().mean() + VALUE_WEIGHT * value


def _policy(output: Any) -> tuple[torch.distributions.Categorical, torch.Tensor]:
    scores = torch.stack([row[SCORE] for row in output])
    return torch.distributions.Categorical(logits=scores), torch.stack([row[VALUE][0] for row in output])


def _settings(folder: Any, rows: int) -> Any:
    parallel = {"use_gpu": False, "model_parallelism_size": 1, "synchronize_gpus_after_scoring": False,
                "empty_cuda_cache_after_scoring": False}  # fmt: skip
    model = {"model_type": "causal", "model_path": str(folder / "model"), "pretrained": True, "seed": 1,
             "minibatch_size": rows, "pre_encode_inputs": True, "load_in_4bit": False,
             "parallelism": parallel}  # fmt: skip
    return OmegaConf.create(
        {"log_level": "warning", "allow_subgraph_use_whith_gradient": False, "llm_args": model,
         "distributed_setup_args": {"n_rl_processes": 1, "n_llm_processes": 1}}
    )  # fmt: skip


def main() -> None:
    """Serves scores and iterations; the second process stays in the Caller."""
    folder, problem = start()
    lamorel_init()
    candidates = [[f" {phrase}" for phrase in menu] for menu in problem["candidates"]]
    caller = Caller(
        _settings(folder, len(candidates) * len(candidates[0])),
        custom_updater=Update(),
        custom_model_initializer=Adapters(folder / "action"),
        custom_module_functions={VALUE: ValueHead()},
    )
    texts = {"contexts": problem["prompts"], "candidates": candidates}
    actions, advantages = torch.tensor(problem["actions"]), torch.tensor(problem["advantages"])

    def scores() -> Any:
        """Log-probabilities of all candidates."""
        return [row.tolist() for row in caller.score(**texts)]

    def iteration() -> None:
        """Scores and values, then the update."""
        chances, values = _policy(caller.custom_module_fns([SCORE, VALUE], **texts))
        how = {name: problem[name] for name in ("epochs", "minibatch_size", "lr")}
        caller.update(**texts, **how, actions=actions, advantages=advantages,
                      old=chances.log_prob(actions), values=values)  # fmt: skip

    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    serve({"scores": scores, "iteration": iteration}, versions)
    caller.close()


if __name__ == "__main__":
    main()
