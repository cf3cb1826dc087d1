"""Games in files as columns."""

import json

import pytest

from rllib_llm_comm.evaluation.columns import from_columns, to_columns
from rllib_llm_comm.evaluation.officers import games_as_columns, games_by_seed

ROWS = [
    {"seed": 3, "return": 1.0, "metrics": {"won": 1.0, "share": 0.25}},
    {"seed": 5, "return": -0.5, "metrics": {"won": 0.0}, "seconds": 2.5},
]


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], [], [{"seed": 1, "metrics": {}}, {"seed": 2, "metrics": {"a": "b"}}]])
def test_rows_come_back_from_a_file(rows):
    assert from_columns(json.loads(json.dumps(to_columns(rows))), len(rows)) == rows


def test_whole_numbers_are_short_and_a_name_is_said_once():
    assert json.dumps(to_columns(ROWS)["metrics"]) == '{"won": [1, 0], "share": [0.25, null]}'


def test_a_column_of_another_length_is_refused():
    with pytest.raises(ValueError, match="zip"):
        from_columns({"seed": [1, 2], "return": [0.5]}, 2)


@pytest.mark.parametrize("seeds", [[], [0], [7, 8, 9], [1, 3, 4, 100]])
def test_games_by_seed_come_back(seeds):
    games = {str(seed): {"result": seed % 3 - 1, "ticks": seed} for seed in seeds}
    assert games_by_seed(json.loads(json.dumps(games_as_columns(games)))) == games
