"""The registry of things that settings call by name, and names that are imported on first use."""

import sys

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import lazy_names
from rllib_llm_comm.core.registry import Registry
from tests.refusal import refused


def shelf():
    return Registry("tool", {"saw": "collections:Counter", "drill": dict}, "`register_tool` adds one.")


def test_things_and_lazy_names():
    tools = shelf()
    from collections import Counter, OrderedDict

    assert (tools["saw"], tools["drill"]) == (Counter, dict)
    tools.register("lathe", "collections:OrderedDict")
    tools.register("drill", list)
    assert list(tools) == ["saw", "drill", "lathe"] and len(tools) == 3
    assert dict(tools.items()) == {"saw": Counter, "drill": list, "lathe": OrderedDict}
    assert list(tools.values()) == [Counter, list, OrderedDict]
    assert "saw" in tools and "axe" not in tools and [] not in tools
    assert tools.get("axe") is None and tools.get(None) is None and tools.get("drill") is list


def test_nothing_is_imported_before_its_use(tmp_path, monkeypatch):
    (tmp_path / "late_tool.py").write_text("plane = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    tools = Registry("tool", {"plane": "late_tool:plane"})
    tools.require("plane")
    assert list(tools) == ["plane"] and "late_tool" not in sys.modules
    assert tools["plane"] == 7 and "late_tool" in sys.modules


def test_unknown_names_get_one_sentence_and_a_remedy():
    tools = shelf()
    with refused("tool", "unknown") as error:
        tools["dril"]
    wanted = "`tool` is 'dril' but must be one of 'saw', 'drill'. Did you mean 'drill'? `register_tool` adds one."
    assert str(error.value) == wanted
    for name in ("", None, 3, ["saw"]):
        with refused("tool", "unknown"):
            tools.require(name)
    with pytest.raises(UserError, match="must be one of none"):
        Registry("tool")["saw"]
    with refused("name"):
        tools.register("", dict)


@pytest.mark.parametrize("where", ["no_such_module:x", "collections:no_such_name", ":x"])
def test_entries_that_cannot_be_imported(where):
    with pytest.raises(UserError, match=f"`tool` 'broken' is '{where}', which cannot be imported"):
        Registry("tool", {"broken": where})["broken"]


def test_lazy_packages(tmp_path, monkeypatch):
    (tmp_path / "shed").mkdir()
    (tmp_path / "shed/__init__.py").write_text(
        "from rllib_llm_comm.core.lazy import lazy_names\n"
        "SIZE = 3\n"
        "__getattr__, __dir__ = lazy_names(__name__, {'tools': ('hoe',)})\n"
    )
    (tmp_path / "shed/tools.py").write_text("hoe = 'hoe'\n")
    monkeypatch.syspath_prepend(tmp_path)
    import shed

    assert "shed.tools" not in sys.modules and {"SIZE", "hoe"} <= set(dir(shed))
    from shed import hoe

    assert hoe == shed.hoe == "hoe" and "shed.tools" in sys.modules
    with pytest.raises(AttributeError, match="module 'shed' has no attribute 'rake'"):
        shed.rake  # noqa: B018
    assert callable(lazy_names("shed", {})[0])
