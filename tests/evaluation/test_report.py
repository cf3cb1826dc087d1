"""The report of made-up results says what they say, no more and no less."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.figures import INK, draw_bars, draw_curves, lab, looks
from rllib_llm_comm.evaluation.report import summarise, write_report
from rllib_llm_comm.evaluation.statistics import Interval
from rllib_llm_comm.evaluation.study_results import FIGURES, SystemResults, join_results, read_results, to_plain

STUDY = {
    "title": "Made <up>",
    "env": "toys/game-v0",
    "scenarios": {"one": {"map_name": "B"}},
    "systems": {
        "silent": {"label": "silent", "interventions": []},
        "good": {"label": "good talk", "interventions": ["none"]},
        "same": {"label": "", "interventions": []},
        "bad": {"label": "bad talk", "interventions": []},
        "unfinished": {"label": "unfinished", "interventions": []},
    },
    "baseline": "silent",
    "seeds": [0, 1, 2, 3],
    "evaluation": {"episodes": 10, "seed": 0, "modes": ["sampled"]},
}
RETURNS = {
    "silent": [0.5, 0.6, 0.7, 0.8],
    "good": [1.2, 1.3, 1.25, 1.35],
    "same": [0.55, 0.62, 0.69, 0.75],
    "bad": [-0.2, 0.0, -0.1, 0.1],
}


def evaluation(value, said=()):
    return {
        "return_mean": value, "success_rate": 0.5, "length_mean": 50.0, "collisions_mean": 1.0,
        "message_words_mean": 3.0, "vocabulary": 7, "common_messages": list(said),
    }  # fmt: skip


def result(iteration, seed):
    return {
        "config": {"seed": seed},
        "time_total_s": 10.0 * iteration,
        "decisions": 200 * iteration,
        "tokens": 5000 * iteration + seed,
        "env_runners": {
            "num_agent_steps_sampled_lifetime": {"a": 100 * iteration, "b": 100 * iteration},
            "num_episodes_lifetime": 20 * iteration,
            "agent_episode_returns_mean": {"a": 0.4 * iteration, "b": 0.2 * iteration},
            "success_rate": 0.1 * iteration,
        },
        "learners": {"__all_modules__": {}, "shared": {"entropy": 1.0 / iteration}},
    }


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    said = [["<script>alert(1)</script>", 0.9], ["bring lettuce", 0.1]]
    for name, returns in RETURNS.items():
        stage = tmp_path / f"one.{name}.sampled"
        stage.mkdir()
        (stage / "evaluation.json").write_text(json.dumps({"checkpoints": [evaluation(r, said) for r in returns]}))
        for seed in range(4):
            trial = tmp_path / f"one.{name}" / f"trial_{seed}_seed={seed}"
            trial.mkdir(parents=True)
            lines = [json.dumps(result(k, seed)) for k in (1, 2, 3, 4)]
            (trial / "result.json").write_text("\n".join(lines) + '\n{"half a li')
    stage = tmp_path / "one.good.messages_none"
    stage.mkdir()
    (stage / "evaluation.json").write_text(json.dumps({"checkpoints": [evaluation(r) for r in (0.4, 0.5, 0.45, 0.55)]}))
    return tmp_path


def test_curves_are_read(folder):
    curve = read_results(folder).scenarios["one"]["good"].curves[2]
    assert curve.seed == 2 and curve.decisions == [200, 400, 600, 800]
    # The mean over agents, once 30 episodes have ended.
    assert str(curve.values["return"][0]) == "nan" and curve.values["return"][1:] == pytest.approx([0.6, 0.9, 1.2])
    assert curve.values["entropy"] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])


def resumed():
    """Rows of a run whose iterations 3 and 4 were lost with a kill and done once more."""
    lost, again = [result(k, 0) for k in (1, 2, 3, 4)], [result(k, 0) for k in (3, 4, 5)]
    for place, row in enumerate([*lost, *again]):
        row["training_iteration"] = (1, 2, 3, 4, 3, 4, 5)[place]
    for row in lost[2:]:
        row["env_runners"]["agent_episode_returns_mean"] = {"a": 9.0, "b": 9.0}
    return [*lost, *again]


def test_lost_rows_of_a_resumed_run_are_no_part_of_its_curve(folder):
    path = folder / "one.good/trial_0_seed=0/result.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in resumed()))
    results = read_results(folder)
    curve = results.scenarios["one"]["good"].curves[0]
    assert curve.decisions == [200, 400, 600, 800, 1000]
    assert curve.values["return"][1:] == pytest.approx([0.6, 0.9, 1.2, 1.5])
    assert curve.values["entropy"] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    # A report of an earlier version kept them all.
    write_report(results, folder / "report")
    kept = json.loads((folder / "report/results.json").read_text())
    old = kept["scenarios"]["one"]["good"]["curves"][0]
    old["decisions"] = [200, 400, 600, 800, 590, 810, 1000]
    for name, values in old["values"].items():
        old["values"][name] = [*values[:2], 9.0, 9.0, *values[2:]]
    (folder / "report/results.json").write_text(json.dumps(kept))
    again = read_results(folder / "report").scenarios["one"]["good"].curves[0]
    assert again.decisions == [200, 400, 590, 810, 1000] and 9.0 not in again.values["return"]


def test_sentences(folder):
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


def test_pages(folder):
    results = read_results(folder)
    assert results.missing == ["one.unfinished.sampled"]
    page = write_report(results, folder / "report")
    html = page.read_text()
    assert "<script>" not in html and "&lt;script&gt;" in html and "Made &lt;up&gt;" in html
    assert "Not finished yet" in html
    markdown = (folder / "report/report.md").read_text()
    assert "![one_curves](one_curves.png)" in markdown and (folder / "report/one_curves.png").stat().st_size > 10_000
    assert "<script>" not in markdown
    assert not list((folder / "report").glob(".*"))


@pytest.mark.parametrize(("stages", "told_of_others"), [("one.good.sampled", True), ("*", False)])
def test_collisions_that_the_game_does_not_count_are_left_out(folder, stages, told_of_others):
    for path in folder.glob(f"{stages}/evaluation.json"):
        path.write_text(path.read_text().replace('"collisions_mean": 1.0', '"collisions_mean": null'))
    write_report(read_results(folder), folder / "report")
    told = summarise(read_results(folder / "report"))["scenarios"]["one"]
    assert told["systems"]["good"]["evaluations"]["sampled"]["collisions_mean"] is None
    assert told["collisions"] is told_of_others
    pages = [(folder / f"report/report.{end}").read_text() for end in ("md", "html")]
    assert ["Collisions" in page for page in pages] == 2 * [told_of_others]


def test_figures_beside_strangers_are_told_by_seat_and_kept(folder, tmp_path):
    study = json.loads((folder / "study.json").read_text())
    study["evaluation"]["strangers"] = {"mute": ["elsewhere"]}
    (folder / "study.json").write_text(json.dumps(study))
    name, there = next(iter(study["systems"])), next(iter(study["scenarios"]))
    place = folder / f"{there}.{name}.strangers"
    place.mkdir()
    matrix = {"alice": [[1.0, 3.0], [4.0, 4.0]], "bob": [[0.5], [0.25]]}
    (place / "crossplay.json").write_text(json.dumps({"groups": {"mute": {"matrix": matrix}}}))
    results = read_results(folder)
    beside = {"mute": {"alice": [2.0, 4.0], "bob": [0.5, 0.25]}}
    assert results.scenarios[there][name].strangers == beside
    assert f"{there}.{name}.strangers" not in results.missing
    others = [one for one in study["systems"] if one != name]
    assert all(f"{there}.{one}.strangers" in results.missing for one in others)
    page = write_report(results, tmp_path / "report")
    assert read_results(page.parent).scenarios[there][name].strangers == beside
    told = json.loads((page.parent / "report.json").read_text())["scenarios"][there]
    assert told["strangers"] == {"mute": ["alice", "bob"]}
    assert told["systems"][name]["strangers"]["mute"]["alice"]["value"] == 3.0
    assert "| mute | alice | 3.00" in (page.parent / "report.md").read_text()


def test_a_report_can_be_made_again_from_what_it_kept(folder):
    write_report(read_results(folder), folder / "report")
    kept = read_results(folder / "report")
    assert kept.missing == ["one.unfinished.sampled"]
    write_report(kept, folder / "again")
    for name in ("report.html", "report.md", "report.json", "results.json", "one_curves.png"):
        assert (folder / "again" / name).read_bytes() == (folder / "report" / name).read_bytes(), name


def test_what_a_run_took_is_told(folder):
    path = write_report(read_results(folder), folder / "report")
    told = json.loads((folder / "report" / "report.json").read_text())["scenarios"]["one"]["systems"]["good"]
    assert told["took"] == {"seconds": 40.0, "decisions": 800.0, "tokens": 20001.5}
    assert "20,002" in path.read_text() and "20,002" in (folder / "report" / "report.md").read_text()


def drop(*place):
    """A change that takes something out of a JSON value."""

    def change(content):
        *outer, last = place
        for key in outer:
            content = content[key]
        del content[last]

    return change


def put(value, *place):
    """A change that replaces something in a JSON value."""

    def change(content):
        *outer, last = place
        for key in outer:
            content = content[key]
        content[last] = value

    return change


def refused(folder, name, change, says):
    path = folder / name
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(UserError) as caught:
        read_results(folder)
    message = str(caught.value)
    assert message.startswith(repr(str(path))) and says in message and "\n" not in message, message
    assert message.endswith(".") and "again" in message


STUDY_DAMAGE = [
    *((drop(key), f"`{key}` is missing") for key in ("title", "env", "scenarios", "systems", "seeds", "evaluation")),
    (put({}, "scenarios"), "`scenarios` is {} but must be a mapping that is not empty"),
    (put([], "seeds"), "`seeds` is [] but must be a list that is not empty"),
    (put(["one"], "seeds"), "`seeds.0` is 'one' but must be a whole number"),
    (put("nobody", "baseline"), "`baseline` is 'nobody' but must be one of silent, good"),
    (put(3, "systems", "good"), "`systems.good` is 3 but must be a mapping"),
    (drop("systems", "good", "interventions"), "`systems.good.interventions` is missing"),
    (drop("evaluation", "modes"), "`evaluation.modes` is missing"),
    (put([1], "systems", "good", "config"), "`systems.good.config` is [1] but must be a mapping"),
    (put(None, "systems", "good", "config"), "`systems.good.config` is None but must be a mapping"),
    (put(5, "systems", "good", "scenarios"), "`systems.good.scenarios` is 5 but must be a list"),
    (put([5], "systems", "good", "scenarios"), "`systems.good.scenarios.0` is 5 but must be a text"),
]


@pytest.mark.parametrize(("change", "says"), STUDY_DAMAGE)
def test_a_damaged_study_is_refused(folder, change, says):
    refused(folder, "study.json", change, says)


@pytest.mark.parametrize("text", ["{}", "[]", "", "{", "3", '"study"', "null"])
@pytest.mark.parametrize("name", ["study.json", "results.json"])
def test_a_file_with_something_else_is_refused(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=rf"{name}' is damaged or incomplete: .* again"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (drop("checkpoints", 1, "return_mean"), "`checkpoints.1.return_mean` is missing"),
        (drop("checkpoints", 0, "vocabulary"), "`checkpoints.0.vocabulary` is missing"),
        (put("much", "checkpoints", 2, "return_mean"), "`checkpoints.2.return_mean` is 'much' but must be a number"),
        (put(None, "checkpoints", 2, "success_rate"), "`checkpoints.2.success_rate` is None but must be a number"),
        (put(float("nan"), "checkpoints", 0, "return_mean"), "but must be a finite number"),
        (put([["hello"]], "checkpoints", 0, "common_messages"), "`checkpoints.0.common_messages.0` is ['hello']"),
        (put({"score": "x"}, "checkpoints", 1, "metrics"), "`checkpoints.1.metrics.score` is 'x' but must be a number"),
        (put([], "checkpoints"), "`checkpoints` is [] but must be a list that is not empty"),
    ],
)
def test_a_damaged_evaluation_is_not_called_missing(folder, change, says):
    refused(folder, "one.good.sampled/evaluation.json", change, says)


def test_an_evaluation_that_cannot_be_read_is_not_called_missing(folder):
    (folder / "one.good.sampled/evaluation.json").write_text('{"checkpoints": [')
    with pytest.raises(UserError, match=r"one.good.sampled/evaluation.json' is damaged .* remove it and type"):
        read_results(folder)


def test_curves_of_something_else_are_refused(folder):
    path = folder / "one.good/trial_0_seed=0/result.json"
    path.write_text('{"env_runners": 3}')
    with pytest.raises(
        UserError, match=r"result.json' is damaged or incomplete: no results of a trial .*remove '.*one.good' and"
    ):
        read_results(folder)


def test_what_tune_writes_for_no_number_is_no_damage(folder):
    row = result(3, 0)
    row["learners"]["shared"]["entropy"] = "null"
    (folder / "one.good/trial_0_seed=0/result.json").write_text(json.dumps(row))
    curve = read_results(folder).scenarios["one"]["good"].curves[0]
    assert str(curve.values["entropy"]) == "[nan]" and curve.values["return"] == pytest.approx([0.9])


GOOD = ("scenarios", "one", "good")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        *((drop("study", key), f"`study.{key}` is missing") for key in ("title", "env", "seeds", "evaluation")),
        (drop("study", "scenarios", "one"), "`study.scenarios` is {} but must be a mapping that is not empty"),
        (drop("study", "systems", "good"), "`study.systems.good` is missing"),
        (put({}, "scenarios"), "`scenarios` is {} but must be a mapping that is not empty"),
        (drop("scenarios", "one", "silent"), "`scenarios.one.silent` is missing"),
        (drop("missing"), "`missing` is missing"),
        (put(3, *GOOD), "`scenarios.one.good` is 3 but must be a mapping"),
        (drop(*GOOD, "curves", 0, "seed"), "`scenarios.one.good.curves.0.seed` is missing"),
        (drop(*GOOD, "curves", 0, "values", "return"), "`scenarios.one.good.curves.0.values.return` is missing"),
        (drop(*GOOD, "curves", 1, "values", "length", 0), "length` has 3 values but 4 are in `decisions`"),
        (put("x", *GOOD, "curves", 0, "values", "entropy", 2), "entropy.2` is 'x' but must be a number"),
        (put([], *GOOD, "evaluations", "sampled"), "`scenarios.one.good.evaluations.sampled` is [] but must be"),
        (drop(*GOOD, "evaluations", "sampled", 0, "return_mean"), "evaluations.sampled.0.return_mean` is missing"),
        (
            put({"score": "x"}, *GOOD, "evaluations", "sampled", 0, "metrics"),
            "0.metrics.score` is 'x' but must be a n",
        ),
    ],
)
def test_damaged_results_are_refused(folder, change, says):
    results = to_plain(read_results(folder))
    (folder / "study.json").unlink()
    (folder / "results.json").write_text(json.dumps(results))
    assert to_plain(read_results(folder)) == results
    refused(folder, "results.json", change, says)


def learning(folder, seed, returns):
    """Puts a curve of returns, one per iteration of 200 decisions, in place of one of `good`."""
    rows = [result(k, seed) for k in range(2, len(returns) + 2)]
    for row, value in zip(rows, returns, strict=True):
        row["env_runners"]["agent_episode_returns_mean"] = {"a": value, "b": value}
    path = folder / f"one.good/trial_{seed}_seed={seed}/result.json"
    path.write_text("\n".join(json.dumps(row) for row in rows))


def test_decisions_until_a_return_count_only_one_that_lasts(folder):
    learning(folder, 0, [1.1, 0.3, 0.4, 1.0, 1.2])  # 400 decisions: luck; from 1,000 on it stays
    for seed in (1, 2, 3):
        learning(folder, seed, [0.2, 1.0, 1.1, float("nan"), 1.3])  # no episode ended in the fourth
    good = summarise(read_results(folder))["scenarios"]["one"]["systems"]["good"]
    assert good["decisions_to_return_1"] == 600 and good["runs_to_return_1"] == [4, 4]
    for seed in (1, 2):
        learning(folder, seed, [0.2, 1.0, 1.1, 1.2, 0.9])  # reached, and lost in the end
    good = summarise(read_results(folder))["scenarios"]["one"]["systems"]["good"]
    assert good["decisions_to_return_1"] is None and good["runs_to_return_1"] == [2, 4]
    write_report(read_results(folder), folder / "report")
    for page in ("report.md", "report.html"):
        assert "good talk only 2 of 4 runs; same 800 (4 of 4 runs)" in (folder / "report" / page).read_text()


def shuffled(folder, change, mode="shuffled"):
    """Also plays `good` under a control; `change` adds what is known of its messages to a run's figures."""
    study = json.loads((folder / "study.json").read_text())
    study["systems"]["good"]["interventions"] = [mode]
    study["systems"]["same"]["config"] = {"messages": mode}
    (folder / "study.json").write_text(json.dumps(study))
    stage = folder / f"one.good.messages_{mode}"
    stage.mkdir()
    runs = [{**evaluation(1.0), **change(k)} for k in range(4)]
    (stage / "evaluation.json").write_text(json.dumps({"checkpoints": runs}))
    write_report(read_results(folder), folder / "report")
    return json.loads((folder / "report/report.json").read_text())["scenarios"]["one"], (
        folder / "report/report.md"
    ).read_text()


