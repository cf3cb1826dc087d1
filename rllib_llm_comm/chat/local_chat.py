"""A chat model in this process: any Hugging Face causal language model with a chat template."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from rllib_llm_comm.chat.answers import form_in
from rllib_llm_comm.chat.chat_model import ChatAnswer, ChatCounters, ChatError, ChatModel
from rllib_llm_comm.chat.client import AnswerCache, request_key
from rllib_llm_comm.chat.settings import REGISTERED, LocalChatSettings
from rllib_llm_comm.core.errors import UserError

_RULES = "rules"  # a stand-in that is in clones of the repository alone


class LocalChat(ChatModel):
    """Asks a model that is loaded into this process when it is first needed: no network, no key, no price.

    What a prompt shares with the one before (a manual, say) is read once. The same question gets the same answer.

    Attributes:
        model: Name of the model.
        counters: Counts so far.
    """

    def __init__(self, local: str, **settings: Any) -> None:
        """Keeps the settings; nothing is loaded yet.

        Args:
            local: As of `LocalChatSettings`.
            **settings: The other fields of `LocalChatSettings`.

        Raises:
            UserError: If a setting is not allowed.
        """
        given = LocalChatSettings(local=local, **settings)
        self.model: str = local
        self.max_tokens: int = given.max_tokens
        self.temperature, self.seed = given.temperature, given.seed
        self.dtype, self.device, self.forms = given.dtype, given.device, given.forms
        self.counters = ChatCounters()
        self._cache = AnswerCache(given.cache_dir)
        self._begin()

    def _begin(self) -> None:
        """Makes the parts that a copy in another process needs anew."""
        self._lock = threading.RLock()
        self._loaded: Any = None
        self._kept: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_loaded", "_kept")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __repr__(self) -> str:
        return f"LocalChat({self.model!r})"

    def complete(self, prompt: str, system: str = "") -> str:
        """The model's answer; calls from several threads take turns.

        Args:
            system: System prompt; without it, what its chat template says by itself.

        Raises:
            UserError: If the model cannot be loaded or is no chat model.
            ChatError: If the prompt is too long for it.
        """
        with self._lock:
            known = self.recall(prompt, system)
            if known is not None:
                return known
            answer = self._write(prompt, system)
            self._cache.put(self._key(prompt, system), answer)
            return answer

    def recall(self, prompt: str, system: str = "") -> str | None:
        """Cached answer to a prompt, or `None`."""
        answer = self._cache.get(self._key(prompt, system))
        if answer is not None:
            self.counters.count(cached=1)
        return answer

    def remember(self, prompt: str, answer: str, system: str = "") -> None:
        """Keeps an answer in the cache."""
        self._cache.put(self._key(prompt, system), answer)

    def _key(self, prompt: str, system: str) -> str:
        settings = {
            name: value for name, value in vars(self).items() if not name.startswith("_") and name != "counters"
        }
        return request_key({**settings, "prompt": prompt, "system": system})

    def _write(self, prompt: str, system: str) -> str:
        from rllib_llm_comm.chat.decoding import Decoding, fill_form
        from rllib_llm_comm.language.generation import row_generator

        begun, base = time.perf_counter(), self._base()
        messages = [{"role": "system", "content": system}] if system else []
        schema, asked = form_in(prompt) if self.forms else (None, prompt)
        messages.append({"role": "user", "content": base.without_special_tokens(asked)})
        shown = base.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        ids = base.tokenizer(shown, add_special_tokens=False)["input_ids"]
        room = getattr(base.config, "max_position_embeddings", None)
        # A form's own braces and names need room, too: at most about as much as what is written into it.
        if room is not None and len(ids) + 2 * self.max_tokens > room:
            raise ChatError(f"The prompt has {len(ids)} tokens, but {self.model!r} takes {room} with its answer.")
        draws = row_generator(self.seed, (shown, 0)) if self.temperature else None
        decoding = Decoding(base, ids, self._kept, self.max_tokens, self.temperature, draws)
        answer = decoding.text() if schema is None else fill_form(decoding, schema)
        cut = not decoding.ended if schema is None else not decoding.open
        seconds = time.perf_counter() - begun
        used = {"input_tokens": len(ids), "output_tokens": decoding.written, "seconds": seconds}
        self.counters.count(requests=1, **used, truncated=int(cut))
        return ChatAnswer(answer, self.max_tokens if cut else 0)

    def _base(self) -> Any:
        if self._loaded is None:
            from rllib_llm_comm.chat.decoding import KeptPrefix
            from rllib_llm_comm.language.base_model import PACKAGED, load_base_model, resolve_device

            base = load_base_model(self.model, self.dtype, resolve_device(self.device))
            # The embedded models' template only joins what is said: they continue texts and answer no questions.
            if self.model in PACKAGED or not base.tokenizer.chat_template:
                why = "it answers no questions" if self.model in PACKAGED else "its tokenizer has no chat template"
                raise UserError(
                    f"`local` is {self.model!r}, which is no chat model ({why}); give 'smollm2', or the folder or hub "
                    "id of an instruction-tuned model."
                )
            self._loaded, self._kept = base, KeptPrefix()
        return self._loaded


def register_local_chat(name: str, maker: Callable[..., ChatModel]) -> None:
    """Makes a chat model of one's own known by name, as `local` in the settings of `open_chat`.

    Args:
        maker: Called with the settings beside `local`: those of its `settings_model`, or else its arguments
            (`core.settings.settings_of`).
    """
    REGISTERED[name] = maker


def make_local_chat(local: str, **settings: Any) -> ChatModel:
    """A chat model in this process: a registered one, or a `LocalChat`.

    Args:
        local: See `rllib_llm_comm.chat.local_chat.LocalChat` and `rllib_llm_comm.chat.local_chat.register_local_chat`.
        **settings: The other arguments.

    Raises:
        UserError: If a setting is not allowed, or what was registered makes no `ChatModel`.
    """
    maker = REGISTERED.get(local)
    if maker is None and local == _RULES:
        raise UserError(
            f"`local` is {local!r}, which is no language model and not in the package: in a clone of the repository "
            "`import tools.rules_chat` makes it known; elsewhere take the planner 'scripted', or a `cassette`."
        )
    if maker is None:
        return LocalChat(local, **settings)
    made = maker(**settings)
    if not isinstance(made, ChatModel):
        raise UserError(
            f"`local` is {local!r}, for which {type(made).__name__} was registered; make it a subclass of `ChatModel`."
        )
    return made
