"""The table of faults and stages in docs/guides/chaos.md; the tests of faults take their parameters from it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs/guides/chaos.md"
BEGIN, END = "<!-- table: tests/cli/chaos_table.py -->", "<!-- end of table -->"


class Cell(NamedTuple):
    """A fault in a kind of stage, what happens, and the test that shows it, as file and function below tests/."""

    fault: str
    stage: str
    happens: str
    test: str


_HERE, _TRAINING, _SERVERS = "cli/test_chaos.py::", "cli/test_chaos_training.py::", "cli/test_chaos_servers.py::"
_POPULATIONS = "cli/test_chaos_populations.py::"
_PLAY = "play/test_play_command.py::"
_RESUME, _COLLECT = "cli/test_resume.py::", "verco/test_collect_labels.py::"
_KILLED = "`kill -9` of the command"
_OF = "`kill -9` of "
_ONE_ROW = "test_a_killed_run_goes_on_with_one_row_per_iteration_and_a_finished_one_is_skipped"
_ENDED = "test_killed_after_the_last_checkpoints_nothing_waits_for_trials_that_have_ended"
_AGAIN = "test_killed_again_and_again_nothing_is_paid_twice"
_GENERATION = "test_a_killed_trial_goes_on_in_the_middle_of_a_generation"
_MEMBER = "test_a_killed_run_of_a_member_is_done_again"
_BACK = "test_a_chat_server_that_is_soon_back"
_MORE_ROOM = "test_a_full_disk_takes_no_checkpoint_and_more_room_gets_out_of_it"
_READ = "test_a_finished_run_on_a_read_only_disk_can_be_read"

_CHECKPOINT = "goes on from the last checkpoint"
_ANEW = "nothing was written; the stage begins anew"
_ANSWERS = "answers stay; the request under way is sent once more"
_PAGE = "the record has all moments before the kill; a new call begins a new game in a new folder"
_SCRATCH = "the scratch file is deleted when the stage goes on"
_BY_ITSELF, _TASK = "the command goes on by itself", "Ray starts the task again; "
_OTHERS = "the other trials end; typed again, the killed one goes on from its last checkpoint"
_KEPT = "good checkpoints stay; with more room the stage goes on"
_BOOKED = "all calls count; a request under way stays booked at its highest price"
_LINE = "kept; all calls on this machine stand in one line"
_FULL = "one sentence says so, no part of a file stays; with more room the stage is finished"
_REFUSED = "refused before anything starts; once it can be written, the stage goes on"
_FAILED = "one sentence tells it; typed again, it goes on from the last checkpoint"
_DEAD = "one sentence tells it; once the server is back, the stage goes on"

# Fault, test, the stages that it is shown in, and what happens there.
_TABLE = [
    (_KILLED, _HERE + "test_a_killed_command", "labels", _ANSWERS),
    (_KILLED, _HERE + "test_a_killed_command", "message_sft|verco", _CHECKPOINT),
    (_KILLED, _HERE + "test_a_killed_command", "evaluation|replay", _ANEW),
    (_KILLED, _HERE + "test_a_killed_command", "chat_play", _ANSWERS),
    (_KILLED, _PLAY + "test_a_killed_page_keeps_what_was_done", "play", _PAGE),
    (_KILLED, _HERE + "test_a_killed_study", "study", "finished stages stay, the others go on"),
    (_KILLED, _RESUME + _ONE_ROW, "PPO", _CHECKPOINT),
    (_KILLED + " after the last checkpoints", _RESUME + _ENDED, "sweep", "no trial is done again, nothing waits"),
    (_KILLED + ", three times", _COLLECT + _AGAIN, "labels", "at most one request per kill is sent twice"),
    (_KILLED + " while it writes a file", _HERE + "test_scratch_files_of_a_killed_command_go", "any", _SCRATCH),
    (_OF + "an EnvRunner", _TRAINING + "test_a_killed_env_runner", "verco", "RLlib starts another one; " + _BY_ITSELF),
    (_OF + "a Learner", _TRAINING + "test_a_killed_learner", "message_sft|verco", _FAILED),
    (_OF + "a trial", _TRAINING + "test_a_killed_trial", "message_sft|verco", _FAILED),
    (_OF + "a trial", _TRAINING + "test_a_killed_trial_of_a_sweep", "sweep", _OTHERS),
    (_OF + "a trial", _POPULATIONS + _GENERATION, "PBT|COLE|FCP", _FAILED),
    (_OF + "the run of a population's member", _POPULATIONS + _MEMBER, "PBT|FCP", _TASK + _BY_ITSELF),
    (_OF + "the chat server", _SERVERS + "test_a_killed_chat_server", "labels|chat_play", _DEAD),
    (_OF + "the chat server, soon back", _SERVERS + _BACK, "labels", "the question is asked again; " + _BY_ITSELF),
    ("full disk", _HERE + "test_a_full_disk", "labels|message_sft|verco|evaluation|replay|chat_play", _FULL),
    ("full disk", _RESUME + _MORE_ROOM, "PPO, one run and a sweep", _KEPT),
    ("read-only disk", _HERE + "test_a_read_only_disk", "labels|verco", _REFUSED),
    ("read-only disk", _RESUME + _READ, "a finished run", "can be told once more and evaluated"),
    ("`kill -9` under a `budget`", _SERVERS + "test_the_budget_holds_over_kills", "labels", _BOOKED),
    ("`kill -9` under `requests_per_minute`", _SERVERS + "test_the_rate_holds_within_each_call", "labels", _LINE),
]
CELLS = [Cell(fault, stage, happens, test) for fault, test, stages, happens in _TABLE for stage in stages.split("|")]


def stages_of(test: str) -> list[str]:
    """The stages of a test of faults, in the order of the table."""
    return [cell.stage for cell in CELLS if cell.test == test]


def table() -> str:
    """The table as it stands in the docs."""
    lines = ["| Fault | Stage | What happens | Test |", "| --- | --- | --- | --- |"]
    for cell in CELLS:
        name = cell.test.split("::")[1]
        lines.append(f"| {cell.fault} | {cell.stage} | {cell.happens} | `{name}` |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the table into the docs."""
    head, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n\n{table()}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
