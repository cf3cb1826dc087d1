"""What every test shares: few threads, no hub, a tiny random language model."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Ray starts processes when they are needed; those that it starts ahead are of no use to trials, which get their own.
os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# The secret with which `rllib train` signs checkpoints: one of the tests' own.
os.environ.setdefault("XDG_STATE_HOME", tempfile.mkdtemp(prefix="state-"))

# Every process that a test starts would compile the sources anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest
import torch
from hypothesis import settings

from tests import fork_server

settings.register_profile("suite", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("suite")
torch.set_num_threads(1)
sys.dont_write_bytecode = False  # every process that shares the tests would rewrite the asserts of all


@pytest.fixture(scope="session")
def random_base():
    """A tiny LLaMA with large random weights: every token matters, nothing is near a tie."""
    from rllib_llm_comm.language.base_model import wrap_base_model
    from tools.embedded_model.corpus import documents
    from tools.embedded_model.train import build_model, train_tokenizer

    torch.manual_seed(0)
    tokenizer = train_tokenizer(list(documents(300, 0)), 400)
    model = build_model(tokenizer, layers=2, hidden=32, heads=4)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.25)
    return wrap_base_model("random", model, tokenizer)


@pytest.fixture
def adapted(random_base):
    """The random base with random (not identity) adapters."""
    from rllib_llm_comm.language.adapters import AdaptedModel, AdapterConfig

    torch.manual_seed(1)
    model = AdaptedModel(random_base, AdapterConfig(r=4, alpha=8))
    with torch.no_grad():
        for _, parameter in model.named_adapter_parameters():
            parameter.normal_(std=0.2)
    return model


@pytest.fixture(scope="module")
def small_ray():
    """One small Ray, shared by the tests that stand together; the next test without it shuts it down."""
    import ray

    if not ray.is_initialized():
        ray.init(
            num_cpus=3,
            object_store_memory=2 * 10**8,
            include_dashboard=False,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}},
        )
    return ray


def pytest_runtest_setup(item):
    if "ray" in sys.modules:
        from tests.forked import lighten_connectors, lighten_ray, workers

        lighten_ray(workers)
        if "ray.rllib.connectors.connector_v2" in sys.modules:
            lighten_connectors()
        if "small_ray" not in item.fixturenames:
            sys.modules["ray"].shutdown()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A browser for all tests that open pages, which are skipped where there is none."""
    from tests.browser import browser

    with browser(tmp_path_factory.mktemp("browser") / "profile") as running:
        yield running


@pytest.fixture
def synced(monkeypatch):
    """Files and folders, as they were named then, for which the program waited until they were on the disk itself."""
    wait, found = os.fsync, []

    def fsync(handle):
        found.append(Path(os.readlink(f"/proc/self/fd/{handle if isinstance(handle, int) else handle.fileno()}")))
        wait(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


@pytest.fixture(scope="session")
def one_authority(tmp_path_factory):
    """A file with one of the many certificates of authorities, which every new HTTP client reads for 30 ms."""
    import certifi

    first, end, _ = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----\n")
    path = tmp_path_factory.mktemp("certificates") / "one.pem"
    path.write_text(first + end)
    return path


@pytest.fixture
def chat_client_at_home(monkeypatch, one_authority):
    """Chat clients that find servers on this machine, have no key, and do not wait long before they try again."""
    from openai import _base_client

    monkeypatch.setenv("SSL_CERT_FILE", str(one_authority))
    monkeypatch.setattr(_base_client, "INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


STREAMS = ("stdin", "stdout", "stderr")
COMPILE = """
from rllib_llm_comm.envs.minirts.engine.rts_game import compile_rules
from rllib_llm_comm.envs.overcooked_ai.env import parallel_env
parallel_env(layout="cramped_room").reset(seed=0)
compile_rules()
"""


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Before a process starts that shares the tests: the server off which all fork programs loads the libraries."""
    node.workerinput["fork_server"] = fork_server.start()


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        fork_server.share(config.workerinput["fork_server"])


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    """Processes that share the tests begin with other files each; else each would rewrite the asserts of all."""
    gc.disable()  # until all is imported, which stays
    shared = getattr(session.config, "workerinput", None)
    folders = [Path(argument).resolve() for argument in session.config.args if shared and Path(argument).is_dir()]
    files = sorted(file for folder in folders for file in folder.rglob("test_*.py"))
    number, count = (int(shared["workerid"].removeprefix("gw")), shared["workercount"]) if shared else (0, 1)
    for file in files[number::count]:
        sys.path.insert(0, str(file.parent))
        with suppress(Exception, pytest.skip.Exception):  # told when it is collected
            importlib.import_module(file.stem)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Where processes share the tests, the longest compilation goes on beside them; who needs it comes last."""
    gc.freeze()
    gc.enable()
    items.sort(key=lambda item: "small_ray" not in item.fixturenames)
    if not hasattr(config, "workerinput"):
        return
    items.sort(key=lambda item: "minirts" in item.nodeid and "small_ray" not in item.fixturenames)
    if config.workerinput["workerid"] == "gw0" and items and "minirts" in items[-1].nodeid:
        config.compiler = subprocess.Popen(
            [sys.executable, "-c", COMPILE], **dict.fromkeys(STREAMS, subprocess.DEVNULL)
        )


def pytest_unconfigure(config):
    compiler = getattr(config, "compiler", None)
    if compiler is not None:
        compiler.kill()
        compiler.wait()
