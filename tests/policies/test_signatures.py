"""Training goes on from what was written here, from anything else only with `--trust`; playing unpickles nothing."""

import json
import pickle
import shutil
import signal
from pathlib import Path

import pytest
from completion_server import CompletionServer
from hostile import Ear, change, write_checkpoint
from toys import TESTS
from typer.testing import CliRunner

from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.experiment_file import ExperimentFile, TrainSettings, parse_experiments
from rllib_llm_comm.experiments.pipeline import run_file
from rllib_llm_comm.policies import signatures
from rllib_llm_comm.policies.signatures import (
    OwnStates,
    is_own_checkpoint,
    is_whole,
    key_file,
    make_key,
    seal_checkpoint,
)
from tests import forked
from tests.cli.command import fork_rllib, succeeds
from tests.hostile import Bomb

TINY = {"num_env_runners": 0, "num_epochs": 1, "train_batch_size_per_learner": 64, "minibatch_size": 64}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    make_key()
    return tmp_path


def checkpoint_in(folder):
    (folder / "part").mkdir(parents=True)
    (folder / "part" / "weights.pkl").write_bytes(b"1")
    (folder / "algorithm_state.pkl").write_bytes(b"2")
    return folder


def test_the_secret_is_for_this_user_alone_and_stays(home):
    path = key_file()
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o077 == 0
    before = path.read_bytes()
    make_key()
    assert path.read_bytes() == before and [entry.name for entry in path.parent.iterdir()] == [path.name]
    path.chmod(0o644)
    with pytest.raises(UserError, match="others"):
        make_key()


def test_a_changed_checkpoint_is_not_own(home):
    def fresh():
        shutil.rmtree(home / "c", ignore_errors=True)
        folder = checkpoint_in(home / "c")
        seal_checkpoint(folder, "PPO")
        assert signatures.signed_algorithm(folder) == "PPO"
        return folder

    changes = [
        lambda f: (f / "algorithm_state.pkl").write_bytes(b"3"),
        lambda f: (f / "dict_checkpoint.pkl").write_bytes(b"3"),
        lambda f: (f / "part" / "weights.pkl").unlink(),
        lambda f: (f / "part" / "weights.pkl").rename(f / "weights.pkl"),
        lambda f: (f / "link.pkl").symlink_to("/etc/passwd"),
        lambda f: (f / signatures.SIGNATURE).unlink(),
        lambda f: (f / signatures.SIGNATURE).write_text("["),
        lambda f: (f / signatures.SIGNATURE).write_text('{"algorithm": "PPO", "code": "00"}'),
        lambda f: (f / signatures.SIGNATURE).write_text(
            (f / signatures.SIGNATURE).read_text().replace("PPO", "Verco")
        ),
        lambda f: (f / signatures.SIGNATURE).write_text(
            json.dumps({**json.loads((f / signatures.SIGNATURE).read_text()), "files": {}})
        ),
    ]  # fmt: skip
    for do in changes:
        folder = fresh()
        do(folder)
        assert not is_own_checkpoint(folder)
    shutil.move(fresh(), home / "elsewhere")
    assert is_own_checkpoint(home / "elsewhere")
    key_file().unlink()
    make_key()
    assert not is_own_checkpoint(home / "elsewhere") and is_whole(home / "elsewhere")


def test_states_are_known_by_name_and_content(home):
    folder, staging = home / "stage", home / "staging"
    folder.mkdir()
    staging.mkdir()
    state = staging / "experiment_state-1.json"
    for text in ("one", "two"):
        state.write_text(text)
        OwnStates(folder).sign([state])
    copy = folder / state.name
    for text, known in (("one", True), ("two", True), ("tw", False)):
        copy.write_text(text)
        assert OwnStates(folder).holds(copy) is known
    shutil.copy(state, folder / "search_gen_state-1.json")
    assert not OwnStates(folder).holds(folder / "search_gen_state-1.json")
    states = OwnStates(folder)
    states.begin("a")
    assert OwnStates(folder).has_begun("a") and not OwnStates(folder).has_begun("b") and OwnStates(folder).holds(state)


def bombs_in(folder, spoilt):
    """Puts a bomb into every pickle below a folder."""
    for path in [*folder.rglob("*.pkl"), *folder.glob("basic-variant-state-*.json")]:
        path.write_bytes(pickle.dumps(Bomb(spoilt)))
    for path in folder.glob("experiment_state-*.json"):
        content = json.loads(path.read_text())
        content["runner_data"]["_bomb"] = {
            "_type": "CLOUDPICKLE_FALLBACK", "value": pickle.dumps(Bomb(spoilt)).hex(),
        }  # fmt: skip
        path.write_text(json.dumps(content))


