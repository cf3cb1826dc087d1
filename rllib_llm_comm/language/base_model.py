"""Frozen causal language models, loaded once per process."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import importlib.util
import inspect
import itertools
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from rllib_llm_comm.core.errors import UserError, did_you_mean, require_choice
from rllib_llm_comm.core.files import digest_of
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.weights import require_finite, require_formats
from rllib_llm_comm.language.chat_template import CHAT, PLAIN, PROMPT_DATE, PROMPT_FORMATS, ChatFrame, chat_frame
from rllib_llm_comm.language.model_sources import (
    AUTO,
    DTYPE_NAMES,
    QUANTIZATIONS,
    SMOLLM2,
    SMOLLM2_LAYERS,
    check_smollm2,
    find_on_hub,
    smollm2_folder,
    without_progress_bar,
)
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.language.prompts import Prompt

EMBEDDED = "embedded"
EMBEDDED_MINIRTS = "embedded_minirts"
EMBEDDED_SOUP = "embedded_soup"
PACKAGED = {
    EMBEDDED: "0.5 M parameters, has read what the scripted cook does and says in made-up kitchens",
    EMBEDDED_MINIRTS: "0.5 M parameters, has read what scripted commanders do and say in the strategy game's own maps",
    EMBEDDED_SOUP: "0.5 M parameters, has read what planners by rules do in made-up onion-soup kitchens",
}
"""Tiny models that come with the package, in place of a large one, and what they have read."""
KNOWN = (*PACKAGED, SMOLLM2)
"""Models that this package alone knows by name."""
_NAMES = ", ".join(map(repr, KNOWN))
DTYPES = {name: getattr(torch, name) for name in DTYPE_NAMES if name != AUTO}

_LOADED: dict[tuple[str, str, str, str], BaseModel] = {}
# By the id of a model, which is held so that its id stays its own.
_FORMATS: dict[tuple[int, str, str], tuple[BaseModel, BaseModel]] = {}
_LOCK = threading.Lock()
_ANY_WORD = "a"
_ALL_KINDS = (
    'One two, 3 four-5. Six:\n\nseven (8) "nine"; don\'t \u00e9t\u00e9 <b> 1,200  x\ty\n- z. '
    # Some normalizers put blanks around these, or leave them out.
    "x - y , z . \u65e5\u672c \u8a9e\u200b \u200b \u00ad \u200d x "
)
# Blanks come first, as these are searched for quickly.
_BETWEEN_WORDS = re.compile(r" (?=\S)(?<=\S )")
_BETWEEN_SENTENCES = re.compile(r" (?=\S)(?<=[.:] )")


@dataclass(frozen=True, eq=False)
class BaseModel:
    """A frozen Hugging Face causal language model with its tokenizer.

    Attributes:
        name: The path, hub id or name, such as `"embedded"`, that it was loaded from.
        model: The `PreTrainedModel` in eval mode; no parameter requires a gradient.
        tokenizer: Its tokenizer.
        eos_id: Token id that ends a message.
        pad_id: Fills up our arrays; no token has it.
        prompt_format: `"plain"`, or `"chat"`: prompts are put into the tokenizer's chat template.
        prompt_date: The day that a chat template with a date shows, as YYYY-MM-DD.
        files: The files that hold the weights, as they were distributed; none of a model that was built in memory.
    """

    name: str
    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    eos_id: int
    pad_id: ClassVar[int] = PAD
    prompt_format: str = PLAIN
    prompt_date: str = PROMPT_DATE
    files: tuple[Path, ...] = ()

    @property
    def sha256(self) -> str:
        """The digest of the weights' file, whatever they are held in here; of several files that of their list, as
        `sha256sum *.safetensors | sha256sum` tells it; empty of a model that was built in memory.
        """
        return _sha256(self.files) if self.files else ""

    def in_format(self, prompt_format: str, prompt_date: str = PROMPT_DATE) -> BaseModel:
        """The same model, weights shared, that reads prompts in another format.

        Args:
            prompt_format: A name of `PROMPT_FORMATS`.
            prompt_date: The day that a chat template with a date shows, as YYYY-MM-DD.

        Raises:
            UserError: If there is no such format, or the tokenizer has no chat template.
        """
        require_choice("prompt_format", prompt_format, PROMPT_FORMATS)
        if (prompt_format, prompt_date) == (self.prompt_format, self.prompt_date):
            return self
        with _LOCK:
            key = (id(self), prompt_format, prompt_date)
            if key not in _FORMATS:
                other = dataclasses.replace(self, prompt_format=prompt_format, prompt_date=prompt_date)
                if prompt_format == CHAT:
                    rows = int(self.model.get_input_embeddings().weight.shape[0])
                    _require_ids(self.name, (*other.chat_frame.before, *other.chat_frame.after), rows)
                _FORMATS[key] = (self, other)
            return _FORMATS[key][1]

    @functools.cached_property
    def chat_frame(self) -> ChatFrame:
        """The tokenizer's chat template as token ids."""
        return chat_frame(self.tokenizer, self.name, self.prompt_date)

    @functools.cached_property
    def head(self) -> Head:
        """The map from last hidden states (..., hidden_size) to logits, as the model's own forward pass has it."""
        return output_head(self.name, self.model)

    @property
    def decoder(self) -> Any:
        """The part of the model between token ids and last hidden states."""
        return self.model.get_decoder()

    @functools.cached_property
    def config(self) -> Any:
        """The decoder's configuration: in models with images, too, that of their text part."""
        return self.model.config.get_text_config(decoder=True)

    @functools.cached_property
    def cache_argument(self) -> str:
        """Name of the key-value cache in the model's forward pass: older versions of transformers have another one."""
        return "cache" if "cache" in inspect.signature(type(self.model).forward).parameters else "past_key_values"

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""
        return int(self.config.hidden_size)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return int(self.model.get_output_embeddings().weight.shape[0])

    def require_positions(self, tokens: int) -> None:
        """Raises a `UserError` if a text is longer than the model's positions go, or than they stay what they are."""
        require_positions(self.name, self.config, tokens)

    @property
    def kv_heads(self) -> tuple[int, int]:
        """Heads of keys and values in a layer, and the size of one."""
        queries, keys = (getattr(self.config, f"num_{name}_heads", None) for name in ("attention", "key_value"))
        size = getattr(self.config, "head_dim", None) or self.hidden_size // (queries or 1)
        return keys if isinstance(keys, int) else queries or 1, int(size)

    @property
    def kept_bytes_per_token(self) -> int:
        """Bytes of a token's keys and values in all layers."""
        heads, size = self.kv_heads
        return int(2 * self.config.num_hidden_layers * heads * size * self.model.dtype.itemsize)

    def require_room(self, tokens: int, free: int) -> None:
        """Refuses a device that does not hold the keys and values of a single text.

        Args:
            tokens: Most tokens of a text.
            free: Bytes that are free on the device.

        Raises:
            UserError: If it is too small.
        """
        wanted = self.kept_bytes_per_token * tokens
        if wanted > free:
            raise UserError(
                f"`device` {str(self.device)!r} has {free / 2**20:.0f} MiB left beside `base_model` {self.name!r}, but "
                f"keys and values of one text of {tokens} tokens (`max_prompt_tokens` and `max_candidate_tokens`) take "
                f"{wanted / 2**20:.0f} MiB; lower them, set `quantization` to '4bit', or take a smaller model or "
                "a larger GPU."
            )

    @property
    def is_quantized(self) -> bool:
        """True if the linear maps are held in 8 or 4 bits."""
        return bool(getattr(self.model, "is_quantized", False))

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        device: torch.device = self.model.get_input_embeddings().weight.device
        return device

    @functools.cached_property
    def start_ids(self) -> tuple[int, ...]:
        """What the tokenizer puts in front of a text."""
        return start_ids(self.tokenizer, self.name)

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, with the tokenizer's own start token if it has one, and without an end token.

        Names of special tokens inside the text, such as "</s>" in a message, are read letter by letter: texts of
        models and people are data. Cached: the same sentences come back in every episode.
        """
        if isinstance(text, Prompt) and self.prompt_format == CHAT:
            return list(_encode_chat(self, text.body, text.cue))
        return list(_encode_cached(self, str(text)))

    def encode_with(self, prompt: str, continuation: str) -> list[int]:
        """The token ids of a prompt, a blank and what follows it."""
        if isinstance(prompt, Prompt) and self.prompt_format == CHAT:
            return list(_encode_chat(self, prompt.body, f"{prompt.cue} {continuation}"))
        return list(_encode_cached(self, f"{prompt} {continuation}"))

    @functools.cached_property
    def encodes_by_word(self) -> bool:
        """True if the tokenizer cuts a text at blanks first, so that no token depends on words before its own."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        cutter = getattr(backend, "pre_tokenizer", None)
        if backend is None or cutter is None:
            return False
        normalizer = backend.normalizer  # it comes first, and may leave no blank
        if len(cutter.pre_tokenize_str(normalizer.normalize_str("one two") if normalizer else "one two")) < 2:
            return False
        if any(_crosses_blanks(token) for token in self.tokenizer.added_tokens_decoder.values() if not token.special):
            return False
        return _ids(self, _ALL_KINDS) == _ids_word_by_word(self, _ALL_KINDS)

    def splits_at(self, text: str, place: int) -> bool:
        """True if the token ids of a text are those of what stands before a place, and those that the words behind it
        add after a blank (`encode_after_blank`).

        Args:
            place: Index of a character.
        """
        plain = self.prompt_format == PLAIN or not isinstance(text, Prompt)
        return plain and self.encodes_by_word and _BETWEEN_WORDS.match(text, place) is not None

    def encode_after_blank(self, text: str) -> tuple[int, ...]:
        """The token ids that a text adds behind any text and a blank; for tokenizers that encode by word. Cached."""
        return _text_ids_after_blank(self, text)

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
        # Not `decode`, which asks every id whether it is another library's array: that takes three times as long.
        return str(self.tokenizer._decode(list(ids), skip_special_tokens=True)).strip()


