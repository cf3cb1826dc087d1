"""Recorded sessions: what is stored, read again after a crash, replayed, taught from and cloned."""

import json
import resource

import numpy as np
import pyarrow.parquet as parquet
import pytest
from test_table import SALADS, play_as_taught, table_of
from typer.testing import CliRunner

from rllib_llm_comm.baselines.numeric.behavior_cloning import CloningSettings, clone_players, read_demonstrations
from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.session_files import COLUMNS, DECISIONS, SESSION, read_session
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.evaluation.collect_demonstrations import collect_demonstrations
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.evaluation.replay import played_again, replay_session
from rllib_llm_comm.play.session_recorder import SessionRecorder
from rllib_llm_comm.policies.load_policy import load_policy
from rllib_llm_comm.policies.partner_settings import parse_partners
from rllib_llm_comm.policies.partners import make_partner
from rllib_llm_comm.policies.seated_policy import PartnerSeats
from rllib_llm_comm.verco.teachers.collect_labels import collect_labels
from tests.cli.command import succeeds
from tests.refusal import refused

TEXT = "rllib_llm_comm/overcooked_text-v0"


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """A person plays an episode as Alice and speaks twice; a second episode is left in its middle."""
    folder = tmp_path_factory.mktemp("sessions") / "p01"
    table = table_of(speech="scripted", seed=4, **SALADS)
    log = SessionRecorder(folder, table, "Yes, store it.")
    table.sit("alice", "P01")
    table.say("alice", "Please bring the tomato")
    play_as_taught(table, "alice", most=4)
    table.say("alice", "I chop it, thanks")
    play_as_taught(table, "alice")
    assert table.over
    table.restart(5)
    play_as_taught(table, "alice", most=2)
    log.close()
    return folder, table


def test_everything_that_was_seen_said_and_done_is_stored_in_a_folder_of_its_own(session):
    folder, table = session
    told = read_session(folder)
    assert (told.env, told.agents, told.consent) == (TEXT, ["alice", "bob"], "Yes, store it.")
    first, second = told.episodes
    assert (first.seed, first.ended, first.success) == (4, True, True)
    assert (second.seed, second.ended) == (5, False) and len(second.moments) >= 1
    assert sum(first.returns.values()) > 1.8
    opening = first.moments[0]
    assert opening.people["alice"].name == "P01" and opening.people["alice"].spoke
    assert opening.agents["alice"]["said"] == "please bring the tomato"
    assert "make a" in opening.agents["alice"]["text"]
    assert opening.agents["bob"]["heard"] == {} or "alice" in opening.agents["bob"]["heard"]
    assert sum(moment.people["alice"].spoke for moment in first.moments) == 2
    with pytest.raises(UserError, match="not empty"):
        SessionRecorder(folder, table)


def test_the_parquet_file_has_one_row_per_decision_with_what_it_paid(session):
    folder, _ = session
    table = parquet.read_table(folder / DECISIONS)
    first = read_session(folder).episodes[0]
    assert tuple(table.column_names) == COLUMNS
    assert table.num_rows == sum(len(moment.actions) for moment in first.moments)
    rows = table.to_pylist()
    assert {row["agent"] for row in rows if row["by_person"]} == {"alice"}
    assert all(row["phrase"] == row["candidates"][row["action"]] for row in rows)
    assert rows[-1]["reward"] > 0.9, "the last decision serves the salad"
    assert sum(row["spoke"] for row in rows if row["by_person"]) == 2


def test_a_torn_last_line_is_left_out_and_damage_is_told(session, tmp_path):
    folder, _ = session
    lines = (folder / SESSION).read_bytes().splitlines(keepends=True)
    torn = tmp_path / SESSION
    torn.write_bytes(b"".join(lines[:3]) + lines[3][:-20])
    assert len(read_session(tmp_path).episodes[0].moments) == 1
    head, moment, begun = json.loads(lines[0]), json.loads(lines[2]), b"".join(lines[:2])
    without_env = {name: value for name, value in head.items() if name != "env"}
    changes = (
        {"episode": float("inf")}, {"agents": {**moment["agents"], "bob": {"text": "?"}}},
        {"agents": {"alice": moment["agents"]["alice"]}}, {"actions": {"alice": 10**30}},
        {"agents": {**moment["agents"], "carol": moment["agents"]["bob"]}},
    )  # fmt: skip
    for content, told in (
        *((one, "no recorded session") for one in (b"", b"[1]\n", lines[1], b"\xff\n")),
        (begun + b'{"kind": "moment", "episode": 9}\n', "no recorded session"),
        *((begun + json.dumps({**moment, **change}).encode() + b"\n", "no recorded session") for change in changes),
        (json.dumps(without_env).encode() + b"\n", "env"), (lines[0] + b'{"kind": "moment"}\n', "'episode'"),
        (json.dumps({**head, "format": 99}).encode() + b"\n", "format 99"),
    ):  # fmt: skip
        torn.write_bytes(content)
        with pytest.raises(UserError, match=told):
            read_session(tmp_path)
    torn.write_bytes(begun + json.dumps({**moment, "actions": {}}).encode() + b"\n")
    with pytest.raises(UserError, match="'alice'"):
        replay_session(tmp_path, tmp_path / "page.html")


