"""A chat model without a language model: it reads the planners' prompts and answers by rules.

For tests, benchmarks and recordings, where no language model is at hand: `{"local": "rules"}` in the settings of
`open_chat`, once this module is imported. It knows what the prompt says and nothing else: the list of subgoals with who
can do them, what lies where, who holds what. Whatever is recorded from it is marked by its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product

from rllib_llm_comm.chat.chat_model import ChatCounters, ChatError, ChatModel
from rllib_llm_comm.chat.local_chat import register_local_chat
from rllib_llm_comm.sama.plans import RULES_MODEL

_THINGS = ("onion", "pot", "dish", "soup", "serving counter", "counter")
_GOALS = ("put onions into a pot until it has three", "have a dish ready for the soup", "take the soup and deliver it")
_MOST_OPTIONS = 12
_once_per_prompt = lru_cache(maxsize=16)

_ENTRY = re.compile(r"^- (.*) \((\w+(?: or \w+)*)\)$", re.MULTILINE)
_AGENTS = re.compile(r"^You plan for a team of \d+ agents \((.*?)\)", re.MULTILINE)
_HOLDS = re.compile(r"\b(\w+) holds (nothing|an onion|a dish|a soup)\b")
_NO_POT = re.compile(r"\b(\w+) can reach no pot\.")
_IN_POT = re.compile(r"\b([\w ]*?pot(?: \d+)?) holds (\d) of 3 onions", re.IGNORECASE)
_TRIED = re.compile(r"^- goal: .*?; ((?:\w+: [^;]*?(?:; )?)+)\. The mistake was in", re.MULTILINE)
_LINE = re.compile(r"^(\d+)\. (.*)$", re.MULTILINE)
_SHARED = re.compile(r"\bShared counters? (\d+)(?: to (\d+))?")
_LYING = re.compile(r"\b(onions?|dish|dishes|soups?) lies? on (?:the )?shared counters? ([\d, and]+)", re.IGNORECASE)
_EVERY_POT = re.compile(r"\b([\w ]*?pot(?: \d+)?) (is empty|holds \d of 3|has a ready soup|cooks for )", re.IGNORECASE)
_SINGULAR = {"onion": "onion", "onions": "onion", "dish": "dish", "dishes": "dish", "soup": "soup", "soups": "soup"}
_MOST_AHEAD = re.compile(r"up to (\d+) subgoals")
_EXAMPLE = re.compile(r"^An example\.\n.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


class RulesChat(ChatModel):
    """Answers the questions of the planners by rules for the onion-soup kitchen; in other games it takes what is listed
    first.

    Attributes:
        model: Says in recordings that no language model answered.
        counters: Counts so far.
    """

    def __init__(self) -> None:
        self.model = RULES_MODEL
        self.counters = ChatCounters()

    def complete(self, prompt: str, system: str = "") -> str:
        """Answer to a prompt of the planner, made by rules.

        Raises:
            ChatError: If the question is none that a planner asks.
        """
        self.counters.count(requests=1)
        # Worked examples tell of other kitchens.
        return _answer(_EXAMPLE.sub("", prompt))


def _answer(prompt: str) -> str:
    if "Which things of the game must the players use" in prompt:
        words = prompt.lower()
        return json.dumps({"objects": [thing for thing in _THINGS if thing in words] or ["everything"]})
    if "Which goal should the team reach next" in prompt:
        goal = _GOALS[_stage(prompt)]
        failed = f"goal: {goal};" in prompt
        return json.dumps({"thoughts": _seen(prompt), "goal": f"{goal}, in another way" if failed else goal})
    if "write down the whole sequence of goals" in prompt:
        return json.dumps({"thoughts": _seen(prompt), "goals": list(_GOALS[_stage(prompt) :])})
    if "and what each agent does for it" in prompt:
        return _ahead(prompt)
    if "Split this goal into" in prompt:
        told = _told(prompt)
        reasons = [{"subgoal": subgoal, "reason": f"meant for {agent}"} for agent, subgoal in told.items()]
        return json.dumps({"thoughts": _seen(prompt), "subgoals": reasons})
    if "Give each of these subgoals to one agent" in prompt:
        return _shared_out(prompt)
    if "Which phase made the mistake" in prompt:
        return json.dumps(
            {"thoughts": "", "phase": "decomposition", "why": "An agent was in the way or came too late."}
        )
    if "Why not?" in prompt:
        return "Something that the goal needed was not there in time."
    if "Which of them would help most" in prompt:
        return _nearest(prompt)
    raise ChatError(f"The rules have no answer to {prompt[-200:]!r}; ask a language model.")


def _ahead(prompt: str) -> str:
    """A goal and several subgoals per agent: the kitchen is gone on with in the head, part by part."""
    most, goal, told = int(_MOST_AHEAD.findall(prompt)[-1]), _GOALS[_stage(prompt)], _told(prompt)
    team = {agent: [first] for agent, first in told.items()}
    if not _TRIED.search(prompt):  # what has failed is beyond these rules
        team = (_over_the_counter if _far(prompt) else _in_the_head)(prompt, most) or team
    work = [
        {"agent": agent, "subgoals": [{"subgoal": one, "reason": ""} for one in chain]} for agent, chain in team.items()
    ]
    again = f"{goal}, in another way" if f"goal: {goal};" in prompt else goal
    return json.dumps({"thoughts": _seen(prompt), "goal": again, "agents": work})


_COOKING = 3  # parts of a plan in which a soup gets ready


def _in_the_head(prompt: str, most: int) -> dict[str, list[str]]:
    """Subgoals of each agent for one pot, as they go on when all others do theirs; empty if one cannot begin so."""
    held, agents, listed = dict(_held(prompt)), _agents(prompt), _ENTRY.findall(prompt)
    menu = {who: [one for one, able in listed if who in able.split(" or ")] for who in agents}
    crate, aside = dict[str, str](), dict[str, str]()  # nobody stands where another one has to go
    for number, who in enumerate(agents):
        crates = [one for one, _ in listed if one.startswith("fetch an onion") and "crate" in one] or ["fetch an onion"]
        free = [one for one in menu[who] if one.startswith("go to") and one not in aside.values()] or ["wait"]
        crate[who], aside[who] = (
            crates[number % len(crates)],
            free[(prompt.count("could not get this done") * 3 - number) % len(free)],
        )
    pots = sorted(_pots(prompt), key=lambda pot: -_pots(prompt)[pot]) or ["pot"]
    ready = 0 if "has a ready soup" in prompt else _COOKING if " cooks for " in prompt else None
    onions = 3 if ready is not None else _pots(prompt).get(pots[0], 0)
    team: dict[str, list[str]] = {who: [] for who in menu}
    for _ in range(most):
        coming, taken, brought, busy = onions, ready != 0, list(held.values()), False
        for who in team:
            what = held.get(who, "nothing")
            if what == "soup":
                does, held[who] = "deliver the soup at the serving counter", "nothing"
            elif what == "dish" and not taken and not busy:
                does, held[who], taken, onions, coming = "fill the dish with the soup from the pot", "soup", True, 0, 3
                busy = True
            elif what == "onion" and coming < 3 and not busy:
                does, held[who], coming, onions = f"put the onion into the {pots[0]}", "nothing", coming + 1, onions + 1
                busy = True
            elif what == "nothing" and (onions == 3 or coming == 3) and "dish" not in held.values():
                does, held[who] = "fetch a dish", "dish"
            elif what == "nothing" and onions % 3 + brought.count("onion") < 3:
                does, held[who] = crate[who], "onion"
                brought.append("onion")
            else:
                does = "wait" if team[who] and team[who][-1] in ("wait", aside[who]) else aside[who]
            team[who].append(does)
        cooks = _COOKING if ready is None else max(0, ready - 1)
        ready = cooks if onions == 3 else None
    begin = all(one[0] in ("wait", "fetch a dish") or one[0] in menu[who] for who, one in team.items())
    return team if begin else {}


def _over_the_counter(prompt: str, most: int) -> dict[str, list[str]]:
    """The same where one of two cooks reaches no pot and hands things over the shared counters."""
    held, agents = dict(_held(prompt)), _agents(prompt)
    now = prompt.partition("The game now:\n")[2].partition("\n\n")[0]
    givers, cooks = sorted(_far(prompt)), [who for who in agents if who not in _far(prompt)]
    crate = re.search(rf"\b{givers[0]} can reach the ((?:\w+ )?onion crate)", prompt, re.IGNORECASE)
    shared = _SHARED.search(prompt)
    if len(givers) != 1 or len(cooks) != 1 or crate is None or shared is None:
        return {}
    (giver,), (cook,), (first, last) = givers, cooks, shared.groups()
    counters = [str(number) for number in range(int(first), int(last or first) + 1)]
    lies: dict[str, str] = {}  # on a shared counter
    for thing, numbers in _LYING.findall(now):
        lies |= dict.fromkeys(re.findall(r"\d+", numbers), _SINGULAR[thing.lower()])
    pots = {
        pot.strip().lower().removeprefix("the "): int(how[6]) if how[:5] == "holds" else 0 if how == "is empty" else 3
        for pot, how in _EVERY_POT.findall(now)
    }

    def lay(before: Mapping[str, str]) -> str:
        """What the giver does in the next part of the plan; `before` is what lay on the counters when it began."""
        thing, free = held[giver], [one for one in counters if one not in before]
        if thing != "nothing":
            if not free:
                return "wait"
            held[giver], lies[free[0]] = "nothing", thing
            return f"put the {thing} on shared counter {free[0]}"
        dishes = [*lies.values(), held[cook]].count("dish")
        held[giver] = "dish" if dishes < list(pots.values()).count(3) else "onion"
        return "fetch a dish from the dish stack" if held[giver] == "dish" else f"fetch an onion from the {crate[1]}"

    def make(before: Mapping[str, str]) -> str:
        """What the cook does."""
        thing, full = held[cook], [pot for pot in pots if pots[pot] == 3]
        fillable = sorted((pot for pot in pots if pots[pot] < 3), key=lambda pot: -pots[pot])
        if thing == "soup":
            held[cook] = "nothing"
            return "deliver the soup at the serving counter"
        if thing == "dish" and full:
            held[cook], pots[full[0]] = "soup", 0
            return f"fill the dish with the soup from the {full[0]}"
        if thing == "onion" and fillable:
            held[cook], pots[fillable[0]] = "nothing", pots[fillable[0]] + 1
            return f"put the onion into the {fillable[0]}"
        wanted = ["dish"] * bool(full) + ["onion"] * bool(fillable)
        for what in wanted if thing == "nothing" else ():
            if there := [one for one in before if before[one] == what]:
                held[cook] = lies.pop(there[0])
                return f"fetch {'an' if what == 'onion' else 'a'} {what} from shared counter {there[0]}"
        return "wait"

    team: dict[str, list[str]] = {who: [] for who in agents}
    for _ in range(most):
        before = dict(lies)
        team[cook].append(make(before))
        team[giver].append(lay(before))
    possible = {(one, who) for one, able in _ENTRY.findall(prompt) for who in able.split(" or ")}
    return team if all(one[0] == "wait" or (one[0], who) in possible for who, one in team.items()) else {}


def _agents(prompt: str) -> list[str]:
    found = _AGENTS.search(prompt)
    if found is None:
        raise ChatError("The rules find no agents in the prompt; ask a language model.")
    return found.group(1).split(", ")


@_once_per_prompt
def _held(prompt: str) -> Mapping[str, str]:
    """Item that each agent holds: "nothing", "onion", "dish" or "soup"."""
    return {who.lower(): what.rpartition(" ")[2] for who, what in _HOLDS.findall(prompt)}


@_once_per_prompt
def _stage(prompt: str) -> int:
    """Stage of the next soup: 0 onions are wanted, 1 a dish is, 2 it can be taken and delivered."""
    held = _held(prompt).values()
    if "soup" in held or ("has a ready soup" in prompt and "dish" in held):
        return 2
    return 1 if "has a ready soup" in prompt or " cooks for " in prompt else 0


def _seen(prompt: str) -> str:
    holds = ", ".join(f"{who} holds {what}" for who, what in _held(prompt).items())
    return f"{('Onions are wanted', 'A dish is wanted', 'A soup can be delivered')[_stage(prompt)]}; {holds}."


def _told(prompt: str) -> dict[str, str]:
    """A different subgoal for each agent: the best ones on the list that have not failed together."""
    agents, listed = _agents(prompt), _ENTRY.findall(prompt)
    options = {}
    for agent in agents:
        mine = [subgoal for subgoal, who in listed if agent in who.split(" or ")]
        options[agent] = sorted(mine, key=lambda one: -_worth(one, agent, prompt))[:_MOST_OPTIONS]
    failed = [dict(part.split(": ", 1) for part in tried.split("; ") if part) for tried in _TRIED.findall(prompt)]
    best, most = dict.fromkeys(agents, "wait"), -float("inf")
    for way in product(*options.values()):
        told = dict(zip(agents, way, strict=True))
        worth = sum(_worth(subgoal, agent, prompt) for agent, subgoal in told.items()) - _waste(told, prompt)
        if len(set(way)) == len(way) and told not in failed and worth > most:
            best, most = told, worth
    return best


@_once_per_prompt
def _far(prompt: str) -> frozenset[str]:
    """Agents that can reach no pot."""
    return frozenset(who.lower() for who in _NO_POT.findall(prompt))


@_once_per_prompt
def _pots(prompt: str) -> Mapping[str, int]:
    """Number of onions in each pot that is not full."""
    return {pot.strip().lower().removeprefix("the "): int(onions) for pot, onions in _IN_POT.findall(prompt)}


def _worth(subgoal: str, agent: str, prompt: str) -> float:
    """Worth of a subgoal for a team that makes soups; below 0 if to wait is better."""
    stage, held = _stage(prompt), _held(prompt).get(agent, "nothing")
    far = agent in _far(prompt)
    if not _fits(subgoal, held):
        return -10
    if subgoal.startswith(("deliver", "fill the dish")):
        return 9
    if subgoal.startswith("put the onion into"):
        return 7 + _onions_in(subgoal, prompt) / 10
    if subgoal.startswith("fetch a dish"):
        return 6 if stage == 1 else 2
    if subgoal.startswith("fetch an onion"):
        # Items that were laid down for others are taken by those who can use it.
        laid = "counter" in subgoal
        return (-3 if far else 5.5) if laid else 5
    if subgoal.startswith("fetch a soup"):
        return -3 if far else 8
    if subgoal.startswith("put") and " on " in subgoal:
        return 4 if far and "shared" in subgoal and held != "soup" else -1 if held == "onion" and stage else -2
    return 0


def _fits(subgoal: str, held: str) -> bool:
    """True if hands are as a subgoal needs them; a list of all subgoals also has those that cannot be done now."""
    needs = {"deliver": "soup", "fill": "dish", "fetch": "nothing"}.get(subgoal.split(" ", 1)[0])
    if subgoal.startswith("put the "):
        needs = subgoal.split(" ")[2]
    return needs is None or needs == held


def _waste(told: Mapping[str, str], prompt: str) -> float:
    """Surplus of one kind: two dishes for one soup, an onion more than the pots take."""
    dishes = sum(subgoal.startswith("fetch a dish") for subgoal in told.values())
    dishes += sum(what == "dish" for what in _held(prompt).values())
    return 8.0 * max(0, dishes - 1)


def _onions_in(subgoal: str, prompt: str) -> int:
    """Number of onions in the pot that a subgoal names."""
    return next((onions for pot, onions in _pots(prompt).items() if pot in subgoal), 0)


def _shared_out(prompt: str) -> str:
    """Each agent the subgoal of its number, as they were listed; turned round if that has failed."""
    agents = _agents(prompt)
    subgoals = dict(_numbered(prompt.partition("The subgoals:\n")[2]))
    held, order = _held(prompt), list(subgoals)[: len(agents)]
    ways = [order, order[1:] + order[:1]]
    ways.sort(
        key=lambda way: -sum(_fits(subgoals[n], held.get(a, "nothing")) for a, n in zip(agents, way, strict=True))
    )
    tried = _TRIED.findall(prompt)
    for way in ways:
        told = "; ".join(f"{agent}: {subgoals[number]}" for agent, number in zip(agents, way, strict=True))
        if told not in tried:
            break
    pairs = [{"agent": agent, "number": number, "reason": ""} for agent, number in zip(agents, way, strict=True)]
    return json.dumps({"thoughts": _seen(prompt), "assignment": pairs})


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    return ((int(number), line) for number, line in _LINE.findall(text))


def _nearest(prompt: str) -> str:
    """The line that has most words of what was meant."""
    meant = set(prompt.partition("nobody can do as it stands:\n")[2].partition("\n")[0].lower().split())
    lines = dict(_numbered(prompt))
    return json.dumps({"number": max(lines, key=lambda number: len(meant & set(lines[number].split())))})


register_local_chat("rules", RulesChat)
