"""Temperature, normalisation and prompts, chosen by what the untrained policy makes of a game.

A language model that has never read a game's phrases may find one of them far likelier than the others. Its policy then
always does the same and learns nothing. The temperature that keeps it open is found before training. Sets of prompts
are compared by how open they leave it, in silence and with messages heard, and by how often it would do what the
game's scripted player does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import game_of
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.engines import require_fast
from rllib_llm_comm.language.prompts import DEFAULT, DEFAULT_TEMPLATES, PromptTemplates
from rllib_llm_comm.language.scoring import MASKED, NORMALIZATIONS, score_texts
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.verco.encoding import TextObservation, is_text_observation, read_observation
from rllib_llm_comm.verco.message_protocol import heard_by
from rllib_llm_comm.verco.teachers.base import ScriptedTeacher, TeacherMessages

OPEN = 0.5
"""Default share of the greatest entropy that the untrained policy shall have (ours: about where verco.yaml begins)."""
DECIDED = 0.95
"""Probability of the likeliest candidate from which a decision counts as made already (ours)."""
_COLDEST, _HOTTEST, _HALVINGS = 1e-4, 1e6, 60
_BATCH = 64
_MOST_STEPS_PER_DECISION = 50
_DEFAULT_ONLY = {DEFAULT: DEFAULT_TEMPLATES}


@dataclass(frozen=True)
class Openness:
    """The untrained policy under one `score_normalization` and `temperature`, over all decisions.

    Attributes:
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
class PromptFigures:
    """The untrained policy under one set of prompts, over all decisions.

    Attributes:
        prompts: Name of the set.
        heard: True if it heard what the game's scripted player would say; False in silence.
        openness: Figures under the normalisation and temperature at which the sets are compared.
        temperature: With this one, at the same normalisation, the entropy is as aimed.
        agreement: Share of the decisions with advice in which the likeliest candidate is what the game's scripted
            player, who sees everything, would do; `None` in a game without one.
    """

    prompts: str
    heard: bool
    openness: Openness
    temperature: float
    agreement: float | None


@dataclass(frozen=True)
class Calibration:
    """Result of a calibration, with the numbers of decisions, different ones among them, and (mean) candidates.

    Attributes:
        plain: Per normalisation the policy at temperature 1.
        chosen: Per normalisation the policy at the temperature that was found.
        present: The policy under the setting that was asked about; None if none was.
        compared: The sets of prompts, each in silence and, in a game with a scripted player, with messages heard; under
            `present`, or else under the advice.
        chance: Agreement of a policy for which all allowed candidates are as likely; `None` without a scripted player.
        one_phrase: Agreement of a policy that always does what is advised most often, such as to wait; `None` likewise.
    """

    decisions: int
    distinct: int
    candidates: float
    plain: tuple[Openness, ...]
    chosen: tuple[Openness, ...]
    present: Openness | None = None
    compared: tuple[PromptFigures, ...] = ()
    chance: float | None = None
    one_phrase: float | None = None

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
    prompts: Mapping[str, PromptTemplates] = _DEFAULT_ONLY,
) -> Calibration:
    """Plays a game at random and asks the base model about each decision.

    What is said in these games comes from the game's scripted player, where it has one, and is heard only where sets of
    prompts are compared: temperature and normalisation are found in silence.

    Args:
        base: The language model.
        env: The PettingZoo parallel environment, with observations in words.
        decisions: Number of decisions with a choice, >= 1.
        entropy: Aimed share of the greatest entropy, between 0 and 1.
        seed: Of the games and of the random play.
        present: A normalisation and a temperature whose figures are wanted, too.
        progress: Told how many scores there are, of all normalisations and sets together.
        prompts: Sets of prompts that are compared, by name, at least one; the first is that of the other figures.

    Returns:
        Figures of all normalisations.

    Raises:
        UserError: If observations are not in words, or there are too few choices.
    """
    if not 0.0 < entropy < 1.0:
        raise UserError(f"`--entropy` is {entropy:g} but must be between 0 and 1, without these two.")
    moments = random_moments(env, decisions, seed)
    views = [moment.view for moment in moments]
    talks = any(moment.heard for moment in moments)
    model = AdaptedModel(base)
    require_fast(model, 0)
    mask = _padded([view.mask for view in views])
    first = next(iter(prompts.values()))
    passes, done = len(NORMALIZATIONS) + len(prompts) * (1 + talks) - 1, 0

    def scored(templates: PromptTemplates, normalization: str, heard: bool = False) -> np.ndarray:
        """The scores of all moments under one way to ask, and a step of the progress."""
        nonlocal done
        found = _scores(model, moments, templates, normalization, heard)
        done += 1
        if progress is not None:
            progress(done * len(views), passes * len(views))
        return found

    plain, chosen, now = [], [], None
    silent = {normalization: scored(first, normalization) for normalization in NORMALIZATIONS}
    for normalization, scores in silent.items():
        plain.append(openness(scores, mask, normalization, 1.0))
        chosen.append(openness(scores, mask, normalization, find_temperature(scores, mask, entropy)))
        if present is not None and present[0] == normalization:
            now = openness(scores, mask, *present)
    distinct = len({(view.text, view.candidates, view.mask, view.subgoal) for view in views})
    found = Calibration(len(views), distinct, float(mask.sum(1).mean()), tuple(plain), tuple(chosen), now)
    normalization, temperature = present or (found.advice.normalization, found.advice.temperature)
    compared = []
    for name, templates in prompts.items():
        for heard in (False, True)[: 1 + talks]:
            known = silent[normalization] if templates is first and not heard else None
            scores = scored(templates, normalization, heard) if known is None else known
            figures = openness(scores, mask, normalization, temperature)
            aimed = find_temperature(scores, mask, entropy)
            compared.append(PromptFigures(name, heard, figures, aimed, _agreement(scores, mask, moments)))
    advised = Counter(moment.view.candidates[moment.advice] for moment in moments if moment.advice is not None)
    return replace(
        found,
        compared=tuple(compared),
        chance=_agreement(None, mask, moments),
        one_phrase=max(advised.values()) / advised.total() if advised else None,
    )


