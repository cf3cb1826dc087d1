"""Pictures and pages: learning curves with the band of the quartiles, bars with confidence intervals, and templates."""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rllib_llm_comm.evaluation.statistics import Interval, on_grid, quartiles
from rllib_llm_comm.evaluation.study_results import SystemResults

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

LABELS = {
    "return": "team return",
    "success_rate": "share of episodes solved",
    "length": "episode length (game steps)",
    "entropy": "entropy of the actions (nats)",
    "score": "score",
}
INK = "#26221d"
"""Colour of the intervals on bars, on a white edge."""
# None is grey or so dark that ink could not be seen on it; each is 20 or more from the others in Lab.
_COLOURS = (
    "#c2562d", "#2d6cc2", "#3c8a57", "#8a5fb0", "#c9a227", "#d1477f", "#7a4a24", "#1fa9c4", "#7cb82f", "#4a2fb0",
    "#e79a86", "#6a6a10", "#c81d25", "#0d7a80",
)  # fmt: skip
_LEVELS = ("00", "30", "60", "90", "c0", "f0")
_LINES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_MARKS = 8
"""Markers on a curve, about."""
_POINTS = 60
_PALETTE = 64
"""Colours of a picture."""
# The axis is logarithmic if the longest training takes this many times the decisions of the shortest.
_MUCH_LONGER = 3.0


class Look(NamedTuple):
    """The look of a system in figures: `#rrggbb`, and Matplotlib's line style and marker.

    Each of them distinguishes it from most others, so that it is recognised without colours, too.
    """

    colour: str
    line: str
    marker: str


def looks(systems: Sequence[str]) -> dict[str, Look]:
    """One look per system, the same in all pictures, never one twice (for up to 80 systems).

    Beyond the colours that are chosen by hand each is that of a grid which is farthest from all before it.
    """
    chosen = list(_COLOURS)
    grid = [
        colour for colour in ("#" + "".join(parts) for parts in itertools.product(_LEVELS, repeat=3)) if _fit(colour)
    ]
    places = np.array([lab(colour) for colour in grid])
    while len(chosen) < len(systems):
        apart = [np.linalg.norm(places - lab(colour), axis=1) for colour in chosen]
        chosen.append(grid[int(np.argmax(np.min(apart, axis=0)))])
    drawn = zip(systems, chosen, itertools.cycle(_LINES), itertools.cycle(_MARKERS), strict=False)
    return {name: Look(colour, line, marker) for name, colour, line, marker in drawn}


def lab(colour: str) -> np.ndarray:
    """A colour `#rrggbb` in CIE L*a*b* (D65), where distances are those that eyes see.

    Source: IEC 61966-2-1 (sRGB) and CIE 15.

    Returns:
        Lightness (0 to 100), green to red, blue to yellow.
    """
    rgb = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ linear / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def _fit(colour: str) -> bool:
    """True if a colour is neither grey nor close to white or ink."""
    light, *hue = lab(colour)
    return bool(38 <= light <= 78 and np.hypot(*hue) >= 30)


