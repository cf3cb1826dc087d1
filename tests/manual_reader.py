"""A model that makes manuals by rules, for the tests' chat server, and the paper that it reads."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rllib_llm_comm.sama.manuals.manual import questions

PAPER = Path(__file__).parent / "data" / "soup_world.tex"
MANUAL = "Two cooks make onion soup. Three onions go into a pot."


def reader(prompt: str) -> str:
    """What a model would say that takes every paragraph with a cook, a pot or points for a rule."""
    asked = re.findall(
        r"^Question \d+: (.*?)(?=\n\nQuestion \d+: |\n\nWrite \d+ answers)", prompt, re.MULTILINE | re.DOTALL
    )
    if "name the numbers" in prompt.lower():
        return f"```json\n{json.dumps({'repeated': repeated(prompt)})}\n```"
    if "Write the manual" in prompt:
        return MANUAL
    alone = prompt.rpartition("\n\n")[2]
    answers = [answer(prompt, paragraph) for paragraph in asked or [alone]]
    return "\n".join(f"[{k}] {text}" for k, text in enumerate(answers, 1)) if asked else answers[0]


def answer(prompt: str, paragraph: str) -> str:
    useful = re.search(r"cook|pot|Points", paragraph) is not None
    if "one word, yes or no" in prompt:
        return "Yes." if useful else "No."
    if not useful or questions("manual_game_questions")[0] not in prompt:
        return "none"
    return "\n".join(f"- {sentence.strip()}" for sentence in re.sub(r"^\(.*?\) ", "", paragraph).split(". "))


def repeated(prompt: str) -> list[int]:
    facts = re.findall(r"^(\d+)\. (.*)$", prompt, re.MULTILINE)
    return [int(number) for number, fact in facts if fact.startswith("Soup |")]
