"""The end of a run names TensorBoard only where it is."""

from __future__ import annotations

import sys
from pathlib import Path

from rllib_llm_comm.experiments.console import out
from rllib_llm_comm.experiments.pipeline import say_curves


def test_the_hint_stands_only_where_tensorboard_is_installed(tmp_path, monkeypatch, capsys):
    out.file = None  # the stream that pytest captures
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    say_curves(Path("results"))
    assert capsys.readouterr().out == ""
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "__init__.py").write_text("")
    sys.path_importer_cache.pop(str(tmp_path), None)
    say_curves(Path("results"))
    assert capsys.readouterr().out == "Curves: tensorboard --logdir results\n"
