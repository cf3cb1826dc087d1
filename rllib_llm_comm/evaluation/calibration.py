"""Temperature and normalisation of candidate scores, chosen by what the untrained policy makes of a game.

A language model that has never read a game's phrases may find one of them far likelier than the others. Its policy then
always does the same and learns nothing. The temperature that keeps it open is found before training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.agents.encoding import TextObservation, is_text_observation, read_observation
from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.engines import require_fast
from rllib_llm_comm.language.prompts import action_prompt
from rllib_llm_comm.language.scoring import MASKED, NORMALIZATIONS, score_texts

OPEN = 0.5
"""Default share of the greatest entropy that the untrained policy shall have (ours: about where verco.yaml begins)."""
DECIDED = 0.95
"""Probability of the likeliest candidate from which a decision counts as made already (ours)."""
_COLDEST, _HOTTEST, _HALVINGS = 1e-4, 1e6, 60
_BATCH = 64
_MOST_STEPS_PER_DECISION = 50


@dataclass(frozen=True)
class Openness:
    """The untrained policy under one normalisation and temperature, over all decisions.

    Attributes:
        normalization: As `score_normalization`.
        temperature: As `temperature`.
        entropy: Mean of the entropies, each divided by the logarithm of the number of allowed candidates, 0 to 1.
        best: Mean probability of the likeliest candidate, 0 to 1.
        decided: Share of the decisions whose likeliest candidate has `DECIDED` or more, 0 to 1.
    """

    normalization: str
    temperature: float
    entropy: float
    best: float
    decided: float


@dataclass(frozen=True)
class Calibration:
    """Result of a calibration.

    Attributes:
        decisions: Number of decisions that were looked at.
        distinct: Number of different ones among them.
        candidates: Mean number of allowed candidates.
        plain: Per normalisation the policy at temperature 1.
        chosen: Per normalisation the policy at the temperature that was found.
        present: The policy under the setting that was asked about; None if none was.
    """

    decisions: int
    distinct: int
    candidates: float
    plain: tuple[Openness, ...]
    chosen: tuple[Openness, ...]
    present: Openness | None = None

    @property
    def advice(self) -> Openness:
        """The setting whose decisions are least often made already; of equals the first, as the paper has it."""
        return min(self.chosen, key=lambda row: row.decided)

    def to_json(self) -> dict[str, Any]:
        """All figures as plain values."""
        return {**asdict(self), "advice": asdict(self.advice)}


Progress = Callable[[int, int], None]
"""Gets the number of scored decisions, and of all."""


def calibrate(
    base: BaseModel,
    env: Any,
    decisions: int = 200,
    entropy: float = OPEN,
    seed: int = 0,
    present: tuple[str, float] | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Plays a game at random and asks the base model about each decision.

    Nobody says anything in these games.

    Args:
        base: The language model.
        env: The PettingZoo parallel environment, with observations in words.
        decisions: Number of decisions with a choice, >= 1.
        entropy: Aimed share of the greatest entropy, between 0 and 1.
        seed: Of the games and of the random play.
        present: A normalisation and a temperature whose figures are wanted, too.
        progress: Told how many scores there are, of all normalisations together.

    Returns:
        Figures of all normalisations.

    Raises:
        UserError: If observations are not in words, or there are too few choices.
    """
    check_aim(entropy)
    views = random_views(env, decisions, seed)
    model = AdaptedModel(base)
    require_fast(model, 0)
    mask = _padded([view.mask for view in views])
    plain, chosen, now = [], [], None
    for number, normalization in enumerate(NORMALIZATIONS):
        scores = _scores(model, views, normalization)
        if progress is not None:
            progress((number + 1) * len(views), len(NORMALIZATIONS) * len(views))
        plain.append(openness(scores, mask, normalization, 1.0))
        chosen.append(openness(scores, mask, normalization, find_temperature(scores, mask, entropy)))
        if present is not None and present[0] == normalization:
            now = openness(scores, mask, *present)
    distinct = len({(view.text, view.candidates, view.mask, view.subgoal) for view in views})
    return Calibration(len(views), distinct, float(mask.sum(1).mean()), tuple(plain), tuple(chosen), now)


