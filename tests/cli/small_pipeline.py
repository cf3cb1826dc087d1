"""One small file with every kind of stage; the chat model that teaches and plays in it is the tests' server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

KITCHEN = "rllib_llm_comm/overcooked_text-v0"
ENV = {"map_name": "A", "recipe": "tomato salad", "max_game_steps": 16}
TINY = {"num_envs_per_env_runner": 2, "train_batch_size_per_learner": 32, "minibatch_size": 32, "num_epochs": 1}
LABELS = {"env_config": ENV, "policy": "random", "num_envs": 2, "teacher_share": 0.0, "target_labels": 40}
STAGES = ("labels", "message_sft", "verco", "evaluation", "replay", "chat_play")
TRAINED = {"message_sft": 6, "verco": 6}  # iterations
NAME = "small"


def chat(url: str, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "base_url": url, "requests_per_minute": 1e6, "max_retries": 1, **more}


def pipeline(url: str, **verco: Any) -> dict[str, Any]:
    """The file; `verco` are further settings of its training."""
    config = {"env_config": ENV, "message_checkpoint": "${message_sft}", **TINY, **verco}
    return {
        "labels": {
            "run": "collect_labels", "env": KITCHEN,
            "config": {**LABELS, "teacher": {"name": "chat", **chat(url)}},
        },
        "message_sft": {
            "run": "MessageSFT", "stop": {"training_iteration": TRAINED["message_sft"]},
            "config": {"input_": "${labels}", "judge_prompts": 2},
        },
        "verco": {
            "run": "Verco", "env": KITCHEN, "stop": {"training_iteration": TRAINED["verco"]}, "config": config,
        },
        "evaluation": {"run": "evaluate", "config": {"checkpoint": "${verco}", "episodes": 2}},
        "replay": {"run": "replay", "config": {"checkpoint": "${verco}"}},
        "chat_play": {
            "run": "chat_play", "env": KITCHEN, "config": {"env_config": ENV, "chat": chat(url), "episodes": 2},
        },
    }  # fmt: skip


def write(folder: Path, stages: dict[str, Any]) -> list[str]:
    """Writes the file into a folder; returns the command that runs it."""
    (folder / f"{NAME}.json").write_text(json.dumps(stages))
    return ["train", "file", f"{NAME}.json", "--ray-num-cpus", "4"]


def undo(folder: Path, stage: str) -> None:
    """Takes away what a stage and those behind it have left, and those behind it from the file."""
    behind = STAGES[STAGES.index(stage) + 1 :]
    for name in (stage, *behind):
        shutil.rmtree(folder / "results" / NAME / name)
    stages = json.loads((folder / f"{NAME}.json").read_text())
    write(folder, {name: settings for name, settings in stages.items() if name not in behind})


def replaced(value: Any, old: Any, new: Any) -> Any:
    """Settings in which one value is another, wherever it stands."""
    if value == old:
        return new
    if isinstance(value, dict):
        return {key: replaced(item, old, new) for key, item in value.items()}
    return [replaced(item, old, new) for item in value] if isinstance(value, list) else value