@pytest.mark.parametrize("mode", ["other_moments", "other_fact", "shuffled"])
def test_how_many_messages_of_a_control_are_the_speakers_own_stands_beside_them(folder, mode):
    told, page = shuffled(folder, lambda k: {"shuffled_same_share": (0.1, 0.2, 0.3, 0.9)[k]}, mode)
    found = told["systems"]["good"]["evaluations"]
    assert found[f"messages_{mode}"]["shuffled_same_share"] == {
        "value": 0.25, "low": 0.1, "high": 0.9, "estimated": False,
    }  # fmt: skip
    assert "shuffled_same_share" not in found["sampled"]
    assert "(25 % of them equal its own)" in told["sentences"][3] and "| 7 | 25 % |" in page
    # A system that is trained with shuffled messages, from an evaluation that did not count: 0.9^2 + 0.1^2.
    assert told["systems"]["same"]["evaluations"]["sampled"]["shuffled_same_share"]["value"] == pytest.approx(0.82)
    assert "| 7 | about 82 % |" in page


def test_what_nobody_counted_is_not_made_up(folder):
    told, page = shuffled(folder, lambda k: {})
    assert told["systems"]["good"]["evaluations"]["messages_shuffled"]["shuffled_same_share"] is None
    assert "was not recorded" in told["sentences"][3] and "| 7 | not recorded |" in page


