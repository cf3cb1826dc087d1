"""`config:` of stages that play a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.validation import StrictSettings
from rllib_llm_comm.policies.load_options import Loading

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.play_settings import PlaySettings

NOBODY = "none"


class CheckpointStageSettings(StrictSettings):
    """`config:` of `run: evaluate` and `run: replay`.

    Attributes:
        checkpoint: A checkpoint (usually `${stage}`), or several.
        episodes: Number of episodes.
        seed: Seed of the first episode; the others count up.
        greedy: True if the most likely action is taken instead of a sampled one.
        env_config: Settings of the environment that differ from training.
        messages: Another message mode than in training.
        teacher: The teacher of `messages` "teacher", if not the recorded one: a name, or a mapping with `name`.
        message_server: Keys of `MessageServer`, if not the recorded ones; "none": the policy writes its messages.
        base_model: Path of the base model, if it differs from training.
        planner: The planner, if not that of the training: a name or settings of `make_planner`; "none": nobody plans.
        patience: Game steps after which a subgoal counts as not done.
        trials: Thinks failures over, with at most so many trials per round; `None`: does not.
        recover: Recovery of failed rounds, "snapshot" (if `None`) or "replay"; only with `trials`.
        communication: Measures talk, too; of `run: evaluate` alone, and without `trials`.
        reference: The checkpoint whose message adapter the drift of messages is measured from, if not the one that is
            carried; with `communication`.
        curve: Plays all checkpoints that the run of `checkpoint` kept, from the earliest to the last: a learning curve
            under the planner (SAMA's Figure 5); of `run: evaluate` alone.
        counterfactuals: Shows what listeners would have weighed in silence; of `run: replay` alone.
        animation: Writes the first episode as an animated picture, too; of `run: replay` alone.
    """

    checkpoint: str | list[str] = Field(examples=["checkpoint: ${verco}"])
    episodes: int = Field(1, ge=1, le=1_000_000)
    seed: int = Field(0, ge=0, le=2**31 - 1)
    greedy: bool = False
    env_config: dict[str, Any] = Field(default_factory=dict)
    messages: str | None = None
    teacher: str | dict[str, Any] | None = None
    message_server: str | dict[str, Any] | None = None
    base_model: str | None = None
    planner: str | dict[str, Any] | None = None
    patience: int | None = Field(None, ge=1)
    trials: int | None = Field(None, ge=0)
    recover: str | None = None
    communication: bool = False
    reference: str | None = None
    curve: bool = False
    counterfactuals: bool = True
    animation: bool = False

    def play_settings(self, trust: bool = False) -> PlaySettings:
        """The settings of play, checked. Recorded settings of checkpoints that were written here need no `trust`.

        Args:
            trust: True if the user trusts all checkpoints.

        Raises:
            UserError: If a setting is not allowed, or settings exclude each other.
        """
        from rllib_llm_comm.evaluation.evaluate_checkpoint import require_measured
        from rllib_llm_comm.evaluation.play_settings import PlaySettings
        from rllib_llm_comm.sama.reflection import check_recovery

        check_recovery(self.recover, self.trials)
        planning = planning_of(self.planner, self.patience)
        require_measured(self.reference, self.communication)
        loading = Loading(
            self.messages, self.teacher, self.message_server, self.base_model, trust, True, self.reference
        )
        loading.check()
        return PlaySettings(self.greedy, self.env_config, loading, planning, self.trials, self.recover)


def planning_of(planner: str | Mapping[str, Any] | None, patience: int | None = None) -> dict[str, Any] | None:
    """Arguments of `PlannedSubgoals` that differ from training; `None` if none do.

    Args:
        planner: A name or settings of `make_planner`; "none": nobody plans; `None`: as in training.
        patience: Game steps after which a subgoal counts as not done.

    Raises:
        UserError: If there is no such planner or it is not allowed.
    """
    from rllib_llm_comm.sama.planners import PLANNERS, make_planner

    given: dict[str, Any] = {} if patience is None else {"patience": patience}
    if planner == NOBODY:
        return {**given, "planner": None}
    if planner is not None:
        try:
            make_planner(planner)
        except UserError as error:
            if isinstance(planner, str) and planner not in PLANNERS:
                raise UserError(f"{str(error).rstrip('.')}, or 'none'.") from None
            raise
        given["planner"] = planner
    return given or None
