"""Makes a shipped policy from a checkpoint: copies what is needed to act, measures its figures, writes its card.

Run: python -m tools.make_zoo NAME CHECKPOINT [--episodes 100] [--dtype bfloat16] [--folder FOLDER]; the words are
in `tools/zoo_cards.yaml`. It prints the row of docs/guides/zoo.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import yaml

from rllib_llm_comm.core.files import replace_folder, write_atomically
from rllib_llm_comm.core.weights import HALVES, in_half
from rllib_llm_comm.evaluation.evaluate_checkpoint import evaluate_checkpoint
from rllib_llm_comm.evaluation.play_settings import EvaluationSettings
from rllib_llm_comm.policies.find_checkpoint import CARD, FOLDER, ModelCard, digests
from rllib_llm_comm.policies.policy_folder import find_policy
from rllib_llm_comm.policies.policy_manifest import LANGUAGE, MANIFEST, read_manifest

SEED = 1000
_BEGAN_WITH = ("message_checkpoint", "action_checkpoint")  # folders of stages, which are not shipped
CARDS = Path(__file__).with_name("zoo_cards.yaml")
_COLUMNS = ("none", "other_moments", "other_fact")
_HALVED = {"float16": "half precision", "bfloat16": "bfloat16"}


def copy_policy(checkpoint: str, target: Path, env_config: dict[str, Any]) -> None:
    """Copies a policy folder without names of places of the machine that trained it.

    Args:
        checkpoint: The checkpoint.
        target: The folder, which must not be there.
        env_config: Settings of the game that differ from training; what was trained with is kept in the provenance.
    """
    found = find_policy(checkpoint)
    manifest = read_manifest(found)
    shutil.copytree(found, target, ignore=shutil.ignore_patterns(CARD))
    told = {name: without_place(v) for name, v in manifest.provenance.items() if not (name in _BEGAN_WITH and v)}
    if env_config:
        trained_with = {name: without_place(value) for name, value in manifest.env_config.items()}
        told.setdefault("trained_with", trained_with)  # a policy of the zoo knows it already
    changed = dataclasses.replace(
        manifest, provenance=told, env_config={**manifest.env_config, **env_config}, agents=tuple(manifest.agents)
    )
    (target / MANIFEST).write_text(changed.to_json(), encoding="utf-8")


def without_place(value: Any) -> Any:
    """A setting; of a path on this machine its last part.

    Args:
        value: The setting.
    """
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def halve(folder: Path, dtype: str = "float16") -> None:
    """Writes the weights of a policy in half precision, half the bytes; they are still computed with in 32 bits.

    Args:
        folder: The policy's folder.
        dtype: A name of `HALVES`.

    Raises:
        UserError: If a weight is beyond the range of the format.
    """
    for path in sorted(folder.rglob("*.safetensors")):
        write_atomically(path, in_half(path.read_bytes(), dtype, path.name))


def measure(folder: Path, messages: str | None, planner: str | None, episodes: int) -> dict[str, Any]:
    """The figures of a policy.

    Args:
        folder: Its folder.
        messages: Another message mode; `None` for its own.
        planner: The planner that tells subgoals; `None` for none.
        episodes: Number of episodes.
    """
    settings = EvaluationSettings(messages=messages, planner=planner)
    found = evaluate_checkpoint(folder, episodes=episodes, seed=SEED, settings=settings).figures
    return {
        "seed": SEED,
        "episodes": episodes,
        "sampled": found.sampled,
        "messages": messages,
        "planner": planner,
        "return_mean": found.return_mean,
        "success_rate": found.success_rate,
        "metrics": found.metrics,
        "returns": found.returns,
    }


def main() -> None:
    """Makes one policy of the zoo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("checkpoint")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--dtype", choices=HALVES, default="float16", help="format of the weights")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the policy goes; by default the package")
    given = parser.parse_args()
    told = yaml.safe_load(CARDS.read_text(encoding="utf-8"))[given.name]
    with tempfile.TemporaryDirectory(dir=given.folder, prefix=".making-") as scratch:
        made = Path(scratch) / given.name
        card = make(made, given.checkpoint, told, given.episodes, given.dtype)
        replace_folder(made, given.folder / given.name)
    for one in card.figures:
        print(given.name, one.played, one.return_mean, one.success_rate, one.metrics)
    print(row_of(card))


def row_of(card: ModelCard) -> str:
    """The row of a policy in docs/guides/zoo.md; without a planner's figures, which it words itself."""
    returns = {one.messages: f"{one.return_mean:.2f}" for one in card.figures if not one.planner}
    controls = [returns.get(mode, "-") for mode in _COLUMNS]
    return f"| `zoo:{card.name}` | {' | '.join([card.what, returns[None], card.figures[0].solved, *controls])} |"


def make(target: Path, checkpoint: str, told: dict[str, Any], episodes: int, dtype: str) -> ModelCard:
    """Makes the folder of a shipped policy.

    Args:
        target: The folder, which must not be there.
        checkpoint: The checkpoint; a policy of the zoo, too, to measure it anew.
        told: The card's words.
        episodes: Number of episodes of each figure.
        dtype: A name of `HALVES`.
    """
    copy_policy(checkpoint, target, told.pop("env_config", {}))
    halve(target, dtype)
    ways = [(None, None), *((mode, None) for mode in told.pop("controls", []))]
    ways += [(None, planner) for planner in told.pop("planners", [])]
    manifest = read_manifest(target)
    card = ModelCard(
        name=target.name,
        **{
            **told,
            "trained": f"{told['trained']} The weights are shipped in {_HALVED[dtype]}.",
            "game": str(manifest.env),
            "algorithm": manifest.algorithm,
            "talks": manifest.kind == LANGUAGE and manifest.communication.get("messages") != "none",
            "base_model": manifest.model_config["base_model"] if manifest.kind == LANGUAGE else "",
            "base_model_sha256": manifest.base_model_sha256,
            "licence": "Apache-2.0",
            "figures": [measure(target, *way, episodes) for way in ways],
        },
        files=digests(target),
    )
    (target / CARD).write_text(json.dumps(card.model_dump(), indent=1) + "\n", encoding="utf-8")
    return card


if __name__ == "__main__":
    main()