def test_a_control_that_had_nothing_to_draw_is_called_silence(folder):
    told, _ = shuffled(folder, lambda k: {"shuffled_same_share": 0.0, "message_words_mean": 0.0})
    assert "this is silence" in told["sentences"][3]


def test_a_report_without_shuffled_messages_says_nothing_of_them(folder):
    write_report(read_results(folder), folder / "report")
    for page in ("report.md", "report.html"):
        assert "Shuffled" not in (folder / "report" / page).read_text()


def test_figures_of_an_earlier_report_stand_in_for_runs_that_are_gone(folder):
    """A report whose runs kept only returns, with the other figures as they were told, says what the whole one says."""
    whole = to_plain(read_results(folder))
    told = summarise(read_results(folder))
    kept = json.loads(json.dumps(whole))
    kept["note"] = "The runs are gone."
    for name, system in kept["scenarios"]["one"].items():
        figures = told["scenarios"]["one"]["systems"].get(name, {"evaluations": {}, "seeds": [], "messages": []})
        system["curves"] = []
        system["evaluations"] = {
            suffix: [{"return_mean": run["return_mean"]} for run in runs]
            for suffix, runs in system["evaluations"].items()
        }
        system["recorded"] = {
            "seeds": figures["seeds"], "messages": figures["messages"],
            "figures": {
                suffix: {key: told_of[key] for key in FIGURES if key != "return_mean"}
                for suffix, told_of in figures["evaluations"].items()
            },
        }  # fmt: skip
    (folder / "kept").mkdir()
    (folder / "kept/results.json").write_text(json.dumps(kept))
    again = summarise(read_results(folder / "kept"))
    for name, system in again["scenarios"]["one"]["systems"].items():
        assert system.pop("decisions_to_return_1") is None and system.pop("runs_to_return_1") == [0, 0]
        before = told["scenarios"]["one"]["systems"][name]
        assert {**before, **system} == before
    page = write_report(read_results(folder / "kept"), folder / "report").read_text()
    assert "The runs are gone." in page and "Learning curves were not kept." in page
    assert not list((folder / "report").glob("*_curves.png"))
    del kept["scenarios"]["one"]["good"]["recorded"]["figures"]["sampled"]["success_rate"]
    (folder / "kept/results.json").write_text(json.dumps(kept))
    with pytest.raises(UserError, match=r"good.evaluations.sampled.0.success_rate` is missing"):
        read_results(folder / "kept")


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


