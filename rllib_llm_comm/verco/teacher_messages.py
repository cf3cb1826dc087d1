"""Callback that lets a teacher speak in RLlib's environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.rl.chat_cost import ChatCost
from rllib_llm_comm.rl.rllib_adapter import wrap_games
from rllib_llm_comm.verco.teachers.taught_env import TeacherMessages


class AddTeacherMessages(RLlibCallback):
    """Wraps the games of every EnvRunner so that observations carry `teacher_message`.

    `Verco` adds it when `messages` is "teacher" and reads the teacher from the config's `teacher`. In a
    config of your own use `AddTeacherMessages.of("scripted")`.
    """

    teacher: str | Mapping[str, Any] | None = None

    @classmethod
    def of(cls, teacher: str | Mapping[str, Any]) -> type[AddTeacherMessages]:
        """The callback class for a given teacher."""
        return type("AddTeacherMessages", (cls,), {"teacher": teacher})

    @classmethod
    def policy_record(cls) -> dict[str, Any]:
        """What a policy folder tells of the teacher."""
        return {"teacher": cls.teacher}

    def on_environment_created(self, *, env_runner: Any, env: Any, **kwargs: Any) -> None:
        """Puts the wrapper between adapter and game, in each sub-environment.

        Raises:
            UserError: If the environment is no PettingZoo environment behind our adapter.
        """
        teacher = self.teacher or getattr(env_runner.config, "teacher", None)
        if not teacher:
            raise UserError("`messages` is 'teacher' but `teacher` is not set; set it, for example to 'scripted'.")
        seed = (env_runner.config.seed or 0) + 1000 * (env_runner.worker_index or 0)
        taught: list[TeacherMessages] = []

        def wrapped(game: Any, number: int) -> TeacherMessages:
            taught.append(TeacherMessages(game, teacher, seed=seed + number))
            return taught[-1]

        wrap_games(env, wrapped, "A teacher needs")
        self._cost = ChatCost(getattr(game.teacher, "client", None) for game in taught)

    def on_sample_end(self, *, env_runner: Any, metrics_logger: Any, samples: Any, **kwargs: Any) -> None:
        """Logs what the questions of a teacher have cost."""
        self._cost.log(metrics_logger)
