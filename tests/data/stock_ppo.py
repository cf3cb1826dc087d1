"""A stock PPO with the language-model module, as a file for `rllib train file`; the game has a name of RLlib's only."""

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rllib_llm_comm.rl.rllib_adapter import register_parallel_env
from rllib_llm_comm.verco.module import LLMCommModule, MessageExchange

MODEL = {"base_model": "embedded"}
KITCHEN = {"map_name": "A", "recipe": "tomato salad", "max_game_steps": 6}
SPEC = MultiRLModuleSpec(rl_module_specs={"cook": RLModuleSpec(module_class=LLMCommModule, model_config=MODEL)})

register_parallel_env("my_kitchen", entry="rllib_llm_comm.envs.overcooked_text:parallel_env")
config = (
    PPOConfig()
    .environment("my_kitchen", env_config=KITCHEN, disable_env_checking=True)
    .env_runners(
        num_env_runners=0,
        num_envs_per_env_runner=2,
        env_to_module_connector=lambda env, spaces, device: MessageExchange(language_model=MODEL, communication={}),
    )
    .multi_agent(policies={"cook"}, policy_mapping_fn=lambda agent, episode, **_: "cook")
    .rl_module(rl_module_spec=SPEC)
    .training(train_batch_size_per_learner=16, minibatch_size=16, num_epochs=1, use_kl_loss=False)
)
stop = {"training_iteration": 1}
