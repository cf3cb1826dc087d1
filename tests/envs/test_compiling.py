"""A first use that takes long says what it does; a quick one says nothing."""

from __future__ import annotations

import time

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
        "Compiling the rules of chess; this takes a minute once and is kept for later."
    ]