def test_intervals_are_seen_on_every_bar():
    """The darkest bar, drawn: on the row of its middle there is white and ink within the interval."""
    name, look = min(looks([f"system {k}" for k in range(40)]).items(), key=lambda drawn: lab(drawn[1].colour)[0])
    picture = draw_bars([(name, look.colour, {"sampled": Interval(1.0, 0.4, 0.8)})], "return")
    picture.canvas.draw()
    axis = picture.axes[0]
    x, y = (int(round(number)) for number in axis.transData.transform((0.6, 0.0)))
    pixels = np.asarray(picture.canvas.buffer_rgba())[::-1][y - 4 : y + 5, x, :3].astype(float)
    assert (pixels.sum(axis=1) > 600).any() and (pixels.sum(axis=1) < 200).any(), pixels


def part(folder, *names, **changes):
    results = read_results(folder)
    results.study.update(changes)
    results.study["systems"] = {name: results.study["systems"][name] for name in names}
    results.scenarios["one"] = {name: results.scenarios["one"][name] for name in names}
    results.missing.clear()
    return results


def test_parts_become_one_report(folder):
    whole = summarise(join_results([part(folder, "silent", "good", "same", "bad")]))
    joined = summarise(join_results([part(folder, "silent", "good"), part(folder, "same", "bad", baseline="same")]))
    assert joined == whole


