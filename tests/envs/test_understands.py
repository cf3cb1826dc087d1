"""Which messages are sentences of a game."""

import pytest

from rllib_llm_comm.envs import door, frozen_lake, minirts, overcooked_ai, overcooked_text, referential

SENTENCES = {
    overcooked_text: ["i wait here", "i have nothing to do", "Please bring the bowl.", "make a onion salad"],
    door: ["the plum door", "what door is right"],
    referential: ["take the plum bowl", "which one"],
    overcooked_ai: ["use the left pot", "which pot pays"],
    minirts: ["i wait", "i train archers"],
}
BROKEN = [
    "", "xyzzy", "bowl bowl onion", "plum plum door", "the plum plum bowl", "train train archers", "caf\ufffd",
]  # fmt: skip


@pytest.mark.parametrize("game", SENTENCES, ids=lambda game: game.__name__.rsplit(".", 1)[-1])
def test_own_sentences_are_told_from_words_that_name_things(game):
    env = game.parallel_env()
    assert all(env.understands(sentence) for sentence in SENTENCES[game])
    assert not any(env.understands(message) for message in BROKEN)


def test_a_game_without_sentences_does_not_know():
    lake = frozen_lake.parallel_env()
    assert lake.understands("go left") is None and lake.meaning("go left") is None
