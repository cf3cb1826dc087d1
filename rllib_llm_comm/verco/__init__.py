"""Verco and what belongs to it: language-model agents that talk before they act.

To change what is learned, begin at `verco` (the learner) and docs/extend/algorithm.md ("Another loss or advantage").

The way of a run, from its settings to the gradient:

* `settings`: of the language model and of messages; `verco`: of the optimisation, and the algorithm;
* `module`: the agents in RLlib, who write and hear messages, and which of their weights are trained (`setup`, by
  `VercoConfig.trained_parts`); `message_protocol`: how they do so, without RLlib;
  `teachers`: who writes labels, or speaks in their place;
* `encoding`: observations, what was heard and what was said as token ids;
* `language_network`: the network: messages and their probabilities, scores of candidates, values; the vocabulary's
  logits before each token of a message: `label_logits`;
* `advantages`: those of groups and of messages (GAE and minibatches are in `rl.train_batch`); the losses of PPO, to
  which `verco` adds those of messages, are in `rl.multi_agent_ppo`.

`policy` is the trained agents without RLlib, with their files; `export_models` writes them as plain models. `sft`
trains one adapter from what was recorded, `twosome` is Verco without messages. Scores go through `language.scoring`,
`language.adapters` and `language.llama`.
"""
