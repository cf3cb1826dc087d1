"""Settings of officers: demonstrations, network, cloning and the games that judge them; known without PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from rllib_llm_comm.core.errors import LARGEST, UserError, require_choice, require_number
from rllib_llm_comm.core.settings import FreshWeights, Seeded, Settings, Several

if TYPE_CHECKING:
    from rllib_llm_comm.envs.minirts.env import MiniRTS

_MOST_WIDTH = 4096
_MAX_TICK = 12_800  # `MAX_TICK` of the game


def _commanders() -> tuple[str, ...]:
    from rllib_llm_comm.envs.minirts.commanders import NAMES

    return tuple(NAMES)


def _units() -> tuple[str, ...]:
    """All fighters."""
    from rllib_llm_comm.envs.minirts.engine.units import ARMY
    from rllib_llm_comm.envs.minirts.words import SINGULAR

    return tuple(SINGULAR[kind] for kind in ARMY)


def commander_of(name: str) -> tuple[str, float]:
    """A commander's plain name, and the share of decisions at which it speaks.

    Args:
        name: Such as "oracle" or "random:0.5".

    Raises:
        UserError: If there is no such commander.
    """
    plain, colon, share = name.partition(":")
    require_choice("commanders", plain, _commanders())
    if not colon:
        return plain, 1.0
    try:
        number = float(share)
    except ValueError:
        number = float("nan")
    if plain != "random":
        raise UserError(f"`commanders` has {name!r}, but only 'random' has a probability, such as 'random:0.5'.")
    require_number(f"commanders.{name}", number, 0.0, 1.0)
    return plain, number


def _game(settings: _Side, **more: Any) -> MiniRTS:
    from rllib_llm_comm.envs.minirts.env import MiniRTS

    return MiniRTS(num_agents=settings.num_agents, opponent=settings.opponent, observe=["vector"], **more)


class OfficerSettings(FreshWeights):
    """Settings of an `OfficerNetwork`: its `model_config`."""

    filters: int = Field(32, ge=1, le=_MOST_WIDTH)
    """Filters of the three convolutions over the map. RED: 256; 32 (ours)."""
    stride: Literal[1, 2] = 2
    """Cells per step of the first convolution. RED: 1; 2 (ours), a quarter of the work."""
    width: int = Field(64, ge=1, le=_MOST_WIDTH)
    """Length of the vectors of units and of hidden layers. RED: 256 and 128; 64 (ours)."""
    words: int = Field(32, ge=1, le=_MOST_WIDTH)
    """Length of word vectors and of half of the sentence LSTM. RED: 64; 32 (ours)."""
    keys: int = Field(16, ge=1, le=_MOST_WIDTH)
    """Length of the vectors whose dot products choose targets and cells. RED: 128 to 256; 16 (ours)."""
    critic_observation: Literal["own", "team"] = "own"
    """Input of the critic. `"own"`: what the officer sees, in one pass of the map less per minibatch. `"team"` (RED,
    SAMA): the view that the officers of a side share, with the units of all as one's own; for one commander both are
    the same. Default here `"own"` (ours), as policy folders that do not say it were trained so; `REDConfig` says
    `"team"`."""

    def shape(self) -> OfficerSettings:
        """The settings without those that change no weight's shape: equal for networks that can take over weights."""
        return self.replace(critic_observation="own", init_seed=None)


class _Side(Seeded):
    """The side of the officers, and whom it plays."""

    opponent: str = "medium2"
    """The scripted opponent, as of `envs.minirts` (SAMA)."""
    num_agents: int = Field(2, ge=1, le=3)
    """Commanders of the side (SAMA)."""


class _Timed(_Side):
    max_tick: int = Field(_MAX_TICK, ge=100, le=LARGEST)
    """Length of a game (RED)."""


