"""`rllib calibrate` as a user types it."""

from __future__ import annotations

import json

from tests.cli.command import rllib, succeeds


def test_the_command_advises_compares_sets_of_prompts_and_writes_its_figures(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "action.txt").write_text("{text} {options}{subgoal}{heard} so i")
    done = succeeds(
        "calibrate", "--env", "rllib_llm_comm/door-v0", "--env-config", '{"doors": 4}', "--decisions", "20",
        "--prompts", "twosome, mine", "--json", "figures.json", cwd=tmp_path,
    )  # fmt: skip
    figures = json.loads((tmp_path / "figures.json").read_text())
    advice, rows = figures["advice"], figures["compared"]
    told = f"Write in `config`: score_normalization: {advice['normalization']}, temperature: {advice['temperature']:g}"
    assert told in done.stdout and abs(advice["entropy"] - 0.5) < 0.05
    assert figures["base_model"] == "embedded" and figures["env_config"] == {"doors": 4}
    assert [(row["prompts"], row["heard"]) for row in rows] == [
        ("twosome", False), ("twosome", True), ("mine", False), ("mine", True)
    ]  # fmt: skip
    assert figures["prompts"]["mine"]["action"].startswith("{text} {options}")
    for row in rows:
        lines = [line for line in done.stdout.splitlines() if row["prompts"] in line]
        (line,) = [line for line in lines if (" yes " in line) == row["heard"]]
        assert f"{row['openness']['entropy']:.3f}" in line and f"{row['agreement']:.3f}" in line
    caption = " ".join(done.stdout.split())
    assert f"by chance {figures['chance']:.3f}, always one phrase {figures['one_phrase']:.3f}" in caption


def test_an_aim_out_of_its_range_is_refused_before_a_model_is_sought(tmp_path):
    done = rllib("calibrate", "--env", "no_game-v0", "--base-model", "./nope", "--entropy", "nan", cwd=tmp_path)
    assert done.returncode == 1 and "`entropy` is nan but must be a finite number" in done.stderr
