"""Use the language-model module and the message exchange in a PPO of your own.

This example:
    - registers a PettingZoo game with RLlib by `register_parallel_env` (any parallel environment will do);
    - takes RLlib's stock `PPOConfig`, not `VercoConfig`, and puts two pieces of this package into it: the RLModule
      `LLMCommModule` (frozen language model, message and action adapter, critic) and the env-to-module connector
      `MessageExchange` (agents speak, listen, and get their prompts as token ids);
    - adds the callback `EpisodeMetrics`, which tells how many episodes were solved;
    - exports what was trained by `export_policy`, so that `load_policy`, `rllib evaluate` and `rllib replay` play it.

Everything else is RLlib's: its PPO loss, its advantages, its one optimizer. For Verco's own losses (an optimizer each
for actor and critic, discounting per game step) set `learner_class=VercoLearner` as well, or use `VercoConfig`.

How to run this script
----------------------
`python pieces_in_own_ppo.py`, or with `--smoke` for two small iterations. `--messages none` is the same without talk.
`--message-checkpoint CHECKPOINT` takes the messages from a checkpoint of MessageSFT or Verco; without it the message
adapter is untrained and the cooks babble. `--export FOLDER` names the folder of the policy.

Results to expect
-----------------
A line per iteration: decisions so far, mean return per cook, share of solved episodes; at the end what
the exported policy lets the cooks say and do first, and the commands that take it. With a trained message adapter
the return went from about 0 to 0.5 in 5,000 decisions (seed 0, half a minute on two cores). That is slower than Verco,
since stock PPO counts time in decisions and knows nothing of actions that last several game steps. The first lines
flatter: short episodes end first.
"""

from __future__ import annotations

import argparse

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rllib_llm_comm import export_policy, load_policy
from rllib_llm_comm.rl.callbacks import EpisodeMetrics
from rllib_llm_comm.rl.rllib_adapter import register_parallel_env
from rllib_llm_comm.verco.module import LLMCommModule, MessageExchange

LANGUAGE_MODEL = {"base_model": "embedded", "temperature": 1.5}


def make_config(messages: str, decisions: int) -> PPOConfig:
    """A PPO as one would write it in an existing project."""
    register_parallel_env("my_kitchen", entry="rllib_llm_comm.envs.overcooked_text:parallel_env")
    return (
        PPOConfig()
        .environment("my_kitchen", env_config={"map_name": "B"}, disable_env_checking=True)
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=8,
            env_to_module_connector=lambda env, spaces, device: MessageExchange(
                language_model=LANGUAGE_MODEL, communication={"messages": messages}
            ),
        )
        .multi_agent(
            policies={"cook"}, policy_mapping_fn=lambda agent, episode, **_: "cook", count_steps_by="agent_steps"
        )
        .rl_module(
            rl_module_spec=MultiRLModuleSpec(
                rl_module_specs={"cook": RLModuleSpec(module_class=LLMCommModule, model_config=LANGUAGE_MODEL)}
            )
        )
        .training(
            train_batch_size_per_learner=decisions, minibatch_size=128, num_epochs=2, lr=1e-3, use_kl_loss=False,
            entropy_coeff=0.01, grad_clip=0.5,
        )
        .callbacks(EpisodeMetrics)
        .debugging(seed=0)
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Use the pieces of rllib_llm_comm in a PPO of your own.")
    parser.add_argument("--smoke", action="store_true", help="two small iterations only")
    parser.add_argument("--messages", default="student", choices=("student", "none", "other_moments", "constant"))
    parser.add_argument("--message-checkpoint", help="checkpoint of MessageSFT or Verco")
    parser.add_argument("--export", default="my_policy", help="folder of the exported policy")
    arguments = parser.parse_args()

    ray.init(num_cpus=2, object_store_memory=2 * 10**8, include_dashboard=False, log_to_driver=False)
    algo = make_config(arguments.messages, 128 if arguments.smoke else 512).build_algo()
    try:
        if arguments.message_checkpoint:
            algo.learner_group.foreach_learner(
                lambda learner: learner.module["cook"].unwrapped().load_adapter(arguments.message_checkpoint)
            )
            algo.env_runner_group.sync_weights(from_worker_or_learner_group=algo.learner_group)
        for iteration in range(2 if arguments.smoke else 10):
            results = algo.train()["env_runners"]
            decisions = sum(results["num_agent_steps_sampled_lifetime"].values())
            returns = results.get("agent_episode_returns_mean", {}).values()
            told = f"{sum(returns) / len(returns):6.3f}" if returns else "   -  "
            print(f"{iteration + 1:2d}  {decisions:5.0f} decisions  return {told}  "
                  f"solved {results.get('success_rate', float('nan')):.2f}", flush=True)  # fmt: skip
        folder = export_policy(algo, arguments.export)
    finally:
        algo.stop()
        ray.shutdown()
    policy = load_policy(folder)
    observations, _ = policy.env().reset(seed=0)
    policy.reset(seed=0)
    for cook, decision in policy.act(observations).items():
        print(f"{cook} says {decision.said!r} and does: {decision.candidates[decision.action]}")
    print(f"rllib evaluate {folder}\nrllib replay {folder}")


if __name__ == "__main__":
    main()