def test_a_full_disk_ends_the_record_at_a_whole_moment(tmp_path):
    table = table_of(speech="scripted", seed=4, **SALADS)
    log = SessionRecorder(tmp_path / "p02", table)
    table.sit("alice", "P02")
    play_as_taught(table, "alice", most=3)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for most, sentence in ((log._file.tell() + 200, "became larger than"), (before[0], "start a new session")):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))  # as on a full disk, then with room again
        try:
            with pytest.raises(UserError, match=sentence):
                play_as_taught(table, "alice", most=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log.close()
    assert len(read_session(tmp_path / "p02").episodes[0].moments) == 3, "no moment is missing between others"


def test_the_replay_shows_the_session_as_it_was(session, tmp_path):
    folder, _ = session
    told = read_session(folder)
    again = played_again(told, told.episodes[0])
    assert again.returns == pytest.approx(told.episodes[0].returns)
    assert again.frames[0]["image"] is not None and len(again.frames) == len(told.episodes[0].moments) + 1
    assert again.frames[0]["agents"]["alice"]["by"] == "P01" and "by" not in again.frames[0]["agents"]["bob"]
    page = replay_session(folder, tmp_path / "page.html").read_text()
    assert "please bring the tomato" in page and '"by":"P01"' in page
    changed = told.model_copy(update={"env_config": {**told.env_config, "view_radius": 0}})
    with pytest.raises(UserError, match="recorded"):
        played_again(changed, told.episodes[0])
    by_command = tmp_path / "session.html"
    assert CliRunner().invoke(cli, ["replay", str(folder), "--out", str(by_command)]).exit_code == 0
    assert "played by" in by_command.read_text()
    refused = CliRunner().invoke(cli, ["replay", str(folder), "--greedy"])
    assert isinstance(refused.exception, UserError) and "shown as it was" in str(refused.exception)


def test_people_teach_messages(session, tmp_path):
    folder, _ = session
    report = collect_labels(TEXT, tmp_path / "labels", teacher={"name": "people", "sessions": [str(folder)]})
    assert (report.labels, report.complete) == (2, True)
    rows = parquet.read_table(tmp_path / "labels" / "part-00000.parquet").to_pylist()
    first = read_session(folder).episodes[0].moments[0].agents["alice"]
    assert rows[0]["prompt"] == first["text"] and rows[0]["message"] == "please bring the tomato"
    assert {row["teacher"] for row in rows} == {"people"} and rows[1]["message"] == "i chop it, thanks"
    again = collect_labels(TEXT, tmp_path / "labels", teacher={"name": "people", "sessions": [str(folder)]})
    assert again.labels == 2, "nothing is taken twice"
    named = {"name": "people", "sessions": str(folder), "names": "P01"}
    assert collect_labels(TEXT, tmp_path / "named", teacher=named).labels == 2, "one name is a name, not its letters"
    with pytest.raises(UserError, match="'P02'.* 'P01'"):
        collect_labels(TEXT, tmp_path / "none", teacher={**named, "names": ["P01", "P02"]})
    with pytest.raises(UserError, match="a session of"):
        collect_labels("rllib_llm_comm/door-v0", tmp_path / "door", teacher={"name": "people", "sessions": str(folder)})


def test_a_clone_learns_what_people_did_and_not_what_agents_did(session, tmp_path):
    """The person only walks to and fro, its partner never moves: the clone walks."""
    folder, _ = session
    with pytest.raises(UserError, match="cloning takes"):
        read_demonstrations(folder)
    table = table_of("overcooked_ai", policy="stay", layout="cramped_room", horizon=60, observe=["vector", "text"])
    log = SessionRecorder(tmp_path / "walk", table)
    table.sit("alice")
    for number in range(60):
        table.choose("alice", (0, 1)[number % 2])
        table.advance()
    log.close()
    found = read_demonstrations(tmp_path / "walk")
    assert found.by_people is not None and [game.sum(0).tolist() for game in found.by_people] == [[60, 0]]
    assert np.array_equal(found.actions[0][:4, 0], [0, 1, 0, 1])
    result = clone_players(found, tmp_path / "clone", CloningSettings(epochs=60))
    assert sum(result.decisions) == 60
    policy = load_policy(tmp_path / "clone")
    observations, _ = policy.env(observe=["vector"]).reset(seed=0)
    assert policy.act(observations, explore=False)["alice"].action == 0


def test_what_people_did_is_demonstrated_with_what_they_heard(session, tmp_path):
    folder, _ = session
    people = {"sessions": [str(folder)], "names": ["P01"]}
    report = collect_demonstrations(TEXT, tmp_path / "own", player=people, messages="own")
    rows = parquet.read_table(tmp_path / "own" / "part-00000.parquet").to_pylist()
    moments = [moment for episode in read_session(folder).episodes for moment in episode.moments]
    chose = [m.agents["alice"] for m in moments if "alice" in m.actions and not m.people["alice"].forced]
    assert report.complete and report.decisions == len(chose) >= len(rows) > 3
    assert {row["agent"] for row in rows} == {"alice"} and {row["player"] for row in rows} == {"people"}
    done = {(card["text"], card["phrase"]) for card in chose}
    assert {(row["text"], json.loads(row["candidates"])[row["chosen"]]) for row in rows} <= done
    assert any("bob" in json.loads(row["heard"]) for row in rows)
    collect_demonstrations(TEXT, tmp_path / "none", player=people)
    silent = parquet.read_table(tmp_path / "none" / "part-00000.parquet").to_pylist()
    assert {row["heard"] for row in silent} == {"{}"}
    for wrong in ({**people, "names": ["P02"]}, {"sessions": str(tmp_path / "nowhere")}):
        with pytest.raises(UserError, match="P02|nowhere"):
            collect_demonstrations(TEXT, tmp_path / "wrong", player=wrong)


def test_recorded_people_are_strangers_who_say_and_do_what_they_did_in_the_likest_situation(session, tmp_path):
    folder, _ = session
    recorded = [moment for episode in read_session(folder).episodes for moment in episode.moments]
    chose = [m.agents["alice"] for m in recorded if "alice" in m.actions and not m.people["alice"].forced]
    (settings,) = parse_partners([f"people:{folder}"])
    assert settings.name == "recorded people (p01), replayed by situation"
    person = make_partner(settings, load_policy)
    game = PartnerSeats(make_env(TEXT, **SALADS), [person], seat="bob")
    game.reset(seed=4)  # the recorded episode's own
    first = game.asked_now["alice"]
    assert first["text"] == chose[0]["text"] and game.mailbox["alice"] == chose[0]["said"] != ""
    memory = game._memory
    same = [one for one in chose if one["text"] == first["text"]]
    (made,) = person.act_together([(memory, {"alice": first})])
    assert made["alice"].candidates[made["alice"].action] in {one["phrase"] for one in same}
    # What nobody did is not done where it is forbidden, however alike the situation is.
    mask = np.zeros(len(first["candidates"]), np.int8)
    mask[-1] = 1
    (forced,) = person.act_together([(memory, {"alice": {**first, "action_mask": mask}})])
    assert forced["alice"].action == len(mask) - 1

    def notes_on(**env_config):
        settings = CrossPlaySettings(episodes=1, env_config=env_config)
        return CrossPlay(["zoo:told_salad"], {"people": [f"people:{folder}"]}, settings).notes

    assert any("nobody answers" in note for note in notes_on())
    assert not any("the session had another" in note for note in notes_on(**SALADS))
    assert any("the session had another map_name, recipe than" in note for note in notes_on(map_name="A"))
    with pytest.raises(UserError, match="the session is of"):
        CrossPlay(["zoo:door"], {"people": [f"people:{folder}"]}, CrossPlaySettings(episodes=1))
    with pytest.raises(UserError, match="no recorded session"):
        make_partner(parse_partners([f"people:{tmp_path}"])[0], load_policy)


@pytest.mark.timeout(300)
def test_people_are_cloned_on_a_language_model_from_the_command_line(session, tmp_path, monkeypatch):
    folder, _ = session
    monkeypatch.chdir(tmp_path)

    def clone(*words):
        return CliRunner().invoke(cli, ["clone", *map(str, words)], catch_exceptions=False)

    options = ("--base-model", "embedded", "--epochs", "1", "--held-out", "0")
    with refused("--half"):
        clone(folder, "clone", *options, "--half", "first")
    done = succeeds("clone", str(folder), "clone", *options, cwd=tmp_path)
    assert "actions cloned from recorded people" in done.stdout
    manifest = load_policy(tmp_path / "clone" / "clone").manifest
    assert (manifest.algorithm, manifest.env) == ("ActionSFT", TEXT)
    assert manifest.provenance["cloned_from"] == ["people"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").touch()
    with pytest.raises(UserError, match="give a new folder"):
        clone(folder, "other", *options)
