"""Settings of partners: players that hold an agent's seat and do not learn, and the pools that they are drawn from."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError, did_you_mean, require_choice, shown
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.policies.find_checkpoint import is_named
from rllib_llm_comm.policies.settings import FromMapping, require_whole

SCRIPTED, RANDOM, STAY = "scripted", "random", "stay"
FUNCTION, CHECKPOINT = "function", "checkpoint"
HABITS = ("", "one_pot", "onions_only", "dishes_only")
SPEECH = ("own", "scripted", "none")
_BY_NAME = (SCRIPTED, RANDOM, STAY)
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_MOST_WEIGHT = 1e9
_NAMED_PARTS = 3
_MOST_TURNS = 100
CHAT = "chat"
PEOPLE = "people"
PLAYERS: Mapping[str, str] = {
    SCRIPTED: "the scripted player, rules that see the whole game",
    PEOPLE: "recorded people",
    CHECKPOINT: "a checkpoint",
    CHAT: "a chat model",
    FUNCTION: "a function",
    RANDOM: "random play",
    STAY: "waiting",
}
"""Kind of player, in the column `player` of demonstrations -> who it is. Other texts in files are not shown."""


@dataclass(frozen=True)
class PartnerSettings(FromMapping):
    """A partner: a player of one agent's seat that does not learn.

    Attributes:
        policy: A path of a checkpoint (`find_checkpoint`) or `zoo:NAME`, `"scripted"` (the game's scripted player),
            `"random"` (uniformly among the actions that are allowed), `"stay"` (the game's action of waiting), or
            `"module:function"`, a user's function that makes a player.
        name: Its name in tables and figures; by default told from `policy` and what differs from the defaults.
        weight: > 0, at most 1e9: how often it is drawn from its pool, relative to the others. FCP and PBT: equal.
        noise: In [0, 1]: the share of its decisions that are drawn uniformly from the allowed actions. 0 by default;
            Carroll et al.'s and FCP's partners have none (ours).
        pauses: In [0, 1]: the share of its decisions in which it waits; at most 1 together with `noise` (ours).
        habit: Of a scripted player of the onion-soup kitchens: `"one_pot"`, `"onions_only"`, `"dishes_only"`, or `""`
            for none (ours).
        greedy: True if a checkpoint's most likely action is taken instead of a sampled one. Carroll et al.: sampled.
        unstuck: In [0, 100]: turns without a move or turn after which a checkpoint's actions of these turns are removed
            from its choices (`stuck_rule.StuckRule`); 0: never. Carroll et al.'s behaviour clones: 3; 0 by default
            (ours). In games that tell where agents stand: the onion-soup kitchens.
        speech: `"own"`: a checkpoint of language agents says its own messages, every other partner nothing;
            `"scripted"`: it says the messages of the game's scripted player; `"none"`: it says nothing (ours).
    """

    policy: str
    name: str = ""
    weight: float = 1.0
    noise: float = 0.0
    pauses: float = 0.0
    habit: str = ""
    greedy: bool = False
    unstuck: int = 0
    speech: str = "own"

    def __post_init__(self) -> None:
        """Refuses values that are out of their range."""
        for setting in ("policy", "name"):
            if not isinstance(getattr(self, setting), str):
                raise UserError(f"`{setting}` is {shown(getattr(self, setting))} but must be a text.")
        if not self.policy.strip():
            raise UserError(
                "`policy` is empty but must be the path of a checkpoint, 'scripted', 'random', 'stay' or "
                "'module:function'."
            )
        # A path with folders is no misspelt name, however alike they are ('runs/dm' and 'random').
        hint = "" if "/" in self.policy or "\\" in self.policy else did_you_mean(self.policy, _BY_NAME)
        if hint and self.kind == CHECKPOINT and not is_named(self.policy) and not Path(self.policy).exists():
            raise UserError(f"`policy` is {self.policy!r}, where no checkpoint is.{hint}")
        _require_number("weight", self.weight, 0.0, _MOST_WEIGHT, above=True)
        _require_number("noise", self.noise, 0.0, 1.0)
        _require_number("pauses", self.pauses, 0.0, 1.0)
        if self.noise + self.pauses > 1:
            raise UserError(
                f"`noise` is {self.noise:g} and `pauses` is {self.pauses:g} but both together must be at most 1."
            )
        require_choice("habit", self.habit, HABITS)
        require_choice("greedy", self.greedy, (False, True))
        require_whole("unstuck", self.unstuck, 0, _MOST_TURNS)
        require_choice("speech", self.speech, SPEECH)
        if self.habit and self.kind != SCRIPTED:
            raise UserError(
                f"`habit` is {self.habit!r} but `policy` is {self.policy!r}, and only scripted players have habits; "
                "use 'scripted'."
            )
        if self.greedy and self.kind != CHECKPOINT:
            raise UserError(
                f"`greedy` is true but `policy` is {self.policy!r}, and only checkpoints have a most likely action; "
                "leave `greedy` away."
            )
        if self.unstuck and self.kind != CHECKPOINT:
            raise UserError(
                f"`unstuck` is {self.unstuck!r} but `policy` is {self.policy!r}, and only checkpoints have chances to "
                "remove actions from; leave `unstuck` away."
            )
        if not self.name:
            object.__setattr__(self, "name", _name_of(self))

    @property
    def kind(self) -> str:
        """The kind of player that `policy` names: `"scripted"`, `"random"`, `"stay"`, `"function"` or `"checkpoint"`.

        A folder of the name counts before a function of it.
        """
        if self.policy in _BY_NAME:
            return self.policy
        if is_named(self.policy):
            return CHECKPOINT
        return FUNCTION if _FUNCTION.fullmatch(self.policy) and not Path(self.policy).exists() else CHECKPOINT


def parse_partners(value: Any, setting_name: str = "pool") -> tuple[PartnerSettings, ...]:
    """The partners of a pool.

    Args:
        value: A list whose entries are texts (`policy`) or mappings with the keys of `PartnerSettings`; entries that
            are `PartnerSettings` are kept.
        setting_name: The setting's name in messages.

    Returns:
        The partners in their order, at least one. Names are unique: a second `random` is called `random 2`.

    Raises:
        UserError: If the value is no such list, an entry has an unknown key or a value out of its range, or two entries
            are given the same name.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence) or not value:
        raise UserError(
            f"`{setting_name}` is {shown(value)} but must be a list of at least one partner, each a text or a mapping "
            f"with `policy`."
        )
    parsed = [_entry(entry, f"{setting_name}[{place}]") for place, entry in enumerate(value)]
    given = [one.name for one, entry in zip(parsed, value, strict=True) if _named(entry)]
    twice = sorted({name for name in given if given.count(name) > 1})
    if twice:
        raise UserError(f"`{setting_name}` has two partners named {twice[0]!r}; give each a `name` of its own.")
    return tuple(_told_apart(parsed, set(given), [_named(entry) for entry in value]))


def with_absolute_paths(pool: Sequence[PartnerSettings]) -> tuple[PartnerSettings, ...]:
    """The partners with the paths of their checkpoints made absolute: Ray's workers run in other folders.

    Args:
        pool: The partners; their names stay.
    """
    return tuple(
        dataclasses.replace(partner, policy=str(local_path(partner.policy, "policy").absolute()))
        if partner.kind == CHECKPOINT and not is_named(partner.policy)
        else partner
        for partner in pool
    )


def shares(pool: Sequence[PartnerSettings]) -> tuple[float, ...]:
    """The chance of each partner to be drawn: its weight by the sum of all weights.

    Args:
        pool: At least one partner.
    """
    total = math.fsum(partner.weight for partner in pool)
    return tuple(partner.weight / total for partner in pool)


def _entry(entry: Any, where: str) -> PartnerSettings:
    """One entry of a pool; errors begin with its place."""
    if isinstance(entry, PartnerSettings):
        return entry
    if isinstance(entry, str | Path):
        entry = {"policy": str(entry)}
    if not isinstance(entry, Mapping) or not all(isinstance(key, str) for key in entry):
        raise UserError(f"`{where}` is {shown(entry)} but must be a text or a mapping with `policy`.")
    known = PartnerSettings.names()
    for key in entry:
        if key not in known:
            raise UserError(
                f"`{where}` has the key {key!r} but a partner's keys are {', '.join(known)}.{did_you_mean(key, known)}"
            )
    if "policy" not in entry:
        raise UserError(f"`{where}` is {shown(dict(entry))} but must have `policy`, such as 'scripted' or a path.")
    try:
        return PartnerSettings(**entry)
    except UserError as error:
        raise UserError(f"`{where}`: {error}") from error


def _named(entry: Any) -> bool:
    """True if the user chose the entry's name."""
    return bool(entry.get("name")) if isinstance(entry, Mapping) else isinstance(entry, PartnerSettings)


def _told_apart(parsed: Sequence[PartnerSettings], taken: set[str], chosen: Sequence[bool]) -> list[PartnerSettings]:
    """The partners with unique names: those that were not chosen get a number where they are taken."""
    unique = []
    for partner, own in zip(parsed, chosen, strict=True):
        name, number = partner.name, 1
        while not own and name in taken:
            number += 1
            name = f"{partner.name} {number}"
        taken.add(name)
        unique.append(dataclasses.replace(partner, name=name))
    return unique


def _name_of(partner: PartnerSettings) -> str:
    """A short name: the end of a checkpoint's path or the policy's word, then what differs from the defaults."""
    base = "/".join(Path(partner.policy).parts[-_NAMED_PARTS:]) if partner.kind == CHECKPOINT else partner.policy
    traits = [partner.habit.replace("_", " ")] if partner.habit else []
    traits += [
        f"{setting} {getattr(partner, setting):g}" for setting in ("noise", "pauses") if getattr(partner, setting)
    ]
    traits += ["greedy"] if partner.greedy else []
    traits += [f"unstuck {partner.unstuck}"] if partner.unstuck else []
    traits += [f"speech {partner.speech}"] if partner.speech != "own" else []
    return ", ".join([base, *traits])


def _require_number(setting: str, value: Any, low: float, high: float, above: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high or (above and value == low):
        allowed = f"larger than {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        raise UserError(f"`{setting}` is {shown(value)} but must be a number {allowed}.")
