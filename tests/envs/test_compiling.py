"""Compiled rules: a first use that takes long says what it does, a quick one nothing; only one process compiles."""

from __future__ import annotations

import threading
import time

import pytest

from rllib_llm_comm.envs import compiling


def test_only_slow_compilation_is_told(monkeypatch, caplog):
    monkeypatch.setattr(compiling, "SILENT_SECONDS", 0.05)
    with compiling.compiling("chess", "a minute"):
        pass
    time.sleep(0.1)
    assert not caplog.records
    with compiling.compiling("chess", "a minute"):
        time.sleep(0.2)
    assert [record.message for record in caplog.records] == [
        "Loading the rules of chess; to compile them takes a minute, once: they are kept for later."
    ]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_second_waits_for_the_first_and_another_game_for_nobody(cache):
    began, done = threading.Event(), []

    def second():
        began.set()
        with compiling.compiling("chess", "a minute"):
            done.append("second")

    waiting = threading.Thread(target=second)
    with compiling.compiling("chess", "a minute"):
        waiting.start()
        assert began.wait(10)
        with compiling.compiling("go", "a minute"):
            time.sleep(0.2)
        done.append("first")
    waiting.join(10)
    assert done == ["first", "second"]


def test_where_nothing_can_be_kept_nobody_waits(cache):
    cache.write_text("no folder")
    with compiling.compiling("chess", "a minute"), compiling.compiling("chess", "a minute"):
        pass
