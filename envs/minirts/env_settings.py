"""Settings of the environment, and the rules that they make."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from rllib_llm_comm.core.errors import LARGEST, UserError, require_choice
from rllib_llm_comm.envs.base_env import GameSettings
from rllib_llm_comm.envs.minirts.commanders.officers import SCRIPTED, check_executor
from rllib_llm_comm.envs.minirts.commanders.tasks import MOST
from rllib_llm_comm.envs.minirts.engine import opponents
from rllib_llm_comm.envs.minirts.engine.mapgen import MapSettings
from rllib_llm_comm.envs.minirts.engine.rts_game import Settings
from rllib_llm_comm.envs.told_to import NAMES, Distinct, Name, Told, require_agents

DECISION_TICKS = 50
"""Ticks between two orders of an officer; commanders decide as often, or less often (`decision_ticks`)."""
MAX_TICK = 12_800
_IN_WORDS = ("told_to", "producers", "executor", "decision_ticks")
Part = Literal["text", "vector", "planes", "lists", "officer"]


class MiniRTSSettings(GameSettings):
    """Settings of the strategy game."""

    num_agents: int = Field(2, ge=1, le=len(NAMES))
    """Number of commanders."""
    opponent: str = "medium"
    """"simple", "medium", "medium2", "medium3" (mix two or three types, as SAMA's) or "strong"; with "_tower" at the
    end guard towers as well, with types after a colon those instead of drawn ones: "medium_tower:DRAGON"."""
    action_level: Literal["command", "red"] = "command"
    """Commands in words, or RED's actions."""
    numbers: Distinct[Annotated[int, Field(ge=1, le=MOST)]] = (1, 3, 5)
    """For "command": how many units one command may ask for."""
    max_buildings: int = Field(1, ge=1, le=LARGEST)
    """For "command": most buildings of a type that the side may ask for."""
    money: int = Field(500, ge=0, le=LARGEST)
    """Gold of each side at the start."""
    unit_cap: int = Field(50, ge=0, le=LARGEST)
    """Most units and buildings per side; 0 for no cap."""
    max_tick: int = Field(MAX_TICK, ge=2 * DECISION_TICKS, le=LARGEST)
    """When the game is a draw."""
    truncate_draws: bool = True
    """Whether learners count what would have come after `max_tick`; else 0."""
    decision_ticks: int = Field(DECISION_TICKS, ge=DECISION_TICKS, le=LARGEST)
    """Ticks from one decision of the commanders to the next, a multiple of 50. Officers and opponents act every 50
    ticks in any case. Other values than 50 with "command" only."""
    fair: bool = False
    """Whether resources lie at the same distances for both sides."""
    side: Literal[0, 1] = 0
    """Which of the map's two sides is played."""
    shaping: float = Field(0.0, ge=0, le=LARGEST)
    """Factor of the shaped reward."""
    told_to: Told[Literal["all", "one"], Name] | None = None
    """None: nobody is told what the enemy trains, as in the papers. "all", a list of commanders, or "one" (drawn for
    each game): who is told the army types that the opponent drew for this game, in `text` and `vector`; the others
    find them out when they meet them. Not with "strong", which has no types of its own; with "command" only."""
    producers: Name | None = None
    """None: buildings go round. The name of a commander: only this one puts up barracks, blacksmiths, stables and
    workshops, and all of them are its own; town halls alone go round. With "command" only."""
    executor: str = SCRIPTED
    """Who carries out commands: "scripted" officers; "trained:CHECKPOINT", a network that was trained to; or
    "switch:TOLD:UNTOLD", the first of two networks for commanders with a command in force, else the second. With
    "command" only."""
    observe: Distinct[Part] | None = None
    """Parts of the observation; None is text and vector with "command", planes and lists with "red"."""

    @field_validator("opponent")
    @classmethod
    def _known_opponent(cls, value: str) -> str:
        opponents.parse(value)
        return value

    @field_validator("executor")
    @classmethod
    def _known_executor(cls, value: str) -> str:
        check_executor(value)
        return value

    @field_validator("decision_ticks")
    @classmethod
    def _whole_decisions(cls, value: int) -> int:
        if value % DECISION_TICKS:
            raise PydanticCustomError("value_error", f"a multiple of {DECISION_TICKS}")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        names = NAMES[: self.num_agents]
        require_choice("producers", self.producers, (None, *names))
        require_agents(self.told_to, names)
        for name in () if self.action_level == "command" else _IN_WORDS:
            if (value := getattr(self, name)) != type(self).model_fields[name].default:
                raise UserError(
                    f"`{name}` is {value!r} but `action_level` is 'red', whose actions are orders already, every "
                    f"{DECISION_TICKS} ticks; use `action_level='command'`, or leave `{name}` away."
                )
        if self.action_level != "command" and "text" in self.parts:
            raise UserError(
                "`observe` has 'text' but `action_level` is 'red', whose actions have no phrases; leave 'text' out or "
                "use `action_level='command'`."
            )
        if self.told_to is not None:
            if opponents.parse(self.opponent).level == "strong":
                raise UserError(
                    "`told_to` is set but `opponent` is 'strong', which answers what it sees and has no army types to "
                    "tell; use another one, such as 'medium', or leave `told_to` away."
                )
            if not {"text", "vector"} & set(self.parts):
                raise UserError(
                    "`told_to` is set but `observe` has neither 'text' nor 'vector', which alone show what is told; "
                    "add one, or leave `told_to` away."
                )
        return self

    @property
    def parts(self) -> tuple[Part, ...]:
        """Parts of the observation, those by default included."""
        return self.observe or (("text", "vector") if self.action_level == "command" else ("planes", "lists"))

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values, with the parts of the observation."""
        return {**super().to_dict(), "observe": list(self.parts)}

    def rules(self) -> Settings:
        """The game's rules."""
        names: list[str | None] = [None, None]
        names[1 - self.side] = self.opponent
        return Settings(
            MapSettings(fair=self.fair),
            (names[0], names[1]),
            self.money,
            self.unit_cap,
            self.max_tick,
            frame_skip=DECISION_TICKS,
        )
