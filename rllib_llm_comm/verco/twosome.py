"""TWOSOME: language-model agents that score candidate actions and say nothing (arXiv 2401.14151)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.rllib.utils.annotations import override

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.rl.strict_config import with_defaults
from rllib_llm_comm.verco.verco import Verco, VercoCommunication, VercoConfig

if TYPE_CHECKING:
    from typing_extensions import Self

# Read in the papers and in their published code: settings of PPO, of the adapter and of scoring.
_PUBLISHED: dict[str, dict[str, Any]] = {
    "twosome": {
        "score_normalization": "word",
        "lora_r": 8,
        "lora_alpha": 16,
        "lora_target_modules": ["q_proj", "v_proj"],
        "critic_hiddens": [1024, 512],
        "temperature": 1.0,
        "lr": 5e-7,
        "critic_lr": 1e-5,
        "num_envs_per_env_runner": 4,
        "train_batch_size_per_learner": 128,
        "minibatch_size": 32,
        "num_epochs": 1,
        "lambda_": 0.95,
        "target_kl": 0.02,
    },
    "glam": {
        "score_normalization": "sum",
        "lora_r": 16,
        "lora_alpha": 32,
        "temperature": 1.0,
        "lr": 1e-6,
        "critic_lr": 1e-6,
        "num_envs_per_env_runner": 32,
        "minibatch_size": 8,
        "num_epochs": 4,
        "lambda_": 0.99,
        "target_kl": None,
    },
}


class TWOSOMEConfig(VercoConfig):
    """Settings of `TWOSOME`: those of `VercoConfig` without messages.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import TWOSOMEConfig

        ours = TWOSOMEConfig().environment("rllib_llm_comm/overcooked_text-v0")
        published = TWOSOMEConfig().published("twosome").language_model(base_model="huggyllama/llama-7b")
        glam = TWOSOMEConfig().published("glam")
    """

    settings_models = {
        **VercoConfig.settings_models,
        "language_model": with_defaults(score_normalization="word")(VercoConfig.settings_models["language_model"]),
        "communication": with_defaults(messages="none")(VercoCommunication),
    }

    def published(self, system: str) -> Self:
        """Takes over the hyper-parameters that were published for large models.

        Args:
            system: `"twosome"` (its Overcooked run with LLaMA-7B), or `"glam"` (arXiv 2302.02662; scores are plain
                sums; the values are those of its published example with LoRA).
        """
        require_choice("published", system, tuple(_PUBLISHED))
        return self.update_from_dict(_PUBLISHED[system])

    @override(VercoConfig)
    def validate(self) -> None:
        """Checks all settings."""
        if self.messages != "none":
            raise UserError(
                f"`messages` is {self.messages!r} but agents of TWOSOME say nothing, so it must be 'none'; use Verco "
                "for agents that talk."
            )
        super().validate()


class TWOSOME(Verco):
    """PPO over the action adapter and the critic of agents that score candidates; settings: `TWOSOMEConfig`."""

    config_class = TWOSOMEConfig