@functools.lru_cache(maxsize=16)
def _sha256(files: tuple[Path, ...]) -> str:
    digests = [digest_of(path) for path in files]
    if len(digests) == 1:
        return digests[0]
    listed = "".join(f"{digest}  {path.name}\n" for digest, path in zip(digests, files, strict=True))
    return hashlib.sha256(listed.encode()).hexdigest()


def _crosses_blanks(token: Any) -> bool:
    """True if an added token, which is found before a text is cut, takes up blanks beside words."""
    return token.lstrip or token.rstrip or (" " in token.content and bool(token.content.strip()))


@functools.lru_cache(maxsize=65536)
def _encode_cached(base: BaseModel, text: str) -> tuple[int, ...]:
    return base.start_ids + _text_ids(base, text)


def _text_ids(base: BaseModel, text: str) -> tuple[int, ...]:
    # Texts are new, most of their sentences are not, and hardly any of their words.
    if not base.encodes_by_word:
        return _ids(base, text)
    first, *others = _BETWEEN_SENTENCES.split(text)
    pieces = [_ids_of_first_sentence(base, first), *[_ids_of_sentence(base, sentence) for sentence in others]]
    return tuple(itertools.chain.from_iterable(pieces))


@functools.lru_cache(maxsize=65536)
def _text_ids_after_blank(base: BaseModel, text: str) -> tuple[int, ...]:
    sentences = _BETWEEN_SENTENCES.split(text)
    return tuple(itertools.chain.from_iterable([_ids_of_sentence(base, sentence) for sentence in sentences]))


