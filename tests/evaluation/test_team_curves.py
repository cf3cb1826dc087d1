"""Curves of teams that play as one agent, of scores, and of reports from before there were scores."""

from __future__ import annotations

import json
import math

import pytest

from rllib_llm_comm.core.json_file import JsonValue
from rllib_llm_comm.evaluation.figures import draw_curves, looks
from rllib_llm_comm.evaluation.report import write_report
from rllib_llm_comm.evaluation.study_results import SystemResults, kept_curve, read_curve, read_results


def row(iteration, **runners):
    return {
        "config": {"seed": 3},
        "env_runners": {
            "num_agent_steps_sampled_lifetime": {"default_agent": 100 * iteration},
            "num_episodes_lifetime": 20 * iteration,
            **runners,
        },
        "learners": {},
    }


@pytest.fixture
def team(tmp_path):
    rows = [row(k, episode_return_mean=2.0 * k, score=20.0 * k) for k in (1, 2, 3)]
    path = tmp_path / "result.json"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return read_curve(path)


def test_a_team_that_plays_as_one_agent_has_its_return_and_its_score(team):
    assert team.values["return"][1:] == [4.0, 6.0] and team.values["score"][1:] == [40.0, 60.0]
    assert math.isnan(team.values["return"][0]), "too few episodes"


def test_a_game_without_scores_has_none(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(row(3, episode_return_mean=1.0)) + "\n")
    assert "score" not in read_curve(path).values


def test_figures_show_what_there_is_and_name_all_systems(team):
    figure = draw_curves({"team": SystemResults("team", "Team", [team])}, looks(["team"]))
    assert [axis.get_ylabel() for axis in figure.axes] == ["team return", "score"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Team (1 seed)"]


def test_reports_of_earlier_versions_have_no_scores(team, tmp_path):
    values = {name: [None, *list(told[1:])] for name, told in team.values.items()}
    values = {
        name: [None if told is None or math.isnan(told) else told for told in row] for name, row in values.items()
    }
    kept = {"seed": 3, "decisions": team.decisions, "values": values}
    again = kept_curve(JsonValue(kept, tmp_path, "make it anew"))
    assert again.values["score"][1:] == [40.0, 60.0]
    del kept["values"]["score"]
    old = kept_curve(JsonValue(kept, tmp_path, "make it anew"))
    assert "score" not in old.values and len(old.values["return"]) == 3


def test_scenarios_of_which_there_is_nothing_are_named_and_left_out(tmp_path):
    study = {
        "title": "Two",
        "env": "toys/game-v0",
        "scenarios": {"now": {"layout": "a"}, "later": {"layout": "b"}},
        "systems": {"one": {"label": "One", "interventions": []}},
        "baseline": "one",
        "seeds": [3],
        "evaluation": {"episodes": 10, "seed": 0, "modes": ["greedy"]},
    }
    (tmp_path / "study.json").write_text(json.dumps(study))
    trial = tmp_path / "now.one" / "trial_0_seed=3"
    trial.mkdir(parents=True)
    rows = [row(k, episode_return_mean=2.0 * k) for k in (1, 2, 3)]
    (trial / "result.json").write_text("".join(json.dumps(one) + "\n" for one in rows))
    page = write_report(read_results(tmp_path), tmp_path / "report")
    markdown = page.with_suffix(".md").read_text()
    assert "nothing yet of `later`." in markdown and "## now" in markdown and "## later" not in markdown
    assert "nothing yet of <code>later</code>." in page.read_text() and "<h2>later</h2>" not in page.read_text()