def refusal(*command):
    """The sentence with which `rllib` refuses a command, in this process."""
    done = CliRunner().invoke(cli, command)
    assert isinstance(done.exception, UserError), done.output
    return str(done.exception)


def test_going_on_unpickles_only_what_was_written_here(tmp_path, monkeypatch):
    stop, often = {"training_iteration": 1000}, {"checkpoint_frequency": 1}
    spec = {"run": "PPO", "env": "CartPole-v1", "stop": stop, "config": TINY, "checkpoint_config": often}
    (tmp_path / "tiny.json").write_text(json.dumps({"cartpole": spec}))
    command = ["train", "file", "tiny.json", "--ray-num-cpus", "2"]
    running = fork_rllib(*command, cwd=tmp_path)
    for line in running.stdout:
        if line.split()[:1] == ["4"]:
            running.send_signal(signal.SIGKILL)
            break
    running.wait()
    monkeypatch.chdir(tmp_path)
    stage = tmp_path / "results/tiny/cartpole"
    own = sorted(stage.glob("trial_0/checkpoint_*"))[-2]
    assert is_own_checkpoint(own) and list(stage.glob("experiment_state-*.json"))

    # Another machine's secret: all of it is somebody else's.
    restore = ["train", "--run", "PPO", "--env", "CartPole-v1", "--config", json.dumps(TINY), "--restore", str(own)]
    with monkeypatch.context() as away:
        away.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
        assert "`--trust`" in refusal(*command)
        told = refusal(*restore)
        assert "`train.restore`" in told and "`--trust`" in told

    # The algorithm is compared before anything is unpickled, too.
    assert "a checkpoint of PPO, but `run` is APPO" in refusal(*restore[:2], "APPO", *restore[3:])

    # Changed by somebody: nothing of it is unpickled.
    spoilt = tmp_path / "exploded"
    shutil.copytree(stage, tmp_path / "foreign" / "tiny" / "cartpole")
    bombs_in(tmp_path / "foreign" / "tiny" / "cartpole", spoilt)
    bombs_in(own, spoilt)
    assert "changed" in refusal(*restore)

    (tmp_path / "foreign" / "tiny" / "cartpole" / signatures.SIGNATURE).unlink()
    assert "unfinished" in refusal(*command, "--storage-path", "foreign") and not spoilt.exists()


UNPICKLED = """
import json, sys
found = []


def heard(event, details):
    if event != "pickle.find_class":
        return
    frame = sys._getframe()
    while frame is not None:  # Numba keeps compiled rules of games beside the package's own files
        if frame.f_globals.get("__name__") == "numba.core.caching":
            return
        frame = frame.f_back
    found.append(details)


sys.addaudithook(heard)
import pickle
pickle.loads(pickle.dumps(json.JSONDecoder))
assert found, "the hook hears nothing"
from rllib_llm_comm.cli.main import cli
from rllib_llm_comm import load_policy
from typer.testing import CliRunner
import rllib_llm_comm.evaluation.planned_play, rllib_llm_comm.evaluation.replay
found.clear()
for arguments in json.loads(sys.argv[1]):
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, (arguments, done.exception)
load_policy(sys.argv[2])
print("unpickled:", [str(details) for details in found])
"""


def test_playing_unpickles_nothing(tmp_path):
    stage = tmp_path / "results" / "run" / "verco"
    checkpoint = write_checkpoint(stage / "trial_0" / "checkpoint_000001")
    spoilt = tmp_path / "exploded"
    bomb = pickle.dumps(Bomb(spoilt))
    names = [
        "algorithm_state.pkl", "class_and_ctor_args.pkl", "dict_checkpoint.pkl", "policy/policy.pkl",
        "policy/critic.pkl", "policy/pytorch_model.bin", "policy/adapters/message/adapter_model.bin",
        "policy/adapters/action/adapter_model.bin", "learner_group/learner/rl_module/shared/module_state.pkl",
        "../params.pkl", "../error.pkl", "../../tuner.pkl", "../../experiment_state-1.json",
    ]  # fmt: skip
    for name in names:
        path = checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bomb)
    commands = [
        ["evaluate", str(checkpoint), "--episodes", "1"],
        ["evaluate", str(stage / "trial_0"), "--episodes", "1", "--trust"],
        ["replay", str(checkpoint), "--out", str(tmp_path / "page.html")],
        ["planning", "reward", "--executor", "scripted", "--episodes", "1", "--layouts", "cramped_room"],
    ]
    (tmp_path / "program.py").write_text(UNPICKLED)
    env = {**forked.environment(), "PYTHONPATH": TESTS}
    done = forked.run(tmp_path / "program.py", json.dumps(commands), str(checkpoint), cwd=tmp_path, env=env)
    assert "unpickled: []" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    assert not spoilt.exists()


