"""Signs the checkpoints and the state of a run as Tune writes them. Imports Ray: import it late."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.tune.callback import Callback

from rllib_llm_comm.policies.signatures import OwnStates, sign_checkpoint

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

    from rllib_llm_comm.experiments.stages import Stage


class SignCallback(Callback):
    """Signs the states and checkpoints that a later call goes on from (`checkpoints.signatures`).

    Args:
        stage: The stage.
    """

    def __init__(self, stage: Stage) -> None:
        self._algorithm = stage.experiment.run
        self._states = OwnStates(stage.folder)
        self._states.begin(stage.fingerprint)
        self._trials: list[Trial] = []

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Notes the trials, which know where Tune writes its state."""
        self._trials = trials

    def sign(self, folder: Path) -> None:
        """Signs a checkpoint before Tune counts it; no state of a run names one that is not signed.

        Args:
            folder: The checkpoint, sealed.

        Raises:
            OSError: If the disk fails.
        """
        if folder.is_dir():  # not where this process cannot see it, as in a cluster without a common disk
            sign_checkpoint(folder, self._algorithm)

    def get_state(self) -> None:
        """Signs the state: Tune asks for this when it has written its files and has not yet copied them to the results.

        So a kill at any moment leaves no whole state without a signature.
        """
        if self._trials:
            staging = Path(self._trials[0].storage.experiment_driver_staging_path)
            with contextlib.suppress(OSError):  # a full disk: this state is passed over then, the one before it stays
                self._states.sign(path for path in sorted(staging.glob("*")) if path.suffix in (".json", ".pkl"))
