"""Settings of partners: players that hold an agent's seat and do not learn, and the pools that they are drawn from."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError, did_you_mean, shown
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.find_checkpoint import is_named

SCRIPTED, RANDOM, STAY = "scripted", "random", "stay"
FUNCTION, CHECKPOINT = "function", "checkpoint"
_BY_NAME = (SCRIPTED, RANDOM, STAY)
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_NAMED_PARTS = 3
CHAT = "chat"
PEOPLE = "people"
_RECORDED = f"{PEOPLE}:"
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


class LongestPrompt(Settings):
    """How long the prompts of a checkpoint may be that is played."""

    max_prompt_tokens: int | None = Field(None, ge=1, le=2**17)
    """Longest prompt in tokens of a checkpoint, where the texts of a game are longer than those of its training."""


class PartnerSettings(LongestPrompt):
    """A partner: a player of one agent's seat that does not learn."""

    policy: str = Field(examples=[SCRIPTED])
    """A path of a checkpoint (`find_checkpoint`) or `zoo:NAME`, `"scripted"` (the game's scripted player), `"random"`
    (uniformly among the actions that are allowed), `"stay"` (the game's action of waiting), `"people:PATH"` (people
    of a session of `rllib play --record`, replayed by situation), or `"module:function"`, a user's function that makes
    a player."""
    name: str = ""
    """Its name in tables and figures; by default told from `policy` and what differs from the defaults."""
    weight: float = Field(1.0, gt=0, le=1e9)
    """How often it is drawn from its pool, relative to the others. FCP and PBT: equal."""
    noise: float = Field(0.0, ge=0, le=1)
    """Share of its decisions that are drawn uniformly from the allowed actions (ours). Carroll et al.'s and FCP's
    partners have none."""
    pauses: float = Field(0.0, ge=0, le=1)
    """Share of its decisions in which it waits; at most 1 together with `noise` (ours)."""
    habit: Literal["", "one_pot", "onions_only", "dishes_only"] = ""
    """Of a scripted player of the onion-soup kitchens; empty for none (ours)."""
    greedy: bool = False
    """True if a checkpoint's most likely action is taken instead of a sampled one. Carroll et al.: sampled."""
    unstuck: int = Field(0, ge=0, le=100)
    """Turns without a move or turn after which a checkpoint's actions of these turns are removed from its choices
    (`StuckRule`); 0: never (ours). Carroll et al.'s behaviour clones: 3. In games that tell where agents stand: the
    onion-soup kitchens."""
    speech: Literal["own", "scripted", "none"] = "own"
    """`"own"`: a checkpoint of language agents says its own messages, every other partner nothing; `"scripted"`: it
    says the messages of the game's scripted player; `"none"`: it says nothing (ours)."""
    word_order: Literal["own", "reversed"] = "own"
    """`"reversed"`: the words of its messages come in reverse order, as of somebody who speaks otherwise (ours)."""
    word_noise: float = Field(0.0, ge=0, le=1)
    """Chance of each word of its messages to get lost (ours)."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.policy.strip():
            raise UserError(
                "`policy` is empty but must be the path of a checkpoint, 'scripted', 'random', 'stay' or "
                "'module:function'."
            )
        # A path with folders is no misspelt name, however alike they are ('runs/dm' and 'random').
        hint = "" if "/" in self.policy or "\\" in self.policy else did_you_mean(self.policy, _BY_NAME)
        if hint and self.kind == CHECKPOINT and not is_named(self.policy) and not Path(self.policy).exists():
            raise UserError(f"`policy` is {self.policy!r}, where no checkpoint is.{hint}")
        if self.noise + self.pauses > 1:
            raise UserError(
                f"`noise` is {self.noise:g} and `pauses` is {self.pauses:g} but both together must be at most 1."
            )
        useless = {
            "habit": (SCRIPTED, "only scripted players have habits"),
            "greedy": (CHECKPOINT, "only checkpoints have a most likely action"),
            "unstuck": (CHECKPOINT, "only checkpoints have chances to remove actions from"),
            "max_prompt_tokens": (CHECKPOINT, "only checkpoints have prompts"),
        }
        for setting, (kind, why) in useless.items():
            if getattr(self, setting) and self.kind != kind:
                raise UserError(
                    f"`{setting}` is {getattr(self, setting)!r} but `policy` is {self.policy!r}, and {why}; omit it."
                )
        silent = self.speech == "none" or (self.kind in _BY_NAME and self.speech == "own")
        if silent and (self.word_noise or self.word_order != "own"):
            setting = "word_noise" if self.word_noise else "word_order"
            raise UserError(
                f"`{setting}` is {getattr(self, setting)!r} but `policy` {self.policy!r} with `speech` {self.speech!r} "
                "says nothing; omit it, or set `speech` to 'scripted'."
            )
        if not self.name:
            self.__dict__["name"] = _name_of(self)
        return self

    @property
    def session(self) -> str:
        """The folder of the session of recorded people."""
        return self.policy.removeprefix(_RECORDED)

    @property
    def kind(self) -> str:
        """The kind of player that `policy` names: `"scripted"`, `"random"`, `"stay"`, `"people"`, `"function"` or
        `"checkpoint"`.

        A folder of the name counts before a function of it.
        """
        if self.policy in _BY_NAME:
            return self.policy
        if self.policy.startswith(_RECORDED):
            return PEOPLE
        if is_named(self.policy):
            return CHECKPOINT
        return FUNCTION if _FUNCTION.fullmatch(self.policy) and not Path(self.policy).exists() else CHECKPOINT


PartnerEntry = str | Path | Mapping[str, Any] | PartnerSettings
"""A partner as a list of partners may hold it: its `policy`, the keys of `PartnerSettings`, or these settings."""


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
    return tuple(_with_absolute_path(partner) for partner in pool)


def _with_absolute_path(partner: PartnerSettings) -> PartnerSettings:
    if partner.kind == PEOPLE:
        place = f"{_RECORDED}{local_path(partner.session, 'policy').absolute()}"
    elif partner.kind == CHECKPOINT and not is_named(partner.policy):
        place = str(local_path(partner.policy, "policy").absolute())
    else:
        return partner
    return partner.replace(policy=place, name=partner.name)


def shares(pool: Sequence[PartnerSettings]) -> tuple[float, ...]:
    """The chance of each partner to be drawn: its weight by the sum of all weights."""
    total = math.fsum(partner.weight for partner in pool)
    return tuple(partner.weight / total for partner in pool)


def _entry(entry: Any, where: str) -> PartnerSettings:
    """One entry of a pool; errors begin with its place."""
    if isinstance(entry, PartnerSettings):
        return entry
    return PartnerSettings.checked(where, {"policy": str(entry)} if isinstance(entry, str | Path) else entry)


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
        unique.append(partner.replace(name=name))
    return unique


def _name_of(partner: PartnerSettings) -> str:
    """A short name: the end of a checkpoint's path or the policy's word, then what differs from the defaults."""
    base = "/".join(Path(partner.policy).parts[-_NAMED_PARTS:]) if partner.kind == CHECKPOINT else partner.policy
    if partner.kind == PEOPLE:
        base = f"recorded people ({Path(partner.session).name}), replayed by situation"
    traits = [partner.habit.replace("_", " ")] if partner.habit else []
    traits += [
        f"{setting} {getattr(partner, setting):g}" for setting in ("noise", "pauses") if getattr(partner, setting)
    ]
    traits += ["greedy"] if partner.greedy else []
    traits += [f"unstuck {partner.unstuck}"] if partner.unstuck else []
    traits += [f"speech {partner.speech}"] if partner.speech != "own" else []
    traits += ["words reversed"] if partner.word_order != "own" else []
    traits += [f"word noise {partner.word_noise:g}"] if partner.word_noise else []
    return ", ".join([base, *traits])