@dataclass(frozen=True)
class ChoiceMoment:
    """A decision of an agent that has a choice, by what it observes.

    Attributes:
        heard: What the others would have said by now, by speaker, if they were the game's scripted player.
        advice: The action of this player in its place; `None` where there is no advice.
    """

    view: TextObservation
    heard: Mapping[str, str] = field(default_factory=dict)
    advice: int | None = None


def random_moments(env: Any, decisions: int, seed: int) -> list[ChoiceMoment]:
    """Decisions of agents that have a choice, in games played by random allowed actions.

    Raises:
        UserError: If observations are not in words, or hardly ever leave a choice.
    """
    rng = np.random.default_rng(seed)
    teacher = ScriptedTeacher()
    record = game_of(getattr(env, "unwrapped", env))
    if record is not None and record.scripted_player:
        env = TeacherMessages(env, "scripted")
    moments: list[ChoiceMoment] = []
    steps = 0
    while len(moments) < decisions:
        game = PlayedGame(env, int(rng.integers(2**31)))
        mailbox: dict[str, str] = {}
        while not game.over and len(moments) < decisions:
            steps += 1
            if steps > _MOST_STEPS_PER_DECISION * decisions:
                raise UserError(
                    f"after {steps} steps there were {len(moments)} decisions with more than one allowed candidate but "
                    f"`--decisions` is {decisions}; this game leaves too little to choose."
                )
            actions = dict.fromkeys(env.agents, 0)
            views = {agent: _read(agent, game.observations[agent]) for agent in game.asked}
            mailbox.update({agent: view.teacher_message or "" for agent, view in views.items()})
            for agent, view in views.items():
                allowed = np.flatnonzero(view.mask)
                actions[agent] = int(rng.choice(allowed))
                if len(allowed) > 1:
                    advice = teacher.advise(getattr(env, "unwrapped", env), agent)
                    moments.append(ChoiceMoment(view, heard_by(agent, mailbox), advice))
            game.advance(actions)
    return moments[:decisions]


def _agreement(scores: np.ndarray | None, mask: np.ndarray, moments: Sequence[ChoiceMoment]) -> float | None:
    """Share of the decisions with advice in which the likeliest candidate is the advised one, or an equal phrase.

    Without scores all allowed candidates are as likely.
    """
    shares = []
    for row, moment in enumerate(moments):
        if moment.advice is None:
            continue
        same = [phrase == moment.view.candidates[moment.advice] for phrase in moment.view.candidates]
        allowed = np.flatnonzero(mask[row])
        best = allowed if scores is None else allowed[[int(scores[row, allowed].argmax())]]
        shares.append(float(np.mean([same[index] for index in best])))
    return float(np.mean(shares)) if shares else None


def _read(agent: str, raw: Mapping[str, Any]) -> TextObservation:
    if not is_text_observation(raw):
        raise UserError(
            f"the observation of agent {agent!r} is not in words, so a language model has nothing to read; set "
            "`observe` of the environment so that it holds 'text', or take another environment."
        )
    return read_observation(raw)


@torch.no_grad()
def _scores(
    model: AdaptedModel, moments: Sequence[ChoiceMoment], templates: PromptTemplates, normalization: str, heard: bool
) -> np.ndarray:
    """Scores (decisions, candidates) in float64; masked ones as `score_candidates` has them. Equal ones count once."""
    asks = []
    for moment in moments:
        view = moment.view
        allowed = [phrase for phrase, flag in zip(view.candidates, view.mask, strict=True) if flag]
        prompt = templates.action(view.text, moment.heard if heard else {}, view.subgoal, allowed)
        asks.append((prompt, view.candidates, view.mask))
    different = list(dict.fromkeys(asks))
    found: list[list[float]] = []
    for start in range(0, len(different), _BATCH):
        part = different[start : start + _BATCH]
        found += score_texts(model, part, normalization=normalization, role=None).double().tolist()
    known = dict(zip(different, found, strict=True))
    return _padded([known[ask] for ask in asks], MASKED)


def _padded(rows: Sequence[Sequence[float]], fill: float = 0.0) -> np.ndarray:
    wide = max(map(len, rows))
    return np.array([[*row, *[fill] * (wide - len(row))] for row in rows], np.float64)


def openness(scores: np.ndarray, mask: np.ndarray, normalization: str, temperature: float) -> Openness:
    """Figures of the policy at one temperature, which divides the scores before the softmax.

    `scores` and `mask` are (decisions, candidates): the mask is 1 for each allowed candidate, two or more per row.
    """
    logits = np.where(mask > 0, scores / temperature, -np.inf)
    chances = np.exp(logits - logits.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    entropies = -np.sum(chances * np.log(np.where(chances > 0, chances, 1.0)), axis=1) / np.log(mask.sum(1))
    best = chances.max(1)
    return Openness(
        normalization, temperature, float(entropies.mean()), float(best.mean()), float((best >= DECIDED).mean())
    )


def find_temperature(scores: np.ndarray, mask: np.ndarray, entropy: float) -> float:
    """The temperature at which the mean entropy is `entropy`, between 0 and 1; it has two digits.

    It is 1 where no temperature brings the entropy down to the aim, since too many candidates score the same. The other
    arguments are those of `openness`. Entropy grows with temperature.
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
