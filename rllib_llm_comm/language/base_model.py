"""Frozen causal language models, loaded once per process."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from rllib_llm_comm.errors import UserError, require_choice
from rllib_llm_comm.language.chat_template import CHAT, PLAIN, PROMPT_FORMATS, ChatFrame, chat_frame, padding_beside
from rllib_llm_comm.language.precision import DTYPE_NAMES, QUANTIZATIONS
from rllib_llm_comm.language.progress_bar import without_progress_bar
from rllib_llm_comm.language.prompts import Prompt
from rllib_llm_comm.language.smollm2 import SMOLLM2, SMOLLM2_LAYERS, check_smollm2, smollm2_folder
from rllib_llm_comm.places import local_path

EMBEDDED = "embedded"
EMBEDDED_MINIRTS = "embedded_minirts"
PACKAGED = (EMBEDDED, EMBEDDED_MINIRTS)
"""Tiny models that come with the package: one has read about kitchens, the other one about MiniRTS."""
KNOWN = (*PACKAGED, SMOLLM2)
"""Models that this package alone knows by name."""
_NAMES = ", ".join(map(repr, KNOWN))
DTYPES = {name: getattr(torch, name) for name in DTYPE_NAMES}

_LOADED: dict[tuple[str, str, str, str], BaseModel] = {}
# By the id of a model, which is held so that its id stays its own.
_FORMATS: dict[tuple[int, str], tuple[BaseModel, BaseModel]] = {}
_LOCK = threading.Lock()
_ANY_WORD = "a"


@dataclass(frozen=True, eq=False)
class BaseModel:
    """A frozen Hugging Face causal language model with its tokenizer.

    Attributes:
        name: The path, hub id or name, such as `"embedded"`, that it was loaded from.
        model: The `PreTrainedModel` in eval mode; no parameter requires a gradient.
        tokenizer: Its tokenizer.
        pad_id: Token id used as padding in our arrays; never part of a text.
        eos_id: Token id that ends a message.
        prompt_format: `"plain"`, or `"chat"`: prompts are put into the tokenizer's chat template.
    """

    name: str
    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    pad_id: int
    eos_id: int
    prompt_format: str = PLAIN

    def in_format(self, prompt_format: str) -> BaseModel:
        """The same model, weights shared, that reads prompts in another format.

        Args:
            prompt_format: A name of `PROMPT_FORMATS`.

        Raises:
            UserError: If there is no such format, or the tokenizer has no chat template.
        """
        require_choice("prompt_format", prompt_format, PROMPT_FORMATS)
        if prompt_format == self.prompt_format:
            return self
        with _LOCK:
            key = (id(self), prompt_format)
            if key not in _FORMATS:
                pad = self.pad_id
                if prompt_format == CHAT:
                    pad = padding_beside(self.tokenizer, self.chat_frame, self.name)
                _FORMATS[key] = (self, dataclasses.replace(self, prompt_format=prompt_format, pad_id=pad))
            return _FORMATS[key][1]

    @functools.cached_property
    def chat_frame(self) -> ChatFrame:
        """The tokenizer's chat template as token ids."""
        return chat_frame(self.tokenizer, self.name)

    @functools.cached_property
    def cache_argument(self) -> str:
        """Name of the key-value cache in the model's forward pass: older versions of transformers have another one."""
        return "cache" if "cache" in inspect.signature(type(self.model).forward).parameters else "past_key_values"

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""
        return int(self.model.config.hidden_size)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return int(self.model.get_output_embeddings().weight.shape[0])

    @property
    def is_quantized(self) -> bool:
        """True if the linear maps are held in 8 or 4 bits."""
        return bool(getattr(self.model, "is_quantized", False))

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        device: torch.device = self.model.get_input_embeddings().weight.device
        return device

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, with the tokenizer's own start token if it has one.

        Names of special tokens inside the text, such as "</s>" in a message, are read letter by letter: texts of
        models and people are data. Cached: the same sentences come back in every episode.
        """
        if isinstance(text, Prompt) and self.prompt_format == CHAT:
            return list(_encode_chat(self, text.body, text.cue))
        return list(_encode_cached(self, str(text)))

    def encode_with(self, prompt: str, continuation: str) -> list[int]:
        """The token ids of a prompt, a blank and what follows it.

        Args:
            prompt: The prompt.
            continuation: A candidate or a message.
        """
        if isinstance(prompt, Prompt) and self.prompt_format == CHAT:
            return list(_encode_chat(self, prompt.body, f"{prompt.cue} {continuation}"))
        return list(_encode_cached(self, f"{prompt} {continuation}"))

    @functools.cached_property
    def encodes_by_word(self) -> bool:
        """True if the tokenizer cuts a text at blanks first, so that no token depends on words before its own."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        cutter = getattr(backend, "pre_tokenizer", None)
        return cutter is not None and len(cutter.pre_tokenize_str("one two")) >= 2

    def encode_after_blank(self, text: str) -> list[int]:
        """The token ids that a text adds behind any text and a blank; for tokenizers that encode by word. Cached."""
        return list(_encode_cached(self, f"{_ANY_WORD} {text}"))[len(_encode_cached(self, _ANY_WORD)) :]

    def without_special_tokens(self, text: str) -> str:
        """A text in which names of special tokens are cut by a blank, to be put into a chat template."""
        for name in self._special_names:
            while name in text:
                text = text.replace(name, f"{name[0]} {name[1:]}")
        return text

    @functools.cached_property
    def _special_names(self) -> tuple[str, ...]:
        added = [str(token) for token in self.tokenizer.added_tokens_decoder.values() if token.special]
        return tuple(name for name in dict.fromkeys([*self.tokenizer.all_special_tokens, *added]) if len(name) > 1)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens and outer blanks."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True)).strip()