def test_a_checkpoint_speaks_for_the_policies_in_it(home):
    own = checkpoint_in(home / "trial" / "checkpoint_0")
    member = checkpoint_in(own / "population" / "agent_0")
    seal_checkpoint(own, "VercoPBT")
    assert is_own_checkpoint(own) and is_own_checkpoint(member) and is_own_checkpoint(own / "part")
    (home / "way").symlink_to(member)
    assert is_own_checkpoint(home / "way")
    copied = Path(shutil.copytree(member, home / "trial" / "agent_0"))
    assert not is_own_checkpoint(copied) and not is_own_checkpoint(home / "trial")
    foreign = checkpoint_in(home / "foreign")
    (home / "other").symlink_to(foreign)
    assert not is_own_checkpoint(home / "other")
    (own / "population" / "agent_1").symlink_to(foreign)
    assert not is_own_checkpoint(own / "population" / "agent_1") and not is_own_checkpoint(member)
    (own / "population" / "agent_1").unlink()
    assert is_own_checkpoint(member)
    (member / "algorithm_state.pkl").write_bytes(b"3")
    assert not is_own_checkpoint(member)


def test_cross_play_in_a_file_takes_own_recorded_settings_of_checkpoints_and_of_policies_in_them(home):
    def strangers(name):
        spec = {"run": "crossplay", "config": {"players": [str(member)], "partners": {"x": [str(own)]}, "episodes": 1}}
        file = ExperimentFile(name, parse_experiments({"strangers": spec}, name))
        run_file(file, TrainSettings(storage_path=str(home / "results")))

    with CompletionServer(lambda prompts: ["i wait"] * len(prompts)) as server:
        talk = {"messages": "student", "message_server": {"base_url": server.url, "model": "m", "max_retries": 0}}
        own = write_checkpoint(home / "own", communication=talk)
        member = own / "population" / "agent_0"
        shutil.copytree(own / "policy", member)
        with pytest.raises(UserError, match="recorded `message_server`"):
            strangers("unsigned")
        assert not server.requests
        seal_checkpoint(own, "VercoPBT")
        strangers("signed")
        assert server.requests and (home / "results/signed/strangers/crossplay.json").exists()


def test_stages_play_what_this_file_has_trained_with_its_own_settings(tmp_path, monkeypatch):
    """A chat teacher in training is a chat teacher in the evaluation, unasked; but not if somebody changed it."""
    with Ear() as ear, Ear() as evil:
        teacher = {"name": "chat", "model": "m", "base_url": ear.url, "max_retries": 0, "requests_per_minute": 1e6}
        config = {
            "env_config": {"max_game_steps": 2}, "messages": "teacher", "teacher": teacher, "num_epochs": 1,
            "num_envs_per_env_runner": 1, "train_batch_size_per_learner": 4,
        }  # fmt: skip
        spec = {
            "verco": {
                "run": "Verco", "env": "rllib_llm_comm/overcooked_text-v0", "config": config,
                "stop": {"training_iteration": 1},
            },
            "evaluation": {"run": "evaluate", "config": {"checkpoint": "${verco}", "episodes": 1}},
        }  # fmt: skip
        (tmp_path / "talk.json").write_text(json.dumps(spec))
        done = succeeds("train", "file", "talk.json", cwd=tmp_path)
        assert ear.requests and (tmp_path / "results/talk/evaluation/evaluation.json").exists()
        assert "rllib evaluate results/talk/verco --trust" in done.stdout
        asked = len(ear.requests)

        monkeypatch.chdir(tmp_path)
        told = refusal("evaluate", "results/talk/verco", "--episodes", "1")
        assert "recorded `teacher`" in told and len(ear.requests) == asked
        checkpoint = json.loads((tmp_path / "results/talk/verco/stage.json").read_text())["outputs"][0]
        change(tmp_path / f"results/talk/verco/{checkpoint}", teacher={**teacher, "base_url": evil.url})
        spec["evaluation"]["config"]["episodes"] = 2
        (tmp_path / "talk.json").write_text(json.dumps(spec))
        told = refusal("train", "file", "talk.json")
        assert "recorded `teacher`" in told and evil.url in told and not evil.requests
