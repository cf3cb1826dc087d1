"""What players do with sentences of strangers: in the same situations, with and without the sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from rllib_llm_comm import load_policy
from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import scripted_player_of
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.evaluation.sentences import (
    SITUATIONS,
    ask_players,
    join_sentences,
    read_sentences,
    summary_of,
    write_sentences,
)
from rllib_llm_comm.experiments.evaluation_run import run_cross_play
from rllib_llm_comm.experiments.runs import run_report
from tests.evaluation.made_up import study_of, write

COOK = {"policy": "zoo:told_salad", "name": "cook"}
MUTE = {"policy": "zoo:told_salad", "speech": "none", "name": "mute"}
RULES = {"policy": "scripted", "speech": "scripted", "name": "by rules"}
HOW = CrossPlaySettings(seed=5, episodes=1)


@pytest.fixture(scope="module")
def told():
    return ask_players(CrossPlay([COOK], {"rules": [RULES], "mute": [MUTE]}, HOW), HOW)


def test_each_situation_is_the_first_moment_in_which_something_is_meant(told):
    found = told["situations"]
    assert len(found) == SITUATIONS and {one["stranger"] for one in found} == {"by rules"}, "the mute one says nothing"
    assert all(one["listener"] == "bob" and one["meaning"] and list(one["heard"]) == ["alice"] for one in found)
    assert all(one["seed"] >= 5 and one["group"] == "rules" for one in found)
    assert len({(one["text"], one["heard"]["alice"]) for one in found}) == SITUATIONS, "none comes twice"
    assert told["players"] == [{"name": "cook", "method": ""}]


def test_a_choice_is_that_of_the_policy_with_and_without_the_sentence(told):
    policy = load_policy("zoo:told_salad")
    env = policy.env()
    started = [one for one in told["situations"] if one["game_step"] == 0]
    assert started
    for one in started:
        observations, infos = env.reset(seed=one["seed"])
        seen, choice = observations["bob"], one["choices"]["cook"]
        assert (one["text"], one["secret"]) == (seen["text"], infos["alice"]["private"])
        given, silent = policy.probabilities([("bob", seen, one["heard"]), ("bob", seen, {})])
        best = int(given.argmax())
        assert choice["action"] == seen["candidates"][best]
        assert choice["silent_action"] == seen["candidates"][int(silent.argmax())]
        found = [choice["probability"], choice["probability_silent"]]
        np.testing.assert_allclose(found, [given[best], silent[best]], atol=2e-4)
        np.testing.assert_allclose(choice["influence"], np.abs(given - silent).sum() / 2, atol=2e-4)
        advice = scripted_player_of(env.unwrapped).advise(env.unwrapped, "bob")
        assert one["scripted"] == seen["candidates"][advice] and choice["scripted"] == (best == advice)
        food = one["meaning"].split()[0]
        wanted = [
            food in words.split() and bool(on)
            for words, on in zip(seen["candidates"], seen["action_mask"], strict=True)
        ]
        np.testing.assert_allclose(choice["asked_share"], given[wanted].sum(), atol=2e-4)
        np.testing.assert_allclose(choice["asked_share_silent"], silent[wanted].sum(), atol=2e-4)
        assert choice["asked"] == wanted[best]


def test_a_cook_that_learned_to_listen_does_what_it_is_asked_for_more_than_in_silence(told):
    (row,) = summary_of(told)
    assert row["situations"] == SITUATIONS and row["asked_share"] > row["asked_share_silent"] + 0.1


def test_without_partners_players_are_strangers_to_each_other_and_others_hear_nothing():
    other = ask_players(CrossPlay([COOK, "scripted"], None, HOW), HOW)
    assert {one["stranger"] for one in other["situations"]} == {"cook"} == set(other["situations"][0]["choices"])
    assert ask_players(CrossPlay([COOK], {"mute": [MUTE]}, HOW), HOW) is None
    deaf = CrossPlaySettings(env="rllib_llm_comm/door-v0")
    assert ask_players(CrossPlay(["scripted"], {"s": [RULES]}, deaf), deaf) is None


def test_what_a_player_does_with_its_own_sentences_does_not_count():
    told = ask_players(CrossPlay([COOK, {"policy": "zoo:talker_salad", "name": "other"}], None, HOW), HOW)
    assert all(set(one["choices"]) == {"cook", "other"} for one in told["situations"])
    for row, listener in zip(summary_of(told), ("other", "cook"), strict=True):
        met = [one for one in told["situations"] if one["stranger"] == row["stranger"] != listener]
        wanted = np.mean([one["choices"][listener]["influence"] for one in met])
        assert row["influence"] == pytest.approx(wanted, abs=1e-4)


def test_methods_that_were_asked_apart_stand_on_one_page(told, tmp_path):
    again = json.loads(json.dumps(told).replace('"cook"', '"<b>other"'))
    for one in again["situations"]:
        one["choices"]["<b>other"] |= {"asked": False, "asked_share": 0.0}
    joined = join_sentences([("first", told), ("second", again)])
    assert len(joined["situations"]) == SITUATIONS and len(joined["pictures"]) == len(told["pictures"])
    assert all(set(one["choices"]) == {"cook", "<b>other"} for one in joined["situations"])
    first, second = summary_of(joined)
    assert (first["method"], second["method"], second["asked"], second["asked_share"]) == ("first", "second", 0.0, 0.0)
    shares = [one["choices"]["cook"]["asked_share"] for one in told["situations"]]
    assert first["asked_share"] == pytest.approx(np.mean([one for one in shares if one is not None]), abs=1e-4)
    page = write_sentences(joined, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<b>other" not in page and "&lt;b&gt;other" in page and "http" not in page.replace("http-equiv", "")
    assert page.count("background-image") == len(told["pictures"]) and page.count("<details>") == SITUATIONS
    kept = read_sentences(tmp_path / "page.json")
    assert kept["situations"] == joined["situations"] and kept["summary"] == [first, second]


def test_seeds_of_several_methods_may_have_one_name(told):
    joined = join_sentences([("first", told), ("second", told)])
    names = {cook["method"]: cook["name"] for cook in joined["players"]}
    assert names == {"first": "first, cook", "second": "second, cook"}
    for one, alone in zip(joined["situations"], told["situations"], strict=True):
        assert one["choices"] == dict.fromkeys(names.values(), alone["choices"]["cook"])


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.update(pictures=["url(https://elsewhere.example/x)"]),
        lambda told: told["situations"][0].update(picture=99),
        lambda told: told["situations"][0].pop("heard"),
        lambda told: told["situations"][0]["choices"]["cook"].update(probability="much"),
        lambda told: told["players"].append({}),
    ],
)
def test_damaged_files_are_refused(change, told, tmp_path):
    write_sentences(told, tmp_path / "page.html")
    kept = json.loads((tmp_path / "page.json").read_text())
    change(kept)
    write(tmp_path / "page.json", kept)
    with pytest.raises(UserError, match="damaged"):
        read_sentences(tmp_path / "page.json")


def test_files_of_one_name_are_refused(tmp_path):
    words = ["crossplay", "zoo:told_salad", "--episodes", "1"]
    for first, second in (("--json", "--sentences"), ("--html", "--sentences"), ("--json", "--html")):
        end = "json" if first == "--json" else "html"
        other = f"same.{end}" if second == "--html" else "same.html"
        found = CliRunner().invoke(cli, [*words, first, str(tmp_path / f"same.{end}"), second, str(tmp_path / other)])
        assert isinstance(found.exception, UserError) and "writes, too" in str(found.exception)
    assert not list(tmp_path.iterdir())


def test_a_finished_cross_play_is_asked_again_for_the_report(tmp_path):
    study = study_of("told", env="rllib_llm_comm/overcooked_text-v0", scenarios={"B": {}}, seeds=[0])
    write(tmp_path / "study.json", study)
    stage = tmp_path / "B.told.strangers"
    stage.mkdir()
    write(tmp_path / "partners.yaml", {"rules": [RULES]})
    played = run_cross_play(
        ["cook=zoo:told_salad"], HOW, partners=tmp_path / "partners.yaml", json_path=stage / "crossplay.json",
        sentences=tmp_path / "own.html",
    )  # fmt: skip
    own = read_sentences(tmp_path / "own.json")
    run_report([tmp_path])
    assert not (tmp_path / "report" / "B_sentences.json").exists(), "nobody was asked"
    run_report([tmp_path], ask=True)
    joined = read_sentences(tmp_path / "report" / "B_sentences.json")
    assert joined["players"] == [{"name": "cook", "method": "told"}]
    assert joined["situations"] == own["situations"] and (tmp_path / "report" / "B_sentences.html").is_file()
    # Another folder of the same study has another seed of the system.
    other = tmp_path / "other"
    write(other / "study.json", {**study, "seeds": [1]})
    write(other / stage.name / "crossplay.json", json.loads(json.dumps(played).replace('"cook"', '"another"')))
    run_report([tmp_path, other], tmp_path / "both", ask=True)
    both = read_sentences(tmp_path / "both" / "B_sentences.json")
    assert {one["name"] for one in both["players"]} == {"cook", "another"}

    (stage / "sentences.json").unlink()
    played["players"][0]["digest"] = "0" * 16
    write(stage / "crossplay.json", played)
    with pytest.raises(UserError, match="other weights than when"):
        run_report([tmp_path], ask=True)
    played["players"][0]["policy"] = "os:getcwd"
    write(stage / "crossplay.json", played)
    with pytest.raises(UserError, match="may be code"):
        run_report([tmp_path], ask=True)
