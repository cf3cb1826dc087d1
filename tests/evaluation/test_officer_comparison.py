"""Officers beside each other: the order of RED's paper, tested step by step."""

from __future__ import annotations

import json

import pytest
from scipy import stats
from typer.testing import CliRunner

from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.officers import order_steps, read_scores
from rllib_llm_comm.evaluation.statistics import same_share

GAME = {"executor": "scripted", "seed": 0, "opponent": "medium2", "num_agents": 2, "max_tick": 12800}


def written(path, won, games=300, **settings):
    summary = {name: {"games": games, "won": round(number / games, 4)} for name, number in won.items()}
    path.write_text(json.dumps({"settings": {**GAME, **settings}, "summary": summary, "played": {}}))
    return path


@pytest.mark.parametrize(("one", "other"), [((199, 300), (171, 300)), ((3, 40), (0, 55)), ((80, 100), (80, 100))])
def test_the_test_of_shares_is_the_chi_squared_test_of_the_table(one, other):
    table = [[one[0], one[1] - one[0]], [other[0], other[1] - other[0]]]
    assert same_share(*one, *other) == pytest.approx(stats.chi2_contingency(table, correction=False).pvalue)
    assert same_share(0, 10, 0, 20) == same_share(10, 10, 20, 20) == 1.0  # of nothing, and of everything


def test_a_step_holds_only_in_its_direction_and_beyond_chance(tmp_path):
    told = written(tmp_path / "told.json", {"oracle": 199, "none": 171, "random": 126, "adversarial": 52})
    deaf = written(tmp_path / "deaf.json", {"oracle": 150, "none": 219, "random": 140, "adversarial": 135})
    alone = written(tmp_path / "alone.json", {"none": 219})
    steps = order_steps(read_scores([told, deaf, alone]))
    assert [(step.officer, step.above, step.below) for step in steps] == [
        (name, *pair)
        for name in ("told", "deaf")
        for pair in (("oracle", "none"), ("none", "random"), ("random", "adversarial"))
    ]
    assert [step.holds for step in steps] == [True, True, True, False, True, False]
    assert steps[0].overlap and steps[0].p == pytest.approx(0.0188, abs=2e-4)
    assert steps[0].p_corrected == pytest.approx(2 * steps[0].p)  # one step, of the deaf officer, is less sure
    assert order_steps(read_scores([told]))[0].p_corrected == steps[0].p  # the least sure step of a smaller family


def test_the_command_tells_and_keeps_it(tmp_path):
    won = {"oracle": 199, "none": 171, "random": 126, "adversarial": 52}
    file, kept = written(tmp_path / "told.json", won), tmp_path / "order.json"
    told = CliRunner().invoke(cli, ["officer", "compare", str(file), "--json", str(kept)], catch_exceptions=False)
    assert told.exit_code == 0 and "random > adversarial" in told.output and "overlap" in told.output
    found = json.loads(kept.read_text())
    assert found["officers"]["told"]["won"]["oracle"] == [199, 300]
    assert [step["holds"] for step in found["steps"]] == [True, True, True]


def compared(*files):
    told = CliRunner().invoke(cli, ["officer", "compare", *map(str, files)], catch_exceptions=False)
    return " ".join(told.output.split())


def test_files_of_other_seeds_or_numbers_of_games_are_compared_with_a_note(tmp_path):
    won, kept = {"oracle": 90, "none": 60}, tmp_path / "order.json"
    one, same = (written(tmp_path / f"{name}.json", won) for name in ("one", "same"))
    later = written(tmp_path / "later.json", won, seed=100_000)
    fewer = written(tmp_path / "fewer.json", won, games=100)
    part = written(tmp_path / "part.json", {"oracle": 90})
    assert "different games" not in compared(one) + compared(one, same, part)
    note = "The files hold different games, per commander: one 300 from seed 0, "
    assert f"{note}later 300 from seed 100000; so officers differ by their games, too" in compared(
        one, later, "--json", kept
    )
    assert {name: one["seed"] for name, one in json.loads(kept.read_text())["officers"].items()} == {
        "one": 0, "later": 100_000,
    }  # fmt: skip
    assert f"{note}fewer 100 from seed 0; " in compared(one, fewer)


def held(**summary):
    return {"settings": GAME, "summary": {"oracle": {"games": 4, "won": 0.5, **summary}}}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "damaged"), ("{}", "`settings` is missing"), ({**held(), "summary": {}}, "`summary` is {}"),
        (held(games=True), "`summary.oracle.games` is True"), (held(won=0.3), "`summary.oracle.won` is 0.3"),
        ({**held(), "settings": {**GAME, "seed": -1}}, "`settings.seed` is -1"),
    ],
)  # fmt: skip
def test_files_of_something_else_are_refused(tmp_path, content, sentence):
    file = tmp_path / "told.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UserError, match=sentence):
        read_scores([file])
    with pytest.raises(UserError, match="FileNotFoundError"):
        read_scores([tmp_path / "missing.json"])


def test_officers_of_other_games_are_refused(tmp_path):
    one, other = (written(tmp_path / f"{name}.json", {"none": 3}, opponent=name) for name in ("medium", "medium2"))
    with pytest.raises(UserError, match="same game"):
        read_scores([one, other])
    with pytest.raises(UserError, match="'medium'"):
        read_scores([one, one])


def test_what_the_command_leaves_out_is_told_and_no_file_of_games_is_lost(tmp_path):
    file = written(tmp_path / "alone.json", {"none": 171, "random": 126})
    assert "alone has no games under oracle, adversarial" in compared(file)
    before = file.read_bytes()
    for target, sentence in ((file, "one of the files to compare"), (tmp_path, "which is a folder")):
        with pytest.raises(UserError, match=sentence):
            CliRunner().invoke(cli, ["officer", "compare", str(file), "--json", str(target)], catch_exceptions=False)
    assert file.read_bytes() == before
