"""Numbers are compared before seconds are: who computes something else gets no row."""

from __future__ import annotations

from collections.abc import Sequence

from parties import PartyError

LARGEST_DIFFERENCE = 1e-3
LEAST_SAME_WORDS = 0.9


def largest_difference(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """Largest distance of two tables of log-probabilities; infinite if they differ in shape or one is no number."""
    if [len(row) for row in ours] != [len(row) for row in theirs]:
        return float("inf")
    apart = [abs(a - b) for own, other in zip(ours, theirs, strict=True) for a, b in zip(own, other, strict=True)]
    return max((value if value == value else float("inf") for value in apart), default=float("inf"))


def require_same_scores(name: str, ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """The largest difference.

    Raises:
        PartyError: If it is larger than 0.001.
    """
    apart = largest_difference(ours, theirs)
    if not apart <= LARGEST_DIFFERENCE:
        raise PartyError(
            f"{name} is refused: its log-probabilities of the candidates differ from ours by up to {apart:.3g}, more "
            f"than {LARGEST_DIFFERENCE:g}."
        )
    return apart


def require_same_words(name: str, ours: Sequence[str], theirs: Sequence[str]) -> float:
    """The share of our messages whose words are those with which the other side's text begins.

    Our messages end after ten words, at a line's end or where the model ends; the other side's text goes on.

    Raises:
        PartyError: If it is less than 0.9.
    """
    if len(ours) != len(theirs):
        raise PartyError(f"{name} is refused: it wrote {len(theirs)} messages and we wrote {len(ours)}.")
    same = [own.split() == other.split()[: len(own.split())] for own, other in zip(ours, theirs, strict=True)]
    share = sum(same) / len(same)
    if share < LEAST_SAME_WORDS:
        raise PartyError(f"{name} is refused: only {share:.2f} of its messages begin with the words of ours.")
    return share
