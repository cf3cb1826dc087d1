"""Policy folders as somebody could write them who means harm, and a server that must hear nothing of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from local_server import LocalServer
from toys import language_model

from rllib_llm_comm.policies.policy_folder import write_policy
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.policy import base_model_digest, policy_files
from rllib_llm_comm.verco.settings import CommunicationSettings, ModuleSettings

COOKS = "rllib_llm_comm/overcooked_text-v0"
SOUPS = "rllib_llm_comm/overcooked_ai-v0"
SECRET = "A_SECRET_OF_THE_TESTS"


class Ear(LocalServer):
    """Hears requests, with the keys that came with them, and answers nothing that is of use."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        super().__init__()

    def reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        self.keys.append(headers.get("authorization", ""))
        return 400, {}, b'{"error": {"message": "heard"}}'


def write_checkpoint(folder: Path, env: str = COOKS, **manifest: Any) -> Path:
    """A checkpoint of a tiny, untrained policy; `manifest` are fields of `policy.json`."""
    settings = ModuleSettings.from_mapping(language_model(init_seed=1, max_prompt_tokens=1024, max_candidate_tokens=64))
    network = LanguageNetwork(settings)
    config = {"max_game_steps": 8} if env == COOKS else {"observe": ["text"], "action_level": "goal", "horizon": 6}
    fields = {
        "algorithm": "Verco",
        "model_config": settings.to_dict(),
        "communication": CommunicationSettings(messages="constant").to_dict(),
        "env": env,
        "env_config": config,
        "base_model_digest": base_model_digest(network.lm.base),
        **manifest,
    }
    write_policy(folder / "policy", policy_files(network), PolicyManifest(**fields))
    return folder


def change(checkpoint: Path, section: str | None = None, **values: Any) -> None:
    """Changes `policy.json`, or one section of it."""
    path = checkpoint / "policy" / "policy.json"
    manifest = json.loads(path.read_text())
    (manifest if section is None else manifest[section]).update(values)
    path.write_text(json.dumps(manifest))


class Bomb:
    """Whoever unpickles it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")
