"""Questions to a base model on MiniRTS: answering, acting, speaking. `python -m tools.embedded_model.minirts_probe`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rllib_llm_comm.envs.minirts.sayings import CommanderSaying, EnemySaying, understand, word
from rllib_llm_comm.envs.minirts.words import COMMANDERS, MINE, TRAIN, WAIT, phrase
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.generation import generate_messages
from rllib_llm_comm.language.prompts import action_prompt, message_prompt
from tools.embedded_model.minirts_states import HELD_OUT, SPOKEN, Moment, moments
from tools.embedded_model.probe import Question, ask, run

_THREE = ((3,),)
_GROUPS = (("seen", SPOKEN), ("held_out", HELD_OUT))
_APART = 3


def _found(
    rng: np.random.Generator,
    talked_of: Sequence[int],
    wanted: Mapping[str, Callable[[Moment], bool]],
    count: int,
) -> dict[str, list[Moment]]:
    """Moments of many games by what they fit: one in three of those, until there are enough of each."""
    fitting: dict[str, list[Moment]] = {name: [] for name in wanted}
    for moment in moments(rng, _THREE, talked_of):
        for name, fits in wanted.items():
            if fits(moment):
                fitting[name].append(moment)
        if all(len(found) >= _APART * count for found in fitting.values()):
            break
    return {name: found[::_APART][:count] for name, found in fitting.items()}


def _is_request(moment: Moment) -> bool:
    said = moment.talk.saying if moment.talk else None
    return isinstance(said, CommanderSaying) and said.theirs[0] == TRAIN and len(moment.allowed) >= 3


def _is_told(moment: Moment) -> bool:
    said = moment.talk
    return said is not None and isinstance(said.saying, EnemySaying) and len(moment.allowed) >= 3


def _acts(moment: Moment) -> bool:
    return moment.plan.verb not in (WAIT, MINE) and len(moment.allowed) >= 3


def _question(rng: np.random.Generator, moment: Moment, *, listens: bool) -> Question:
    heard, answer = {}, moment.plan
    if listens:
        assert moment.talk is not None
        heard = {COMMANDERS[moment.talk.speaker]: word(moment.talk.saying, rng)}
        answer = moment.talk.answer
    return action_prompt(moment.text, heard), [phrase(c) for c in moment.allowed], moment.allowed.index(answer)


def _says(talked_of: Sequence[int]) -> Callable[[Moment], bool]:
    def fits(moment: Moment) -> bool:
        saying = moment.saying
        return isinstance(saying, EnemySaying) and bool(saying.types) and set(saying.types) <= set(talked_of)

    return fits


def _speak(model: AdaptedModel, found: Sequence[Moment]) -> float:
    texts = generate_messages(model, [message_prompt(moment.text) for moment in found], role=None)
    return float(np.mean([understand(t) == m.saying for t, m in zip(texts, found, strict=True)]))


def probe(name: str, questions: int = 300, seed: int = 1_000_003) -> dict[str, float]:
    """Accuracies of a base model on moments of games that were in no corpus.

    Args:
        name: A base model's name or path.
        questions: Number of each kind.
        seed: Must differ from the corpus' seed.

    Returns:
        For the army types of the corpus' talk (`seen`) and the others (`held_out`): `follow` (another commander asks to
        train something: it does, or builds what trains it), `told` (another one says what the enemy trains: it makes
        what beats that), `say` (it says what its own observation tells of the enemy). `act`: nobody speaks, the
        strategy's next command, where that is neither "wait" nor "mine". `act_by_chance`: a uniform draw there.
    """
    model = AdaptedModel(load_base_model(name))
    result: dict[str, float] = {}
    for group, kinds in _GROUPS:
        rng = np.random.default_rng(seed)
        asked = {"follow": _is_request, "told": _is_told, "say": _says(kinds)}
        if group == "seen":
            asked["act"] = _acts
        found = _found(rng, kinds, asked, questions)
        for kind in ("follow", "told"):
            result[f"{kind}_{group}"] = ask(model, [_question(rng, m, listens=True) for m in found[kind]])
        result[f"say_{group}"] = _speak(model, found["say"])
        if group == "seen":
            result["act"] = ask(model, [_question(rng, m, listens=False) for m in found["act"]])
            result["act_by_chance"] = float(np.mean([1 / len(m.allowed) for m in found["act"]]))
    return {name: round(value, 3) for name, value in result.items()}


if __name__ == "__main__":
    run(probe, __doc__)
