"""The table of `rllib evaluate` can be read in a narrow terminal."""

from __future__ import annotations

import pytest
from rich.console import Console

from rllib_llm_comm.experiments.evaluation_run import print_figures

MANY = {f"figure_number_{k}": float(k) for k in range(15)}


def row(name, **metrics):
    return {"checkpoint": name, "return_mean": 1.25, "episodes": 50, "metrics": metrics}


@pytest.fixture
def printed(monkeypatch):
    def show(*rows):
        console = Console(width=80, record=True)
        monkeypatch.setattr("rllib_llm_comm.experiments.console.out", console)
        print_figures(rows)
        return console.export_text()

    return show


def test_few_figures_stand_in_a_line(printed):
    text = printed(row("a", score=3.0))
    assert any("mean" in line and "score" in line for line in text.splitlines())


def test_no_column_is_cut_off(printed):
    for count in range(3, 15):
        text = printed(row("a", **{f"figure {k}": 1000.0 + k for k in range(count)}))
        assert all(str(1000 + k) in text for k in range(count)), count
        assert len({len(line) for line in text.splitlines()}) == 1


def test_a_long_table_is_not_turned(printed):
    rows = [row(f"checkpoint_{k}", **{f"figure {n}": 1000.0 for n in range(9)}) for k in range(12)]
    assert sum(line.count("1000") == 9 for line in printed(*rows).splitlines()) == 12


@pytest.mark.parametrize("names", [["a"], ["runs/x/trial_0_lr=0.1", "runs/x/trial_1_lr=0.2"]])
def test_many_figures_stand_below_each_other(names, printed):
    text = printed(*(row(name, **MANY) for name in names))
    assert "…" not in text
    for k in range(15):
        line = next(line for line in text.splitlines() if f"figure number {k} " in line)
        assert line.count(f" {k} ") == len(names) + 1
    assert all(name.rsplit("_", 1)[-1] in text for name in names[1:])
