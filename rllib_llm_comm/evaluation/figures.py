"""Pictures of a study: learning curves with the band of the quartiles, and bars with confidence intervals."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from rllib_llm_comm.evaluation.statistics import Interval, on_grid, quartiles
from rllib_llm_comm.evaluation.study_results import SystemResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {
    "return": "team return",
    "success_rate": "share of episodes solved",
    "length": "episode length (game steps)",
    "entropy": "entropy of the actions (nats)",
}
_COLOURS = (
    "#c2562d", "#2d6cc2", "#3c8a57", "#8a5fb0", "#c9a227", "#d1477f", "#7a4a24", "#1c1a18", "#4fb3bf", "#8c8c8c",
    "#8ed63f", "#16208f", "#eaa0dc", "#6b0f4f",
)  # fmt: skip
_POINTS = 60
# Where the longest training takes this many times the decisions of the shortest, the axis is logarithmic.
_MUCH_LONGER = 3.0
_LEVELS = ("10", "40", "70", "a0", "d0")


def colours(systems: Sequence[str]) -> dict[str, str]:
    """One colour per system, the same in all pictures, never one twice (for up to 139 systems).

    Beyond those that are chosen by hand each is that of a grid which is farthest from white and all before it.

    Args:
        systems: Their names.
    """
    chosen = list(_COLOURS)
    grid = ["#" + "".join(parts) for parts in itertools.product(_LEVELS, repeat=3)]
    while len(chosen) < len(systems):
        taken = np.array([_rgb(colour) for colour in [*chosen, "#ffffff"]])
        apart = [np.abs(taken - _rgb(colour)).max(axis=1).min() for colour in grid]
        chosen.append(grid[int(np.argmax(apart))])
    return dict(zip(systems, chosen, strict=False))


def draw_curves(systems: Mapping[str, SystemResults], paint: Mapping[str, str]) -> Figure:
    """Median and quartiles over seeds of return, success, episode length and entropy while learning.

    Where some systems take many times the decisions of others, decisions are drawn on a logarithmic axis.

    Args:
        systems: Of one scenario.
        paint: Colour of each.
    """
    figure, axes = _subplots(2, 2, (10.5, 6.6))
    ends = [curve.decisions[-1] for system in systems.values() for curve in system.curves if curve.decisions]
    starts = [curve.decisions[0] for system in systems.values() for curve in system.curves if curve.decisions]
    logarithmic = bool(ends) and max(ends) >= _MUCH_LONGER * min(ends) and min(starts) > 0
    for axis, (metric, label) in zip(axes.flat, LABELS.items(), strict=True):
        for name, system in systems.items():
            lines = [(c.decisions, c.values[metric]) for c in system.curves if c.decisions]
            if not lines:
                continue
            first, last = min(x[0] for x, _ in lines), max(x[-1] for x, _ in lines)
            grid = np.geomspace(first, last, _POINTS) if logarithmic else np.linspace(0, last, _POINTS)
            table = np.stack([on_grid(x, y, grid) for x, y in lines])
            told = np.isfinite(table).all(axis=0)
            if not told.any():
                continue
            low, middle, high = quartiles(table[:, told])
            axis.plot(grid[told] / 1000, middle, color=paint[name], label=f"{system.label} ({len(lines)} seeds)")
            axis.fill_between(grid[told] / 1000, low, high, color=paint[name], alpha=0.16, linewidth=0)
        _decisions_axis(axis, min(starts) / 1000 if logarithmic else None)
        axis.set_ylabel(label)
        axis.grid(alpha=0.25)
    handles, names = axes.flat[-1].get_legend_handles_labels()
    if handles:
        figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def draw_bars(rows: Sequence[tuple[str, str, Mapping[str, Interval]]], label: str) -> Figure:
    """Bars with confidence intervals.

    Args:
        rows: Per bar group its name, its colour, and suffix -> figure (one bar each).
        label: What is drawn.
    """
    figure, axis = _subplots(1, 1, (9.5, 0.55 + 0.42 * max(2, sum(len(bars) for _, _, bars in rows))))
    place, ticks = 0.0, []
    for name, colour, bars in rows:
        ticks.append((place + (len(bars) - 1) / 2, name))
        for number, (suffix, figure_of) in enumerate(bars.items()):
            axis.barh(place, figure_of.value, color=colour, alpha=1.0 if number == 0 else 0.45, height=0.85)
            axis.plot([figure_of.low, figure_of.high], [place, place], color="#26221d", linewidth=1.6)
            axis.annotate(
                f" {suffix}: {figure_of.value:.2f}",
                (max(figure_of.high, figure_of.value, 0), place),
                va="center",
                fontsize=8,
            )
            place += 1
        place += 0.6
    axis.set_yticks([at for at, _ in ticks], [name for _, name in ticks])
    axis.invert_yaxis()
    axis.set_xlabel(label)
    axis.margins(x=0.2)
    axis.grid(axis="x", alpha=0.25)
    return figure


def draw_shares(lines: Mapping[str, Sequence[tuple[float, Mapping[str, Any]]]]) -> Figure:
    """The score against the share of random commands, with the band of its interval.

    Args:
        lines: Per name its points: the share, and a summary with `value`, `low` and `high`.
    """
    figure, axis = _subplots(1, 1, (7.0, 4.2))
    paint = colours(list(lines))
    for name, points in lines.items():
        x = [share for share, _ in points]
        low, middle, high = ([summary[key] for _, summary in points] for key in ("low", "value", "high"))
        axis.plot(x, middle, color=paint[name], marker="o", markersize=3.5, label=name.replace("_", " "))
        axis.fill_between(x, low, high, color=paint[name], alpha=0.16, linewidth=0)
    axis.set_xlabel("share of subgoals that are replaced by random ones")
    axis.set_ylabel("score of an episode")
    axis.set_ylim(bottom=min(0, axis.get_ylim()[0]))
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=9)
    return figure


def to_png(figure: Figure, dpi: int = 120) -> bytes:
    """The picture as PNG, which names the versions that drew it: others draw other bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": drawn_by()})
    return buffer.getvalue()


def drawn_by() -> str:
    """The versions of the packages that draw."""
    return ", ".join(f"{name} {version(name)}" for name in ("matplotlib", "pillow"))


def _rgb(colour: str) -> np.ndarray:
    return np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)])


def _decisions_axis(axis: Any, logarithmic_from: float | None) -> None:
    """The axis of decisions in thousands, from 0 or, on a logarithmic scale, from a point above."""
    if logarithmic_from is None:
        axis.set_xlabel("decisions of all agents (thousands)")
        axis.set_xlim(left=0)
        return
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_xlabel("decisions of all agents (thousands, logarithmic)")
    axis.set_xscale("log")
    axis.set_xlim(left=logarithmic_from)
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _subplots(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, Any]:
    # Not pyplot: it keeps figures and asks for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns)