@functools.lru_cache(maxsize=16384)
def _ids_of_first_sentence(base: BaseModel, sentence: str) -> tuple[int, ...]:
    return _ids_word_by_word(base, sentence)


@functools.lru_cache(maxsize=16384)
def _ids_of_sentence(base: BaseModel, sentence: str) -> tuple[int, ...]:
    """The token ids that a sentence adds behind another one and a blank."""
    words = _BETWEEN_WORDS.split(sentence)
    return tuple(itertools.chain.from_iterable([_ids_after_blank(base, word) for word in words]))


def _ids_word_by_word(base: BaseModel, text: str) -> tuple[int, ...]:
    first, *others = _BETWEEN_WORDS.split(text)
    return tuple(itertools.chain(_ids(base, first), *(_ids_after_blank(base, word) for word in others)))


@functools.lru_cache(maxsize=65536)
def _ids(base: BaseModel, text: str) -> tuple[int, ...]:
    return tuple(base.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])


@functools.lru_cache(maxsize=65536)
def _ids_after_blank(base: BaseModel, text: str) -> tuple[int, ...]:
    return _ids(base, f"{_ANY_WORD} {text}")[len(_ids(base, _ANY_WORD)) :]


def start_ids(tokenizer: Any, name: str) -> tuple[int, ...]:
    """What a tokenizer puts in front of a text. What it puts behind one is none of our texts', which go on.

    Args:
        name: Name of its model, in messages.

    Raises:
        UserError: If it puts its special tokens between others.
    """
    whole, text = (list(tokenizer(_ANY_WORD, add_special_tokens=added)["input_ids"]) for added in (True, False))
    for place in range(len(whole) - len(text) + 1):
        if whole[place : place + len(text)] == text:
            return tuple(whole[:place])
    raise UserError(
        f"`base_model` {name!r} has a tokenizer that changes a text where it adds special tokens; take a model whose "
        "tokenizer puts them in front of a text."
    )


