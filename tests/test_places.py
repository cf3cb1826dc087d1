"""Paths, `file://` and `s3://` in settings and options; files with a byte-order mark."""

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_text
from rllib_llm_comm.core.places import below, fetched, is_remote, local_path, scheme_of
from rllib_llm_comm.experiments.experiment_file import read_experiment_file
from rllib_llm_comm.experiments.prerequisites import on_this_machine
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from tests.experiments.staged import run
from tests.refusal import refused
from tests.s3_server import ENVIRONMENT, s3_server

ROOT = Path(__file__).parents[1]
REFUSED = ("gs://bucket/x", "S4://bucket/x", "gs:/bucket/x")
NO_PATHS = (
    "a\0b", os.fsdecode(b"caf\xe9"), "\ud800", "~nobody-knows-this-user/x", "file://host/x", "file:///x?y=1",
    "file://", "file://[x/y", "file:///x%00y", "file:///caf%e9", "x" * 300,
    "\ufeffs3://bucket/x", "\N{FULLWIDTH LATIN SMALL LETTER S}3://bucket/x", "%73%33://bucket/x",
)  # fmt: skip


@pytest.fixture(scope="module")
def store():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        with s3_server() as server:
            yield server


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("place", REFUSED + NO_PATHS)
def test_what_is_no_path_of_this_machine_is_refused_by_the_name_of_its_setting(place):
    for read in (local_path, fetched):
        with refused("some_setting"):
            read(place, "some_setting")


@pytest.mark.parametrize("place", ["simplecache::s3://x/y", " s3://x/y", "x ", "s3:x/y", "$HOME/x", "${HOME}"])
def test_what_is_meant_as_another_place_makes_no_folder_of_that_name(place):
    with refused("storage_path"):
        local_path(place, "storage_path")


@pytest.mark.parametrize("uri", ["file:///tmp/a%20b", "file://localhost/tmp/a%20b", Path("file:///tmp/a%20b")])
def test_file_uris_are_paths(uri):
    assert local_path(uri) == Path("/tmp/a b")


@pytest.mark.parametrize("place", ["C:/x", "zoo:verco_salad", "hf:user/repo", "a/s3:/b", "./s3:/b", "2024:/x", ""])
def test_paths_and_names_are_no_uris(place):
    assert not scheme_of(place) and not is_remote(place) and local_path(place) == Path(place)


def test_names_are_added_to_the_path_of_a_uri_and_not_to_its_options():
    assert below("s3://bucket/a/?region=x", "b", "c") == "s3://bucket/a/b/c?region=x"


OUTPUTS = {
    "evaluate zoo:verco_salad --json PLACE": "--json", "replay zoo:verco_salad --out PLACE": "--out",
    "export zoo:verco_salad PLACE": "FOLDER", "crossplay zoo:verco_salad --html PLACE": "--html",
    "runs --html PLACE": "--html", "report . --out PLACE": "--out", "report . --marl-eval PLACE": "--marl-eval",
    "train file PLACE": "FILE", "study file PLACE": "FILE", "clone PLACE results": "PLAYER", "manual PLACE": "PAPERS",
    "officer demonstrations PLACE": "FOLDER", "check golden PLACE": "FILE",
}  # fmt: skip


@pytest.mark.parametrize("place", ["s3://bucket/x", "gs://bucket/x"])
@pytest.mark.parametrize("command", OUTPUTS)
def test_commands_refuse_uris_for_what_they_write_before_anything_begins(command, place):
    done = CliRunner().invoke(cli, command.replace("PLACE", place).split())
    assert isinstance(done.exception, UserError), done.output
    assert place in str(done.exception) and OUTPUTS[command] in str(done.exception)


def test_whatever_a_stage_reads_may_lie_in_a_store(store):
    store.put("code/kitchen.py", b"1")
    place = store.uri("code")
    given = {
        "subgoal_rewards": {"name": "code", "path": place},
        "code": [place],
        "partners": {"mine": {"any": place}},
    }
    here = on_this_machine("look.config", given)
    found = here["subgoal_rewards"]["path"], *here["code"], here["partners"]["mine"]["any"]
    assert [(Path(one) / "kitchen.py").read_bytes() for one in found] == [b"1"] * 3


def test_settings_are_on_this_machine_or_refused_by_name():
    given = {"checkpoint": "file:///x/y", "env_config": {"a": ["file:///z"]}, "teacher": {"base_url": "http://h/v1"}}
    there = {"checkpoint": "/x/y", "env_config": {"a": ["/z"]}, "teacher": {"base_url": "http://h/v1"}}
    assert on_this_machine("look.config", given) == there
    for key in ("output", "cassette", "checkpoint", "anything"):
        with refused(f"look.config.chat.{key}"):
            on_this_machine("look.config", {"chat": {key: "gs://b/x"}})
    for key in ("output", "cassette", "cache_dir"):  # what is written
        with refused(f"look.config.{key}"):
            on_this_machine("look.config", {key: "s3://b/x"})
    with refused("look.config.subgoal_rewards.path"):
        on_this_machine("look.config", {"subgoal_rewards": {"name": "chat", "path": "s3://b/x"}})
    offline = {"input_": "s3://b/x", "output": "gs://b/x"}
    assert on_this_machine("bc.config", offline, rllibs_own=True) == offline
    with refused("bc.config.input_"):
        on_this_machine("bc.config", {"input_": "memory://x"}, rllibs_own=True)
    with refused("bc.config.output"):
        on_this_machine("bc.config", {"output": "unheard://x"}, rllibs_own=True)


