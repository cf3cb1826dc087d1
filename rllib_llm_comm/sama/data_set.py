"""Data sets of subgoals: what a planner wants in many different states of a game, each thing once.

SAMA asks its planner for goals and subgoals in many diverse states, which its model proposes (Section 3.2), before it
trains; removes what is there twice; and trains the executor on what remains.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from rllib_llm_comm.chat.answers import AnswerError, UnusableError, ask_for
from rllib_llm_comm.chat.chat_model import MANUAL, ChatModel, begun_at_once, side_by_side
from rllib_llm_comm.chat.settings import WITHOUT_EFFECT
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.games import game_of
from rllib_llm_comm.envs.overcooked_ai import ENV_ID as KITCHEN
from rllib_llm_comm.language.prompts import fill
from rllib_llm_comm.sama.planners import make_planner, planner_model
from rllib_llm_comm.sama.planners.baselines import read_record
from rllib_llm_comm.sama.planners.chat import with_entries
from rllib_llm_comm.sama.planners.matching import directions
from rllib_llm_comm.sama.planning_game import OURS, PlanningGame, State, worded
from rllib_llm_comm.sama.plans import Plan, Planner, PlanRequest, Refusal
from rllib_llm_comm.sama.preparation import GamePreparation, open_game, preparation_of

DATA_SET = "subgoals"
_FORMAT = 1
_DRAWS_IN_VAIN = 2000
_WITHOUT_EFFECT = WITHOUT_EFFECT | {"note"}  # with more budget the same data set goes on
_SECRET = re.compile(r"(?:^|_)(?:key|token|secret|password)$")


def diverse_states(game: PlanningGame, number: int, seed: int = 0) -> dict[str, State]:
    """Random legal states of a game that differ in the words that planners read.

    The first ones are the same for any `number`.

    Args:
        game: The game; it is left in one of the states.

    Returns:
        The states by a digest of their words; fewer than `number` if 2,000 draws in a row brought nothing new.

    Raises:
        UserError: If states of this game cannot be drawn.
    """
    rng, how = np.random.default_rng(seed), preparation_of(game)
    found: dict[str, State] = {}
    in_vain = 0
    while len(found) < number and in_vain < _DRAWS_IN_VAIN:
        state = how.draw(rng)
        digest = digest_of(words_of(game, state))
        in_vain = in_vain + 1 if digest in found else 0
        found.setdefault(digest, state)
    return found


def words_of(game: PlanningGame, state: State) -> str:
    """A state in the game's own words, agents included."""
    return "\n".join([game.situation(state), *(game.situation_of(state, agent) for agent in game.agents)])


def digest_of(words: str) -> str:
    """Short name of a state."""
    return hashlib.sha256(words.encode()).hexdigest()[:16]