class OfficerDemonstrationSettings(_Timed):
    """Settings of demonstrations; people's games took their place in the paper, so all of it is ours."""

    games: int = Field(400, ge=1, le=10**6)
    """Number of games; the people's data of the paper: about 4,600."""
    commanders: dict[str, Annotated[float, Field(ge=0, le=1e6)]] = {"oracle": 0.4, "random": 0.4, "adversarial": 0.2}
    """Share of games of each scripted commander, by name; not all 0."""
    delay: float = Field(0.2, ge=0, le=0.99)
    """Chance that an officer orders nothing at a decision."""
    wrong: float = Field(0.15, ge=0, le=1)
    """Chance that what it orders has a wrong target."""
    rule: Literal["turns", "same", "majority"] = "turns"
    """Rule of the label: whose order counts where officers of a side differ (`CollectiveLabels`)."""

    @field_validator("commanders")
    @classmethod
    def _known_commanders(cls, commanders: dict[str, float]) -> dict[str, float]:
        for name in commanders:
            commander_of(name)
        if not sum(commanders.values()) > 0:
            raise UserError(f"`commanders` is {commanders!r} but at least one share must be above 0.")
        return commanders

    def env(self) -> MiniRTS:
        """The game that is played; refuses settings that it does not allow."""
        return _game(self, action_level="red", max_tick=self.max_tick)

    def identity(self) -> dict[str, Any]:
        """The settings that determine the games, but not their number; JSON-able."""
        return {name: value for name, value in self.to_dict().items() if name != "games"}


class HeldOut(Settings):
    """How what is cloned is judged."""

    held_out: float = Field(0.1, ge=0.01, le=0.5)
    """Share of the demonstrated games that is held out (ours)."""


class OfficerCloningSettings(HeldOut, Seeded):
    """Settings of the behaviour cloning before RL; those of the original code unless marked."""

    network: OfficerSettings = OfficerSettings()
    """The network."""
    lr: float = Field(2e-3, ge=1e-12, le=1)
    """Learning rate of Adamax."""
    epochs: int = Field(8, ge=1, le=10**4)
    """Most passes over the decisions (ours). The original: 50."""
    batch_size: int = Field(128, ge=1, le=10**6)
    """Decisions per gradient step."""
    idle: float = Field(0.3, ge=1e-3, le=1)
    """Share of the decisions at which nothing was ordered that is taken in a pass; each counts for as many as are left
    out (ours)."""
    start: str | None = None
    """Policy folder of an officer with the same network to go on from; None for fresh weights (ours)."""


class _OfficerGames(_Side):
    """Officers, and the games that they play."""

    executor: str = "scripted"
    """The officers: "scripted", "trained:CHECKPOINT" or "switch:TOLD:UNTOLD"."""
    games: int = Field(100, ge=1, le=LARGEST)
    """Games per commander, or per unit told and not told."""
    side_by_side: int = Field(16, ge=1, le=LARGEST)
    """Games that are played at once; more of them take less time each and change no result."""


class OfficerScoreSettings(_OfficerGames, _Timed):
    """Settings of the games."""

    commanders: Several[str] = Field(default_factory=_commanders)
    """Names of scripted commanders, such as oracle,none,random:0.5,adversarial; "random:0.5" says a random command with
    that probability at each decision, and else nothing."""

    @field_validator("commanders")
    @classmethod
    def _known_commanders(cls, names: Sequence[str]) -> Sequence[str]:
        for name in names:
            commander_of(name)
        return names

    def env(self) -> MiniRTS:
        """The game that is played; refuses settings that it does not allow."""
        return _game(self, executor=self.executor, max_tick=self.max_tick)


class OfficerTaskSettings(_OfficerGames):
    """Settings of the test.

    In each game all commanders say "mine" at first. The last one says "build one ..." for the building that makes the
    unit, until a commander has it. From then on the owner says "train 1 ..." once, or with the control nothing.
    """

    units: Several[str] = Field(default_factory=_units)
    """Units to make, such as spearman,archer; all fighters by default."""
    decisions: int = Field(30, ge=1, le=LARGEST)
    """Decisions within which the building must stand, and then the unit. RED: 30 for the unit."""

    @field_validator("units")
    @classmethod
    def _known_units(cls, units: Sequence[str]) -> Sequence[str]:
        for unit in units:
            require_choice("units", unit, _units())
        if len(set(units)) < len(units):
            raise UserError(f"`units` is {', '.join(units)} but must name each unit once.")
        return units

    def env(self) -> MiniRTS:
        """The game that is played; refuses settings that it does not allow."""
        return _game(self, executor=self.executor)
