"""The wheel's smoke run tells the interpreters that it has not."""

import json
import subprocess
import sys
import zipfile

import pytest

from tools.smoke_wheel import FAILS, MISSING, ROOT, build_wheel, smoke


@pytest.mark.slow
def test_a_missing_interpreter_and_a_wheel_that_cannot_be_installed(tmp_path):
    missing = smoke("python3.99", tmp_path / "none.whl", tmp_path, None)
    assert (missing.outcome, str(missing)) == (MISSING, "python3.99: not to be had")
    broken = smoke(sys.executable, tmp_path / "none.whl", tmp_path, None)
    assert broken.outcome == FAILS and "none.whl" in broken.error
    assert list(tmp_path.iterdir()) == []  # the environment is gone


@pytest.mark.slow
def test_the_command_fails_where_no_interpreter_is(tmp_path):
    command = [sys.executable, ROOT / "tools" / "smoke_wheel.py", "python3.99", "--out", tmp_path / "out.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 1 and done.stdout == "python3.99: not to be had\n", done.stderr
    assert [each["outcome"] for each in json.loads((tmp_path / "out.json").read_text())] == [MISSING]


def test_the_wheel_holds_nothing_of_an_earlier_build(tmp_path):
    names = zipfile.ZipFile(build_wheel(tmp_path)).namelist()
    assert "rllib_llm_comm/rl/epoch_progress.py" in names and "rllib_llm_comm/tuned_examples/verco.yaml" in names
    assert not [name for name in names if name.startswith(("build", "tests", "tools"))]
