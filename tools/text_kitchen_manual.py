"""The recording of the textual kitchen's manual, whose answers were written by hand, and the manual itself.

No language model gave them: every paragraph but the one on other work is of use, its sentences are the facts, none
repeats another, and the manual stands below. `python -m tools.text_kitchen_manual` asks the questions of `rllib manual`
and writes both files.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.chat.chat_model import ChatCounters, ChatModel
from rllib_llm_comm.experiments.language_stages import run_manual
from rllib_llm_comm.sama.manuals.manual import find_manual, questions
from tools.record_cassettes import RECORDINGS
from tools.sama_sheet import AUTHOR

GAME = "overcooked_text"
NOTE = (
    "The answers of this recording were written by hand (tools/text_kitchen_manual.py); no language model was asked "
    "for them. They show what the stage does, not how well a model reads."
)
MANUAL = """\
This is a game in a kitchen of 7 by 7 cells. One to three cooks, alice, bob and carol, play it together.

The aim is to deliver the salad that was ordered. The right salad at the delivery hatch brings 1 point and ends the \
game. Each food of the salad brings 0.2 points when it is chopped for the first time. A wrong bowl costs 0.1 points \
and goes back to its start, with its foods raw again. Each step costs 0.001 points, and a blocked step costs the \
blocked cook 0.01. After 200 steps the game is over.

There are a tomato, a lettuce and an onion, bowls, cutting boards, counters and the hatch. A food is raw at first. \
Three cuts on a cutting board chop it. A bowl can hold several chopped foods. A cook holds at most one thing. A \
free counter or board has room for one thing.

A cook touches what it walks against. With empty hands it cuts a raw food on a board and takes anything else. With \
a full hand it lays its thing on a free counter or board. A bowl in the hand takes a chopped food that is touched, \
and a chopped food in the hand goes into a bowl that is touched.

Cooks choose whole pieces of work: get a food, get a bowl, go to a cutting board, chop, go to the middle counter, \
deliver, or stay. They take as many steps as the way is long. Who stands still in a corridor blocks the others.

A cook sees two cells in each direction and remembers where it saw the rest. Cooks can tell each other what they \
see, need and do. Who knows the order should say it, and who does not should ask.

On map A there is one room. On map B a wall of counters divides two rooms, so things are handed over on it. On map \
C the wall has a gap for one cook at a time.

So proceed like this. First bring each food of the order to a cutting board and chop it. Then fetch a bowl and put \
the chopped foods into it, and no other food. Then deliver the bowl. In several orders do this for each of them.\
"""
_SECTION = re.compile(r"^\(from the section '([^']*)'\) ")


class HandWritten(ChatModel):
    """Answers the questions of `rllib manual`, one paragraph at a time.

    Attributes:
        model: Says in the recording that no model answered.
        counters: Counts so far.
    """

    model = AUTHOR

    def __init__(self) -> None:
        self.counters = ChatCounters()

    def complete(self, prompt: str, system: str = "") -> str:
        """The answer."""
        if "Name the numbers" in prompt:
            return json.dumps({"repeated": []})
        if "Write the manual" in prompt:
            return MANUAL
        paragraph = prompt.rpartition("\n\n")[2]
        section, text = _SECTION.match(paragraph), _SECTION.sub("", paragraph)
        useful = section is None or section[1] != "Related work"
        if "one word, yes or no" in prompt:
            return "yes" if useful else "no"
        first = questions("manual_game_questions")[0] in prompt
        return re.sub(r"(?<=\.) (?=[A-Z])", "\n", text) if first and useful else "none"


def _main() -> None:
    kept = RECORDINGS / f"manual_{GAME}.jsonl"
    manual = find_manual("onion_soup").with_name(f"{GAME}.md")
    with tempfile.TemporaryDirectory() as scratch:
        tape = Path(scratch) / kept.name
        run_manual([Path(GAME)], manual, {}, batch=1, chat_model=Cassette(tape, HandWritten(), NOTE))
        kept.write_bytes(tape.read_bytes())
    run_manual([Path(GAME)], manual, {}, chat_model=Cassette(kept))  # named as the recording's


if __name__ == "__main__":
    _main()
