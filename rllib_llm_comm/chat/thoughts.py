"""Thoughts that models write before their answers, and the marks between the two.

A server that knows its model sends thoughts apart. Many do not, and each family of models has marks of its own; of some
only the last one is seen, since the first belongs to the prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_WORDS = "thinking|think|thoughts?|reasoning|reflection|scratchpad|monologue|deliberation|rationale"
_NAME = rf"(?:[\w▁]{{1,40}}[:_▁])?(?i:ant)?(?i:{_WORDS})(?:[:_▁][\w▁]{{1,60}})?"
_ENDS = r"(?i:end|stop)"
_OPENING = (
    # Most families: <think>, <seed:think>, <|begin_of_thought|>, <|START_THINKING|>
    rf"<[|｜]?(?!{_ENDS}[_▁])(?![\w▁:]{{1,99}}[_▁]{_ENDS}[|｜]?>){_NAME}(?:\s+\w+=[^<>\n]*)?[|｜]?>",
    r"<(?i:analysis)>",
    r"<details type=\"reasoning\"[^<>\n]{0,999}>",  # Open WebUI
    r"\[THINK\]",  # Mistral; other words in brackets are headings of an answer
    rf"◁{_NAME}▷",  # Kimi
    rf"<\|open\|>{_NAME}<\|sep\|>",
    r"<\|inner_prefix\|>",  # Apertus
    r"<\|channel>\s*(?:thought|analysis)\b",  # Gemma
    r"<unused94>(?:thought\b)?",  # MedGemma
    # gpt-oss: what it says to tools and on the way is not the answer either
    r"(?:<\|start\|>assistant)?<\|channel\|>\s*(?:analysis|commentary)\b[^<\n]*(?:<\|constrain\|>\w*\s*)?(?:<\|message\|>|\Z)",
)
_CLOSING = (
    rf"<[|｜]?(?:/|{_ENDS}[_▁]){_NAME}\s*[|｜]?>",
    rf"<[|｜]?{_NAME}[_▁]{_ENDS}[|｜]?>",
    r"</(?i:analysis)>",
    r"</details>",
    r"\[/THINK\]",
    rf"◁/{_NAME}▷",
    rf"<\|close\|>{_NAME}<\|sep\|>",
    r"<\|inner_suffix\|>",
    r"<channel\|>",
    r"<unused95>",
    # The answer begins.
    r"(?:<\|start\|>assistant)?<\|channel\|>\s*final\b[^<\n]*(?:<\|constrain\|>\w*\s*)?<\|message\|>",
    r"<\|(?:content_text|begin_of_solution|START_RESPONSE|answer_prefix|open\|>response<\|sep)\|>",
    r"(?:<\|begin\|>assistant)?<\|content\|>",
    r"\[BEGIN FINAL RESPONSE\]",  # Apriel
    r"^(?i:here(?: is|'s) my response:)",  # Granite
)
# Ends of a message, of whichever kind it is.
_END = (
    "<|end|>", "<|call|>", "<|return|>", "<|end_message|>", "<|end_of_solution|>", "<|END_RESPONSE|>", "<turn|>",
    "<|answer_suffix|>", "<|close|>response<|sep|>", "<|im_end|>", "<|content_model_end_sampling|>",
    "[END FINAL RESPONSE]", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<|user|>",
    "</s>", "<eos>", "<end_of_turn>", "<｜end▁of▁sentence｜>", "[|endofturn|]", "<|END_OF_TURN_TOKEN|>", "<|hy_eos|>",
)  # fmt: skip
_MARK = re.compile(
    rf"(?P<opening>{'|'.join(_OPENING)})|(?P<closing>{'|'.join(_CLOSING)})|(?P<end>{'|'.join(map(re.escape, _END))})",
    re.MULTILINE,
)
# gpt-oss where the server drops its marks and leaves the words within them.
_BARE_CHANNELS = re.compile(r"(?:analysis|commentary)(?:(?=[A-Z])|(?=\S.*assistantfinal))", re.DOTALL)
_WRAPPED = re.compile(r"<(answer|response|output|solution)>((?:(?!</?\1>).)*)(?:</\1>)?\Z", re.DOTALL | re.IGNORECASE)
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»"}
# A quotation mark that opens, maybe that of a string in code.
_OPENS = re.compile(r"(?:^|[\s(\[{=,:+<>|&-])[frbuFRBU]{0,2}[\"'`]\Z|[“‘«]\Z")
_FENCED = re.compile(r"^[ \t]*```[^`\n]*\n((?:(?![ \t]*```).*\n)*?)[ \t]*```[ \t]*$", re.MULTILINE)


def without_thoughts(text: str) -> str:
    """An answer without what a model wrote to itself before.

    Between an opening and a closing mark stand thoughts; so does all before a closing mark without an opening one, and
    all behind an opening mark that is never closed, as where the answer was cut off. Marks within JSON, code or
    quotation marks are quoted and stay.

    Returns:
        The answer; empty if there are only thoughts.
    """
    text = text.strip()
    while (shorter := _once(text)) != text:
        text = shorter
    return text


def objects_in(text: str) -> Iterator[tuple[object, int, int]]:
    """All JSON objects of a text that are not part of another one, each with its beginning and its end."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            document, end = decoder.raw_decode(text, start)
            yield document, start, end
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)


def _once(text: str) -> str:
    if _BARE_CHANNELS.match(text):
        text = text.rpartition("assistantfinal")[2] if "assistantfinal" in text else ""
    kept, begin, opened = "", 0, False
    for mark in _structural(text):
        if mark["opening"] is not None:
            if not opened:
                kept, opened = f"{kept}{text[begin : mark.start()]}\n", True
        elif mark["closing"] is not None or opened:
            kept = kept if opened else ""
            begin, opened = mark.end(), False
    text = (kept if opened else kept + text[begin:]).strip()
    # Between <s> and </s> stands a text that is struck out.
    ends = [end for end in _END if end != "</s>" or "<s>" not in text]
    while end := next(filter(text.endswith, ends), ""):
        text = text.removesuffix(end).rstrip()
    wrapped = _WRAPPED.match(text)
    return wrapped.group(2).strip() if wrapped else text


def _structural(text: str) -> list[re.Match[str]]:
    """Marks of a text that are not quoted."""
    marks = list(_MARK.finditer(text))
    if not marks:
        return []
    spans = [(start, end) for _, start, end in objects_in(text)] + list(_code_in(text))
    kept = [mark for mark in marks if not _is_quoted(text, mark, spans)]
    # Only those of reasoning are thoughts.
    opened = next((mark.end() for mark in kept if mark[0].startswith("<details")), len(text))
    return [mark for mark in kept if mark[0] != "</details>" or opened <= mark.start()]


def _is_quoted(text: str, mark: re.Match[str], spans: list[tuple[int, int]]) -> bool:
    if any(start <= mark.start() and mark.end() <= end for start, end in spans):
        return True
    before = text[max(text.rfind("\n", 0, mark.start()) + 1, mark.start() - 5) : mark.start()]
    return _OPENS.search(before) is not None and text.startswith(_QUOTES[before[-1]], mark.end())


def _code_in(text: str) -> Iterator[tuple[int, int]]:
    """Places of code blocks, but for one within which thoughts seem to end: it was begun in them and left open."""
    for block in _FENCED.finditer(text):
        lines = [_MARK.fullmatch(line.strip()) for line in block.group(1).splitlines()]
        alone = [mark.lastgroup for mark in lines if mark is not None]
        if alone.count("opening") >= alone.count("closing"):
            yield block.span()