def test_parts_of_one_file_become_one_report(folder):
    """Each place wrote down the whole study; a system that one has not run is taken from the other."""

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
    with pytest.raises(UserError, match="'silent' of scenario 'one' is in two"):
        join_results([with_seeds(folder, rest), whole])
    unfinished = with_seeds(folder, [first])
    unfinished.scenarios["one"]["good"].evaluations["sampled"].clear()
    with pytest.raises(UserError, match="finish the studies"):
        join_results([with_seeds(folder, rest), unfinished])


def test_parts_that_contradict_are_refused(folder):
    silent = part(folder, "silent")
    with pytest.raises(UserError, match="`env` is"):
        join_results([silent, part(folder, "good", env="another")])
    with pytest.raises(UserError, match="'silent' of scenario 'one' is in two"):
        join_results([silent, part(folder, "silent", "good")])
    other = part(folder, "good")
    other.study["systems"] = {"good": {**other.study["systems"]["good"], "stop": {"training_iteration": 99}}}
    with pytest.raises(UserError, match="`stop` of system 'good' differs between the studies"):
        join_results([part(folder, "silent", "good"), other])
    with pytest.raises(UserError, match="different settings"):
        join_results([silent, part(folder, "good", scenarios={"one": {"map_name": "A"}})])
    with pytest.raises(UserError, match="lacks the baseline"):
        join_results([part(folder, "good", baseline="silent")])


