"""Supervised training of the action adapter on demonstrations: behaviour cloning of language agents."""

from __future__ import annotations

from typing import Any

import numpy as np
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.utils.annotations import override

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import ACTION
from rllib_llm_comm.policies.partner_settings import PLAYERS
from rllib_llm_comm.verco.action_demonstrations import ActionDemonstrations, ActionPreLearner
from rllib_llm_comm.verco.adapter_sft import AdapterSFT, AdapterSFTConfig
from rllib_llm_comm.verco.encoding import ObservationEncoder
from rllib_llm_comm.verco.language_agent import base_of
from rllib_llm_comm.verco.learned_rows import Encode


class ActionSFTConfig(AdapterSFTConfig):
    """Settings of `ActionSFT`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import ActionSFTConfig

        algo = ActionSFTConfig().offline_data(input_="results/demonstrations").build_algo()
        for _ in range(8):
            print(algo.train()["action_sft"])
    """

    role, rows = ACTION, ActionDemonstrations

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults (ours); its checkpoints play without messages unless `messages` says otherwise."""
        super().__init__(algo_class=algo_class or ActionSFT)
        self.messages = "none"
        self.message_checkpoint: str | None = None

    @override(AlgorithmConfig)
    def validate(self) -> None:
        """Checks all settings.

        Raises:
            UserError: If a value is not allowed.
        """
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

    @classmethod
    @override(Algorithm)
    def get_default_config(cls) -> ActionSFTConfig:
        """The default settings."""
        return ActionSFTConfig()

    @override(Algorithm)
    def setup(self, config: AlgorithmConfig) -> None:
        """Builds the Learners, loads the message adapter of `message_checkpoint`, and reads the demonstrations."""
        super().setup(config)
        if self.config.message_checkpoint:
            self.load_message_adapter(self.config.message_checkpoint)

    @override(AdapterSFT)
    def encoder(self) -> Encode:
        """Token ids of prompts and candidates."""
        settings = self.config.module_settings()
        return ActionPreLearner(ObservationEncoder(base_of(settings), settings))

    @override(AdapterSFT)
    def held_out_figures(self, log_probs: np.ndarray, hits: np.ndarray) -> dict[str, float]:
        """`log_loss` over rows, `top_1` over states."""
        found = np.bincount(self.labels.held_out_prompts(), weights=hits) > 0
        return {"log_loss": -float(log_probs.mean()), "top_1": float(found.mean())}

    @override(AdapterSFT)
    def provenance(self) -> dict[str, Any]:
        """How well the clone agrees, too."""
        return {**super().provenance(), "held_out": self.judge_held_out()}
