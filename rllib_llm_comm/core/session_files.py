"""Recorded sessions of people and agents: a folder with `session.jsonl` and `decisions.parquet`.

`session.jsonl` has one JSON object per line, each with `kind`: `session` (first line: game, settings, seats), `episode`
(its seed), `moment` (what was seen, said, done and paid, by agent) and `end` (returns and the game's counts).
`decisions.parquet` has one row per decision of the episodes that ended, with `COLUMNS`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator, with_config
from typing_extensions import NotRequired, Self, TypedDict

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import foreign_lines
from rllib_llm_comm.core.places import is_remote, local_path

SESSION, DECISIONS = "session.jsonl", "decisions.parquet"
FORMAT = 1
COLUMNS = (
    "episode", "seed", "moment", "game_step", "agent", "by_person", "forced", "name", "text", "subgoal", "told",
    "heard", "said", "spoke", "candidates", "action", "phrase", "reward",
)  # fmt: skip
MOST_BYTES = 2**27
"""Longest record of one session: what is written and what is read."""
_MOST_LINE = 4 * 2**20


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


@with_config(ConfigDict(extra="forbid", strict=True))
class AgentFrame(TypedDict):
    """One agent at one moment of a recorded episode; keys that stand there only sometimes are `NotRequired`.

    Attributes:
        text: The observation's `text`; empty for agents that see numbers or maps.
        subgoal: The planner's subgoal; empty for none.
        reward: Reward since the frame before.
        events: Events of the game since the frame before.
        busy: True if the agent is not asked for an action at this moment; the keys from `said` to `changed` are then
            missing.
        told: The agent's private fact, empty for none; only in moments in which not all agents are told the same.
        by: Name of the person who decided in its place; only in recorded sessions.
        said: Its message; empty for silence.
        heard: The latest message of each other agent, by speaker.
        candidates: The phrases of its actions.
        probabilities: The probability of each candidate, rounded to 4 digits.
        action: Index of the chosen candidate.
        phrase: The chosen candidate.
        value: The critic's value, rounded to 4 digits; only if it is finite.
        silent: The probabilities of the candidates without any message heard; only of agents that heard one, and with
            counterfactuals.
        influence: Total variation between `probabilities` and `silent`, 0 to 1.
        changed: True if the most likely candidate in silence is another one.
    """

    text: str
    subgoal: str
    reward: float
    events: list[str]
    busy: bool
    told: NotRequired[str]
    by: NotRequired[str]
    said: NotRequired[str]
    heard: NotRequired[dict[str, str]]
    candidates: NotRequired[list[str]]
    probabilities: NotRequired[list[float]]
    action: NotRequired[int]
    phrase: NotRequired[str]
    value: NotRequired[float]
    silent: NotRequired[list[float]]
    influence: NotRequired[float]
    changed: NotRequired[bool]


class SeatOfPerson(_Part):
    """A person in a moment.

    Attributes:
        name: The name that it gave.
        spoke: True if it said something new before it chose; what it said before is still heard.
        forced: True if it did not choose, and the clock let it wait.
    """

    name: str
    spoke: bool
    forced: bool = False


class SessionMoment(_Part):
    """One moment.

    Attributes:
        episode: Number of its episode in the session, from 1.
        game_step: Game steps since the reset.
        agents: Agent -> its part.
        people: Agent -> the person who holds its seat.
        actions: Agent -> action, of all who decided.
    """

    episode: int = Field(ge=1)
    game_step: int = Field(ge=0)
    agents: dict[str, AgentFrame]
    people: dict[str, SeatOfPerson]
    actions: dict[str, Annotated[int, Field(ge=0, lt=2**31)]]

    @field_validator("agents", mode="before")
    @classmethod
    def _only_parts(cls, cards: Any) -> Any:
        """Parts without what nobody reads, which could be anything and of any size."""
        known = {*AgentFrame.__annotations__} - {"by"}  # who decided is told by `people`
        if not isinstance(cards, dict):
            return cards
        return {
            agent: {k: v for k, v in card.items() if k in known} if isinstance(card, dict) else card
            for agent, card in cards.items()
        }

    @model_validator(mode="after")
    def _require_parts(self) -> Self:
        if not {*self.actions} <= {*self.agents}:  # a person keeps the seat of an agent that left
            raise ValueError("somebody acts in it who has no part in it")
        return self


class SessionEpisode(_Part):
    """One episode.

    Attributes:
        episode: Its number in the session, from 1.
        seed: Its seed.
        moments: Its moments.
        returns: Sum of rewards by agent; empty if it did not end.
        success: True if the task was done.
        metrics: The game's own counts.
        ended: True if it was played to its end.
    """

    episode: int = Field(ge=1)
    seed: int = Field(ge=0, lt=2**63)
    moments: list[SessionMoment] = []
    returns: dict[str, float] = {}
    success: bool = False
    metrics: dict[str, float] = {}
    ended: bool = False


class Session(_Part):
    """A session.

    Attributes:
        format: Version of this format.
        env: Id of the environment.
        env_config: Its settings.
        agents: Names of its agents.
        holders: Agent -> who plays where no person does.
        started: Time of its beginning, UTC, ISO 8601.
        consent: The text to which people agreed; empty for none.
        stand_ins: What stands in, among those who held the seats, for what the papers use.
        episodes: Its episodes.
    """

    format: int
    env: str
    env_config: dict[str, Any]
    agents: list[str]
    holders: dict[str, str]
    started: str
    consent: str = ""
    stand_ins: list[str] = []
    episodes: list[SessionEpisode] = []

    @model_validator(mode="after")
    def _require_agents(self) -> Self:
        if any({*moment.agents} - {*self.agents} for one in self.episodes for moment in one.moments):
            raise ValueError("a moment has an agent that the first line does not name")
        return self


def is_session(path: str | os.PathLike[str]) -> bool:
    """True if a path is the folder of a session, or its `session.jsonl`."""
    if is_remote(path):
        return False
    found = local_path(path, "checkpoint")
    return (found / SESSION).is_file() or (found.name == SESSION and found.is_file())


def read_session(path: str | os.PathLike[str]) -> Session:
    """Reads a session; a last line that was torn by a crash is left out.

    Args:
        path: Its folder, or its `session.jsonl`.

    Raises:
        UserError: If there is none, or it is damaged.
    """
    found = local_path(path, "session")
    file = found if found.name == SESSION else found / SESSION
    episodes: dict[int, dict[str, Any]] = {}
    head: dict[str, Any] | None = None
    try:
        for number, told in _lines(file):
            kind = told.pop("kind", None)
            if (head is None) != (kind == "session"):
                raise ValueError(f"line {number} is {kind!r}, but the first line and no other one tells the session")
            if head is None:
                head = told
            elif kind == "episode":
                episodes[int(told["episode"])] = {**told, "moments": []}
            elif kind == "moment":
                episodes[int(told["episode"])]["moments"].append(SessionMoment.model_validate(told))
            elif kind == "end":
                episodes[int(told["episode"])] |= {**told, "ended": True}
        if head is None:
            raise ValueError("it has no line")
        session = Session.model_validate({**head, "episodes": list(episodes.values())})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        reason = " ".join(_reason(error).split())[:200]
        raise UserError(
            f"{str(file)!r} is no recorded session ({reason}); give the folder of `rllib play --record`."
        ) from error
    if session.format > FORMAT:
        raise UserError(f"{str(file)!r} has format {session.format} but this version reads up to {FORMAT}; update.")
    return session


def _reason(error: Exception) -> str:
    """What is wrong, by the name of a field where there is one."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'a line'}: {first['msg']}"
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(foreign_lines(file, MOST_BYTES, _MOST_LINE), 1):
        if not line.endswith(b"\n"):
            return  # torn by a crash
        told = json.loads(line)
        if not isinstance(told, dict):
            raise ValueError(f"line {number} is no object")
        yield number, told


def rows_of(episode: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The decisions of an episode, as `SessionEpisode` has it, as rows with `COLUMNS`."""
    one = SessionEpisode.model_validate(episode)
    rows = []
    for number, moment in enumerate(one.moments):
        following = one.moments[number + 1].agents if number + 1 < len(one.moments) else {}
        for agent, action in moment.actions.items():
            card, person = moment.agents[agent], moment.people.get(agent)
            rows.append(
                {
                    "episode": one.episode, "seed": one.seed, "moment": number, "game_step": moment.game_step,
                    "agent": agent, "by_person": person is not None and not person.forced,
                    "forced": person is not None and person.forced, "name": "" if person is None else person.name,
                    "text": card["text"], "subgoal": card["subgoal"], "told": card.get("told", ""),
                    "heard": json.dumps(card.get("heard", {}), sort_keys=True), "said": card.get("said", ""),
                    "spoke": bool(card.get("said")) if person is None else person.spoke,
                    "candidates": list(card.get("candidates", [])), "action": action, "phrase": card.get("phrase", ""),
                    "reward": float(following[agent]["reward"]) if agent in following else 0.0,
                }
            )  # fmt: skip
    return rows
