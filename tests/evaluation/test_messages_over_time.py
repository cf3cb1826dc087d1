"""What is said in training stands in a study's report: of trained messages, and of every member of a population."""

from __future__ import annotations

import json

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.study_results import join_results, read_results
from tests.evaluation.made_up import require_made_again, study_of, write, write_rows

STUDY = study_of("weight_0", seeds=[0, 1], evaluation={"episodes": 10, "modes": ["sampled"]})
STUDY["systems"] = {"weight_0": {"label": "weight 0", "interventions": []}, "pbt": {"interventions": []}}


def learning(iteration, seed):
    """An iteration of trained messages."""
    return {
        "training_iteration": iteration,
        "config": {"seed": seed},
        "env_runners": {"message_words": 4.0, "message_vocabulary": 9 - iteration, "message_understood_share": 1.0},
        "learners": {"shared": {"message_entropy": iteration + seed, "message_kl": 0.1 * iteration}},
    }


def growing(iteration, done, **members):
    """An iteration of a population."""
    return {"training_iteration": iteration, "population": {"members_done": 0, **done, **members}}


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "study.json", STUDY)

    def trial(stage, rows, seed=0):
        write_rows(tmp_path / stage / f"trial_{seed}_seed={seed}", rows)

    for seed in (0, 1):
        trial("one.weight_0", [learning(k, seed) for k in range(1, 6)], seed)
    a, b = {"message_words": 3.0, "message_entropy": 1.0}, {"message_words": 5.0}
    later = {**a, "message_entropy": 0.5}
    rows = [({"member_iterations": 4}, {"a_1": a}), ({"member_iterations": 8}, {"a_1": a, "b_2": b})]
    rows += [({"member_iterations": 11}, {"a_1": later, "b_2": b})] * 2  # at last nobody but the learner trains
    trial("one.population", [growing(k + 1, done, **members) for k, (done, members) in enumerate(rows)])
    sides = [{"agent_0": {"message_words": float(k)}, "agent_1": {"message_words": k + 1.0}} for k in (1, 2)]
    trial("one.pbt", [growing(k + 1, {}, **one) for k, one in enumerate(sides)])
    trial("one.labels", [{"training_iteration": 1}])
    return tmp_path


def test_a_member_has_the_iterations_of_its_own_parts(folder):
    said = read_results(folder).said["one"]
    assert set(said) == {"weight_0", "population: a_1", "population: b_2", "pbt: agent_0", "pbt: agent_1"}
    (a,), (b,) = said["population: a_1"], said["population: b_2"]
    assert a.decisions == [4, 7] and a.values["message_entropy"] == [1.0, 0.5]
    assert b.decisions == [4] and list(b.values) == ["message_words"]
    assert [curve.seed for curve in said["weight_0"]] == [0, 1]
    assert [curve.decisions for curve in said["pbt: agent_1"]] == [[1, 2]], "these learn side by side"


def test_the_report_shows_it_and_is_made_again_from_what_it_kept(folder):
    page = require_made_again(read_results(folder), folder)
    told, kept = (json.loads((page.parent / f"{name}.json").read_text()) for name in ("report", "results"))
    assert len(told["scenarios"]["one"]["said"]) == 3 + 2 + 1 + 2 + 2 and set(kept["said"]["one"]) >= {"weight_0"}
    assert (page.parent / "one_messages.png").is_file() and "population: a_1" in page.read_text()
    assert "| population: a_1 | 4 |" in page.with_suffix(".md").read_text()
    assert join_results([read_results(page.parent)]).said == read_results(page.parent).said
    kept["said"]["one"]["weight_0"][0]["values"]["message_kl"] = [0.1]
    write(page.parent / "results.json", kept)
    with pytest.raises(UserError, match="message_kl"):
        read_results(page.parent)
