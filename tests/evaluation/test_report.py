"""The report of made-up results says what they say; its rows and sentences are pinned by the reports that we cite."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.figures import INK, draw_curves, lab, looks
from rllib_llm_comm.evaluation.report import summarise, write_report
from rllib_llm_comm.evaluation.study_results import SystemResults, join_results, read_curve, read_results, to_plain
from tests.evaluation.made_up import played, require_made_again, study_of, write, write_rows

STUDY = study_of("silent", "good", "same", "bad", "unfinished", scenarios={"one": {"map_name": "B"}})
STUDY["systems"] |= {
    "good": {"label": "good talk", "interventions": ["none"]},
    "same": {"label": "", "interventions": []},
    "bad": {"label": "bad talk", "interventions": []},
}
RETURNS = {
    "silent": [0.5, 0.6, 0.7, 0.8], "good": [1.2, 1.3, 1.25, 1.35], "same": [0.55, 0.62, 0.69, 0.75],
    "bad": [-0.2, 0.0, -0.1, 0.1],
}  # fmt: skip


def result(iteration, seed):
    return {
        "config": {"seed": seed}, "time_total_s": 10.0 * iteration, "decisions": 200 * iteration,
        "tokens": 5000 * iteration + seed,
        "env_runners": {
            "num_agent_steps_sampled_lifetime": {"a": 100 * iteration, "b": 100 * iteration},
            "num_episodes_lifetime": 20 * iteration,
            "agent_episode_returns_mean": {"a": 0.4 * iteration, "b": 0.2 * iteration},
            "success_rate": 0.1 * iteration,
        },
        "learners": {"__all_modules__": {}, "shared": {"entropy": 1.0 / iteration}},
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "study.json", STUDY)
    said = [["<script>alert(1)</script>", 0.9], ["bring lettuce", 0.1]]
    for name, returns in RETURNS.items():
        runs = [played(value, common_messages=said) for value in returns]
        write(tmp_path / f"one.{name}.sampled/evaluation.json", {"checkpoints": runs})
        for seed in range(4):
            rows = [result(k, seed) for k in (1, 2, 3, 4)]
            path = write_rows(tmp_path / f"one.{name}/trial_{seed}_seed={seed}", rows)
            path.write_text(path.read_text() + '{"half a li')
    silenced = {"checkpoints": [played(value) for value in (0.4, 0.5, 0.45, 0.55)]}
    write(tmp_path / "one.good.messages_none/evaluation.json", silenced)
    return tmp_path


def resumed():
    """Rows of a run whose iterations 3 and 4 were lost with a kill and done once more."""
    lost, again = [result(k, 0) for k in (1, 2, 3, 4)], [result(k, 0) for k in (3, 4, 5)]
    for place, row in enumerate([*lost, *again]):
        row["training_iteration"] = (1, 2, 3, 4, 3, 4, 5)[place]
    for row in lost[2:]:
        row["env_runners"]["agent_episode_returns_mean"] = {"a": 9.0, "b": 9.0}
    return [*lost, *again]


def test_curves_are_read_without_lost_rows_of_a_resumed_run(folder):
    write_rows(folder / "one.good/trial_0_seed=0", resumed())
    results = read_results(folder)
    curve, _, other, _ = results.scenarios["one"]["good"].curves
    assert other.seed == 2 and other.decisions == [200, 400, 600, 800]
    assert curve.decisions == [200, 400, 600, 800, 1000]
    # The mean over agents, once 30 episodes have ended.
    assert str(curve.values["return"][0]) == "nan" and curve.values["return"][1:] == pytest.approx([0.6, 0.9, 1.2, 1.5])
    assert curve.values["entropy"] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])


def test_sentences_and_that_one_run_is_not_compared(folder):
    told = summarise(read_results(folder))["scenarios"]["one"]
    assert [s.split(":")[0] for s in told["sentences"][:3]] == [
        "good talk returns more than silent",
        "same cannot be told from silent by its return",
        "bad talk returns less than silent",
    ]
    assert "do not overlap" in told["sentences"][0] and "do not overlap" not in told["sentences"][1]
    assert "with probability 1.00" in told["sentences"][0]
    assert told["sentences"][3].startswith("Trained good talk, played with 'none' messages instead of its own: 0.4")
    good = told["systems"]["good"]
    assert good["evaluations"]["sampled"]["return_mean"]["value"] == pytest.approx(1.275)
    assert good["decisions_to_return_1"] == 800 and good["runs_to_return_1"] == [4, 4]
    assert "unfinished" not in told["systems"]
    alone = summarise(with_seeds(folder, [0]))["scenarios"]["one"]
    assert "not compared" in alone["sentences"][0] and "against_baseline" not in alone["systems"]["good"]


def test_pages_in_which_names_and_messages_are_text_are_made_again_from_what_they_kept(folder):
    nasty = "<img src=x onerror=alert(1)> [a](javascript:b)"
    good = {"label": nasty, "interventions": []}
    write(folder / "study.json", {**STUDY, "title": nasty, "systems": {**STUDY["systems"], "good": good}})
    results = read_results(folder)
    assert results.missing == ["one.unfinished.sampled"]
    html = require_made_again(results, folder).read_text()
    assert read_results(folder / "report").missing == results.missing
    markdown = (folder / "report/report.md").read_text()
    for text in (html, markdown):
        assert "<script>" not in text and "<img src=x" not in text and "&lt;img src=x" in text
    assert "&lt;script&gt;" in html and "Not finished yet" in html and "](javascript" not in markdown
    assert "![one_curves](one_curves.png)" in markdown and (folder / "report/one_curves.png").stat().st_size > 10_000
    assert not list((folder / "report").glob(".*")) and "Shuffled" not in html + markdown


def test_figures_beside_strangers_are_read_by_seat_and_kept(folder, tmp_path):
    study = json.loads((folder / "study.json").read_text())
    study["evaluation"]["strangers"] = {"mute": ["elsewhere"]}
    write(folder / "study.json", study)
    name, there = next(iter(study["systems"])), next(iter(study["scenarios"]))
    matrix = {"alice": [[1.0, 3.0], [4.0, 4.0]], "bob": [[0.5], [0.25]]}
    write(folder / f"{there}.{name}.strangers/crossplay.json", {"groups": {"mute": {"matrix": matrix}}})
    results = read_results(folder)
    beside = {"mute": {"alice": [2.0, 4.0], "bob": [0.5, 0.25]}}
    assert results.scenarios[there][name].strangers == beside
    assert f"{there}.{name}.strangers" not in results.missing
    assert f"{there}.good.strangers" in results.missing
    page = write_report(results, tmp_path / "report")
    assert read_results(page.parent).scenarios[there][name].strangers == beside


GONE = object()


def put(value, *place):
    """A change that replaces something in a JSON value, or takes it out if the value is `GONE`."""

    def change(content):
        *outer, last = place
        for key in outer:
            content = content[key]
        content[last] = value
        if value is GONE:
            del content[last]

    return change


def refused_result(folder, name, change, says):
    path = folder / name
    content = json.loads(path.read_text())
    change(content)
    write(path, content)
    with pytest.raises(UserError) as caught:
        read_results(folder)
    message = str(caught.value)
    assert message.startswith(repr(str(path))) and says in message and "\n" not in message, message
    assert message.endswith(".") and "again" in message


EVALUATION = "one.good.sampled/evaluation.json"


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("study.json", put(GONE, "title"), "`title` is missing"), ("study.json", put([], "seeds"), "`seeds` is []"),
        ("study.json", put(["one"], "seeds"), "`seeds.0` is"), ("study.json", put("nobody", "baseline"), "`baseline`"),
        ("study.json", put(None, "systems", "good", "config"), "`systems.good.config` is None"),
        ("study.json", put([5], "systems", "good", "scenarios"), "`systems.good.scenarios.0` is 5"),
        (EVALUATION, put(GONE, "checkpoints", 0, "vocabulary"), "`checkpoints.0.vocabulary` is missing"),
        (EVALUATION, put("much", "checkpoints", 2, "return_mean"), "`checkpoints.2.return_mean` is 'much'"),
        (EVALUATION, put(float("nan"), "checkpoints", 0, "return_mean"), "finite"),
        (EVALUATION, put(10**400, "checkpoints", 0, "return_mean"), "finite"),
        (EVALUATION, put([["hello"]], "checkpoints", 0, "common_messages"), "`checkpoints.0.common_messages.0` is"),
        (EVALUATION, put({"score": "x"}, "checkpoints", 1, "metrics"), "`checkpoints.1.metrics.score` is 'x'"),
        (EVALUATION, put([], "checkpoints"), "`checkpoints` is []"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_not_called_missing(folder, name, change, says):
    refused_result(folder, name, change, says)


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        ("study.json", "[]", "again"), ("results.json", "{", "again"), (EVALUATION, '{"checkpoints": [', "remove it"),
        ("one.good/trial_0_seed=0/result.json", '{"env_runners": 3}', "remove '.*one.good' and"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_not_called_missing(folder, name, text, remedy):
    if name == "results.json":  # which a report keeps
        (folder / "study.json").unlink()
    (folder / name).write_text(text)
    with pytest.raises(UserError, match=f"{name}' is damaged .*{remedy}"):
        read_results(folder)


def test_what_tune_writes_for_no_number_is_no_damage(folder):
    row = result(3, 0)
    row["learners"]["shared"]["entropy"] = "null"
    write_rows(folder / "one.good/trial_0_seed=0", [row])
    curve = read_results(folder).scenarios["one"]["good"].curves[0]
    assert str(curve.values["entropy"]) == "[nan]" and curve.values["return"] == pytest.approx([0.9])


GOOD = ("scenarios", "one", "good")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put("a\ud800", "study", "title"), "`study.title` is 'a\\ud800'"),
        (put({"clone": 3}, "study", "shared"), "`study.shared.clone` is 3"),
        (put({}, "study", "scenarios"), "`study.scenarios` is {}"), (put(GONE, "missing"), "`missing` is missing"),
        (put(GONE, "study", "systems", "good"), "`study.systems.good` is missing"),
        (put(GONE, "scenarios", "one", "silent"), "`scenarios.one.silent` is missing"),
        (put(GONE, *GOOD, "curves", 0, "values", "return"), "`scenarios.one.good.curves.0.values.return` is missing"),
        (put(GONE, *GOOD, "curves", 1, "values", "return", 0), "return` has 3 values but 4"),
        (put("x", *GOOD, "curves", 0, "values", "entropy", 2), "entropy.2` is 'x'"),
        (put([], *GOOD, "evaluations", "sampled"), "`scenarios.one.good.evaluations.sampled` is []"),
        (put({"seeds": ["x"]}, *GOOD, "recorded"), "good.recorded.seeds.0` is 'x'"),
    ],
)  # fmt: skip
def test_damaged_results_are_refused(folder, change, says):
    results = to_plain(read_results(folder))
    (folder / "study.json").unlink()
    write(folder / "results.json", results)
    assert to_plain(read_results(folder)) == results
    refused_result(folder, "results.json", change, says)


def test_systems_with_few_decisions_can_be_seen_beside_those_with_many(folder):
    systems = read_results(folder).scenarios["one"]
    axis = draw_curves(systems, looks(list(systems))).axes[0]
    assert axis.get_xscale() == "linear" and axis.get_xlim()[0] == 0
    few, many = systems["good"], systems["bad"]
    many.curves[:] = [replace(curve, decisions=[50 * d for d in curve.decisions]) for curve in many.curves]
    axis = draw_curves({"good": few, "bad": many}, looks(["good", "bad"])).axes[0]
    assert axis.get_xscale() == "log" and "logarithmic" in axis.get_xlabel()
    left, right = (axis.transAxes.inverted().transform(axis.transData.transform((x, 0)))[0] for x in (0.4, 0.8))
    short = next(line for line in axis.lines if line.get_label().startswith("good"))
    assert short.get_xdata()[-1] == pytest.approx(0.8) and right - left > 0.05 and right < 0.6


@pytest.mark.parametrize(("count", "apart"), [(14, 20), (40, 18), (80, 10)])
def test_systems_look_different(count, apart):
    """About 2 in Lab is the least difference that eyes see; lines are thin and bands pale."""
    drawn = list(looks([f"system {k}" for k in range(count)]).values())
    paint = [lab(look.colour) for look in drawn]
    for (one, place), (other, beside) in itertools.combinations(zip(drawn, paint, strict=True), 2):
        assert np.linalg.norm(place - beside) > apart, (one, other)
    for look, (light, *hue) in zip(drawn, paint, strict=True):
        assert np.hypot(*hue) > 25 and 30 < light < 80, f"{look} is grey, dark or pale"
        assert np.linalg.norm(np.array([light, *hue]) - lab(INK)) > 35, f"{look} hides the interval"
    assert len({(look.line, look.marker) for look in drawn[:28]}) == min(28, count)


def part(folder, *names, **changes):
    results = read_results(folder)
    results.study.update(changes)
    results.study["systems"] = {name: results.study["systems"][name] for name in names}
    results.scenarios["one"] = {name: results.scenarios["one"][name] for name in names}
    results.missing.clear()
    return results


def test_parts_become_one_report(folder):
    """Also of one file, where each place wrote down the whole study: what one has not run is taken from the other."""
    whole = summarise(join_results([part(folder, "silent", "good", "same", "bad")]))
    parts = [part(folder, "silent", "good"), part(folder, "same", "bad", baseline="same")]
    assert summarise(join_results(parts)) == whole

    def ran(*names):
        results = part(folder, "silent", "good")
        for name in {"silent", "good"} - set(names):
            results.scenarios["one"][name] = SystemResults(name, name)
            results.missing.append(f"one.{name}.sampled")
        return results

    joined = join_results([ran("good"), ran("silent")])
    assert summarise(joined) == summarise(part(folder, "silent", "good")) and not joined.missing
    assert join_results([ran("good"), ran()]).missing == ["one.silent.sampled"]


def with_seeds(folder, seeds):
    """What a place has that ran some of the seeds."""
    results = part(folder, "silent", "good", seeds=list(seeds))
    for found in results.scenarios["one"].values():
        kept = [k for k, curve in enumerate(found.curves) if curve.seed in seeds]
        found.curves[:] = [found.curves[k] for k in kept]
        found.evaluations = {suffix: [runs[k] for k in kept] for suffix, runs in found.evaluations.items()}
    return results


def test_seeds_that_ran_at_different_places_become_one_report(folder):
    whole = part(folder, "silent", "good")
    first, *rest = whole.study["seeds"]
    assert rest and len(whole.scenarios["one"]["good"].curves) == len(whole.study["seeds"])
    joined = join_results([with_seeds(folder, rest), with_seeds(folder, [first])])
    assert summarise(joined) == summarise(whole) and to_plain(joined) == to_plain(whole)
    assert list(joined.scenarios["one"]["good"].evaluations) == list(whole.scenarios["one"]["good"].evaluations)
    lacking = with_seeds(folder, [first])
    lacking.scenarios["one"]["good"] = SystemResults("good", "good")
    assert "'good' of scenario 'one' has seeds" in join_results([with_seeds(folder, rest), lacking]).note
    lacking.scenarios["one"] = {name: SystemResults(name, name) for name in lacking.scenarios["one"]}
    assert "Every system of scenario 'one' has seeds" in join_results([with_seeds(folder, rest), lacking]).note
    with pytest.raises(UserError, match="'silent' .* in two"):
        join_results([with_seeds(folder, rest), whole])
    unfinished = with_seeds(folder, [first])
    unfinished.scenarios["one"]["good"].evaluations["sampled"].clear()
    with pytest.raises(UserError, match="finish the studies"):
        join_results([with_seeds(folder, rest), unfinished])


def test_parts_that_contradict_are_refused(folder):
    silent, other = part(folder, "silent"), part(folder, "good")
    other.study["systems"] = {"good": {**other.study["systems"]["good"], "stop": {"training_iteration": 99}}}
    taught = [part(folder, name, shared={"clone": {"run": "ActionSFT", "config": {"lr": lr}}})
              for name, lr in (("silent", 0.1), ("good", 0.2))]  # fmt: skip
    none = part(folder, "silent", shared={})
    assert join_results([none, taught[1]]).study["shared"] == taught[1].study["shared"]
    for parts, told in (
        ([silent, part(folder, "good", env="another")], "`env`"),
        ([silent, part(folder, "silent", "good")], "'silent' .* in two"),
        ([part(folder, "silent", "good"), other], "`stop` of system 'good'"),
        (taught, "`config` .* 'clone'"),
        ([none, taught[1], replace(taught[0], scenarios={})], "`config` .* 'clone'"),
        ([silent, part(folder, "good", scenarios={"one": {"map_name": "A"}})], "settings"),
        ([part(folder, "good", baseline="silent")], "baseline"),
    ):
        with pytest.raises(UserError, match=told):
            join_results(parts)


@pytest.mark.parametrize("name", ["../../outside", ""])
@pytest.mark.parametrize("kind", ["scenarios", "systems"])
def test_names_of_a_foreign_report_lead_nowhere(folder, kind, name):
    place = folder / "kept" / "deep"
    write_report(read_results(folder), place)
    kept = json.loads((place / "results.json").read_text())
    old = next(iter(kept["study"][kind]))
    kept["study"][kind][name] = kept["study"][kind].pop(old)
    for holder in [kept["scenarios"]] if kind == "scenarios" else kept["scenarios"].values():
        holder[name] = holder.pop(old)
    kept["study"]["baseline"] = next(iter(kept["study"]["systems"]))
    write(place / "results.json", kept)
    with pytest.raises(UserError, match="must be made of letters"):
        read_results(place)


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


def test_a_team_that_plays_as_one_agent_has_its_return_and_its_score_and_figures_show_what_there_is(tmp_path):
    rows = [row(k, episode_return_mean=2.0 * k, score=20.0 * k) for k in (1, 2, 3)]
    team = read_curve(write_rows(tmp_path, rows))
    assert team.values["return"][1:] == [4.0, 6.0] and team.values["score"][1:] == [40.0, 60.0]
    assert math.isnan(team.values["return"][0]), "too few episodes"
    assert "score" not in read_curve(write_rows(tmp_path, [row(3, episode_return_mean=1.0)])).values
    figure = draw_curves({"team": SystemResults("team", "Team", [team])}, looks(["team"]))
    assert [axis.get_ylabel() for axis in figure.axes] == ["team return", "score"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Team (1 seed)"]


def test_scenarios_of_which_there_is_nothing_are_named_and_left_out(tmp_path):
    study = study_of("one", scenarios={"now": {"layout": "a"}, "later": {"layout": "b"}}, seeds=[3])
    write(tmp_path / "study.json", study)
    write_rows(tmp_path / "now.one/trial_0_seed=3", [row(k, episode_return_mean=2.0 * k) for k in (1, 2, 3)])
    page = write_report(read_results(tmp_path), tmp_path / "report")
    markdown = page.with_suffix(".md").read_text()
    assert "nothing yet of `later`." in markdown and "## now" in markdown and "## later" not in markdown
    assert "nothing yet of <code>later</code>." in page.read_text() and "<h2>later</h2>" not in page.read_text()


def test_what_planners_asked_and_gave_stands_in_the_table_where_any_did(folder):
    for name, returns in RETURNS.items():  # what tells nothing new
        runs = [played(value, metrics={"score": value, "plan_questions": 0.0}) for value in returns]
        write(folder / f"one.{name}.sampled/evaluation.json", {"checkpoints": runs})
    assert summarise(read_results(folder))["scenarios"]["one"]["of_games"] == {}
    runs = [played(value, metrics={"score": 20.0, "plan_questions": 13.5}) for value in RETURNS["good"]]
    write(folder / "one.good.sampled/evaluation.json", {"checkpoints": runs})
    told = summarise(read_results(folder))["scenarios"]["one"]
    assert list(told["of_games"]) == ["score", "plan_questions"]
    assert told["systems"]["good"]["evaluations"]["sampled"]["metrics"]["plan_questions"]["value"] == 13.5
    page = require_made_again(read_results(folder), folder).with_suffix(".md").read_text()
    assert "| Score | Questions a game |" in page and "| 20.0 [20.0, 20.0] | 13.5 [13.5, 13.5] |" in page
    assert "| - | - |" in page  # an evaluation that counted neither