@functools.lru_cache(maxsize=65536)
def _encode_cached(base: BaseModel, text: str) -> tuple[int, ...]:
    return tuple(base.tokenizer(text, add_special_tokens=True, split_special_tokens=True)["input_ids"])


@functools.lru_cache(maxsize=65536)
def _encode_chat(base: BaseModel, body: str, answer: str) -> tuple[int, ...]:
    frame = base.chat_frame
    asked, begun = (
        base.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        for text in (body.strip(), answer.strip() if frame.after else answer)
    )
    return (*frame.before, *asked, *frame.after, *begun)


def embedded_model_path(name: str = EMBEDDED) -> Path:
    """The folder of a tiny language model that comes with the package.

    Args:
        name: One of `PACKAGED`.
    """
    return Path(str(resources.files(__package__).joinpath(name)))


def load_base_model(
    name: str = EMBEDDED, dtype: str = "float32", device: str = "cpu", quantization: str = "none"
) -> BaseModel:
    """Loads a causal language model, once per process.

    Args:
        name: `"embedded"` (has read about kitchens), `"embedded_minirts"` (about the strategy game), `"smollm2"` (see
            `rllib_llm_comm.language.smollm2.smollm2_folder`), a folder with a Hugging Face model (safetensors), or a
            hub id.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`, in which the frozen weights are held.
        device: A torch device such as `"cpu"` or `"cuda"`.
        quantization: `"none"`, or `"8bit"` (LLM.int8) or `"4bit"` (NF4): how the linear maps are held; needs
            bitsandbytes, which the extra `quantized` installs.

    Returns:
        The frozen model; the same object for the same arguments.

    Raises:
        UserError: If the model, the dtype or the device is not there.
    """
    require_choice("dtype", dtype, DTYPES)
    require_choice("quantization", quantization, QUANTIZATIONS)
    key = (str(name), dtype, str(torch_device(device)), quantization)
    with _LOCK:
        if key not in _LOADED:
            _LOADED[key] = _load(str(name), DTYPES[dtype], key[2], quantization)
        return _LOADED[key]


def wrap_base_model(name: str, model: Any, tokenizer: Any) -> BaseModel:
    """Freezes a model that is already in memory and puts it behind the `BaseModel` interface.

    Args:
        name: A name for messages and checkpoints.
        model: A `PreTrainedModel` with a language-model head.
        tokenizer: Its tokenizer.
    """
    model = model.eval().requires_grad_(False)
    eos_id = tokenizer.eos_token_id
    if eos_id is None:
        raise UserError(f"`base_model` {name!r} has a tokenizer without end token; set `eos_token` in its files.")
    pad_id = tokenizer.pad_token_id
    if pad_id is None:
        pad_id = tokenizer.unk_token_id if tokenizer.unk_token_id is not None else eos_id
    return BaseModel(name=name, model=model, tokenizer=tokenizer, pad_id=int(pad_id), eos_id=int(eos_id))


