"""Supervised training of the message adapter on a teacher's messages (Verco's first stage)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.core.learner.learner import Learner
from ray.rllib.utils.annotations import override

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import MESSAGE
from rllib_llm_comm.rl.policy_export import on_first_learner
from rllib_llm_comm.rl.strict_config import SHARED_POLICY
from rllib_llm_comm.verco.adapter_sft import AdapterSFT, AdapterSFTConfig
from rllib_llm_comm.verco.language_agent import base_of
from rllib_llm_comm.verco.learned_rows import Encode
from rllib_llm_comm.verco.message_labels import MessageLabels, MessagePreLearner
from rllib_llm_comm.verco.teachers.base import TEACHERS
from rllib_llm_comm.verco.teachers.message_meaning import same_request

if TYPE_CHECKING:
    from typing_extensions import Self

_SAMPLES = 5


class MessageSFTConfig(AdapterSFTConfig):
    """Settings of `MessageSFT`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import MessageSFTConfig

        algo = MessageSFTConfig().offline_data(input_="results/labels").build_algo()
        for _ in range(10):
            print(algo.train()["message_sft"])
    """

    role, rows = MESSAGE, MessageLabels

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults (ours: the paper gives no number of this stage)."""
        super().__init__(algo_class=algo_class or MessageSFT)
        self.judge_interval = 5
        self.judge_prompts = 256

    @override(AdapterSFTConfig)
    def training(self, *, judge_interval: int = NotProvided, judge_prompts: int = NotProvided, **kwargs: Any) -> Self:
        """Sets the optimisation. All defaults are ours.

        Args:
            judge_interval: Every so many iterations messages are written for held-out prompts and compared
                with the teacher's; writing takes longer than learning. 0 for only when a checkpoint is saved.
                Default 5.
            judge_prompts: At most so many held-out prompts are judged. Default 256.
            **kwargs: Settings of `AdapterSFTConfig.training`.

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().training(**kwargs)
        return self._assign(own)

    @override(AlgorithmConfig)
    def validate(self) -> None:
        """Checks all settings.

        Raises:
            UserError: If a value is not allowed.
        """
        super().validate()
        self.require_numbers(["judge_interval", "judge_prompts"])
        for name, least in (("judge_interval", 0), ("judge_prompts", 1)):
            if getattr(self, name) < least:
                raise UserError(f"`{name}` is {getattr(self, name)!r} but must be at least {least}.")


class MessageSFT(AdapterSFT):
    """Teaches the message adapter to say what the teacher would say, from what one agent sees (Verco Eq. 1).

    Results of an iteration, under `message_sft`: `train_loss`, `held_out_loss` and both token accuracies;
    and, where messages were judged on held-out prompts: `exact_match` (word by word one of the teacher's
    messages), `same_request` (asks for the same thing), `judged`; with `message_samples`.
    """

    results, authors, known_authors = "message_sft", "taught_by", TEACHERS

    @classmethod
    @override(Algorithm)
    def get_default_config(cls) -> MessageSFTConfig:
        """The default settings."""
        return MessageSFTConfig()

    @override(Algorithm)
    def setup(self, config: AlgorithmConfig) -> None:
        """Builds the Learners and reads the labels."""
        super().setup(config)
        self._judged: tuple[int, dict[str, float], list[dict[str, str]]] = (-1, {}, [])

    @override(AdapterSFT)
    def encoder(self) -> Encode:
        """Token ids of prompts and messages."""
        settings = self.config.module_settings()
        return MessagePreLearner(
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
        results[self.results] |= self._judged[1]
        if self._judged[2]:
            results["message_samples"] = self._judged[2]
        return results

    @override(AdapterSFT)
    def provenance(self) -> dict[str, Any]:
        """Quality of the messages and a few samples, too."""
        return {**super().provenance(), "held_out": self.judge_messages(), "samples": self._judged[2]}

    def _updates_done(self) -> int:
        return int(on_first_learner(self, _updates))


def _write(learner: Learner, prompts: list[str], max_words: int) -> list[str]:
    return learner.module[SHARED_POLICY].unwrapped().write_messages(prompts, max_words=max_words)


def _updates(learner: Learner) -> int:
    return learner._weights_seq_no
