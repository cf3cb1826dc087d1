"""README.md for a package index, which shows it alone: relative links and images become absolute.

    python tools/absolute_readme.py https://HOST/OWNER/rllib_llm_comm/blob/v0.1.0 > README_index.md

The base is an argument, since the repository has no public address yet. `setup.cfg` then takes the written file as its
`long_description`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# `](PLACE)` where the place is neither a full address nor a heading of the page itself.
_RELATIVE = re.compile(r"(!?)(\[(?:[^\[\]]|\[[^\]]*\])*\])\((?![a-z]+:|#)([^)\s]+)\)")


def absolute(text: str, base: str) -> str:
    """A page with absolute links.

    Args:
        text: Markdown.
        base: Address of the repository's files, such as `https://HOST/OWNER/NAME/blob/v0.1.0`. Images are taken from
            the same place with `raw` for `blob`.
    """
    base = base.rstrip("/")

    def address(found: re.Match[str]) -> str:
        image, label, place = found.groups()
        return f"{image}{label}({base.replace('/blob/', '/raw/') if image else base}/{place})"

    return _RELATIVE.sub(address, text)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].startswith("https://"):
        raise SystemExit("Give the address of the repository's files, such as https://HOST/OWNER/NAME/blob/v0.1.0.")
    print(absolute((ROOT / "README.md").read_text(encoding="utf-8"), sys.argv[1]), end="")
