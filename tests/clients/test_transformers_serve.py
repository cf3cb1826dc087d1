"""`transformers serve` answers through an exported model what the policy says."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from toys import write_talker

from rllib_llm_comm import load_policy
from rllib_llm_comm.verco.export_models import export_models

PROMPT = "i am alice. the plum door is right. i say:"


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    return write_talker(tmp_path_factory.mktemp("trained") / "policy")


@pytest.fixture(scope="module")
def served(policy) -> Iterator[tuple[openai.OpenAI, str]]:
    """A client of the server, and the name of the merged message model that it serves."""
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed; `pip install -e '.[heavy]'` brings it")
    model = str(export_models(policy, policy.parent / "merged", merge=True)[0])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [Path(sys.executable).parent / "transformers", "serve", model, "--device", "cpu"]
    log = policy.parent / "server.log"
    with log.open("w") as written:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", port], stdout=written, stderr=written, env=environment
        )
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    try:
        _wait_for(int(port), server, log)
        yield client, model
    finally:
        client.close()
        server.terminate()
        server.wait(60)


def _wait_for(port: int, server: subprocess.Popen, log: Path) -> None:
    for _ in range(600):
        assert server.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(log.read_text())


@pytest.mark.clients
def test_a_chat_completion_is_what_the_policy_says(policy, served):
    client, model = served
    asked = {"model": model, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 40}
    answer = client.chat.completions.create(**asked, temperature=0).choices[0].message
    said = load_policy(policy).network.write_messages([PROMPT])[0]
    assert answer.role == "assistant" and said and answer.content.strip().startswith(said)
    parts = client.chat.completions.create(**asked, temperature=0, stream=True)
    assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == answer.content
