"""A stranger's first round with a shipped agent, as `tools.first_round` measures it."""

import sys

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("websockets")

from tools.browser import find_chromium  # noqa: E402
from tools.first_round import first_round, serving  # noqa: E402

COMMAND = [sys.executable, "-m", "rllib_llm_comm.cli.main"]
MOST_SECONDS = 120


@pytest.mark.slow  # `tests/play` has the parts of it: the command, and a person's round in the browser
def test_the_first_round_is_over_in_two_minutes():
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("no Chromium on this machine, so the page is not opened in a browser")
    told = first_round(COMMAND, chromium)
    assert told.outcome == "served" and told.moments > 3, "Bob brings what he was asked for"
    assert 0 < told.address < told.page < told.end < MOST_SECONDS


def test_a_command_that_serves_nothing_is_told_with_its_reason(tmp_path):
    command = [sys.executable, "-c", "import sys; sys.exit(f'nobody knows {sys.argv[2]}')"]
    with pytest.raises(RuntimeError, match="nobody knows zoo:nobody"), serving(command, "zoo:nobody", tmp_path):
        pass
