"""Draws learning curves: median and quartiles over seeds, from files that are committed beside the picture.

    python docs/results/plot_curves.py collect docs/results/verco/curves.json \\
        "Verco=results/verco_seeds/verco/trial_*/result.json" "PPO without language=symbolic_*.json"
    python docs/results/plot_curves.py draw docs/results/verco/curves.json docs/results/verco/curves.png

`collect` reads Tune's `result.json` (a line per iteration) and the files of `examples/symbolic_ppo.py --json`.
"""

from __future__ import annotations

import argparse
import glob
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

FIGURES = {"return": "team return (mean over both cooks)", "success_rate": "share of episodes served"}


def read_run(path: str) -> dict[str, list[float]]:
    """Decisions, returns and success rates of one run, one value per iteration."""
    text = Path(path).read_text(encoding="utf-8")
    if text.startswith('{"seed"') or text.startswith("{\n"):
        rows = json.loads(text)["curve"]
        return {key: [float(row[key]) for row in rows] for key in ("decisions", *FIGURES)}
    run: dict[str, list[float]] = {"decisions": [], "return": [], "success_rate": []}
    for line in text.splitlines():
        runners = json.loads(line)["env_runners"]
        run["decisions"].append(float(sum(runners["num_agent_steps_sampled_lifetime"].values())))
        run["return"].append(float(runners.get("team_return_mean", math.nan)))
        run["success_rate"].append(float(runners.get("success_rate", math.nan)))
    return run


def collect(target: str, sources: list[str]) -> None:
    """Gathers runs by name into one JSON file."""
    curves: dict[str, list[Any]] = {}
    for source in sources:
        name, _, pattern = source.partition("=")
        curves[name] = [read_run(path) for path in sorted(glob.glob(pattern))]
        print(f"{name}: {len(curves[name])} runs")
    Path(target).write_text(json.dumps(curves) + "\n", encoding="utf-8")


def draw(source: str, target: str) -> None:
    """Draws all curves of a file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    curves = json.loads(Path(source).read_text(encoding="utf-8"))
    figure, axes = plt.subplots(1, len(FIGURES), figsize=(10, 3.6), layout="constrained")
    for axis, (key, label) in zip(axes, FIGURES.items(), strict=True):
        for name, runs in curves.items():
            grid = np.linspace(1024, min(run["decisions"][-1] for run in runs), 60)
            lines = []
            for run in runs:
                known = [(x, y) for x, y in zip(run["decisions"], run[key], strict=True) if math.isfinite(y)]
                x, y = zip(*known, strict=True)
                lines.append(np.where(grid < x[0], np.nan, np.interp(grid, x, y)))
            told = ~np.isnan(lines).any(axis=0)  # the return is known once every run has ended 100 episodes
            low, middle, high = np.percentile(np.stack(lines)[:, told], [25, 50, 75], axis=0)
            grid = grid[told] / 1000
            (drawn,) = axis.plot(grid, middle, label=f"{name} ({len(runs)} seeds)")
            axis.fill_between(grid, low, high, alpha=0.2, color=drawn.get_color(), linewidth=0)
        axis.set_xlabel("decisions of both cooks (thousands)")
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    axes[0].axhline(1.363, color="grey", linestyle=":", label="scripted cook")
    axes[0].legend(frameon=False)
    figure.savefig(target, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description="Collect or draw learning curves.")
    parser.add_argument("command", choices=("collect", "draw"))
    parser.add_argument("arguments", nargs="+", help="collect: TARGET NAME=PATTERN ...; draw: SOURCE TARGET")
    options = parser.parse_args()
    if options.command == "collect":
        collect(options.arguments[0], options.arguments[1:])
    else:
        draw(*options.arguments)


if __name__ == "__main__":
    main()
