"""Pictures of a study: learning curves with the band of the quartiles, and bars with confidence intervals."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
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


def colours(systems: Sequence[str]) -> dict[str, str]:
    """One colour per system, the same in all pictures; after fourteen systems they begin again."""
    return {name: _COLOURS[k % len(_COLOURS)] for k, name in enumerate(systems)}


def draw_curves(systems: Mapping[str, SystemResults], paint: Mapping[str, str]) -> Figure:
    """Median and quartiles over seeds of return, success, episode length and entropy while learning.

    Args:
        systems: Of one scenario.
        paint: Colour of each.
    """
    figure, axes = _subplots(2, 2, (10.5, 6.6))
    for axis, (metric, label) in zip(axes.flat, LABELS.items(), strict=True):
        for name, system in systems.items():
            lines = [(c.decisions, c.values[metric]) for c in system.curves if c.decisions]
            if not lines:
                continue
            grid = np.linspace(0, max(x[-1] for x, _ in lines), _POINTS)
            table = np.stack([on_grid(x, y, grid) for x, y in lines])
            told = np.isfinite(table).all(axis=0)
            if not told.any():
                continue
            low, middle, high = quartiles(table[:, told])
            axis.plot(grid[told] / 1000, middle, color=paint[name], label=f"{system.label} ({len(lines)} seeds)")
            axis.fill_between(grid[told] / 1000, low, high, color=paint[name], alpha=0.16, linewidth=0)
        axis.set_xlabel("decisions of all agents (thousands)")
        axis.set_xlim(left=0)
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
    """The picture as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def _subplots(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, Any]:
    # Not pyplot: it keeps figures and asks for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns)
