"""Settings with which trained policies play: of evaluations, replays, games with people, and cross-play.

Options of the commands, `config:` of the stages and arguments in Python are made of these fields.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import InGames, Several, SideBySide
from rllib_llm_comm.policies.load_policy import Loading, LongestPrompt, Trust

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.rollout import Episode
    from rllib_llm_comm.policies.policy import TrainedPolicy

NOBODY = "none"


class Episodes(InGames):
    """How many games are played."""

    episodes: int = Field(10, ge=1, le=1_000_000)
    """Episodes to play of each that is compared: a policy, a planner in each scenario, a pair in each of its seats."""


class CommonPlaySettings(InGames):
    """How policies play."""

    greedy: bool = False
    """Take the most likely action instead of sampling."""


class ComparedPlay(CommonPlaySettings, Episodes, Trust):
    """How players are compared."""


class PlaySettings(CommonPlaySettings, Loading):
    """How a trained policy plays; what is not given is as in its training."""

    planner: str | dict[str, Any] | None = None
    """Who says what agents shall do: scripted, plan4mc, trained:CHECKPOINT, one of your own (`--import`), "none":
    nobody, or a mapping with `name` and settings."""
    patience: int | None = Field(None, ge=1)
    """Game steps after which a subgoal counts as not done."""
    trials: int | None = Field(None, ge=0)
    """Think failures over: put each failed round back at most so many times."""
    recover: Literal["snapshot", "replay"] | None = None
    """How a failed round is put back, snapshot by default; only with `trials`."""

    @classmethod
    def like(cls, other: PlaySettings | None, **given: Any) -> Self:
        """The settings that another command or stage shares with this one, and others, by name, above them."""
        shared = () if other is None else other.model_fields_set.intersection(cls.model_fields)
        return cls(**{**{name: getattr(other, name) for name in shared}, **given})

    def planning(self) -> dict[str, Any] | None:
        """Arguments of `PlannedSubgoals` that differ from training; `None` if none do."""
        from rllib_llm_comm.sama.planners import trusting

        given: dict[str, Any] = {} if self.patience is None else {"patience": self.patience}
        if self.planner is not None:
            wanted = None if self.planner == NOBODY else self.planner
            given["planner"] = trusting(wanted) if self.trust else wanted
        return given or None

    def check(self) -> None:
        """Refuses settings that exclude each other, fit no checkpoint, or name no planner; nothing is loaded.

        Raises:
            UserError: At the first.
        """
        from rllib_llm_comm.sama.planners import PLANNERS, make_planner
        from rllib_llm_comm.sama.reflection import check_recovery

        check_recovery(self.recover, self.trials)
        super().check()
        if self.planner in (None, NOBODY):
            return
        try:
            make_planner(self.planner)
        except UserError as error:
            if isinstance(self.planner, str) and self.planner not in PLANNERS:
                raise UserError(f"{str(error).rstrip('.')}, or {NOBODY!r}.", error.code) from None
            raise

    def stand_ins(self, policy: TrainedPolicy) -> list[str]:
        """What stands in, in a policy's training and under these settings (`evaluation.stand_ins`)."""
        from rllib_llm_comm.evaluation.stand_ins import stand_ins

        manifest = policy.manifest
        return stand_ins(replace(manifest, planning={**(manifest.planning or {}), **(self.planning() or {})}))

    def play(self, policy: TrainedPolicy, *, episodes: int, seed: int, **options: Any) -> list[Episode]:
        """Episodes of a policy under these settings, with further arguments of `play_planned`.

        Raises:
            UserError: If the policy cannot be played under these settings.
        """
        from rllib_llm_comm.evaluation.planned_play import play_planned

        return play_planned(
            policy,
            planning=self.planning(),
            trials=self.trials,
            recover=self.recover,
            episodes=episodes,
            seed=seed,
            explore=not self.greedy,
            env_config=self.env_config,
            **options,
        )


class EvaluationSettings(PlaySettings, SideBySide):
    """What `rllib evaluate` and `run: evaluate` play and measure."""

    episodes: int = Field(50, ge=1, le=1_000_000)
    """Episodes to play."""
    communication: bool = False
    """Measure what messages tell and whether they are listened to; not with `trials`."""
    reference: str | None = None
    """With `communication`: the checkpoint whose message adapter the drift of messages is measured from, if the
    checkpoint carries none."""
    curve: bool = False
    """Play all checkpoints that the run of `checkpoint` kept, from the earliest to the last: a learning curve under the
    planner (SAMA's Figure 5)."""

    @model_validator(mode="after")
    def _measured(self) -> Self:
        if self.communication and self.trials is not None:
            raise UserError("`communication` is measured without reflection; omit `trials`.")
        if self.reference is not None and not self.communication:
            raise UserError(
                f"`reference` is {self.reference!r} but talk is not measured; set `communication`, too, or omit it."
            )
        return self

    def load(
        self, path: str | Path, reference: str | None = None, max_prompt_tokens: int | None = None
    ) -> TrainedPolicy:
        """The policy, with what its messages are compared with."""
        return super().load(path, self.reference, max_prompt_tokens)


class ReplaySettings(PlaySettings):
    """What `rllib replay` and `run: replay` record."""

    episodes: int = Field(1, ge=1, le=1_000_000)
    """Episodes to record."""
    counterfactuals: bool = True
    """Score decisions with something heard once more, as if nothing had been heard."""


class HostSettings(PlaySettings):
    """What `rllib play` offers to browsers."""

    partners: Several[str] = ()
    """Play in place of the checkpoint: scripted, random, stay, a checkpoint or module:function. Without AGENT= they
    take the last seats."""
    watch: bool = False
    """Begin at once; without it the game waits for a person."""
    why: bool = True
    """Whether people may ask why agents did what they did."""
    spectators: bool = True
    """Whether browsers without a seat are shown the game, with what every seat alone is told."""
    host: str = "127.0.0.1"
    """Address to listen on; others than 127.0.0.1 open the page to a network."""
    port: int = Field(0, ge=0, le=65535)
    """Port; 0 takes a free one."""
    record: Path | None = None
    """Record the session: what is seen, said and done, in a new folder."""
    consent: Path | None = None
    """A text to which people have to agree before they sit down."""
    browser: bool = True
    """Open the page in a browser."""

    @model_validator(mode="after")
    def _somebody_sees_it(self) -> Self:
        if self.watch and not self.spectators:
            raise UserError("`--watch` and `--no-spectators` are given, so nobody would see the game; omit one.")
        return self


class CrossPlaySettings(ComparedPlay, SideBySide, LongestPrompt):
    """Settings of cross-play; every pair plays episodes with the same seeds.

    FCP: 10 episodes per pair and seat; Carroll et al.: 40 (inferred). Both: sampled actions.
    """

    env: str | None = None
    """Environment, if it is not that of the checkpoints."""
    metric: str = "return"
    """The score: return (the team's, averaged over agents), or a metric of the game, such as score."""
    planning: dict[str, Any] | None = None
    """Arguments of `PlannedSubgoals`, such as `planner`, under which the game is played. It tells subgoals to all
    seats; who reads none ignores them. By default as the first checkpoint was trained."""
    arrays: bool = True
    """True if games whose players allow it are played in arrays, where the game knows how (`GameRecord`). The scores
    are the same, in a fraction of the time."""
    trust_own: bool = Field(False, exclude=True)
    """As of `Loading`."""