@dataclass
class SubgoalDataset:
    """Subgoals that a planner gave in different states of a game, without duplicates.

    Attributes:
        game: The game, as planners know it.
        planner: See `rllib_llm_comm.sama.planners.make_planner`.
        seed: Of the states, and of planners that draw.
        model: Chat model for a planner, in place of the one that its settings name.
        plans: Per state what the planner gave: `state` (a digest), `goal`, `subgoals` by agent in the game's words,
            what was `refused` and who `answered_by`; or `state` and `failed`, why there is no usable answer.
        given: States to ask in, by a digest, in place of random ones; empty: random ones.
        states_by: Author of the states: "random", or "model".
    """

    game: PlanningGame
    planner: str | Mapping[str, Any] = "scripted"
    seed: int = 0
    model: ChatModel | None = None
    plans: list[dict[str, Any]] = field(default_factory=list)
    given: Mapping[str, State] = field(default_factory=dict)
    states_by: str = "random"

    def made_with(self) -> dict[str, Any]:
        """All that decides what comes of a state, JSON-able and without keys."""
        by = {"states_by": self.states_by} if self.given else {}
        return {"planner": without_keys(self.planner), "seed": self.seed, **by}

    def take_over(self, text: str) -> None:
        """Takes over what a file holds that `to_json` wrote.

        Raises:
            UserError: If it is none, or was made otherwise.
        """
        try:
            record = json.loads(text)
            origin = preparation_of(self.game).origin()
            same = [record["data_set"], record["format"], {name: record[name] for name in origin}, record["made_with"]]
            plans = [dict(plan) for plan in record["plans"]]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"The file of subgoals cannot be continued ({type(error).__name__}: {error}); give another --folder."
            ) from error
        if same != [DATA_SET, _FORMAT, origin, self.made_with()]:
            raise UserError("The file holds subgoals of another planner, game or --seed; give another --folder.")
        self.plans = plans

    def ask(
        self, states: int, keep: Callable[[str], None], progress: Callable[[int, int], None] = lambda done, total: None
    ) -> int:
        """Asks the planner in the states in which it was not asked yet.

        Args:
            states: In how many states it is asked in all; more that were taken over stay.
            keep: Called with the content of the file: at the end, and after each plan of a planner that may ask a
                server.
            progress: Called with the number of states done and that of all.

        Returns:
            In how many states it was asked in all: fewer than wanted where there are no more different ones.

        Raises:
            ChatError: If a request failed for good.
            UserError: If what was taken over is of other states, or the user has to do something first.
        """
        drawn = self.given or diverse_states(self.game, max(states, len(self.plans)), self.seed)
        found = list(drawn.items())
        if [plan.get("state") for plan in self.plans] != [digest for digest, _ in found[: len(self.plans)]]:
            raise UserError("The file holds subgoals for states that are drawn otherwise now; give another --folder.")
        missing, done = range(len(self.plans), len(found)), dict[int, dict[str, Any]]()
        if missing:
            model = planner_model(self.planner) if self.model is None else self.model
            first = make_planner(self.planner, model)
            free = [first]

            def ask_in(number: int) -> None:
                """Asks for the plan of a state; the order in which plans are kept is that of the states."""
                # What the first planner was told of the game the others need not ask.
                planner = free.pop() if free else first.beside()
                digest, state = found[number]
                done[number] = {"state": digest, **self._asked(planner, state, number)}
                free.append(planner)
                while len(self.plans) in done:  # a state whose plan comes late holds up those behind it
                    self.plans.append(done.pop(len(self.plans)))
                if planner.slow:
                    keep(self.to_json())
                progress(len(self.plans), len(found))

            ask_in(missing[0])
            side_by_side(ask_in, missing[1:], begun_at_once(model))
        keep(self.to_json())
        return len(found)

    def subgoals(self) -> list[dict[str, Any]]:
        """Each `subgoal` that was given: how often (`given`), in how many `states`, and how often to which `agents`."""
        entries: dict[str, dict[str, Any]] = {}
        for plan in self.plans:
            for agent, subgoal in plan.get("subgoals", {}).items():
                entry = entries.setdefault(subgoal, {"subgoal": subgoal, "given": 0, "states": 0, "agents": {}})
                entry["given"] += 1
                entry["agents"][agent] = entry["agents"].get(agent, 0) + 1
            for subgoal in set(plan.get("subgoals", {}).values()):
                entries[subgoal]["states"] += 1
        return sorted(entries.values(), key=lambda entry: (-entry["given"], entry["subgoal"]))

    def goals(self) -> list[dict[str, Any]]:
        """Each `goal` and how often it was `given`; those that differ in case and marks alone are one."""
        said = [plan["goal"] for plan in self.plans if plan.get("goal")]
        first: dict[str, str] = {}
        for goal in said:
            first.setdefault(_words(goal), goal)
        return [{"goal": first[words], "given": given} for words, given in Counter(map(_words, said)).most_common()]

    def refused(self) -> list[dict[str, Any]]:
        """Proposals of the planner that were not taken, as in `Refusal`, each with its count (`given`)."""
        said = [json.dumps(refusal) for plan in self.plans for refusal in plan.get("refused", [])]
        return [{**json.loads(text), "given": given} for text, given in Counter(said).most_common()]

    def summary(self) -> dict[str, Any]:
        """Numbers of states, subgoals and refusals.

        Returns:
            `states`; of these `failed`, without a usable answer; different `subgoals`; subgoals in the `library` of the
            game; the `share` of these that was given; different `goals`; `refused` proposals; subgoals by who wanted
            them (`answered_by`); and assignments by who gave them out (`assigned_by`).
        """
        library = {subgoal for agent in self.game.agents for subgoal in self.game.library(agent)}
        different = len(self.subgoals())
        told = [plan["answered_by"] for plan in self.plans if "answered_by" in plan]
        return {
            "states": len(self.plans),
            "failed": sum("failed" in plan for plan in self.plans),
            "subgoals": different,
            "library": len(library),
            "share": round(different / len(library), 4),
            "goals": len(self.goals()),
            "refused": sum(refusal["given"] for refusal in self.refused()),
            "answered_by": dict(Counter(who for by in told for who in by["subgoals"].values())),
            "assigned_by": dict(Counter(by["assignment"] for by in told)),
        }

    def to_json(self) -> str:
        """The data set as JSON."""
        record = {
            "data_set": DATA_SET,
            "format": _FORMAT,
            "version": importlib.metadata.version("rllib_llm_comm"),
            **preparation_of(self.game).origin(),
            "made_with": self.made_with(),
            "summary": self.summary(),
            "subgoals": self.subgoals(),
            "goals": self.goals(),
            "refused": self.refused(),
            "plans": self.plans,
        }
        return json.dumps(record, indent=1) + "\n"

    def _asked(self, planner: Planner, state: State, number: int) -> dict[str, Any]:
        """Plan of a planner in a state, by its number, independent of earlier questions."""
        planner.begin()
        planner.reseed(int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0]))
        try:
            plan = planner.plan(PlanRequest(self.game, state))
        except AnswerError as error:
            return {"failed": str(error)}
        refused = list(plan.refused)
        subgoals = self._known(plan, refused)
        by = {one.agent: one.answered_by for one in plan.subgoals}
        return {
            "goal": plan.goal,
            "subgoals": subgoals,
            "refused": [one.model_dump() for one in refused],
            "answered_by": {**plan.answered_by.model_dump(), "subgoals": by},
        }

    def _known(self, plan: Plan, refused: list[Refusal]) -> dict[str, str]:
        """The subgoals of a plan in the game's words; what is none, as planners of one's own may say, is refused."""
        known = {}
        for agent, text in plan.by_agent().items():
            subgoal = self.game.parse(text)
            if subgoal is None:
                refused.append(Refusal(phase="assignment", subgoal=text, reason="it is no subgoal"))
            else:
                known[agent] = subgoal
        return known