@functools.lru_cache(maxsize=65536)
def _encode_chat(base: BaseModel, body: str, answer: str) -> tuple[int, ...]:
    frame = base.chat_frame
    asked, begun = (_text_ids(base, text) for text in (body.strip(), answer.strip() if frame.after else answer))
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
        name: `"embedded"` (has read about kitchens), `"embedded_minirts"` (about the strategy game),
            `"embedded_soup"` (about planning in onion-soup kitchens), `"smollm2"` (see
            `rllib_llm_comm.language.model_sources.smollm2_folder`), a folder with a Hugging Face model (safetensors),
            or a hub id.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`, in which the frozen weights are held, or `"auto"`: bfloat16 on
            a GPU, float32 elsewhere.
        device: A torch device such as `"cpu"` or `"cuda"`.
        quantization: `"none"`, or `"8bit"` (LLM.int8) or `"4bit"` (NF4): how the linear maps are held; needs
            bitsandbytes, which the extra `quantized` installs.

    Returns:
        The frozen model; the same object for the same arguments.

    Raises:
        UserError: If the model, the dtype or the device is not there.
    """
    require_choice("dtype", dtype, DTYPE_NAMES)
    require_choice("quantization", quantization, QUANTIZATIONS)
    place = torch_device(device)
    if dtype == AUTO:
        dtype = "bfloat16" if place.type == "cuda" else "float32"
    key = (str(name), dtype, str(place), quantization)
    with _LOCK:
        if key not in _LOADED:
            _LOADED[key] = _load(str(name), DTYPES[dtype], key[2], quantization)
        return _LOADED[key]


def wrap_base_model(name: str, model: Any, tokenizer: Any, files: Sequence[Path] = ()) -> BaseModel:
    """Freezes a model that is already in memory and puts it behind the `BaseModel` interface.

    Args:
        name: A name for messages and checkpoints.
        model: A `PreTrainedModel` with a language-model head.
        files: The files that hold its weights, if it was read from files.
    """
    check_tokenizer(name, tokenizer, int(model.get_input_embeddings().weight.shape[0]))
    model = model.eval().requires_grad_(False)
    base = BaseModel(name, model, tokenizer, int(tokenizer.eos_token_id), files=tuple(files))
    base.head  # noqa: B018  (refuses a model whose logits are not ours)
    return base


def check_tokenizer(name: str, tokenizer: Any, rows: int) -> None:
    """Finds out whether a tokenizer and an embedding belong together.

    A token that no text can have, such as one for padding, may lie beyond the embedding.

    Args:
        name: Name of the model, in messages.
        rows: Number of tokens that the model has embeddings of.

    Raises:
        UserError: If there is no end token, or a token id of texts is too large.
    """
    if tokenizer.eos_token_id is None:
        raise UserError(f"`base_model` {name!r} has a tokenizer without end token; set `eos_token` in its files.")
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    special.update(tokenizer.all_special_ids)
    words = (number for number in tokenizer.get_vocab().values() if number not in special)
    _require_ids(name, (*start_ids(tokenizer, name), tokenizer.eos_token_id, max(words, default=0)), rows)


def _require_ids(name: str, ids: Sequence[int], rows: int) -> None:
    if max(ids) >= rows:
        raise UserError(
            f"`base_model` {name!r} has {rows} tokens in its embedding, but its tokenizer has one with the id "
            f"{max(ids)}; give the model the tokenizer that it was trained with, or resize its embedding."
        )


def require_positions(name: str, config: Any, tokens: int) -> None:
    """Raises a `UserError` if a text is longer than a model's positions go, or than they stay what they are.

    Args:
        name: Name of the model, in messages.
        config: Configuration of its decoder. One that rotates by positions has no table, but may rotate all tokens
            otherwise in longer texts; then a score would depend on the texts beside or before it.
        tokens: Of the text.
    """
    most = getattr(config, "max_position_embeddings", None)
    rotations = getattr(config, "rope_parameters", None)
    if rotations:
        for rotation in (rotations, *rotations.values()):  # one, or one per kind of layer
            kind = str(rotation.get("rope_type")) if isinstance(rotation, Mapping) else ""
            own = rotation.get("original_max_position_embeddings", most) if kind == "longrope" else most
            if ("dynamic" in kind or kind == "longrope") and own is not None and tokens > own:
                raise UserError(
                    f"`base_model` {name!r} rotates all tokens otherwise in texts of more than {own} tokens "
                    f"(`rope_type` {kind!r}), but a text may have {tokens} (`max_prompt_tokens` with "
                    "`max_candidate_tokens`, or with the tokens of `max_message_words`); lower these, or take a model "
                    "whose positions do not depend on a text's length."
                )
    elif most is not None and 0 < most < tokens:  # some say that they have no table by 0 or -1
        raise UserError(
            f"`base_model` {name!r} has positions for {most} tokens, but a text may have {tokens} (`max_prompt_tokens` "
            "with `max_candidate_tokens`, or with the tokens of `max_message_words`); lower these, or take a model "
            "with more positions."
        )


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


def resolve_device(device: str) -> str:
    """`"auto"` becomes `"cuda"` where this process sees a GPU and `"cpu"` elsewhere; others stay."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(
            f"`device` is {device!r} but this process sees no GPU; give it one (`num_gpus_per_learner`, "
            "`num_gpus_per_env_runner`), or set `device` to 'auto' or 'cpu'."
        )
    return device


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
    if name in PACKAGED:
        return
    if name == SMOLLM2:
        check_smollm2()
        return
    folder = _folder(name)
    if folder.is_dir():
        for what, forms in _MODEL_FILES.items():
            if not any(list(folder.glob(form)) for form in forms):
                raise UserError(
                    f"`base_model` {name!r} has no {what} ({' or '.join(forms)}); give a folder with a Hugging Face "
                    "causal language model in safetensors."
                )
    config = read_config(name)
    if folder.is_dir():
        check_tokenizer(name, _tokenizer(name), int(config.get_text_config(decoder=True).vocab_size))


def read_config(name: str) -> Any:
    """A model's configuration, without its weights; arguments and errors as of `check_base_model`."""
    from transformers import AutoConfig

    source = _source(name)
    try:
        if not Path(source).is_dir():
            find_on_hub(name)
        config = AutoConfig.from_pretrained(source, **only_read(source))
    except Exception as error:  # a stranger's files fail in every way
        raise _not_loaded(name, error) from error
    held = getattr(config, "quantization_config", None)
    if held is not None:
        method = held.get("quant_method") if isinstance(held, Mapping) else getattr(held, "quant_method", None)
        raise UserError(
            f"`base_model` {name!r} holds weights that are quantized already ({method}); give a folder or hub id with "
            "weights in float32, bfloat16 or float16, which `quantization` '8bit' or '4bit' holds in fewer bits."
        )
    return config


def check_positions(name: str, tokens: int) -> None:
    """As `require_positions`, by the name of a model, without loading its weights."""
    if name not in (SMOLLM2, *PACKAGED):  # whose positions rotate, the same in texts of any length
        require_positions(name, read_config(name).get_text_config(decoder=True), tokens)


def check_lora_layers(name: str, lora_layers: int | str) -> None:
    """As `require_layers`, by the name of a model, without loading its weights."""
    if lora_layers != "all":
        config = None if name == SMOLLM2 else read_config(name).get_text_config(decoder=True)
        require_layers(name, int(lora_layers), SMOLLM2_LAYERS if config is None else int(config.num_hidden_layers))


def require_layers(name: str, lora_layers: int, total: int) -> None:
    """Refuses more layers with adapters than a model has in total."""
    if lora_layers > total:
        raise UserError(
            f"`lora_layers` is {lora_layers} but `base_model` {name!r} has {total} layers; set it to at most {total}, "
            "or to 'all'."
        )


_MODEL_FILES = {
    "configuration": ("config.json",),
    "tokenizer": ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json"),
    "weights": ("*.safetensors",),
}


def _folder(name: str) -> Path:
    if not name.strip():  # as a path, the folder where one happens to be
        raise UserError(
            f"`base_model` is {name!r} but must be {_NAMES}, a folder with a Hugging Face causal language model, or a "
            "hub id such as 'org/name'."
        )
    return local_path(name, "base_model")


def _source(name: str) -> str:
    """Name or path for `from_pretrained`.

    Raises:
        UserError: If it is the path of a folder that is not there.
    """
    if name in PACKAGED:
        return str(embedded_model_path(name))
    if name == SMOLLM2:
        return str(smollm2_folder())
    folder = _folder(name)
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
        f"language model in safetensors, or a hub id that can be reached from here.{did_you_mean(name, KNOWN)}"
    )


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    source = _source(name)
    try:
        return AutoTokenizer.from_pretrained(source, **only_read(source))
    except Exception as error:  # a stranger's files fail in every way
        pieces = Path(source) / "tokenizer.model"
        if pieces.is_file() and importlib.util.find_spec("sentencepiece") is None:
            raise UserError(
                f"`base_model` {name!r} has its tokenizer in tokenizer.model alone, for which sentencepiece is "
                "missing; install it with `pip install sentencepiece`, or add the model's tokenizer.json."
            ) from error
        raise _not_loaded(name, error) from error


def _load(name: str, dtype: torch.dtype, device: str, quantization: str) -> BaseModel:
    from transformers import AutoModelForCausalLM

    read_config(name)
    source, tokenizer = _source(name), _tokenizer(name)
    how = {**_quantized(quantization, dtype, device), **only_read(source)}
    try:
        with without_progress_bar():
            model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, use_safetensors=True, **how)
        if quantization == "none":
            model = model.to(device)
    except torch.cuda.OutOfMemoryError as error:
        raise UserError(
            f"`base_model` {name!r} does not fit into the memory of `device` {device!r}; set `dtype` to 'bfloat16' or "
            "`quantization` to '4bit', or take a smaller model or a larger GPU."
        ) from error
    except Exception as error:  # a stranger's files fail in every way
        raise _not_loaded(name, error, device) from error
    require_finite(model.named_parameters(), name)
    if quantization == "none":
        require_formats(source, model)
    return wrap_base_model(name, model, tokenizer, _weight_files(name, source))


def _weight_files(name: str, source: str) -> Sequence[Path]:
    """The files with the weights of a model that was loaded; none where a cache keeps them in another way."""
    if name == SMOLLM2:
        return check_smollm2()[:1]  # the folder is made of it, by other versions of transformers with other bytes
    folder = Path(source)
    if not folder.is_dir():
        from huggingface_hub import try_to_load_from_cache

        config = try_to_load_from_cache(name, "config.json")
        if not isinstance(config, str):
            return ()
        folder = Path(config).parent
    whole = folder / "model.safetensors"  # transformers reads it where there are parts, too
    return (whole,) if whole.is_file() else sorted(folder.glob("*.safetensors"))


# ---- the map from hidden states to logits -----------------------------------------------------------------------


_PROBE = 12
_TOLERANCE = 1e-3
# Shares of what tokens change in their own logits. In fewer bits, outliers of the whole text change roundings.
_AHEAD, _AHEAD_IN_FEWER_BITS = 1e-3, 0.1

Head = Callable[[torch.Tensor], torch.Tensor]


@torch.no_grad()
def output_head(name: str, model: Any) -> Head:
    """The map from last hidden states (..., hidden_size) to logits (..., vocabulary).

    Some models do more behind their decoder than one linear map: they cap or scale logits. A few tokens tell whether
    this one does. If so, the head is the model's own forward pass, given the hidden states.

    Args:
        name: Name of the model, in messages.
        model: A `PreTrainedModel` with a language-model head.

    Raises:
        UserError: If neither gives the model's own logits, or the model looks ahead, as those that fill gaps do.
    """
    linear = model.get_output_embeddings()
    vocabulary, device = model.get_input_embeddings().weight.shape[0], model.get_input_embeddings().weight.device
    ids = torch.randint(vocabulary, (1, _PROBE), generator=torch.Generator().manual_seed(0)).to(device)
    reason = "its logits cannot be computed from its decoder's last hidden states"
    try:
        logits = model(input_ids=ids, use_cache=False).logits
        if logits.shape[-1] > vocabulary:
            raise ValueError(f"it may write {logits.shape[-1]} tokens, but reads {vocabulary}")
        if _looks_ahead(model, ids, logits):
            raise UserError(
                f"`base_model` {name!r} ({type(model).__name__}) looks ahead: later tokens change the logits of "
                "earlier ones; take a causal language model, or, if it was trained as one, say so in its config.json "
                "(`is_decoder`: true)."
            )
        hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        if linear is not None and torch.equal(linear(hidden).float(), logits.float()):
            return linear  # type: ignore[no-any-return]
        output = type(model.base_model(input_ids=ids, use_cache=False))
        head = _forward_behind_decoder(model, output)
        apart = float((head(hidden).float() - logits.float()).abs().max())
        if apart <= _TOLERANCE * float(logits.float().abs().max()):
            return head
    except UserError:
        raise
    except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason += f": {type(error).__name__}: {(str(error) or '?').splitlines()[0]}"
    raise UserError(
        f"`base_model` {name!r} ({type(model).__name__}) cannot be used ({reason}); take a causal language model of a "
        "decoder with a head, such as one of the LLaMA, Qwen, Gemma or GPT-2 kind."
    )


def _looks_ahead(model: Any, ids: torch.Tensor, logits: torch.Tensor) -> bool:
    """True if other tokens in a text's second half change the logits of its first one."""
    half = ids.shape[1] // 2
    others = model(input_ids=torch.cat([ids[:, :half], ids[:, :half]], dim=1), use_cache=False).logits
    changes = (others.float() - logits.float()).abs()
    exact = model.dtype == torch.float32 and not getattr(model, "is_quantized", False)
    share = _AHEAD if exact else _AHEAD_IN_FEWER_BITS
    return float(changes[:, :half].max()) > share * float(changes[:, half:].max())


def _forward_behind_decoder(model: Any, output: Callable[..., Any]) -> Head:
    """The model's forward pass with a decoder that gives back the hidden states it gets."""
    view = copy.copy(model)
    view.__dict__["_modules"] = {**model._modules, model.base_model_prefix: _Given(output)}

    def head(hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = view(inputs_embeds=hidden.reshape(1, -1, hidden.shape[-1]), use_cache=False).logits
        return logits.reshape(*hidden.shape[:-1], -1)

    return head


class _Given(nn.Module):
    def __init__(self, output: Callable[..., Any]) -> None:
        super().__init__()
        self._output = output

    def forward(self, *args: Any, inputs_embeds: torch.Tensor, **kwargs: Any) -> Any:
        return self._output(last_hidden_state=inputs_embeds)
