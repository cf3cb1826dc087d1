"""Skill graphs: which skill needs, uses up and brings what, and a search backwards from what is wanted.

After Plan4MC (arXiv 2303.16563), with an own search. Nothing here knows a game or asks a language model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

_DEEPEST = 12


@dataclass(frozen=True)
class Skill:
    """Something that can be done.

    Attributes:
        uses: Things that it uses up, by name of the thing.
        brings: Things that there are afterwards in addition.
        agent: The agent that does it; empty for events without one.
        subgoals: The subgoals by which the agent would do it, best first; empty if there are none now.
        cost: About how many steps it takes.
    """

    name: str
    uses: Mapping[str, int]
    brings: Mapping[str, int]
    agent: str = ""
    subgoals: tuple[str, ...] = ()
    cost: float = 1.0


@dataclass(frozen=True)
class SkillProblem:
    """A moment of a game as a search problem.

    Attributes:
        targets: Things that are wanted, the most wanted first.
        idle: Per agent the subgoal of who has nothing to do.
        engaged: Agents that hold something: if it is needed later on the way to a target, they keep it and wait.
    """

    skills: Sequence[Skill]
    have: Mapping[str, int]
    targets: Sequence[str]
    idle: Mapping[str, str] = field(default_factory=dict)
    engaged: frozenset[str] = frozenset()


def search(skills: Sequence[Skill], have: Mapping[str, int], target: str) -> list[Skill] | None:
    """Skills that lead to one more of a thing, in an order in which they can be done, the cheapest way found.

    Depth first and backwards: a thing that is there is used; else each skill that brings it is tried, after what that
    one uses up. A thing is never sought in order to get itself. `None` if there is no way.
    """
    makers: dict[str, list[Skill]] = {}
    for skill in skills:
        for thing in skill.brings:
            makers.setdefault(thing, []).append(skill)
    found = _bring(makers, Counter(have), target, frozenset())
    return None if found is None else found[0]


_Found = tuple[list[Skill], Counter[str], float]


def _bring(
    makers: Mapping[str, Sequence[Skill]], have: Counter[str], target: str, above: frozenset[str]
) -> _Found | None:
    """The cheapest way to one more `target`, and what there is after it."""
    if target in above or len(above) >= _DEEPEST:
        return None
    best: _Found | None = None
    for skill in makers.get(target, ()):
        found = _do(makers, have.copy(), skill, above | {target})
        if found is not None and (best is None or found[2] < best[2]):
            best = found
    return best


def _do(
    makers: Mapping[str, Sequence[Skill]], have: Counter[str], skill: Skill, above: frozenset[str]
) -> _Found | None:
    """A skill, after whatever has to be done for it."""
    steps: list[Skill] = []
    cost = skill.cost
    # Items that an agent itself must have come last, so that nobody stands around with it while the rest is prepared.
    for thing, number in sorted(skill.uses.items(), key=lambda use: (use[0].startswith(own(skill.agent, "")), use)):
        for _ in range(number):
            if have[thing] <= 0:
                way = _bring(makers, have, thing, above)
                if way is None:
                    return None
                steps, have, cost = [*steps, *way[0]], way[1], cost + way[2]
            have[thing] -= 1
    have.update(skill.brings)
    return [*steps, skill], have, cost


def ready(skill: Skill, have: Mapping[str, int]) -> bool:
    """True if a skill can be done with the present items."""
    return all(have.get(thing, 0) >= number for thing, number in skill.uses.items())


def share_out(problem: SkillProblem, agents: Iterable[str]) -> tuple[str, dict[str, str], dict[str, str]]:
    """Assignment of skills: each agent's first skill, on the way to a target, that it can begin.

    Once an agent has a skill, the others search on without it, as if it had already brought what it is about to bring;
    so two agents do not do the same thing twice.

    Returns:
        The first target that can be reached, a subgoal per agent, and the reason of each.
    """
    open_, have, goal = list(agents), Counter(problem.have), ""
    subgoals: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for target in problem.targets:
        while open_:
            skills = problem.skills if not subgoals else [s for s in problem.skills if s.agent in ("", *open_)]
            way = search(skills, have, target) or []
            goal = goal or (target if way else "")
            number = _first(way, open_, have, subgoals.values())
            if number is None:
                break
            skill = way[number]
            free = next(subgoal for subgoal in skill.subgoals if subgoal not in subgoals.values())
            subgoals[skill.agent], reasons[skill.agent] = free, f"{skill.name} is on the way to {target}"
            open_.remove(skill.agent)
            _promise(have, way[number:], skill.agent)
            holding = problem.engaged & {step.agent for step in way}  # with something to do later on the way
            for agent in [agent for agent in open_ if agent in holding]:
                subgoals[agent], reasons[agent] = problem.idle[agent], f"what {agent} holds is needed later"
                open_.remove(agent)
    for agent in open_:
        subgoals[agent], reasons[agent] = problem.idle[agent], "there is nothing to do"
    return goal or "wait", subgoals, reasons


def _first(way: Sequence[Skill], agents: Sequence[str], have: Mapping[str, int], taken: Iterable[str]) -> int | None:
    """The position of the first skill that one of the agents can begin."""
    for number, skill in enumerate(way):
        if skill.agent in agents and set(skill.subgoals) - set(taken) and ready(skill, have):
            return number
    return None


def _promise(have: Counter[str], way: Sequence[Skill], agent: str) -> None:
    """Counts what an agent's next skills bring, until one of them brings something that is not the agent's own."""
    for skill in way:
        if skill.agent != agent:
            continue
        if not ready(skill, have):
            return
        have.subtract(skill.uses)
        have.update(skill.brings)
        if any(not thing.startswith(own(agent, "")) for thing in skill.brings):
            return


def own(agent: str, thing: str) -> str:
    """The name of a thing that an agent has."""
    return f"{agent}: {thing}"