def test_systems_are_also_judged_over_all_scenarios(folder):
    assert summarise(read_results(folder))["over_scenarios"] == {}
    results = part(folder, "silent", "good", "bad")
    results.study["scenarios"]["two"] = {"map_name": "A"}
    results.scenarios["two"] = {
        name: part(folder, "silent", "good").scenarios["one"][name] for name in ("silent", "good")
    }
    summary = summarise(results)
    assert list(summary["over_scenarios"]) == ["silent", "good"]  # "bad" was judged in one of them only
    whole = summary["over_scenarios"]["good"]["return_mean"]
    one = summary["scenarios"]["one"]["systems"]["good"]["evaluations"]["sampled"]["return_mean"]
    assert whole["value"] == pytest.approx(one["value"]) and whole["high"] - whole["low"] < one["high"] - one["low"]
    write_report(results, folder / "two")
    assert "## All scenarios" in (folder / "two/report.md").read_text()
    assert "All scenarios" in (folder / "two/report.html").read_text()


def test_html_and_links_of_names_are_text_in_markdown(folder):
    nasty = "<img src=x onerror=alert(1)> [a](javascript:b)"
    study = {**STUDY, "title": nasty, "systems": {**STUDY["systems"], "good": {"label": nasty, "interventions": []}}}
    (folder / "study.json").write_text(json.dumps(study))
    write_report(read_results(folder), folder / "report")
    for name in ("report.md", "report.html"):
        text = (folder / "report" / name).read_text()
        assert "<img src=x" not in text and "&lt;img src=x" in text
    assert "](javascript" not in (folder / "report" / "report.md").read_text()


@pytest.mark.parametrize("name", ["../../outside", "/tmp/outside", "a/b", ""])
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
    (place / "results.json").write_text(json.dumps(kept))
    with pytest.raises(UserError, match="damaged or incomplete: .* must be made of letters"):
        read_results(place)


def test_a_number_beyond_all_bounds_is_damage(folder):
    refused(
        folder, "one.good.sampled/evaluation.json", put(10**400, "checkpoints", 0, "return_mean"), "must be a finite"
    )