def random_views(env: Any, decisions: int, seed: int) -> list[TextObservation]:
    """Observations of agents that have a choice, in games played by random allowed actions.

    Args:
        env: The environment.
        decisions: Their number.
        seed: Of the games and of the play.

    Raises:
        UserError: If observations are not in words, or hardly ever leave a choice.
    """
    rng = np.random.default_rng(seed)
    views: list[TextObservation] = []
    steps = 0
    while len(views) < decisions:
        observations, infos = env.reset(seed=int(rng.integers(2**31)))
        while env.agents and len(views) < decisions:
            steps += 1
            if steps > _MOST_STEPS_PER_DECISION * decisions:
                raise UserError(
                    f"after {steps} steps there were {len(views)} decisions with more than one allowed candidate but "
                    f"`--decisions` is {decisions}; this game leaves too little to choose."
                )
            actions = dict.fromkeys(env.agents, 0)
            for agent in asked(env.agents, infos):
                view = _read(agent, observations[agent])
                allowed = np.flatnonzero(view.mask)
                actions[agent] = int(rng.choice(allowed))
                if len(allowed) > 1:
                    views.append(view)
            observations, *_, infos = env.step(actions)
    return views[:decisions]


def _read(agent: str, raw: Mapping[str, Any]) -> TextObservation:
    if not is_text_observation(raw):
        raise UserError(
            f"the observation of agent {agent!r} is not in words, so a language model has nothing to read; set "
            "`observe` of the environment so that it holds 'text', or take another environment."
        )
    return read_observation(raw)


@torch.no_grad()
def _scores(model: AdaptedModel, views: Sequence[TextObservation], normalization: str) -> np.ndarray:
    """Scores (decisions, candidates) in float64; masked ones as `score_candidates` has them."""
    found: list[list[float]] = []
    for start in range(0, len(views), _BATCH):
        part = views[start : start + _BATCH]
        asks = [(action_prompt(view.text, {}, view.subgoal), view.candidates, view.mask) for view in part]
        found += score_texts(model, asks, normalization=normalization, role=None).double().tolist()
    return _padded(found, MASKED)


def _padded(rows: Sequence[Sequence[float]], fill: float = 0.0) -> np.ndarray:
    wide = max(map(len, rows))
    return np.array([[*row, *[fill] * (wide - len(row))] for row in rows], np.float64)


def openness(scores: np.ndarray, mask: np.ndarray, normalization: str, temperature: float) -> Openness:
    """Figures of the policy at one temperature.

    Args:
        scores: Scores (decisions, candidates).
        mask: 1 for each allowed candidate, same shape; two or more per row.
        normalization: Name of what the scores are.
        temperature: Divides the scores before the softmax.
    """
    logits = np.where(mask > 0, scores / temperature, -np.inf)
    chances = np.exp(logits - logits.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    entropies = -np.sum(chances * np.log(np.where(chances > 0, chances, 1.0)), axis=1) / np.log(mask.sum(1))
    best = chances.max(1)
    return Openness(
        normalization, temperature, float(entropies.mean()), float(best.mean()), float((best >= DECIDED).mean())
    )


def check_aim(entropy: float) -> None:
    """Refuses an aimed share of the greatest entropy that is not between 0 and 1.

    Raises:
        UserError: If it is not.
    """
    if not 0.0 < entropy < 1.0:
        raise UserError(f"`--entropy` is {entropy:g} but must be between 0 and 1, without these two.")


def find_temperature(scores: np.ndarray, mask: np.ndarray, entropy: float) -> float:
    """The temperature at which the mean entropy is as aimed, with two digits; entropy grows with temperature.

    It is 1 where no temperature brings the entropy down to the aim, since too many candidates score the same.

    Args:
        scores: As of `openness`.
        mask: As of `openness`.
        entropy: The aim, between 0 and 1.
    """
    if openness(scores, mask, "", _COLDEST).entropy >= entropy:
        return 1.0
    low, high = math.log(_COLDEST), math.log(_HOTTEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if openness(scores, mask, "", math.exp(middle)).entropy < entropy:
            low = middle
        else:
            high = middle
    return float(f"{math.exp((low + high) / 2):.2g}")
