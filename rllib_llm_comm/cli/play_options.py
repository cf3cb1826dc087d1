"""The options by which `rllib evaluate` and `rllib replay` load and play a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from rllib_llm_comm.cli.options import Imports, TrustRecorded, json_of, name_or_json, takes_settings
from rllib_llm_comm.policies.load_options import Loading

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.play_settings import PlaySettings


@dataclass(frozen=True)
class PlayOptions:
    """Options of play in the words of the command line; `None` stands for the value of the training.

    Attributes:
        greedy: True if the most likely action is taken.
        env_config: Settings of the environment that differ from training.
        messages: Message mode.
        teacher: The teacher's name or settings.
        message_server: Settings of the server of messages; "none": the policy itself.
        base_model: Path of the base model.
        trust: True if recorded settings that reach beyond this program are used.
        planner: A name or settings of `make_planner`; "none": nobody plans.
        trials: Most reflections per round.
        recover: Recovery of failed rounds, "snapshot" or "replay".
        patience: Game steps after which a subgoal counts as not done.
        modules: Modules that are imported first; they register a user's own games, planners or teachers.
    """

    greedy: bool = False
    env_config: Mapping[str, Any] | None = None
    messages: str | None = None
    teacher: str | Mapping[str, Any] | None = None
    message_server: str | Mapping[str, Any] | None = None
    base_model: str | None = None
    trust: bool = False
    planner: str | Mapping[str, Any] | None = None
    trials: int | None = None
    recover: str | None = None
    patience: int | None = None
    modules: Sequence[str] | None = None

    def settings(self, reference: str | None = None, num_envs: int = 1) -> PlaySettings:
        """The settings of play, after the import of `modules`.

        Args:
            reference: The checkpoint whose message adapter drift is measured from.
            num_envs: Episodes that are played at once.

        Raises:
            UserError: If a module cannot be imported, there is no such planner, or it is not allowed.
        """
        from rllib_llm_comm.evaluation.play_settings import PlaySettings
        from rllib_llm_comm.experiments.checkpoint_settings import planning_of
        from rllib_llm_comm.experiments.import_modules import import_modules

        import_modules(self.modules)
        loading = Loading(
            self.messages, self.teacher, self.message_server, self.base_model, self.trust, reference=reference
        )
        planning = planning_of(self.planner, self.patience)
        return PlaySettings(self.greedy, self.env_config or {}, loading, planning, self.trials, self.recover, num_envs)


def _server(text: str) -> str | dict[str, Any]:
    return text if text.strip() == "none" else json_of("--message-server")(text)


_OPTIONS: dict[str, Any] = {
    "greedy": Annotated[bool, Option("--greedy", help="Take the most likely action instead of sampling.")],
    "env_config": Annotated[str | None, Option(help="Environment settings that differ from training, as JSON.")],
    "messages": Annotated[
        str | None,
        Option(
            help="Another message mode: none, student, teacher, other_moments, other_fact, constant, menu or swapped."
        ),
    ],
    "teacher": Annotated[
        str | None,
        Option(
            metavar="NAME|JSON",
            help="Who speaks with --messages teacher: scripted, or a JSON object with name, ...",
        ),
    ],
    "message_server": Annotated[
        str | None,
        Option(
            "--message-server",
            metavar="JSON",
            help="Who writes messages: a JSON object with base_url, ..., or 'none'.",
        ),
    ],
    "base_model": Annotated[str | None, Option(help="Where the base model lies, if not where it lay in training.")],
    "trust": TrustRecorded,
    "planner": Annotated[
        str | None,
        Option(
            metavar="NAME|JSON",
            help="Who says what agents shall do: scripted, plan4mc, one of your own (--import), 'none', or a JSON "
            "object with name and settings.",
        ),
    ],
    "trials": Annotated[
        int | None, Option(min=0, help="Think failures over: put each failed round back at most so many times.")
    ],
    "recover": Annotated[
        str | None,
        Option(help="How a failed round is put back: snapshot (default) or replay; only with --trials."),
    ],
    "patience": Annotated[int | None, Option(min=1, help="Game steps after which a subgoal counts as not done.")],
    "modules": Imports,
}

_READ = {
    "env_config": json_of("--env-config"),
    "teacher": name_or_json("--teacher"),
    "message_server": _server,
    "planner": name_or_json("--planner"),
}

takes_play_options = takes_settings(PlayOptions, _OPTIONS, _READ)
