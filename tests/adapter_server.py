"""A server on 127.0.0.1 that loads LoRA adapters while it runs, by vLLM's calls, and writes messages with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from local_server import LocalServer

from rllib_llm_comm.language.adapters import MESSAGE, AdaptedModel
from rllib_llm_comm.language.generation import generate_messages


class AdapterServer(LocalServer):
    """Writes messages by the loaded adapter that a request names.

    Args:
        model: A model of its own, into which a named adapter is read.
        loads: Whether adapters can be loaded while it runs.

    Attributes:
        loaded: Folder of each loaded adapter, by name.
    """

    def __init__(self, model: AdaptedModel, loads: bool = True) -> None:
        self._model, self._loads = model, loads
        self.loaded: dict[str, str] = {}
        super().__init__()

    def reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        if path.endswith("_lora_adapter"):
            return self._adapter(path, body)
        if body["model"] not in self.loaded:
            return self._refusal(404, f"The model `{body['model']}` does not exist.")
        self._model.load_adapter(MESSAGE, self.loaded[body["model"]])
        texts = generate_messages(self._model, body["prompt"])
        choices = [{"index": k, "text": f" {text}", "finish_reason": "stop"} for k, text in enumerate(texts)]
        answer = {"id": "x", "object": "text_completion", "created": 1, "model": body["model"], "choices": choices}
        return 200, {}, json.dumps(answer).encode()

    def _adapter(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        name = body["lora_name"]
        if not self._loads:
            return self._refusal(404, "Not Found")
        if path.endswith("/unload_lora_adapter"):
            if self.loaded.pop(name, None) is None:
                return self._refusal(404, f"The lora adapter '{name}' cannot be found.")
            return 200, {"content-type": "text/plain"}, f"Success: LoRA adapter '{name}' removed successfully.".encode()
        if name in self.loaded:
            return self._refusal(400, f"The lora adapter '{name}' has already been loaded.")
        if not (Path(body["lora_path"]) / "adapter_config.json").is_file():
            return self._refusal(404, f"Loading lora {name} failed: No adapter found for {body['lora_path']}")
        self.loaded[name] = body["lora_path"]
        return 200, {"content-type": "text/plain"}, f"Success: LoRA adapter '{name}' added successfully.".encode()

    def _refusal(self, status: int, words: str) -> tuple[int, dict[str, str], bytes]:
        return status, {}, json.dumps({"error": {"message": words, "code": status}}).encode()
