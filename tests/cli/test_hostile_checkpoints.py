"""A checkpoint chooses neither whom we talk to nor what is written: one hostile policy folder per command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from hostile import COOKS, SECRET, SOUPS, Ear, change, write_checkpoint
from typer.testing import CliRunner

from rllib_llm_comm import load_policy
from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    return {env: write_checkpoint(root / str(number), env) for number, env in enumerate((COOKS, SOUPS))}


@pytest.fixture
def place(checkpoints, tmp_path, monkeypatch):
    """Copies of both checkpoints to spoil, in a folder in which nothing else may appear."""
    monkeypatch.setenv(SECRET, "sk-very-secret")
    monkeypatch.chdir(tmp_path)
    return {env: shutil.copytree(path, tmp_path / path.name) for env, path in checkpoints.items()}


def chat(ear, tmp_path):
    """Settings that send a secret to an address, and make a folder."""
    return {
        "model": "m", "base_url": ear.url, "api_key_env": SECRET, "cache_dir": str(tmp_path / "made"), "max_retries": 0,
        "requests_per_minute": 1e6,
    }  # fmt: skip


def run(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def spoil_teacher(place, ear, tmp_path):
    change(place[COOKS], teacher={"name": "chat", **chat(ear, tmp_path)})
    change(place[COOKS], "communication", messages="teacher")
    return place[COOKS]


def spoil_server(place, ear, tmp_path):
    server = {"base_url": ear.url, "api_key_env": SECRET, "max_retries": 0}
    change(place[COOKS], "communication", messages="student", message_server=server)
    return place[COOKS]


def spoil_planner(place, ear, tmp_path):
    change(place[SOUPS], planning={"planner": {"name": "chat", "chat": chat(ear, tmp_path)}, "patience": 5})
    return place[SOUPS]


SPOILT = {"teacher": spoil_teacher, "message_server": spoil_server, "planner": spoil_planner}
COMMANDS = {
    "evaluate": lambda path: ["evaluate", path, "--episodes", "1"],
    "replay": lambda path: ["replay", path, "--out", "page.html"],
    "beside": lambda path: ["replay", path, "--beside", path, "--out", "page.html"],
    "trials": lambda path: ["evaluate", path, "--episodes", "1", "--trials", "1"],
}


def heard_nothing(ear, tmp_path):
    return not ear.requests and not (tmp_path / "made").exists() and not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("spoilt", "command"),
    [
        ("teacher", "evaluate"), ("message_server", "replay"), ("planner", "evaluate"), ("planner", "replay"),
        ("planner", "beside"), ("planner", "trials"),
    ],
)  # fmt: skip
def test_nobody_is_asked_unless_the_user_says_so(spoilt, command, place, tmp_path):
    with Ear() as ear:
        path = SPOILT[spoilt](place, ear, tmp_path)
        done = run(*COMMANDS[command](path))
        assert isinstance(done.exception, UserError) and heard_nothing(ear, tmp_path)
        told = str(done.exception)
        assert f"`{spoilt}`" in told and ear.url in told and SECRET in told
        assert f"`--{spoilt.replace('_', '-')}`" in told and "`--trust`" in told and "sk-very" not in told
        # The same with `--trust` does ask, so that the silence before means something.
        run(*COMMANDS[command](path), "--trust")
        assert ear.requests and any("sk-very-secret" in key for key in ear.keys)


def test_own_settings_take_the_place_of_recorded_ones(place, tmp_path):
    with Ear() as ear:
        taught = spoil_teacher(place, ear, tmp_path)
        assert run("evaluate", taught, "--episodes", "1", "--teacher", "scripted").exit_code == 0
        assert run("evaluate", taught, "--episodes", "1", "--messages", "none").exit_code == 0
        served = spoil_server(place, ear, tmp_path)
        assert run("evaluate", served, "--episodes", "1", "--message-server", "none").exit_code == 0
        planned = spoil_planner(place, ear, tmp_path)
        assert run("evaluate", planned, "--episodes", "1", "--planner", "none").exit_code == 0
        assert heard_nothing(ear, tmp_path)


def test_stages_of_a_file_ask_as_well(place, tmp_path):
    with Ear() as ear:
        for number, spoil in enumerate(SPOILT.values()):
            path = spoil(place, ear, tmp_path)
            for kind in ("evaluate", "replay"):
                file = tmp_path / f"{kind}{number}.json"
                file.write_text(json.dumps({kind: {"run": kind, "config": {"checkpoint": str(path), "episodes": 1}}}))
                done = run("train", "file", file)
                assert isinstance(done.exception, UserError) and "`--trust`" in str(done.exception), done.output
        assert heard_nothing(ear, tmp_path)
        run("train", "file", file, "--trust")
        assert ear.requests


def test_planning_asks_as_well(place, tmp_path):
    change(place[SOUPS], "env_config", subgoal_file=str(tmp_path / "made"))
    done = run("planning", "reward", "--executor", place[SOUPS], "--episodes", "1")
    assert isinstance(done.exception, UserError) and "`env_config.subgoal_file`" in str(done.exception)


def test_load_policy_asks_in_three_lines(place, tmp_path):
    with Ear() as ear:
        for spoil in SPOILT.values():
            path = spoil(place, ear, tmp_path)
            with pytest.raises(UserError, match=r"recorded `\w+` \{.*trust=True"):
                policy = load_policy(path)
                observations, _ = policy.env().reset(seed=0)
                policy.act(observations)
        assert heard_nothing(ear, tmp_path)


WITHHELD = [
    ("teacher", {"name": "scripted", "log": "/tmp/x"}),
    ("planner", {"name": "cassette", "cassette": "/etc/passwd"}),
    ("planner", {"name": "deps", "chat": {"local": "smollm2", "cassette": "made"}}),
    ("planner", {"name": "chat", "chat": {"local": "smollm2", "cache_dir": "made"}}),
    ("planner", {"name": "chat", "chat": {"local": "some/model"}}),
    ("planner", {"name": "chat", "chat": {"local": "smollm2"}, "manual": "/etc/passwd"}),
    ("planner", {"name": "chat", "chat": {"local": "smollm2"}, "text_encoder": "some/model"}),
    ("planner", {"name": "disturbed", "planner": {"name": "chat", "chat": {"model": "m"}}}),
    ("planner", {"name": "somebodys", "address": "x"}),
]


@pytest.mark.parametrize(("setting", "value"), WITHHELD)
def test_further_ways_out_are_withheld(setting, value, place, tmp_path):
    path = place[SOUPS if setting == "planner" else COOKS]
    if setting == "planner":
        change(path, planning={"planner": value})
    else:
        change(path, teacher=value)
        change(path, "communication", messages="teacher")
    with pytest.raises(UserError, match=f"recorded `{setting}`"):
        load_policy(path).env()
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "planner",
    [
        "scripted", "plan4mc", {"name": "random", "seed": 3}, {"name": "chat", "chat": {"local": "smollm2"}},
        {"name": "cassette", "cassette": "claude_reward_code"},
        {"name": "disturbed", "share": 0.2, "planner": "scripted"},
    ],
)  # fmt: skip
def test_planners_of_this_program_need_no_trust(planner, place):
    change(place[SOUPS], planning={"planner": planner})
    assert load_policy(place[SOUPS]).env().plan is None


def test_models_from_elsewhere_are_withheld_and_folders_only_read(place, tmp_path):
    change(place[COOKS], "model_config", base_model="somebody/model")
    with pytest.raises(UserError, match='recorded `base_model` "somebody/model"'):
        load_policy(place[COOKS])
    code = tmp_path / "with_code"
    code.mkdir()
    (code / "config.json").write_text(
        json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.M"}})
    )
    (code / "evil.py").write_text(f"open({str(tmp_path / 'made')!r}, 'w')\n")
    (code / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch made'\ntR.")
    change(place[COOKS], "model_config", base_model=str(code))
    with pytest.raises(UserError, match="could not be loaded"):
        load_policy(place[COOKS])
    assert not (tmp_path / "made").exists()


def test_texts_in_settings_of_foreign_games_are_withheld(place, tmp_path):
    from toys import register

    change(place[COOKS], env=register(), env_config={"length": 3, "render_mode": "/somewhere"})
    with pytest.raises(UserError, match="recorded `env_config.render_mode`"):
        load_policy(place[COOKS]).env()
    assert load_policy(place[COOKS]).env(render_mode=None).length == 3
    assert load_policy(place[COOKS], trust=True).env().render_mode == "/somewhere"


def test_a_name_with_a_module_is_not_imported(place, tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'made')!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("evil_module:Env-v0", "evil_module/Env-v0", "../evil_module"):
        change(place[COOKS], env=name)
        with pytest.raises(UserError, match="is not registered"):
            load_policy(place[COOKS]).env()
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("section", "values", "told"),
    [
        ("model_config", {"lora_r": 10**7}, "`lora_r` is 10000000"),
        ("model_config", {"lora_alpha": 10**9}, "`lora_alpha`"),
        ("model_config", {"lora_target_modules": "(a+)+$"}, "`lora_target_modules`"),
        ("model_config", {"critic_hiddens": [60000, 60000]}, "does not fit its own settings"),
        ("model_config", {"critic_hiddens": [8] * 1000}, "`critic_hiddens`"),
        ("model_config", {"max_prompt_tokens": 10**9}, "`max_prompt_tokens`"),
        ("model_config", {"max_candidate_tokens": 10**9}, "`max_candidate_tokens`"),
        ("model_config", {"prefix_cache_mb": 10**12}, "`prefix_cache_mb`"),
        ("model_config", {"trunk_cache_mb": 10**12}, "`trunk_cache_mb`"),
        ("model_config", {"micro_batch_tokens": 0}, "`micro_batch_tokens`"),
        ("model_config", {"lora_layers": 10**4}, "`lora_layers` is 10000 but `base_model`"),
        ("model_config", {"lora_layers": 1}, "and `lora_layers` 1"),
        ("model_config", {"temperature": float("inf")}, "`model_config.temperature`"),
        ("model_config", {"init_seed": 2**70}, "`model_config.init_seed`"),
        ("communication", {"max_message_words": 10**8}, "`max_message_words`"),
        ("env_config", {"view_radius": 10**400}, "`env_config.view_radius`"),
        (None, {"planning": {"planner": "scripted", "patience": 10**9}}, "`planning.patience`"),
        (None, {"model_config": 5}, "`model_config`"),
        (None, {"format": "new"}, "`format`"),
        (None, {"trust": True}, "trust"),
    ],
)
@pytest.mark.timeout(60)
def test_impossible_values_are_told_at_once(section, values, told, place):
    change(place[COOKS], section, **values)
    with pytest.raises(UserError) as caught:
        load_policy(place[COOKS])
    assert told in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_an_episode_without_end_is_asked_for(place):
    change(place[COOKS], "env_config", max_game_steps=10**12)
    with pytest.raises(UserError, match="recorded `env_config.max_game_steps` 1000000000000"):
        load_policy(place[COOKS]).env()
    assert load_policy(place[COOKS]).env(max_game_steps=5) is not None


@pytest.mark.parametrize("text", ["[" * 10**5, "\x00", '{"algorithm": ' + "9" * 10**5 + "}"])
def test_no_text_breaks_the_reader(text, place):
    (place[COOKS] / "policy" / "policy.json").write_text(text)
    with pytest.raises(UserError, match="cannot be read"):
        load_policy(place[COOKS])


@pytest.mark.parametrize("model", ["m" * 5000, "~nobody_of_this_name/model", "\x00"])
def test_a_base_model_that_can_be_no_folder_is_withheld(model, place):
    change(place[COOKS], "model_config", base_model=model)
    with pytest.raises(UserError, match="recorded `base_model`"):
        load_policy(place[COOKS])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_nobody_waits_for_a_pipe_in_place_of_weights(place):
    path = place[COOKS] / "policy/critic.safetensors"
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    code = "from rllib_llm_comm.cli.main import app; app()"
    command = [sys.executable, "-c", code, "evaluate", str(place[COOKS]), "--episodes", "1"]
    # Another process, killed: one that waits for a pipe hears no signal of Python's.
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    told = " ".join(done.stderr.split())
    assert done.returncode and ("no ordinary file" in told or "is damaged" in told), done.stderr
