"""Supervised training of one adapter on recorded rows, as an offline RLlib algorithm: of messages, or of actions.

From the rows to the gradient: `LearnedRows` reads them, `encode_labels` and `encode_demonstrations` make token ids of
them, `SFTLearner` learns, `AdapterSFT` trains and judges; `MessageSFT` and `ActionSFT` say which adapter, rows
and figures.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
import tree
from pydantic import Field
from ray.data import DataContext
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.learner import LearnerConnectorPipeline
from ray.rllib.core import ALL_MODULES
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.offline.offline_data import OfflineData
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import LEARNER_RESULTS, LEARNER_UPDATE_TIMER, TIMERS
from ray.rllib.utils.typing import ModuleID, TensorType
from typing_extensions import Self

from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.core.phases import log_cost
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.games import same_request
from rllib_llm_comm.language.adapters import ACTION, MESSAGE
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.prompts import PromptTemplates, limit_words, most_tokens
from rllib_llm_comm.policies.decision import CRITIC_IDS
from rllib_llm_comm.policies.partner_settings import PLAYERS
from rllib_llm_comm.rl.callbacks import add_cost
from rllib_llm_comm.rl.epoch_progress import with_progress
from rllib_llm_comm.rl.multi_agent_ppo import adamw, annealed
from rllib_llm_comm.rl.policy_checkpoints import on_first_learner
from rllib_llm_comm.rl.strict_config import SHARED_POLICY, with_defaults
from rllib_llm_comm.rl.train_batch import WholeEpochs, WholeEpochsMixin
from rllib_llm_comm.verco.encoding import (
    IGNORED,
    LABEL_TARGETS,
    ObservationEncoder,
    TextObservation,
    encode_examples,
    encoded_space,
)
from rllib_llm_comm.verco.language_network import base_of
from rllib_llm_comm.verco.module import (
    LABEL_HITS,
    LABEL_LOG_PROBS,
    AdapterCheckpointMixin,
    LanguageModelConfigMixin,
    LLMCommModule,
)
from rllib_llm_comm.verco.settings import LanguageModelSettings, MessageCheckpointSettings
from rllib_llm_comm.verco.teachers.base import TEACHERS
from rllib_llm_comm.verco.teachers.label_store import (
    DEMONSTRATIONS,
    LABELS,
    RowForm,
    is_collection,
    other_form,
    read_learned,
)

logger = logging.getLogger(__name__)


# ---- rows to learn from ---------------------------------------------------------------------------------------


_ENV = "env"
_READ_ROWS = 4096
_JUDGED_ROWS = 256  # per forward pass

Encode = Callable[[Mapping[str, Sequence[Any]]], dict[str, Any]]
"""From columns to the arrays that are learned from."""


@dataclass
class RowSet:
    """Distinct rows, split by prompt.

    Attributes:
        train: Arrays of the rows to learn from.
        held_out: The same of rows whose prompts are never learned from.
        held_out_answers: For each held-out prompt its answers. A prompt is a text, or a tuple of several.
        env: The `env` column of the first row: where the rows come from.
        authors: Known names in the column that says whose answers they are. Other texts there are passed over.
    """

    train: dict[str, Any]
    held_out: dict[str, Any]
    held_out_answers: dict[Any, list[Any]]
    env: Mapping[str, Any]
    authors: list[str]

    def held_out_prompts(self) -> np.ndarray:
        """Per held-out row the number of its prompt (N,)."""
        return np.repeat(np.arange(len(self.held_out_answers)), [len(own) for own in self.held_out_answers.values()])


def check_rows(path: Path, form: RowForm) -> None:
    """Reads rows once, before anything is started for them.

    Args:
        path: A Parquet file, or a folder with some.
        form: The kind of rows.

    Raises:
        UserError: If there are none, or a file is damaged, has other columns, or an empty cell.
    """
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise UserError(
            f"`input_` is {str(path)!r}, which holds no Parquet file; give {form.name} as "
            f"`{form.collector}` writes them."
        )
    rows = 0
    for file in files:
        try:
            rows += read_learned(file, form).num_rows
        except ValueError as error:
            if other := other_form(file, form):
                raise UserError(
                    f"`input_` is {str(path)!r}, which holds {other.name} of `{other.collector}`, but {form.name} are "
                    f"learned from here; give those that `{form.collector}` writes."
                ) from error
            raise UserError(f"`input_`: {str(file)!r} {error}; {_remedy(path, file, form)}.") from error
    if not rows:
        raise UserError(f"`input_` is {str(path)!r}, whose files hold no {form.name}; collect some first.")


def _remedy(given: Path, file: Path, form: RowForm) -> str:
    if given.is_dir() and is_collection(file.parent):
        return (
            f"remove the whole folder {str(file.parent)!r} and collect the {form.name} again (the same command does, "
            "where a stage of its file collects them)"
        )
    return f"give Parquet files as `{form.collector}` writes them ({form.columns_in_words})"


class LearnedRows(OfflineData):
    """Reads a folder of rows once and keeps their token ids in memory.

    Rows are a few thousand short texts; streaming them anew in every iteration, as RLlib does with episodes, would
    take longer than to learn them.
    """

    def __init__(self, config: AlgorithmConfig) -> None:
        """Opens the rows."""
        # Ray Data would start 32 processes, each with its imports, to read the ends of a few small files.
        os.environ.setdefault("RAY_DATA_PARQUET_FOOTER_NUM_ACTORS", "1")
        super().__init__(config)

    def load(self, encode: Encode, held_out_share: float, known: Iterable[str]) -> RowSet:
        """Reads, de-duplicates, splits and encodes the rows.

        Args:
            encode: Encodes rows.
            held_out_share: Share of the distinct observations that is held out, chosen by a hash of their words, so
                that it is the same in every run and for every part of a growing data set.
            known: Names of authors that may be shown.

        Raises:
            UserError: If columns are missing or nothing is left to learn from.
        """
        form = self.config.form
        missing = set(form.learned) - set(self.data.schema().names)
        if missing:
            raise UserError(
                f"`input_` {self.config.input_!r} has no column {', '.join(sorted(missing))}; give Parquet files as "
                f"`{form.collector}` writes them ({form.columns_in_words})."
            )
        rows: set[tuple[Any, ...]] = set()
        env: Mapping[str, Any] = {}
        authors: set[str] = set()
        for batch in self._batches():
            authors.update(map(str, batch.get(form.author, ())))
            if not env and _ENV in batch and len(batch[_ENV]):
                env = _read_json(batch[_ENV][0])
            kinds = [int if form.counted and name == form.answer else str for name in form.learned]
            read = [map(kind, batch[name]) for kind, name in zip(kinds, form.learned, strict=True)]
            rows.update(zip(*read, strict=True))
        ordered = sorted(rows)  # files are read side by side and come in any order, but a seed fixes what is learned
        train = [row for row in ordered if not is_held_out(row[0], held_out_share)]
        held_out = [row for row in ordered if is_held_out(row[0], held_out_share)]
        if not train:
            raise UserError(
                f"`input_` {self.config.input_!r} has no rows to learn from ({len(held_out)} are held out); "
                f"collect more {form.name} or lower `held_out_share`."
            )
        answers: dict[Any, list[Any]] = {}
        for *prompt, answer in held_out:
            answers.setdefault(tuple(prompt) if len(prompt) > 1 else prompt[0], []).append(answer)
        logger.info("%d distinct %s, of which %d are held out", len(rows), form.name, len(held_out))

        def arrays(part: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
            return encode(dict(zip(form.learned, zip(*part, strict=True), strict=True))) if part else {}

        return RowSet(arrays(train), arrays(held_out), answers, env, sorted(authors & {*known}))

    def _batches(self) -> Iterator[dict[str, np.ndarray]]:
        # Reading a few rows is not worth a dozen lines on the terminal.
        DataContext.get_current().enable_progress_bars = False
        chatter = logging.getLogger("ray.data")
        level = chatter.level
        chatter.setLevel(logging.WARNING)
        try:
            yield from self.data.iter_batches(batch_size=_READ_ROWS, batch_format="numpy", prefetch_batches=1)
        finally:
            chatter.setLevel(level)


def is_held_out(prompt: str, share: float) -> bool:
    """True if an observation in words belongs to the held-out share, by its hash."""
    digest = hashlib.blake2b(prompt.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def _read_json(text: Any) -> Mapping[str, Any]:
    try:
        values = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def encode_labels(
    batch: Mapping[str, Sequence[Any]], base: BaseModel, max_tokens: int, max_words: int, templates: PromptTemplates
) -> dict[str, np.ndarray]:
    """Ids and labels of rows of `prompt` and `message`, as of `encode_examples`; cut as written messages are."""
    prompts = [templates.message(str(text)) for text in batch["prompt"]]
    messages = [limit_words(str(message), max_words) for message in batch["message"]]
    return encode_examples(base, prompts, messages, max_tokens, most_tokens(max_words))


def encode_demonstrations(batch: Mapping[str, Sequence[Any]], encoder: ObservationEncoder) -> dict[str, Any]:
    """Observations of a policy, and its choices among their candidates.

    Prompts are filled here, from the words and messages of the rows, as they are when the policy plays.

    Args:
        batch: Demonstrations.
        encoder: Writes observations as token ids.

    Returns:
        `obs`: arrays of `encoded_space` without the critic's (N, ...), and `actions` (N,).
    """
    rows = [read_demonstration(*row) for row in zip(*(batch[name] for name in DEMONSTRATIONS.learned), strict=True)]
    most = max(len(view.candidates) for view, _, _ in rows)
    encoded = [encoder.encode(_widened(view, most), heard) for view, heard, _ in rows]
    names = [name for name in encoded[0] if name != CRITIC_IDS]
    return {
        Columns.OBS: {name: np.stack([one[name] for one in encoded]) for name in names},
        Columns.ACTIONS: np.array([chosen for *_, chosen in rows], np.int64),
    }


def read_demonstration(
    text: str, subgoal: str, heard: str, candidates: str, chosen: int
) -> tuple[TextObservation, dict[str, str], int]:
    """Observation, messages by speaker, and choice of a row.

    Raises:
        UserError: If the row is none that `collect_demonstrations` writes.
    """
    try:
        said, phrases = json.loads(heard), json.loads(candidates)
        # A state without a choice would count as one that the clone gets right; half a character cannot be encoded.
        good = isinstance(phrases, list) and len(set(phrases)) == len(phrases) > 1
        "".join((*said, *said.values(), *phrases)).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        good = False
    if not good or not 0 <= chosen < len(phrases):
        raise UserError(
            f"`input_` has a row with `heard` {heard[:100]!r}, `candidates` {candidates[:100]!r} and `chosen` {chosen} "
            "instead of a JSON object of speaker to message, a JSON list of several different phrases, and the index "
            "of one of them; give Parquet files as `collect_demonstrations` writes them."
        )
    return TextObservation(text, tuple(phrases), (True,) * len(phrases), subgoal), said, chosen


def _widened(view: TextObservation, count: int) -> TextObservation:
    """An observation with forbidden candidates behind its own, so that all rows have as many."""
    more = count - len(view.candidates)
    return TextObservation(view.text, view.candidates + ("",) * more, view.mask + (False,) * more, view.subgoal)


# ---- the learner ----------------------------------------------------------------------------------------------


class SFTLearner(WholeEpochsMixin, TorchLearner):
    """Minimises the cross entropy of what was recorded: of label messages behind their prompts the mean over the tokens
    of a minibatch; of actions among the allowed candidates, scored as the policy scores them, the mean over the rows.

    Settings read from the config: `lr`, `anneal`, `grad_clip`.
    """

    _followed: tuple[str, int] | None = None

    @override(TorchLearner)
    def get_parameters(self, module: Any) -> list[torch.nn.Parameter]:
        """Only what is trained."""
        return [parameter for parameter in module.parameters() if parameter.requires_grad]

    @override(TorchLearner)
    def configure_optimizers_for_module(self, module_id: ModuleID, config: Any = None) -> None:
        """One AdamW for the adapter."""
        parameters = self.get_parameters(self._module[module_id])
        self.register_optimizer(
            module_id=module_id,
            optimizer=adamw(parameters, config.lr),
            params=parameters,
            lr_or_lr_schedule=None if config.anneal else config.lr,
        )

    @override(TorchLearner)
    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Sets the annealed learning rate."""
        super().before_gradient_based_update(timesteps=timesteps)
        if self.config.anneal:
            for optimizer in self._named_optimizers.values():
                self._set_optimizer_lr(optimizer, annealed(self.config.lr, self._weights_seq_no, self.config.anneal))

    @override(TorchLearner)
    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Logs what the pass took."""
        super().after_gradient_based_update(timesteps=timesteps)
        log_cost(self.metrics, (ALL_MODULES,))

    def follow(self, folder: str, iteration: int) -> None:
        """Lets the next update write the share of it that is done into a folder."""
        self._followed = (folder, iteration)

    @override(WholeEpochsMixin)
    def _create_iterator_if_necessary(self, **kwargs: Any) -> Any:
        parts = super()._create_iterator_if_necessary(**kwargs)
        followed, self._followed = self._followed, None
        return with_progress(parts, len(parts), *followed) if followed and isinstance(parts, WholeEpochs) else parts

    @override(TorchLearner)
    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Any, batch: dict[str, Any], fwd_out: dict[str, TensorType]
    ) -> TensorType:
        """Cross entropy of one minibatch."""
        log_probs, hits = learned_terms(batch, fwd_out)
        loss = -log_probs.mean()
        accuracy = "train_token_accuracy" if LABEL_TARGETS in batch else "train_top_1"
        for name, value in (("train_loss", loss.detach()), (accuracy, hits.float().mean())):
            self.metrics.log_value((module_id, name), value, reduce="mean", window=100)
        return loss

    @torch.no_grad()
    def judge(self, columns: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """What `learned_terms` gives for rows that are not learned from."""
        module = self.module[SHARED_POLICY].unwrapped()
        tensors = tree.map_structure(torch.as_tensor, columns)
        found = []
        for start in range(0, len(tree.flatten(tensors)[0]), _JUDGED_ROWS):
            part = tree.map_structure(lambda tensor, at=start: tensor[at : at + _JUDGED_ROWS], tensors)
            found.append(learned_terms(part, module._forward_train(part)))
        log_probs, hits = (torch.cat(both).cpu().numpy() for both in zip(*found, strict=True))
        return log_probs, hits


def learned_terms(batch: dict[str, Any], fwd_out: dict[str, TensorType]) -> tuple[torch.Tensor, torch.Tensor]:
    """What rows say of what is learned from them.

    Args:
        batch: Label messages as of `encode_examples`; or observations and actions.
        fwd_out: The module's answer.

    Returns:
        Log-probability (N,) of each token of the labels, or of each row's action among the allowed candidates, and
        whether it is the most likely one (N,).
    """
    if LABEL_TARGETS in batch:
        used = batch[LABEL_TARGETS] != IGNORED
        return fwd_out[LABEL_LOG_PROBS][used], fwd_out[LABEL_HITS][used]
    logits, actions = fwd_out[Columns.ACTION_DIST_INPUTS], batch[Columns.ACTIONS].long()
    log_probs = logits.log_softmax(-1).gather(1, actions[:, None])[:, 0]
    return log_probs, logits.argmax(-1) == actions


# ---- the algorithm --------------------------------------------------------------------------------------------


class SFTTraining(Settings):
    """The optimisation. All values are ours."""

    lr: float = Field(3e-3, gt=0)
    """Learning rate of the adapter (for the embedded model)."""
    anneal: int | None = Field(None, ge=0, le=LARGEST)
    """Iterations over which the rate falls on a line to 0; None: a constant rate."""
    grad_clip: float | None = Field(1.0, gt=0)
    """Global gradient norm allowed."""
    train_batch_size_per_learner: int = Field(64, ge=1, le=LARGEST)
    """Rows per gradient step."""
    held_out_share: float = Field(0.1, ge=0, lt=1)
    """Share of the distinct observations that is never learned from."""


class AdapterSFTConfig(LanguageModelConfigMixin, AlgorithmConfig):
    """Settings of `AdapterSFT`; a subclass names the adapter and the rows.

    Attributes:
        role: The adapter that is trained.
        form: The kind of rows that it learns from.
    """

    settings_models = {**LanguageModelConfigMixin.settings_models, "training": SFTTraining}
    role: ClassVar[str]
    form: ClassVar[RowForm]

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults."""
        super().__init__(algo_class=algo_class)
        self._set_shared_policy()
        self._is_online = False
        self.grad_clip_by = "global_norm"
        self.offline_data_class = LearnedRows
        # RLlib wants spaces although nothing acts here; the module looks at neither.
        self.observation_space = encoded_space(LanguageModelSettings(), 1)
        self.action_space: gym.Space = gym.spaces.Discrete(1)

    @override(AlgorithmConfig)
    def training(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets the optimisation, as of `settings_models["training"]`. One iteration is one pass over all rows."""
        return self.assign("training", settings, values)

    @override(LanguageModelConfigMixin)
    def trained_parts(self) -> dict[str, Any]:
        """Only the one adapter."""
        return {"trainable_roles": (self.role,), "train_critic": False}

    @override(AlgorithmConfig)
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The module with only its one adapter trained."""
        return RLModuleSpec(
            module_class=LLMCommModule,
            observation_space=self.observation_space,
            action_space=self.action_space,
            model_config=self.language_model_settings().to_dict(),
        )

    @override(AlgorithmConfig)
    def get_default_learner_class(self) -> type[Learner] | str:
        """`SFTLearner`."""
        return SFTLearner

    @override(AlgorithmConfig)
    def build_learner_connector(
        self, input_observation_space: Any, input_action_space: Any, device: Any = None
    ) -> ConnectorV2:
        """An empty pipeline: rows are no episodes."""
        return LearnerConnectorPipeline(
            connectors=[],
            input_observation_space=input_observation_space,
            input_action_space=input_action_space,
        )

    @override(AlgorithmConfig)
    def validate(self) -> None:
        """Checks all settings."""
        self.check_settings()
        self.language_model_settings()
        form, name = self.form, self.algo_class.__name__
        if not self.is_offline:
            raise UserError(
                f"`input_` is {self.input_!r} but must be the Parquet file or folder with the {form.name}, as "
                f"written by `{form.collector}`."
            )
        for setting in ("num_epochs", "minibatch_size"):  # RLlib's, which a file may name
            if (value := getattr(self, setting)) not in (None, 1):
                raise UserError(
                    f"`{setting}` is {value!r}, but an iteration of {name} is one pass over the rows in batches of "
                    "`train_batch_size_per_learner`; omit it, `stop: {training_iteration: ...}` counts the passes."
                )
        if self.env is not None:
            raise UserError(f"`env` is {self.env!r} but {name} learns from {form.name} only; remove `env`.")
        super().validate()


class AdapterSFT(AdapterCheckpointMixin, Algorithm):
    """Trains one adapter on recorded rows, one pass per iteration.

    Attributes:
        results: Key of its results.
        authors: Key of the provenance that says whose answers are learned.
        known_authors: Their names that may be shown.
    """

    results: ClassVar[str]
    authors: ClassVar[str]
    known_authors: ClassVar[Iterable[str]]

    def encoder(self) -> Encode:
        """Encodes rows."""
        raise NotImplementedError

    def held_out_figures(self, log_probs: np.ndarray, hits: np.ndarray) -> dict[str, float]:
        """Figures of the held-out rows."""
        raise NotImplementedError

    @override(Algorithm)
    def setup(self, config: AlgorithmConfig) -> None:
        """Builds the Learners and reads the rows."""
        super().setup(config)
        start = time.perf_counter()
        self.labels = self.offline_data.load(self.encoder(), self.config.held_out_share, self.known_authors)
        logger.info("%s read in %.1f s", self.config.form.name, time.perf_counter() - start)

    @override(Algorithm)
    def training_step(self) -> None:
        """One pass over the rows, and the figures of those held out."""
        rows = len(tree.flatten(self.labels.train)[0])
        if self._storage is not None:  # under Tune, where a command may be showing a bar
            on_first_learner(self, methodcaller("follow", self.logdir, self.iteration))
        batch = MultiAgentBatch({SHARED_POLICY: SampleBatch(self.labels.train)}, env_steps=rows)
        with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
            learner_results = self.learner_group.update(
                batch=batch,
                minibatch_size=self.config.train_batch_size_per_learner,
                num_epochs=1,
                shuffle_batch_per_epoch=True,
                timesteps={},
            )
        self.metrics.aggregate(learner_results, key=LEARNER_RESULTS)
        held_out = len(self.labels.held_out_answers)
        figures = {self.config.form.name: rows, "held_out_prompts": held_out, **self.judge_held_out()}
        for name, value in figures.items():
            self.metrics.log_value((self.results, name), value, window=1)

    def judge_held_out(self) -> dict[str, float]:
        """Figures of the held-out rows; nothing where none is held out."""
        if not self.labels.held_out_answers:
            return {}
        return self.held_out_figures(*on_first_learner(self, methodcaller("judge", self.labels.held_out)))

    @override(Algorithm)
    def step(self) -> dict[str, Any]:
        """RLlib's iteration, with all figures under one key."""
        results = super().step()
        add_cost(results)
        learned = results.get(LEARNER_RESULTS, {}).get(SHARED_POLICY, {})
        own = {name: float(value) for name, value in results.get(self.results, {}).items()}
        results[self.results] = {
            **own, **{name: float(value) for name, value in learned.items() if name.startswith("train_")}
        }  # fmt: skip
        return results

    @override(AdapterCheckpointMixin)
    def provenance(self) -> dict[str, Any]:
        """The rows and whose answers they hold."""
        return {
            **super().provenance(), self.config.form.name: self.config.input_, self.authors: self.labels.authors
        }  # fmt: skip

    @override(AdapterCheckpointMixin)
    def environment(self) -> dict[str, Any]:
        """The environment that the rows come from."""
        env = self.labels.env
        return {"env": env.get("id"), "env_config": dict(env.get("settings") or {})}


# ---- of messages ----------------------------------------------------------------------------------------------


_SAMPLES = 5
_PASSES, _NOTHING_LEARNED = 10, 2.0  # nats per token: messages that are learned have less than 0.5 by then


class MessageSFTTraining(SFTTraining):
    """The optimisation, and how messages are judged. All values are ours."""

    judge_interval: int = Field(5, ge=0, le=LARGEST)
    """Every so many iterations messages are written for held-out prompts and compared with the teacher's; writing takes
    longer than learning. 0 for only when a checkpoint is saved."""
    judge_prompts: int = Field(256, ge=1, le=LARGEST)
    """At most so many held-out prompts are judged."""


class MessageSFTConfig(AdapterSFTConfig):
    """Settings of `MessageSFT`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import MessageSFTConfig

        algo = MessageSFTConfig().offline_data(input_="results/labels").build_algo()
        for _ in range(10):
            print(algo.train()["message_sft"])
    """

    settings_models = {**AdapterSFTConfig.settings_models, "training": MessageSFTTraining}
    role, form = MESSAGE, LABELS


class MessageSFT(AdapterSFT):
    """Teaches the message adapter to say what the teacher would say, from what one agent sees (Verco Eq. 1).

    Results of an iteration, under `message_sft`: `train_loss`, `held_out_loss` and both token accuracies;
    and, where messages were judged on held-out prompts: `exact_match` (word by word one of the teacher's
    messages), `same_request` (asks for the same thing), `judged`; with `message_samples`.
    """

    results, authors, known_authors = "message_sft", "taught_by", TEACHERS
    _judged: tuple[int, dict[str, float], list[dict[str, str]]] = (-1, {}, [])  # updates done then, scores, samples

    config_class = MessageSFTConfig

    @override(AdapterSFT)
    def encoder(self) -> Encode:
        """Token ids of prompts and messages."""
        settings = self.config.language_model_settings()
        return functools.partial(
            encode_labels,
            base=base_of(settings),
            max_tokens=settings.max_prompt_tokens,
            max_words=self.config.max_message_words,
            templates=settings.templates,
        )

    @override(AdapterSFT)
    def held_out_figures(self, log_probs: np.ndarray, hits: np.ndarray) -> dict[str, float]:
        """Means over the tokens."""
        return {"held_out_loss": -float(log_probs.mean()), "held_out_token_accuracy": float(hits.mean())}

    @override(AdapterSFT)
    def training_step(self) -> None:
        """One pass over the labels, the held-out loss and, now and then, messages to judge."""
        super().training_step()
        interval = self.config.judge_interval
        if interval and (self.iteration + 1) % interval == 0:
            self.judge_messages()

    def judge_messages(self) -> dict[str, float]:
        """Writes messages for held-out prompts and compares them with the teacher's; at most once per
        iteration.

        Returns:
            `exact_match`, `same_request` (shares in [0, 1]) and `judged`, or nothing where no prompt is held
            out.
        """
        answers = dict(list(self.labels.held_out_answers.items())[: self.config.judge_prompts])
        if not answers:
            return {}
        if self._judged[0] != self._updates_done():
            prompts = list(answers)
            templates = self.config.language_model_settings().templates
            written = on_first_learner(
                self,
                _write,
                prompts=[templates.message(text) for text in prompts],
                max_words=self.config.max_message_words,
            )
            pairs = [(said, answers[prompt]) for prompt, said in zip(prompts, written, strict=True)]
            same = [any(same_request(said, answer) for answer in known) for said, known in pairs]
            scores = {
                "exact_match": sum(said in known for said, known in pairs) / len(pairs),
                "same_request": sum(same) / len(pairs),
                "judged": float(len(pairs)),
            }
            samples = [
                {"prompt": prompt, "teacher": known[0], "student": said}
                for prompt, (said, known) in zip(prompts[:_SAMPLES], pairs, strict=False)
            ]
            self._judged = (self._updates_done(), scores, samples)
        return self._judged[1]

    @override(Algorithm)
    def step(self) -> dict[str, Any]:
        """RLlib's iteration, with sample messages in the result."""
        results = super().step()
        loss = float(results[self.results]["train_loss"])
        if self.iteration + 1 == _PASSES and loss > _NOTHING_LEARNED:
            logger.warning(
                "After %d passes the loss of messages is %.1f nats per token: next to nothing is learned. The embedded "
                "models write only words that they have read (docs/extend/game.md); take such words, another "
                "`base_model`, or a larger `lr`.",
                _PASSES, loss,
            )  # fmt: skip
        results[self.results] |= self._judged[1]
        if self._judged[2]:
            results["message_samples"] = self._judged[2]
        return results

    @override(AdapterSFT)
    def provenance(self) -> dict[str, Any]:
        """Quality of the messages and a few samples, too."""
        return {**super().provenance(), "held_out": self.judge_messages(), "samples": self._judged[2]}

    def _updates_done(self) -> int:
        return int(on_first_learner(self, lambda learner: learner._weights_seq_no))


def _write(learner: Learner, prompts: list[str], max_words: int) -> list[str]:
    return learner.module[SHARED_POLICY].unwrapped().write_messages(prompts, max_words=max_words)


# ---- of actions -----------------------------------------------------------------------------------------------


class ActionSFTConfig(AdapterSFTConfig):
    """Settings of `ActionSFT`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import ActionSFTConfig

        algo = ActionSFTConfig().offline_data(input_="results/demonstrations").build_algo()
        for _ in range(8):
            print(algo.train()["action_sft"])
    """

    settings_models = {
        **AdapterSFTConfig.settings_models,
        "communication": with_defaults(messages="none")(MessageCheckpointSettings),
    }
    role, form = ACTION, DEMONSTRATIONS

    @override(AlgorithmConfig)
    def validate(self) -> None:
        """Checks all settings."""
        super().validate()
        if self.lora_dropout:
            raise UserError(
                f"`lora_dropout` is {self.lora_dropout!r}, but ActionSFT learns the scores that the policy plays by, "
                "which know no dropout; set it to 0."
            )
        if self.messages == "student" and not self.message_checkpoint:
            raise UserError(
                "`messages` is 'student' but `message_checkpoint` is not set, and ActionSFT trains no messages; set it "
                "to a checkpoint of MessageSFT, or `messages` to 'none'."
            )


class ActionSFT(AdapterSFT):
    """Teaches the action adapter to choose as a player did, by cross-entropy over the allowed candidates.

    Candidates are scored, normalised and divided by the temperature as the policy does it. Results of an iteration,
    under `action_sft`: `train_loss`, `train_top_1`, and of held-out states `log_loss` (mean negative log-likelihood of
    the choices, nats) and `top_1` (share of states whose most likely candidate is one that the player chose there).
    """

    results, authors = "action_sft", "cloned_from"
    known_authors = tuple(PLAYERS)

    config_class = ActionSFTConfig

    @override(Algorithm)
    def setup(self, config: AlgorithmConfig) -> None:
        """Builds the Learners, loads the message adapter of `message_checkpoint`, and reads the demonstrations."""
        super().setup(config)
        if self.config.message_checkpoint:
            self.load_adapter(self.config.message_checkpoint)

    @override(AdapterSFT)
    def encoder(self) -> Encode:
        """Token ids of prompts and candidates."""
        settings = self.config.language_model_settings()
        return functools.partial(encode_demonstrations, encoder=ObservationEncoder(base_of(settings), settings))

    @override(AdapterSFT)
    def held_out_figures(self, log_probs: np.ndarray, hits: np.ndarray) -> dict[str, float]:
        """`log_loss` over rows, `top_1` over states."""
        found = np.bincount(self.labels.held_out_prompts(), weights=hits) > 0
        return {"log_loss": -float(log_probs.mean()), "top_1": float(found.mean())}

    @override(AdapterSFT)
    def provenance(self) -> dict[str, Any]:
        """How well the clone agrees, too."""
        return {**super().provenance(), "held_out": self.judge_held_out()}
