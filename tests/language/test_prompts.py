from __future__ import annotations

from rllib_llm_comm.language.prompts import action_prompt, critic_prompt, message_prompt


def test_messages_are_heard_in_order_and_empty_ones_left_out():
    prompt = action_prompt("i see.", {"bob": "bring {text} now.", "carol": " ", "dan": "wait"})
    assert prompt == "i see. bob says: bring {text} now. dan says: wait. next i"


def test_subgoal_and_roles():
    assert action_prompt("i see.", {}, "fetch\nkale") == "i see. my subgoal: fetch kale. next i"
    assert message_prompt("i see.") == "i see. i say:"
    assert critic_prompt("i see.") == "i see. next i"
