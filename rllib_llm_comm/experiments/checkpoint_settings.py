"""`config:` of stages that play a checkpoint."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rllib_llm_comm.cli.evaluate import require_measured
from rllib_llm_comm.cli.loading import Loading
from rllib_llm_comm.cli.planner_options import planning_of_settings


class CheckpointStageSettings(BaseModel):
    """`config:` of `run: evaluate` and `run: replay`.

    Attributes:
        checkpoint: A checkpoint (usually `${stage}`), or several.
        episodes: How many episodes are played.
        seed: Seed of the first episode; the others count up.
        greedy: Whether the most likely action is taken instead of a sampled one.
        env_config: Settings of the environment that differ from training.
        messages: Another message mode than in training.
        teacher: Who speaks with `messages` "teacher", if not the recorded one: a name, or a mapping with `name`.
        message_server: Keys of `MessageServer`, if not the recorded ones; "none": the policy writes its messages.
        base_model: Where the base model lies, if not where it lay in training.
        planner: Who gives subgoals, if not as in training: see `make_planner`; "none": nobody.
        patience: Game steps after which a subgoal counts as not done.
        trials: Thinks failures over, with at most so many trials per round; `None`: does not.
        recover: How failed rounds are put back, "snapshot" (if `None`) or "replay"; only with `trials`.
        communication: Measures talk, too; of `run: evaluate` alone, and without `trials`.
        reference: Whose message adapter the drift of messages is measured from, if not the one that the checkpoint
            carries; with `communication`.
        counterfactuals: Shows what listeners would have weighed in silence; of `run: replay` alone.
        animation: Writes the first episode as an animated picture, too; of `run: replay` alone.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

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
    counterfactuals: bool = True
    animation: bool = False

    def played(self, trust: bool = False) -> dict[str, Any]:
        """What `rllib evaluate` and `rllib replay` need beside the checkpoint.

        What checkpoints recorded that were written here, this user's own file has said; others need `trust`.

        Args:
            trust: Whether the user trusts all checkpoints.
        """
        from rllib_llm_comm.planning.rounds import check_recovery

        check_recovery(self.recover, self.trials)
        given = ("episodes", "seed", "greedy", "env_config", "trials", "recover")
        planning = planning_of_settings(self.planner, self.patience)
        require_measured(self.reference, self.communication)
        loading = Loading(
            self.messages, self.teacher, self.message_server, self.base_model, trust, True, self.reference
        )
        return {**{name: getattr(self, name) for name in given}, "planning": planning, "loading": loading}
