"""Label messages with a teacher of your own.

This example:
    - writes a teacher: a class with one method, `messages`, that says what each agent should say;
    - registers it by name with `register_teacher`, so that configs and YAML files can name it;
    - lets the textual kitchen be played at random while the teacher labels what each cook sees;
    - shows a few of the labels, which the algorithm `MessageSFT` can learn from.

How to run this script
----------------------
`python own_teacher.py`, or `python own_teacher.py --smoke` for a few labels in a few seconds. `--output FOLDER` keeps
the labels; called again with the same folder, a finished collection is not repeated.

Results to expect
-----------------
A line with the number of labels (about 200; about 20 with `--smoke`) and of distinct observations, and five pairs of
an observation and the message of that cook, such as "i see a tomato" or "i see nothing of use".
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet

from rllib_llm_comm.verco.teachers.base import Teacher, TeacherRequest, register_teacher
from rllib_llm_comm.verco.teachers.collect_labels import collect_labels


class ReportingTeacher(Teacher):
    """Each cook tells which of some things it sees."""

    name = "reporting"

    def __init__(self, things: tuple[str, ...] = ("tomato", "lettuce", "onion", "bowl")) -> None:
        self.things = tuple(things)

    def messages(self, request: TeacherRequest, *, rng: np.random.Generator) -> dict[str, str]:
        said = {}
        for agent in request.agents:
            # Only what this agent sees: `request.state`, the true game, would tell more than it could learn to say.
            _, _, view = request.observations[agent].lower().partition(". ")  # the first sentence is the task
            seen = [thing for thing in self.things if thing in view]
            said[agent] = f"i see a {rng.choice(seen)}" if seen else "i see nothing of use"
        return said


def main() -> None:
    parser = argparse.ArgumentParser(description="Label messages with a teacher of your own.")
    parser.add_argument("--smoke", action="store_true", help="a few labels only")
    parser.add_argument("--output", help="folder for the labels; a temporary one by default")
    arguments = parser.parse_args()

    register_teacher("reporting", ReportingTeacher)
    with tempfile.TemporaryDirectory() as scratch:
        report = collect_labels(
            "rllib_llm_comm/overcooked_text-v0",
            arguments.output or scratch,
            env_config={"map_name": "A", "recipe": "tomato salad"},
            teacher={"name": "reporting", "things": ["tomato", "bowl"]},
            target_labels=20 if arguments.smoke else 200,
            policy="random",
            num_envs=2,
        )
        print(f"{report.labels} labels of {report.prompts} distinct observations in {report.episodes} episodes")
        for part in sorted(Path(report.output).glob("part-*.parquet"))[:1]:
            for row in parquet.read_table(part).to_pylist()[:5]:
                print(f"\n{row['prompt']}\n  {row['agent']}: {row['message']}")


if __name__ == "__main__":
    main()