def test_a_folder_in_a_store_is_fetched_once_and_followed_when_it_changes(store):
    for name, content in {"a.json": b"1", "deep/er/b.bin": b"22", "empty": b""}.items():
        store.put(f"once/{name}", content)
    copy = fetched(store.uri("once"), "checkpoint")
    assert (copy / "deep/er/b.bin").read_bytes() == b"22" and (copy / "empty").read_bytes() == b""
    first = (copy / "a.json").stat().st_ino
    assert fetched(store.uri("once"), "checkpoint") == copy and (copy / "a.json").stat().st_ino == first
    store.put("once/a.json", b"333")
    store.delete("once/empty")
    fetched(store.uri("once"), "checkpoint")
    assert (copy / "a.json").read_bytes() == b"333" and not (copy / "empty").exists()
    assert not list(copy.rglob("*.tmp"))


def test_players_and_strangers_may_lie_in_a_store(store):
    store.put("met/x.json", b"{}")
    place = store.uri("met/x.json")
    here = on_this_machine("met.config", {"players": [place], "partners": {"group": [{"policy": place}, place]}})
    for path in (*here["players"], here["partners"]["group"][0]["policy"], here["partners"]["group"][1]):
        assert Path(path).read_text() == "{}"


def test_a_dry_run_reads_what_lies_in_a_store(store, tmp_path, capsys):
    store.put("papers/game.tex", rb"\documentclass{article}\begin{document}A cook puts onions into pots.\end{document}")
    config = {"paper": store.uri("papers/game.tex"), "chat": {"model": "m"}}
    run({"manual": {"run": "make_manual", "config": config}}, tmp_path, dry_run=True)
    assert "Nobody was asked." in capsys.readouterr().out


def test_a_single_file_and_some_files_of_a_folder_are_fetched(store):
    store.put("some/x.json", b"{}")
    store.put("some/x.pkl", b"-")
    assert fetched(store.uri("some/x.json"), "manual").read_text() == "{}"
    some = fetched(store.uri("some"), "runs", lambda name: name.endswith("json"))
    assert [path.name for path in some.iterdir()] == ["x.json"]


def test_names_in_a_store_do_not_lead_out_of_the_copy(store, cache):
    store.put_by_any_name("evil/a/../../../../../planted", b"-")
    store.put("evil/good", b"-")
    with pytest.raises(UserError, match="holds the name 'a/../../../"):
        fetched(store.uri("evil"), "checkpoint")
    assert not [path for path in cache.parent.rglob("*") if path.is_file() and path.name != ".lock"]


@pytest.mark.parametrize(
    "uri", ["s3://", "s3:///x", "s3://[x/y", "s3://results/x?nonsense=1", "s3://key:secret@results/x"]
)
def test_uris_that_lead_nowhere_are_one_sentence_without_keys(uri):
    with refused("checkpoint") as told:
        find_checkpoint(uri)
    assert "`checkpoint`" in str(told.value) and "secret" not in str(told.value)


def test_missing_folders_and_buckets_are_one_sentence(store):
    with pytest.raises(UserError, match="nothing is there"):
        find_checkpoint(store.uri("nothing/here"))
    with refused("checkpoint"):
        find_checkpoint(store.uri().replace("s3://results", "s3://no-such-bucket"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_files_with_a_byte_order_mark_are_read(tmp_path, encoding):
    content = {"cartpole": {"run": "PPO", "env": "CartPole-v1", "stop": {"training_iteration": 1}}}
    for ending in ("yaml", "json"):
        file = tmp_path / f"file.{ending}"
        file.write_text(json.dumps(content), encoding=encoding)
        assert read_experiment_file(file).experiments["cartpole"].run == "PPO"
    (tmp_path / "text.md").write_bytes("one\r\ntwo é\n".encode(encoding))
    assert read_text(tmp_path / "text.md") == "one\ntwo é\n"


def test_all_user_files_are_read_by_the_function_that_knows_marks():
    """Other ways to read a text would keep the mark of a file from Windows, or wait for a pipe."""
    other = re.compile(r"(?<!resources\.files)\.read_text\(|\bopen\([^)]*encoding=\"utf-8\"")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("rllib_llm_comm", "envs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in path.read_text().splitlines()
        if other.search(line) and not re.search(r"resources\.files|__file__|\"a\"|newline=", line)
    ]
    assert found == []


def test_only_regular_files_are_read_and_none_that_is_too_large(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 1 << 33)
    for place in tmp_path.iterdir():
        with pytest.raises(OSError):
            read_text(place)
