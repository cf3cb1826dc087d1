"""Supervised training of one adapter from recorded rows, as an offline RLlib algorithm; the base of both roles."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import numpy as np
import tree
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.connectors.learner import LearnerConnectorPipeline
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import LEARNER_RESULTS, LEARNER_UPDATE_TIMER, TIMERS

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.rl.phase_seconds import add_cost
from rllib_llm_comm.rl.policy_export import on_first_learner
from rllib_llm_comm.rl.strict_config import SHARED_POLICY
from rllib_llm_comm.verco.adapter_checkpoints import AdapterCheckpointMixin
from rllib_llm_comm.verco.encoding import encoded_space
from rllib_llm_comm.verco.language_config import LanguageModelConfigMixin
from rllib_llm_comm.verco.learned_rows import Encode, LearnedRows
from rllib_llm_comm.verco.module import LLMCommModule
from rllib_llm_comm.verco.settings import LanguageModelSettings
from rllib_llm_comm.verco.sft_learner import SFTLearner

if TYPE_CHECKING:
    from ray.rllib.connectors.connector_v2 import ConnectorV2
    from typing_extensions import Self

logger = logging.getLogger(__name__)


class AdapterSFTConfig(LanguageModelConfigMixin, AlgorithmConfig):
    """Settings of `AdapterSFT`; a subclass names the adapter and the rows.

    Attributes:
        role: The adapter that is trained.
        rows: Reads what it learns from.
    """

    role: ClassVar[str]
    rows: ClassVar[type[LearnedRows]]

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults."""
        super().__init__(algo_class=algo_class)
        self._set_language_defaults()
        self._is_online = False
        self.lr = 3e-3
        self.anneal: int | None = None
        self.grad_clip = 1.0
        self.grad_clip_by = "global_norm"
        self.train_batch_size_per_learner = 64
        self.held_out_share = 0.1
        self.offline_data_class = self.rows
        # RLlib wants spaces although nothing acts here; the module looks at neither.
        self.observation_space = encoded_space(LanguageModelSettings(), 1)
        self.action_space: gym.Space = gym.spaces.Discrete(1)

    @override(AlgorithmConfig)
    def training(
        self,
        *,
        lr: float = NotProvided,
        anneal: int | None = NotProvided,
        grad_clip: float | None = NotProvided,
        train_batch_size_per_learner: int = NotProvided,
        held_out_share: float = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets the optimisation. One training iteration is one pass over all rows. All defaults are ours.

        Args:
            lr: Learning rate of the adapter, > 0. Default 3e-3 (for the embedded model).
            anneal: Iterations over which the rate falls on a line to 0, or `None` (default) for a constant
                rate.
            grad_clip: Global gradient norm allowed. Default 1.
            train_batch_size_per_learner: Rows per gradient step. Default 64.
            held_out_share: Share of the distinct observations that is never learned from, in [0, 1). Default 0.1.
            **kwargs: RLlib's other training settings.

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().training(**kwargs)
        return self._assign(own)

    def module_settings(self) -> LanguageModelSettings:
        """The module's settings, checked: only the one adapter is trained."""
        return self.language_model_settings((self.role,), train_critic=False)

    @override(AlgorithmConfig)
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The module with only its one adapter trained."""
        return RLModuleSpec(
            module_class=LLMCommModule,
            observation_space=self.observation_space,
            action_space=self.action_space,
            model_config=self.module_settings().to_dict(),
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
        """Checks all settings.

        Raises:
            UserError: If a value is not allowed.
        """
        self.module_settings()
        self.communication_settings()
        form, name = self.rows.form, self.algo_class.__name__
        if not self.is_offline:
            raise UserError(
                f"`input_` is {self.input_!r} but must be the Parquet file or folder with the {form.name}, as "
                f"written by `{form.collector}`."
            )
        if self.env is not None:
            raise UserError(f"`env` is {self.env!r} but {name} learns from {form.name} only; remove `env`.")
        self.require_numbers(["lr", "held_out_share"])
        if self.anneal is not None:
            self.require_whole_setting("anneal", 0)
        if not 0.0 <= self.held_out_share < 1.0:
            raise UserError(f"`held_out_share` is {self.held_out_share!r} but must be in [0, 1).")
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
        """Figures of the held-out rows.

        Args:
            log_probs: As of `learned_terms`.
            hits: As of `learned_terms`.
        """
        raise NotImplementedError

    @override(Algorithm)
    def setup(self, config: AlgorithmConfig) -> None:
        """Builds the Learners and reads the rows."""
        super().setup(config)
        start = time.perf_counter()
        self.labels = self.offline_data.load(self.encoder(), self.config.held_out_share, self.known_authors)
        logger.info("%s read in %.1f s", self.config.rows.form.name, time.perf_counter() - start)

    @override(Algorithm)
    def training_step(self) -> None:
        """One pass over the rows, and the figures of those held out."""
        rows = len(tree.flatten(self.labels.train)[0])
        if self._storage is not None:  # under Tune, where a command may be showing a bar
            on_first_learner(self, _follow, folder=self.logdir, iteration=self.iteration)
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
        self.log_figures(**{self.config.rows.form.name: rows, "held_out_prompts": held_out}, **self.judge_held_out())

    def judge_held_out(self) -> dict[str, float]:
        """Figures of the held-out rows; nothing where none is held out."""
        if not self.labels.held_out_answers:
            return {}
        return self.held_out_figures(*on_first_learner(self, _judge, columns=self.labels.held_out))

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
            **super().provenance(), self.config.rows.form.name: self.config.input_, self.authors: self.labels.authors
        }  # fmt: skip

    @override(AdapterCheckpointMixin)
    def environment(self) -> dict[str, Any]:
        """The environment that the rows come from."""
        env = self.labels.env
        return {"env": env.get("id"), "env_config": dict(env.get("settings") or {})}

    def log_figures(self, **values: float) -> None:
        """Puts figures into the iteration's results."""
        for name, value in values.items():
            self.metrics.log_value((self.results, name), value, window=1)


def _follow(learner: SFTLearner, folder: str, iteration: int) -> None:
    learner.follow(folder, iteration)


def _judge(learner: SFTLearner, columns: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return learner.judge(SHARED_POLICY, columns)