def _words(goal: str) -> str:
    return " ".join(re.findall(r"\w+", goal.lower()))


def without_keys(settings: Any) -> Any:
    """Settings as they may be told, as JSON gives them back: without keys, and without what changes no answer."""
    if isinstance(settings, Mapping):
        kept = [name for name in settings if name not in _WITHOUT_EFFECT and not _SECRET.search(str(name).lower())]
        return {name: without_keys(settings[name]) for name in kept}
    if isinstance(settings, Sequence) and not isinstance(settings, str):
        return [without_keys(value) for value in settings]
    return settings if isinstance(settings, str | int | float | None) else str(settings)


def read_subgoals(path: str | os.PathLike[str]) -> tuple[dict[str, Any], PlanningGame, list[str]]:
    """A data set of subgoals.

    Args:
        path: A file that `SubgoalDataset.to_json` has written.

    Returns:
        Its record, its game at the start, and its subgoals in the game's words, sorted.

    Raises:
        UserError: If there is no such file, it is none, or a subgoal is none of its game.
    """
    record, texts = read_record(path)
    try:
        env_id, settings = KITCHEN, {"layout": record["kitchen"]["layout"]} if "kitchen" in record else {}
        if "kitchen" not in record:  # files of kitchens name the kitchen alone
            env_id, settings = str(record["game"]["env"]), dict(record["game"]["settings"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"`subgoals` is {str(path)!r}, which does not tell its game; make it anew.") from error
    game = open_game(env_id, settings)
    known = {text: game.parse(text) for text in texts}
    unknown = [text for text, subgoal in known.items() if subgoal is None]
    if unknown:
        raise UserError(
            f"`subgoals` is {str(path)!r}, whose {unknown[0]!r} is no subgoal of its game; remove or correct it."
        )
    return record, game, sorted({str(subgoal) for subgoal in known.values()})


def propose_states(
    model: ChatModel,
    game: PlanningGame,
    count: int,
    *,
    manual: str,
    seed: int = 0,
    known: Sequence[str] = (),
    prompts: str = OURS,
) -> list[State]:
    """States that a chat model proposes; what it leaves open is drawn. It is asked again where one is impossible.

    Args:
        game: The game; it is left in one of the states.
        manual: The game in words.
        seed: Of what is drawn, such as the places where cooks stand.
        known: States of before in words, from which the new ones are to differ.
        prompts: As of `PromptsOf`.

    Raises:
        AnswerError: If both answers hold impossible states.
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing, or no states of this game can be proposed.
    """
    how = preparation_of(game)
    form = require_form(how)

    def check(answer: Any) -> None:
        problems = [why for state in answer.states if (why := how.impossible(state))]
        if problems:
            raise UnusableError(*dict.fromkeys(problems))

    others = ["\n\nThese are there already; propose others:", *(f"\n- {words}" for words in known)] if known else []
    told = {"manual": manual, "parts": how.parts(), "course": how.course, "known": "".join(others)}
    prompt = fill(__package__, worded(prompts, "propose_states"), count=count, **told)
    answer: Any = ask_for(model, prompt, with_entries(form, "states", count), check=check, purpose=MANUAL)
    rng = np.random.default_rng(seed)
    return [how.put(state, rng) for state in answer.states]


def require_form(how: GamePreparation) -> type[BaseModel]:
    """The form of proposed states.

    Raises:
        UserError: If a model cannot propose states of this game.
    """
    if how.form is None:
        record = game_of(how.game.env.unwrapped)
        raise UserError(
            f"`states_by` is 'model', but no model can propose states of the game {record.name if record else '?'!r}; "
            "set it to 'random'."
        )
    return how.form


class StatesApart(Settings):
    """How much the states differ in which a planner is asked."""

    apart: float = Field(0.0, ge=0, le=2)
    """Least distance of a state's words to those of all before, 1 minus the cosine of their mean token vectors; 0 takes
    all that differ (ours; SAMA lets its model sort out duplicates)."""
    text_encoder: str = "embedded"
    """The frozen text encoder that compares them."""


def distinct(
    states: Sequence[State],
    words: Callable[[State], str],
    apart: float,
    text_encoder: str = "embedded",
    known: Sequence[str] = (),
) -> dict[str, State]:
    """States whose words differ: of those nearer to an earlier one than allowed, none is kept.

    Args:
        apart: Least distance to all that are kept, as 1 minus the cosine of mean token vectors, in [0, 2]; 0 keeps all
            that differ in their words.
        text_encoder: See `rllib_llm_comm.language.text_encoder.load_text_encoder`.
        known: States of before in words, which count as kept.

    Returns:
        The states by a digest of their words, in their order.
    """
    texts = [*known, *map(words, states)]
    vectors = directions(texts, text_encoder) if apart and texts else None
    kept = {digest_of(text): number for number, text in enumerate(known)}
    for number, text in enumerate(texts[len(known) :], len(known)):
        digest = digest_of(text)
        far = vectors is None or not kept or 1 - float((vectors[list(kept.values())] @ vectors[number]).max()) >= apart
        if digest not in kept and far:
            kept[digest] = number
    return {digest: states[number - len(known)] for digest, number in kept.items() if number >= len(known)}
