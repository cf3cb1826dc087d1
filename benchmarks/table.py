"""Writes the table of all figures in docs/results/benchmarks.md from the JSON files of the benchmarks.

    python benchmarks/table.py

Only what stands between the two marks of the page is replaced.
"""

from __future__ import annotations

import json
from pathlib import Path

from harness import number

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "benchmarks"
PAGE = ROOT / "docs" / "results" / "benchmarks.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def table(folder: Path = RESULTS) -> str:
    """The rows of all files as Markdown."""
    lines = ["| Figure | Ours | Yardstick | Unit | Ratio | Goal | Met |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for path in sorted(folder.glob("*.json")):
        for row in json.loads(path.read_text(encoding="utf-8")):
            met = {None: "", True: "yes", False: "**no**"}[row["met"]]
            cells = [number(row[name]) for name in ("ours", "reference")]
            goal = "" if row["goal"] is None else f">= {number(row['goal'])}"
            lines.append("| " + " | ".join([row["name"], *cells, row["unit"], number(row["ratio"]), goal, met]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Writes the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
