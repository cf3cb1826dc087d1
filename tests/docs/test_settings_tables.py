"""Tables of settings in the docs are those of the fields that declare them; no other table repeats fields."""

import importlib
import pkgutil
import re

import pytest
import yaml

import rllib_llm_comm
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS
from rllib_llm_comm.sama.planners import PLANNERS
from tools.settings_tables import ROOT, TABLE, pages, table, value, written

PAGES = list(pages())
_HEAD = re.compile(r"^\| *(?:key|setting|option)[^|]*\|.*\bdefault\b", re.IGNORECASE | re.MULTILINE)
_MADE = '''
from pydantic import Field
from rllib_llm_comm.core.settings import Settings

class Made(Settings):
    share: float | None = Field(2e-5, ge=0, lt=1)
    """Of a | b."""
    word: str = ""
    """A word."""
'''


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_are_those_of_the_fields(page):
    text = page.read_text(encoding="utf-8")
    assert written(text) == text, "write the tables anew: python tools/settings_tables.py"


def test_no_other_table_tells_defaults():
    for page in sorted((ROOT / "docs").rglob("*.md")):
        rest = TABLE.sub("", page.read_text(encoding="utf-8"))
        assert not _HEAD.search(rest), f"{page}: write a table of settings as tools/settings_tables.py says"


def test_a_changed_field_makes_a_page_stale(tmp_path, monkeypatch):
    (tmp_path / "made_settings.py").write_text(_MADE)
    monkeypatch.syspath_prepend(tmp_path)
    told = "<!-- settings: made_settings:Made share -->\n<!-- end of settings -->"
    page = written(told)
    assert "| `share` | 2.0e-5 | a number of at least 0 and less than 1 or null | Of a \\| b. |" in page
    assert "`word`" not in page and written(page) == page
    assert '| `word` | `""` | a text | A word. |' in table("made_settings:Made")
    with pytest.raises(KeyError):
        table("made_settings:Made", "shar")


def test_options_are_those_of_the_command():
    shown = table("rllib_llm_comm.cli.check:calibrate_command")
    assert "| `--entropy` | 0.5 | Aimed entropy " in shown and "| `--env`, `-e` |  | " in shown
    assert "| `--json` |  | Write all figures to this file. |" in shown and "`--file`" not in shown


def test_every_setting_says_what_it_means():
    for module in pkgutil.walk_packages(rllib_llm_comm.__path__, "rllib_llm_comm."):
        if not module.name.startswith("rllib_llm_comm.examples"):
            importlib.import_module(module.name)
    made = [kind.model() for kind in STAGE_KINDS.values()]  # those of stages are made of what they call
    found, known = [Settings], set()
    while found:
        for model in found.pop().__subclasses__():
            if model not in known and model.__module__.startswith("rllib_llm_comm."):
                known.add(model)
                found.append(model)
    fields = ((model, name, field) for model in known for name, field in model.model_fields.items())
    silent = [f"{model.__name__}.{name}" for model, name, field in fields if not field.description]
    assert len(known) > 50 and known.issuperset(made) and not silent


@pytest.mark.parametrize(
    ("given", "shown"),
    [(None, "null"), (True, "true"), (1e-05, "1.0e-5"), (2.5e-7, "2.5e-7"), ((64, 64), "[64, 64]"), ("", '`""`')],
)
def test_values_are_those_of_files(given, shown):
    assert value(given) == shown
    assert yaml.safe_load(shown.strip("`")) == (list(given) if isinstance(given, tuple) else given)


def test_the_page_of_planners_names_each_setting_of_each_planner():
    lines = (ROOT / "docs" / "guides" / "planners.md").read_text().splitlines()
    rows = {
        row[1].split("`")[1]: row[3] for row in (line.split("|") for line in lines) if len(row) == 5 and "`" in row[1]
    }
    for name in ("random", "disturbed", "guessing", "trained", "chat"):
        told = set(re.findall(r"`(\w+)`", rows[name])) - {"open_chat"}
        assert told == set(PLANNERS.settings_of(name).model_fields), name