def draw_curves(
    systems: Mapping[str, SystemResults],
    paint: Mapping[str, Look],
    labels: Mapping[str, str] = LABELS,
    iterations: bool = False,
) -> Figure:
    """Median and quartiles over seeds of return, success, episode length, entropy and score while learning.

    What no system has, or what is the same throughout, is left out. Decisions are drawn on a logarithmic axis if some
    systems take many times the decisions of others.

    Args:
        systems: Results of one scenario.
        paint: Look of each.
        labels: What is drawn, with the label of its axis.
        iterations: True if the curves' `decisions` are iterations.
    """
    told = [metric for metric in labels if len(_values(systems, metric)) > 1] or [*labels][:1]
    columns = min(len(told), 2 if len(told) < 5 else 3)
    rows = -(-len(told) // columns)
    figure, axes = _subplots(rows, columns, (5.25 * columns, 3.3 * rows))
    panels = list(np.atleast_1d(axes).flat)
    ends = [curve.decisions[-1] for system in systems.values() for curve in system.curves if curve.decisions]
    starts = [curve.decisions[0] for system in systems.values() for curve in system.curves if curve.decisions]
    logarithmic = not iterations and bool(ends) and max(ends) >= _MUCH_LONGER * min(ends) and min(starts) > 0
    for axis, metric in zip(panels, told, strict=False):
        for name, system in systems.items():
            _draw_curve(axis, system, metric, paint[name], logarithmic, 1 if iterations else 1000)
        _decisions_axis(axis, min(starts) / 1000 if logarithmic else None)
        if iterations:
            axis.set_xlabel("iterations of training")
        axis.set_ylabel(labels[metric])
        axis.grid(alpha=0.25)
    for axis in panels[len(told) :]:
        axis.remove()
    shown = dict(pair[::-1] for axis in panels for pair in zip(*axis.get_legend_handles_labels(), strict=True))
    if shown:
        figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _values(systems: Mapping[str, SystemResults], metric: str) -> set[float]:
    """The different values of a metric that there are."""
    told = (curve.values.get(metric, []) for system in systems.values() for curve in system.curves)
    return {float(value) for values in told for value in values if np.isfinite(value)}


def _draw_curve(axis: Any, system: SystemResults, metric: str, look: Look, logarithmic: bool, unit: int) -> None:
    """Draws a system's metric where all of its seeds have it."""
    begun = [curve for curve in system.curves if curve.decisions]
    lines = [(curve.decisions, curve.values[metric]) for curve in begun if metric in curve.values]
    if not lines:
        return
    first, last = min(x[0] for x, _ in lines), max(x[-1] for x, _ in lines)
    grid = np.geomspace(first, last, _POINTS) if logarithmic else np.linspace(0, last, _POINTS)
    table = np.stack([on_grid(x, y, grid) for x, y in lines])
    told = np.isfinite(table).all(axis=0)
    if told.any():
        seeds = "1 seed" if len(begun) == 1 else f"{len(begun)} seeds"
        _draw_band(axis, grid[told] / unit, quartiles(table[:, told]), look, f"{system.label} ({seeds})")


def draw_returns(rows: Sequence[tuple[str, str, Mapping[str, Interval]]]) -> Figure:
    """Bars of team returns with confidence intervals.

    Args:
        rows: Per bar group its name, its colour, and suffix -> return (one bar each).
    """
    figure, axis = _subplots(1, 1, (9.5, 0.55 + 0.42 * max(2, sum(len(bars) for _, _, bars in rows))))
    place, ticks = 0.0, []
    for name, colour, bars in rows:
        ticks.append((place + (len(bars) - 1) / 2, name))
        for number, (suffix, figure_of) in enumerate(bars.items()):
            axis.barh(place, figure_of.value, color=colour, alpha=1.0 if number == 0 else 0.45, height=0.85)
            ends = [figure_of.low, figure_of.high]
            axis.plot(ends, [place, place], color="white", linewidth=4.0)
            axis.plot(ends, [place, place], color=INK, linewidth=1.6)
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
    axis.set_xlabel("team return (IQM over seeds, 95 % interval)")
    axis.margins(x=0.2)
    axis.grid(axis="x", alpha=0.25)
    return figure


def draw_shares(lines: Mapping[str, Sequence[tuple[float, Mapping[str, Any]]]]) -> Figure:
    """The score against the share of random commands, with the band of its interval.

    `lines` are per name its points: the share, and a summary with `value`, `low` and `high`.
    """
    figure, axis = _subplots(1, 1, (7.0, 4.2))
    paint = looks(list(lines))
    for name, points in lines.items():
        x = [share for share, _ in points]
        low, middle, high = ([summary[key] for _, summary in points] for key in ("low", "value", "high"))
        _draw_band(axis, x, (low, middle, high), paint[name], name.replace("_", " "))
    axis.set_xlabel("share of subgoals that are replaced by random ones")
    axis.set_ylabel("score of an episode")
    axis.set_ylim(bottom=min(0, axis.get_ylim()[0]))
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=9)
    return figure


def to_png(figure: Figure, dpi: int = 90) -> bytes:
    """The picture as PNG with a palette, a third of the bytes of one without.

    It names the versions that drew it: others draw other bytes.
    """
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    told, buffer = PngInfo(), io.BytesIO()
    told.add_text("Software", drawn_by())
    figure.set_dpi(dpi)
    canvas: Any = figure.canvas
    canvas.draw()  # once; `savefig` draws twice
    # Few colours are blended, so that an octree keeps those of the lines; dots of dithering do not compress.
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    palette = picture.quantize(_PALETTE, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    palette.save(buffer, "PNG", optimize=True, pnginfo=told)
    return buffer.getvalue()


def drawn_by() -> str:
    """The versions of the packages that draw."""
    return ", ".join(f"{name} {version(name)}" for name in ("matplotlib", "pillow"))


def _draw_band(axis: Any, x: Sequence[float], told: Sequence[Any], look: Look, label: str) -> None:
    """A line in the middle of a band; `told` are the lower end, the middle and the upper end."""
    low, middle, high = told
    axis.plot(
        x, middle, color=look.colour, linestyle=look.line, label=label,
        marker=look.marker, markersize=4, markevery=max(1, len(x) // _MARKS),
    )  # fmt: skip
    axis.fill_between(x, low, high, color=look.colour, alpha=0.16, linewidth=0)


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


def render_page(name: str, filters: Mapping[str, Any], **values: Any) -> str:
    """A page as text.

    Args:
        name: The template in `templates/`; values are escaped as HTML if it ends in ".html", and in Markdown they
            can hold neither HTML nor links.
        filters: Filters of its own, by name.
        **values: The names that the template uses, with their values.
    """
    environment = _environment(name.endswith(".html"))
    with _RENDERING:
        own = environment.filters
        environment.filters = {**own, **filters}
        try:
            page: str = environment.get_template(name).render(**values)
        finally:
            environment.filters = own
    return page


_RENDERING = threading.RLock()


@cache
def _environment(html: bool) -> Environment:
    """Compiles each template once."""
    from jinja2 import Environment, PackageLoader

    return Environment(
        loader=PackageLoader(__package__),
        autoescape=html,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=None if html else _plain,
    )


def _plain(value: Any) -> Any:
    """A value in Markdown. Templates put columns of tables into values of their own, which stay."""
    return value.replace("<", "&lt;").replace("](", "]\\(") if isinstance(value, str) else value