def _quantized(quantization: str, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Arguments of `from_pretrained` for a quantized model."""
    if quantization == "none":
        return {}
    check_quantization(quantization)
    from transformers import BitsAndBytesConfig

    config = (
        BitsAndBytesConfig(load_in_8bit=True)
        if quantization == "8bit"
        else BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    )
    return {"quantization_config": config, "device_map": {"": device}}


def check_quantization(quantization: str) -> None:
    """Finds out whether the library is there that a form of `quantization` needs.

    Raises:
        UserError: If it is missing, or there is no such form.
    """
    require_choice("quantization", quantization, QUANTIZATIONS)
    if quantization != "none" and importlib.util.find_spec("bitsandbytes") is None:
        raise UserError(
            f"`quantization` is {quantization!r}, for which bitsandbytes is missing; install it with "
            "`pip install 'rllib_llm_comm[quantized]'`, or set `quantization` to 'none'."
        )


def torch_device(device: str) -> torch.device:
    """A torch device by its name.

    Raises:
        UserError: If there is no such kind of device.
    """
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise UserError(f"`device` is {device!r} but must be a torch device such as 'cpu' or 'cuda:0'.") from error


def only_read(source: str | os.PathLike[str]) -> dict[str, bool]:
    """Arguments of `from_pretrained` with which no code of a model's own runs, and a folder has nothing fetched.

    Args:
        source: A folder or a hub id.
    """
    return {"trust_remote_code": False, "local_files_only": Path(source).is_dir()}


def check_base_model(name: str) -> None:
    """Finds out whether a model is there, without loading its weights.

    Args:
        name: As for `load_base_model`. Of a hub id the configuration is fetched, a file of a few hundred bytes.

    Raises:
        UserError: If it is not there, or a folder lacks its configuration, tokenizer or weights.
    """
    from transformers import AutoConfig

    if name in PACKAGED:
        return
    if name == SMOLLM2:
        check_smollm2()
        return
    folder = local_path(name, "base_model")
    if folder.is_dir():
        for what, forms in _MODEL_FILES.items():
            if not any(list(folder.glob(form)) for form in forms):
                raise UserError(
                    f"`base_model` {name!r} has no {what} ({' or '.join(forms)}); give a folder with a Hugging Face "
                    "causal language model in safetensors."
                )
    source = _source(name)
    try:
        AutoConfig.from_pretrained(source, **only_read(source))
    except (OSError, ValueError) as error:
        raise _not_loaded(name, error) from error


def layer_count(name: str) -> int:
    """Number of a model's layers, without loading its weights; arguments and errors as of `check_base_model`."""
    from transformers import AutoConfig

    if name == SMOLLM2:
        return SMOLLM2_LAYERS
    source = _source(name)
    try:
        config = AutoConfig.from_pretrained(source, **only_read(source))
    except (OSError, ValueError) as error:
        raise _not_loaded(name, error) from error
    return int(config.get_text_config(decoder=True).num_hidden_layers)


_MODEL_FILES = {
    "configuration": ("config.json",),
    "tokenizer": ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json"),
    "weights": ("*.safetensors",),
}


def _source(name: str) -> str:
    """Name or path for `from_pretrained`.

    Raises:
        UserError: If it is the path of a folder that is not there.
    """
    if name in PACKAGED:
        return str(embedded_model_path(name))
    if name == SMOLLM2:
        return str(smollm2_folder())
    folder = local_path(name, "base_model")
    if not folder.is_dir() and os.sep in name and (name.count("/") != 1 or name.startswith((".", "~", os.sep))):
        raise UserError(
            f"`base_model` is {name!r} but no such folder exists; give {_NAMES}, a folder with a Hugging Face causal "
            "language model, or a hub id such as 'org/name'."
        )
    return str(folder) if folder.is_dir() else name


def _not_loaded(name: str, error: Exception, device: str = "") -> UserError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    on = f" on `device` {device!r}" if device else ""
    return UserError(
        f"`base_model` {name!r} could not be loaded{on} ({reason}); give {_NAMES}, a folder with a Hugging Face causal "
        "language model in safetensors, or a hub id that can be reached from here."
    )


def _load(name: str, dtype: torch.dtype, device: str, quantization: str) -> BaseModel:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = _source(name)
    how = {**_quantized(quantization, dtype, device), **only_read(source)}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **only_read(source))
        with without_progress_bar():
            model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, use_safetensors=True, **how)
        if quantization == "none":
            model = model.to(device)
    except (OSError, ValueError, RuntimeError) as error:
        raise _not_loaded(name, error, device) from error
    return wrap_base_model(name, model, tokenizer)
