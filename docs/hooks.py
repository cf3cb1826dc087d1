"""Links from the docs to files of the repository lead to copies within the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

_ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)\)")
_FOLDER = "repository"


def on_files(files, config):
    """Adds the files that pages link to outside of the docs."""
    wanted = set()
    for page in files.documentation_pages():
        text = (Path(config.docs_dir) / page.src_uri).read_text(encoding="utf-8")
        wanted |= {target for link in _LINK.findall(text) if (target := _outside(page.src_uri, link))}
    for target in sorted(wanted):
        content = (_ROOT / target).read_bytes()
        files.append(File.generated(config, f"{_FOLDER}/{target}.txt", content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turns the links round."""

    def turned(match):
        target = _outside(page.file.src_uri, match.group(1))
        if not target:
            return match.group(0)
        here = posixpath.dirname(page.file.src_uri) or "."
        return f"]({posixpath.relpath(f'{_FOLDER}/{target}.txt', here)})"

    return _LINK.sub(turned, markdown)


def _outside(page, link):
    """The path of a file of the repository that is none of the docs; empty for anything else."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return "" if path.startswith(("docs/", "..")) or not (_ROOT / path).is_file() else path
