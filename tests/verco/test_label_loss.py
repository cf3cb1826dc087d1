"""Log-probabilities of label messages against a plain loop."""

from __future__ import annotations

import pytest
import torch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.verco.message_loss import IGNORED, encode_examples, message_log_probs

PROMPTS = ["you see red. i say:", "you are alice in the left room. i say:", "i say:"]
MESSAGES = ["i see red", "please bring the tomato", ""]


def test_rows_end_with_the_end_token(random_base):
    arrays = encode_examples(random_base, PROMPTS, MESSAGES, 64)
    for row, (ids, labels) in enumerate(zip(arrays["message_ids"], arrays["message_labels"], strict=True)):
        said = [int(t) for t in labels if t != IGNORED]
        assert said[-1] == random_base.eos_id
        assert random_base.decode(said) == MESSAGES[row]
        whole = random_base.encode(f"{PROMPTS[row]} {MESSAGES[row]}" if MESSAGES[row] else PROMPTS[row])
        assert ids[: len(whole) + 1].tolist() == [*whole, random_base.eos_id]
        assert (ids[labels != IGNORED] == labels[labels != IGNORED]).all()


def test_log_probs_equal_a_plain_loop(adapted):
    arrays = encode_examples(adapted.base, PROMPTS, MESSAGES, 64)
    ids, labels = (torch.from_numpy(arrays[name]) for name in ("message_ids", "message_labels"))
    log_probs, hits = message_log_probs(adapted, ids, labels)
    for row in range(len(ids)):
        length = int((labels[row] != IGNORED).nonzero().max()) + 1
        with adapted.use("message"), torch.no_grad():
            hidden = adapted.hidden_states(ids[row : row + 1, :length].long(), torch.ones(1, length).long())
            plain = adapted.logits(hidden)[0].log_softmax(-1)
        for column in range(ids.shape[1]):
            if labels[row, column] == IGNORED:
                assert log_probs[row, column] == 0 and not hits[row, column]
            else:
                expected = plain[column - 1, labels[row, column].long()]
                torch.testing.assert_close(log_probs[row, column], expected, atol=1e-4, rtol=1e-4)
                assert bool(hits[row, column]) == (int(plain[column - 1].argmax()) == int(labels[row, column]))


def test_too_long_rows_are_refused(random_base):
    with pytest.raises(UserError, match="`max_prompt_tokens` is 3"):
        encode_examples(random_base, PROMPTS, MESSAGES, 3)
