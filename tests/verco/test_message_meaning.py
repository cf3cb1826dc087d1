from __future__ import annotations

import pytest

from rllib_llm_comm.verco.message_protocol import same_request


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("please bring the tomato", "I need the tomato.", True),
        ("please bring the tomato", "please bring the lettuce", False),
        ("i bring the tomato", "please bring the tomato", False),
        ("over here, chef", "Over here,  chef!", True),
        ("over here, chef", "i wait here", False),
    ],
)
def test_same_request(one, other, same):
    assert same_request(one, other) is same
    assert same_request(other, one) is same
