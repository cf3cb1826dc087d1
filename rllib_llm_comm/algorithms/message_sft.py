"""Supervised training of the message adapter on a teacher's messages (Verco's first stage)."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.connectors.learner import LearnerConnectorPipeline
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import LEARNER_RESULTS, LEARNER_UPDATE_TIMER, TIMERS

from rllib_llm_comm.agents.encoding import encoded_space
from rllib_llm_comm.agents.language_agent import base_of
from rllib_llm_comm.agents.settings import LanguageModelSettings
from rllib_llm_comm.algorithms.language_config import LanguageModelConfigMixin
from rllib_llm_comm.algorithms.message_labels import MessageLabels, MessagePreLearner
from rllib_llm_comm.algorithms.policy_checkpoints import PolicyCheckpointMixin
from rllib_llm_comm.algorithms.policy_export import on_first_learner
from rllib_llm_comm.algorithms.strict_config import SHARED_POLICY
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.language.adapters import MESSAGE
from rllib_llm_comm.learners.sft_learner import SFTLearner
from rllib_llm_comm.modules.llm_comm import LLMCommModule
from rllib_llm_comm.teachers.message_meaning import same_request

if TYPE_CHECKING:
    from ray.rllib.connectors.connector_v2 import ConnectorV2
    from typing_extensions import Self

logger = logging.getLogger(__name__)

SFT_RESULTS = "message_sft"
_TRAIN_RESULTS = ("train_loss", "train_token_accuracy")
_SAMPLES = 5


class MessageSFTConfig(LanguageModelConfigMixin, AlgorithmConfig):
    """Settings of `MessageSFT`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import MessageSFTConfig

        algo = MessageSFTConfig().offline_data(input_="results/labels").build_algo()
        for _ in range(10):
            print(algo.train()["message_sft"])
    """

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults (ours: the paper gives no number of this stage)."""
        super().__init__(algo_class=algo_class or MessageSFT)
        self._set_language_defaults()
        self._is_online = False
        self.lr = 3e-3
        self.anneal: int | None = None
        self.grad_clip = 1.0
        self.grad_clip_by = "global_norm"
        self.train_batch_size_per_learner = 64
        self.held_out_share = 0.1
        self.judge_interval = 5
        self.judge_prompts = 256
        self.offline_data_class = MessageLabels
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
        judge_interval: int = NotProvided,
        judge_prompts: int = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets the optimisation. One training iteration is one pass over all labels. All defaults are ours.

        Args:
            lr: Learning rate of the message adapter, > 0. Default 3e-3 (for the embedded model).
            anneal: Iterations over which the rate falls on a line to 0, or `None` (default) for a constant
                rate.
            grad_clip: Global gradient norm allowed. Default 1.
            train_batch_size_per_learner: Labels per gradient step. Default 64.
            held_out_share: Share of the distinct prompts that is never learned from, in [0, 1). Default 0.1.
            judge_interval: Every so many iterations messages are written for held-out prompts and compared
                with the teacher's; writing takes longer than learning. 0 for only when a checkpoint is saved.
                Default 5.
            judge_prompts: At most so many held-out prompts are judged. Default 256.
            **kwargs: RLlib's other training settings.

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().training(**kwargs)
        return self._assign(own)

    @override(AlgorithmConfig)
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The module with only its message adapter trained."""
        settings = self.language_model_settings((MESSAGE,), train_critic=False)
        return RLModuleSpec(
            module_class=LLMCommModule,
            observation_space=self.observation_space,
            action_space=self.action_space,
            model_config=settings.to_dict(),
        )

    @override(AlgorithmConfig)
    def get_default_learner_class(self) -> type[Learner] | str:
        """`SFTLearner`."""
        return SFTLearner

    @override(AlgorithmConfig)
    def build_learner_connector(
        self, input_observation_space: Any, input_action_space: Any, device: Any = None
    ) -> ConnectorV2:
        """An empty pipeline: labels are no episodes."""
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
        self.language_model_settings((MESSAGE,), train_critic=False)
        self.communication_settings()
        if not self.is_offline:
            raise UserError(
                f"`input_` is {self.input_!r} but must be the Parquet file or folder with the labels, as "
                "written by `collect_labels`."
            )
        if self.env is not None:
            raise UserError(f"`env` is {self.env!r} but MessageSFT learns from labels only; remove `env`.")
        self.require_numbers(["lr", "held_out_share", "judge_interval", "judge_prompts"])
        if self.anneal is not None:
            self.require_whole_setting("anneal", 0)
        if not 0.0 <= self.held_out_share < 1.0:
            raise UserError(f"`held_out_share` is {self.held_out_share!r} but must be in [0, 1).")
        for name, least in (("judge_interval", 0), ("judge_prompts", 1)):
            if getattr(self, name) < least:
                raise UserError(f"`{name}` is {getattr(self, name)!r} but must be at least {least}.")
        super().validate()


class MessageSFT(PolicyCheckpointMixin, Algorithm):
    """Teaches the message adapter to say what the teacher would say, from what one agent sees (Verco Eq. 1).

    Results of an iteration, under `message_sft`: `train_loss`, `held_out_loss` and both token accuracies;
    and, where messages were judged on held-out prompts: `exact_match` (word by word one of the teacher's
    messages), `same_request` (asks for the same thing), `judged`; with `message_samples`.
    """

    @classmethod
    @override(Algorithm)
    def get_default_config(cls) -> MessageSFTConfig:
        """The default settings."""
        return MessageSFTConfig()

    @override(Algorithm)
    def setup(self, config: AlgorithmConfig) -> None:
        """Builds the Learners and reads the labels."""
        super().setup(config)
        settings = self.config.language_model_settings((MESSAGE,), train_critic=False)
        prelearner = MessagePreLearner(
            base=base_of(settings),
            max_tokens=settings.max_prompt_tokens,
            max_words=self.config.max_message_words,
            templates=settings.templates,
        )
        start = time.perf_counter()
        self.labels = self.offline_data.load(prelearner, self.config.held_out_share)
        logger.info("labels read in %.1f s", time.perf_counter() - start)
        self._judged: tuple[int, dict[str, float], list[dict[str, str]]] = (-1, {}, [])

    @override(Algorithm)
    def training_step(self) -> None:
        """One pass over the labels, the held-out loss and, now and then, messages to judge."""
        rows = len(next(iter(self.labels.train.values())))
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
        self._log(labels=rows, held_out_prompts=len(self.labels.held_out_answers))
        if self.labels.held_out_answers:
            held_out = on_first_learner(self, _held_out_loss, columns=self.labels.held_out)
            self._log(**{f"held_out_{name}": value for name, value in held_out.items()})
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
            templates = self.config.language_model_settings((MESSAGE,), train_critic=False).templates
            written = on_first_learner(
                self,
                _write,
                prompts=[templates.message(text) for text in prompts],
                max_words=self.config.max_message_words,
            )
            exact = [said in answers[prompt] for prompt, said in zip(prompts, written, strict=True)]
            same = [
                any(same_request(said, answer) for answer in answers[prompt])
                for prompt, said in zip(prompts, written, strict=True)
            ]
            scores = {
                "exact_match": sum(exact) / len(exact),
                "same_request": sum(same) / len(same),
                "judged": float(len(exact)),
            }
            samples = [
                {"prompt": prompt, "teacher": answers[prompt][0], "student": said}
                for prompt, said in list(zip(prompts, written, strict=True))[:_SAMPLES]
            ]
            self._judged = (self._updates_done(), scores, samples)
        return self._judged[1]

    @override(Algorithm)
    def step(self) -> dict[str, Any]:
        """RLlib's iteration, with sample messages in the result."""
        results = super().step()
        learned = results.get(LEARNER_RESULTS, {}).get(SHARED_POLICY, {})
        own = {name: float(value) for name, value in results.get(SFT_RESULTS, {}).items()}
        own |= {name: float(learned[name]) for name in _TRAIN_RESULTS if name in learned}
        results[SFT_RESULTS] = {**own, **self._judged[1]}
        if self._judged[2]:
            results["message_samples"] = self._judged[2]
        return results

    @override(PolicyCheckpointMixin)
    def provenance(self) -> dict[str, Any]:
        """Quality of the messages and a few samples, for the policy folder."""
        return {
            "labels": self.config.input_,
            "taught_by": self.labels.teachers,
            "held_out": self.judge_messages(),
            "samples": self._judged[2],
        }

    @override(PolicyCheckpointMixin)
    def environment(self) -> dict[str, Any]:
        """The environment that the labels come from."""
        env = self.labels.env
        return {"env": env.get("id"), "env_config": dict(env.get("settings") or {})}

    def _updates_done(self) -> int:
        return int(on_first_learner(self, _updates))

    def _log(self, **values: float) -> None:
        for name, value in values.items():
            self.metrics.log_value((SFT_RESULTS, name), value, window=1)


def _follow(learner: SFTLearner, folder: str, iteration: int) -> None:
    learner.follow(folder, iteration)


def _held_out_loss(learner: SFTLearner, columns: dict[str, Any]) -> dict[str, float]:
    return learner.evaluate_loss(SHARED_POLICY, columns)


def _write(learner: Learner, prompts: list[str], max_words: int) -> list[str]:
    return learner.module[SHARED_POLICY].unwrapped().write_messages(prompts, max_words=max_words)


def _updates(learner: Learner) -> int:
    return learner._weights_seq_no
