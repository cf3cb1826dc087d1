"""The schema of replays: the frames of recorded episodes, and the JSON inside a replay page.

A page written by `write_replay` holds one `ReplayPage` as JSON in its element `<script id="data">`. `Frame` is an
element of `Episode.frames`, which the page's episodes are made of; the types from `ReplayAgent` on are the page's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from rllib_llm_comm.core.session_files import AgentFrame

_STRICT = ConfigDict(extra="forbid", strict=True)


class Frame(TypedDict):
    """One moment of a recorded episode: an element of `Episode.frames`, not of the page.

    Attributes:
        game_step: Game steps since the reset.
        ansi: The game in characters; empty if it has no such rendering.
        image: The game's picture, (H, W, 3) of uint8; `None` if it draws none.
        places: Heads of the agents in the picture, (x, y) in pixels; empty if the game does not tell them.
        metrics: The game's own counts so far (`episode_metrics`).
        agents: Name -> the agent's part.
    """

    game_step: int
    ansi: str
    image: np.ndarray | None
    places: dict[str, tuple[float, float]]
    metrics: dict[str, float]
    agents: dict[str, AgentFrame]


@with_config(_STRICT)
class ReplayAgent(AgentFrame):
    """One agent at one moment of the page.

    Attributes:
        reward: As in `AgentFrame`, rounded to 4 digits.
        events: As in `AgentFrame`, in the words that a player reads.
        total: Sum of its rewards so far, rounded to 4 digits; it begins again with a round that begins again.
    """

    total: float


@with_config(_STRICT)
class ReplayFrame(TypedDict):
    """One moment of the page.

    Attributes:
        step: Game steps since the reset.
        ansi: The game in characters, in place of a picture; empty with a picture.
        picture: Index in `ReplayDrawing.pictures`; null without a picture.
        agents: Name -> the agent's part.
        undone: True if the moment belongs to an attempt that was put back.
    """

    step: int
    ansi: str
    picture: int | None
    agents: dict[str, ReplayAgent]
    undone: bool


@with_config(_STRICT)
class ReplayAuthors(TypedDict):
    """The authors, such as "model" or "rules", of a plan's goal, of its subgoals, and of their assignment to agents."""

    goal: str
    decomposition: str
    assignment: str


@with_config(_STRICT)
class ReplaySubgoal(TypedDict):
    """An agent's subgoal in a plan.

    Attributes:
        agent: Name of the agent.
        subgoal: The subgoal in the game's words.
        reason: The planner's reason; may be empty.
        answered_by: Author of the subgoal.
        end: "done", "waited", "stuck", "lost", or empty if it had not ended.
    """

    agent: str
    subgoal: str
    reason: str
    answered_by: str
    end: str


@with_config(_STRICT)
class ReplayRefusal(TypedDict):
    """A proposed subgoal that was refused.

    Attributes:
        phase: Phase of planning in which it was proposed: "goal", "decomposition" or "assignment".
        subgoal: The proposal.
        reason: The reason of the refusal.
        instead: The subgoal in its place; empty if the planner chose anew.
        chosen_by: Author of that subgoal: "embedding" (the text encoder) or "model"; may be empty.
    """

    phase: str
    subgoal: str
    reason: str
    instead: str
    chosen_by: str


@with_config(_STRICT)
class ReplayAttempt(TypedDict):
    """A plan and its outcome.

    Attributes:
        frame: Index of its first frame.
        goal: The team's goal.
        reason: The planner's reason; may be empty.
        by: The authors.
        subgoals: One per agent.
        refused: Proposals that were refused.
        kept: True if the game went on from it, false if it was put back.
        returns: Team return of the attempt, rounded to 3 digits.
        unplanned: The reason why no other plan followed a failure; empty if one did or there was no failure.
        blamed: Phase of planning that the reflection blames; empty without a reflection.
        blamed_by: Author of the reflection.
        why: The reflection's explanation.
        thoughts: The reflection's thoughts.
    """

    frame: int
    goal: str
    reason: str
    by: ReplayAuthors
    subgoals: list[ReplaySubgoal]
    refused: list[ReplayRefusal]
    kept: bool
    returns: float
    unplanned: str
    blamed: str
    blamed_by: str
    why: str
    thoughts: str


@with_config(_STRICT)
class ReplayEpisode(TypedDict):
    """One episode of the page.

    Attributes:
        env: Id of the environment.
        settings: Settings of the environment that are texts, numbers or flags.
        agents: Names of the agents.
        seed: Seed of the episode.
        team_return: Undiscounted return, mean over agents, rounded to 3 digits.
        headline: The outcome in words: the game's own counts, or whether it was solved.
        length: Length in game steps.
        frames: The moments; the last one shows the end.
        curves: Name -> a figure per frame: the game's counts that change, and the influence of messages on each agent.
        rounds: Per round all attempts from the same situation, the last of which stands; empty without a planner.
        answers: Sentences about the authors of plans and reflections.
        influence: A sentence about the influence of messages.
    """

    env: str
    settings: dict[str, Any]
    agents: list[str]
    seed: int
    team_return: float
    headline: str
    length: int
    frames: list[ReplayFrame]
    curves: dict[str, list[float]]
    rounds: list[list[ReplayAttempt]]
    answers: list[str]
    influence: str


@with_config(_STRICT)
class ReplaySide(TypedDict):
    """One run of the page with its name, which is empty if there is only one; a comparison has two."""

    title: str
    episodes: list[ReplayEpisode]


@with_config(_STRICT)
class ReplayPicture(TypedDict):
    """A picture made of tiles: its size in pixels, and the numbers of its tiles, row by row."""

    width: int
    height: int
    tiles: list[int]


@with_config(_STRICT)
class ReplayDrawing(TypedDict):
    """The layout of the sheets of tiles, and the pictures.

    Attributes:
        tile: Side of a tile in pixels.
        columns: Tiles per row of a sheet.
        per_sheet: Tiles per sheet.
        pictures: All different pictures.
    """

    tile: int
    columns: int
    per_sheet: int
    pictures: list[ReplayPicture]


@with_config(_STRICT)
class ReplayPage(TypedDict):
    """The whole JSON of a page: the runs, one or two, and the pictures."""

    sides: list[ReplaySide]
    drawing: ReplayDrawing
