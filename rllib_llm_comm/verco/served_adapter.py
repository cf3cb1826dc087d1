"""The message adapter of a run at a server that loads adapters while it runs, as vLLM does."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence

from rllib_llm_comm.chat.message_server import MessageServer
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import disk_error
from rllib_llm_comm.language.adapters import MESSAGE, AdaptedModel

_DIGITS = 16


class ServedAdapter:
    """Keeps a server's adapter the same as the run's: it is written and loaded again whenever its weights change.

    Args:
        server: The server; it has an `adapter_folder`.
    """

    def __init__(self, server: MessageServer) -> None:
        self._server = server
        self._stamp: Hashable = None
        self._digest = ""

    def serve(self, models: Sequence[AdaptedModel]) -> str:
        """Has the server load the message adapter, unless it has it.

        Args:
            models: The speakers' models.

        Returns:
            Digest of its weights.

        Raises:
            UserError: If the speakers have different models, the folder cannot be written, or the server refuses.
        """
        if len({id(model) for model in models}) != 1:
            raise UserError(
                "`message_server.adapter_folder` is set but the agents have adapters of their own; let them share one "
                "policy, or start the server with the adapter and leave `adapter_folder` out."
            )
        stamp = models[0].stamp(MESSAGE)
        if stamp != self._stamp:
            self._digest = self._load(models[0])
            self._stamp = stamp
        return self._digest

    def _load(self, model: AdaptedModel) -> str:
        folder = self._server.adapter_folder
        assert folder is not None
        digest = _digest(model)
        place = folder / f"message-{digest}"
        if not place.is_dir():
            try:
                model.save_adapter(MESSAGE, place)
            except OSError as error:
                doing = f"the message adapter could not be written to `message_server.adapter_folder` {str(folder)!r}"
                raise disk_error(error, doing) from error
        self._server.use_adapter(digest, place)
        return digest


def _digest(model: AdaptedModel) -> str:
    """Short digest of the weights of the message adapter."""
    whole = hashlib.sha256()
    for name, weights in model.named_adapter_parameters(MESSAGE):
        whole.update(name.encode())
        whole.update(weights.detach().float().cpu().contiguous().numpy().tobytes())
    return whole.hexdigest()[:_DIGITS]
