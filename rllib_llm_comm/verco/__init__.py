"""Verco and what belongs to it: language-model agents that talk before they act.

From a YAML file to the gradient: `settings` (model and messages), `encoding` (words to arrays), `message_loss`
(probabilities of messages), `language_network` (the network), `message_protocol` and `message_exchange` (speaking and
hearing, without and with RLlib), `policy` (the trained agents and their files), `module` (the network as RLlib's),
`learner` (what messages add to
the losses), `verco`. PPO's own losses are in `rl.multi_agent_ppo_learner`, advantages in `rl.gae`; scores go
through `language.scoring`, `language.adapters` and `language.llama`.
"""
