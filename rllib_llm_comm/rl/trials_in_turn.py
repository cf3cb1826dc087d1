"""Tune's trials one after the other in one process, so that Ray, PyTorch and the base model are loaded once."""

from __future__ import annotations

import gc
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.utils.annotations import override
from ray.tune.result import TRIAL_INFO
from ray.tune.trainable import Trainable


class TrialsInTurn(Algorithm):
    """Takes the next trial of a Tune run with `reuse_actors`: everything is built anew, in the same process.

    What a process keeps between two trials are caches that change no result: the frozen base model, tokens of known
    texts, compiled games. RLlib seeds a process's draws whenever an algorithm with a `seed` is built.
    """

    @override(Trainable)
    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Stops the last trial and builds the next one.

        Args:
            new_config: Settings of the next trial.

        Returns:
            False if Tune keeps a process's output in a file per trial, which needs a process per trial; else true.
        """
        if self._stdout_file or self._stderr_file:
            return False
        self.cleanup()
        storage, trial = self._storage, self._trial_info
        # All that `stop` asks for, should the next trial not come to be.
        needed = {name: value for name, value in vars(self).items() if name.startswith(("_std", "_monitor"))}
        self.__dict__.clear()
        self.__dict__.update(needed)
        gc.collect()  # what was trained is a ring of references; it goes before the next one comes
        self.__init__({**new_config, TRIAL_INFO: trial}, storage=storage)  # type: ignore[misc]
        return True
