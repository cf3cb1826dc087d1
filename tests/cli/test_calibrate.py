"""`rllib calibrate` as a user types it."""

from __future__ import annotations

import json

from tests.cli.command import rllib


def test_the_command_advises_and_writes_its_figures(tmp_path):
    done = rllib(
        "calibrate", "--env", "rllib_llm_comm/door-v0", "--env-config", '{"doors": 4}', "--decisions", "20",
        "--json", "figures.json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    advice = figures["advice"]
    told = f"Write in `config`: score_normalization: {advice['normalization']}, temperature: {advice['temperature']:g}"
    assert told in done.stdout
    assert figures["base_model"] == "embedded" and figures["env_config"] == {"doors": 4}
    assert abs(advice["entropy"] - 0.5) < 0.05


def test_an_aim_out_of_its_range_is_refused_before_a_model_is_sought(tmp_path):
    done = rllib("calibrate", "--env", "no_game-v0", "--base-model", "./nope", "--entropy", "nan", cwd=tmp_path)
    assert done.returncode == 1 and "`--entropy` is nan but must be between 0 and 1" in done.stderr
