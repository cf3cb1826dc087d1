"""Old names of modules and classes, and their places today.

RLlib's checkpoints are pickles, which hold classes by module and name; experiment files may hold dotted names, too.
Both outlive a move: with `import rllib_llm_comm` Python's import system finds a module under its old name.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_ROOT = __name__.partition(".")[0]

MODULES = {
    "agents.loading": "agents.load_options",
    "algorithms.checkpoints": "algorithms.policy_checkpoints",
    "algorithms.comm_ppo": "algorithms.multi_agent_ppo",
    "algorithms.environments": "algorithms.env_registration",
    "algorithms.group_baselines": "algorithms.group_baseline_settings",
    "algorithms.registry": "algorithms.algorithms",
    "chat.requests": "chat.request_retries",
    "checkpoints.loading": "agents.load_options",
    "cli.algorithm_settings": "experiments.algorithm_settings",
    "cli.checkpoint_settings": "experiments.checkpoint_settings",
    "cli.checkpoints": "checkpoints.find_checkpoint",
    "cli.console": "experiments.console",
    "cli.curve_files": "experiments.curve_files",
    "cli.env_settings": "experiments.env_settings",
    "cli.experiment_file": "experiments.experiment_file",
    "cli.going_on": "experiments.resume",
    "cli.outputs": "experiments.outputs",
    "cli.own_work": "checkpoints.signatures",
    "cli.pipeline": "experiments.pipeline",
    "cli.plain_stages": "experiments.stages_without_tune",
    "cli.prerequisites": "experiments.prerequisites",
    "cli.progress": "experiments.progress",
    "cli.ray_session": "experiments.ray_session",
    "cli.search_space": "experiments.search_space",
    "cli.sign_callback": "experiments.sign_callback",
    "cli.stages": "experiments.stages",
    "cli.study_file": "experiments.study_file",
    "cli.trial_checkpoints": "experiments.trial_checkpoints",
    "cli.tune_callback": "experiments.tune_callback",
    "cli.tune_stage": "experiments.tune_stage",
    "cli.tune_state": "experiments.tune_state",
    "cli.validation": "experiments.validation",
    "connectors.message_protocol": "agents.message_protocol",
    "envs.door.scripted": "envs.door.scripted_player",
    "envs.game": "envs.base_env",
    "envs.minirts.collective": "envs.minirts.collective_command",
    "envs.minirts.commanders": "envs.minirts.commanders.command_level",
    "envs.minirts.commanders.pair": "envs.minirts.commanders.scripted_team",
    "envs.minirts.commands": "envs.minirts.engine.command_queue",
    "envs.minirts.compiling": "envs.minirts.engine.warm_up",
    "envs.minirts.discs": "envs.minirts.engine.collisions_and_sight",
    "envs.minirts.durative": "envs.minirts.engine.durative",
    "envs.minirts.engine.compile_rules": "envs.minirts.engine.warm_up",
    "envs.minirts.engine.discs": "envs.minirts.engine.collisions_and_sight",
    "envs.minirts.engine.game": "envs.minirts.engine.rts_game",
    "envs.minirts.engine.immediate": "envs.minirts.engine.command_execution",
    "envs.minirts.engine.immediate_commands": "envs.minirts.engine.command_queue",
    "envs.minirts.engine.ticks": "envs.minirts.engine.tick_rules",
    "envs.minirts.executor": "envs.minirts.commanders.executor",
    "envs.minirts.fingerprint": "envs.minirts.engine.fingerprint",
    "envs.minirts.game": "envs.minirts.engine.rts_game",
    "envs.minirts.immediate": "envs.minirts.engine.command_execution",
    "envs.minirts.mapgen": "envs.minirts.engine.mapgen",
    "envs.minirts.names": "envs.minirts.view.names",
    "envs.minirts.observations": "envs.minirts.view.observations",
    "envs.minirts.opponents": "envs.minirts.engine.opponents",
    "envs.minirts.order": "envs.minirts.engine.unit_order",
    "envs.minirts.orders": "envs.minirts.engine.order_rules",
    "envs.minirts.pair": "envs.minirts.commanders.scripted_team",
    "envs.minirts.paths": "envs.minirts.engine.paths",
    "envs.minirts.places": "envs.minirts.engine.places",
    "envs.minirts.random_stream": "envs.minirts.engine.random_stream",
    "envs.minirts.render": "envs.minirts.view.render",
    "envs.minirts.sayings": "envs.minirts.commanders.sayings",
    "envs.minirts.scripted": "envs.minirts.commanders.scripted_player",
    "envs.minirts.scripted_orders": "envs.minirts.engine.opponent_orders",
    "envs.minirts.scripted_plan": "envs.minirts.engine.opponent_plan",
    "envs.minirts.scripted_view": "envs.minirts.engine.opponent_view",
    "envs.minirts.sprites": "envs.minirts.view.sprites",
    "envs.minirts.state": "envs.minirts.engine.state",
    "envs.minirts.tactics": "envs.minirts.engine.tactics",
    "envs.minirts.tasks": "envs.minirts.commanders.tasks",
    "envs.minirts.text": "envs.minirts.view.text",
    "envs.minirts.ticks": "envs.minirts.engine.tick_rules",
    "envs.minirts.told": "envs.minirts.told_army",
    "envs.minirts.units": "envs.minirts.engine.units",
    "envs.minirts.walking": "envs.minirts.engine.walking",
    "envs.overcooked_ai.checks": "envs.overcooked_ai.setting_checks",
    "envs.overcooked_ai.habits": "envs.overcooked_ai.scripted_partners",
    "envs.overcooked_ai.pair": "envs.overcooked_ai.scripted_team",
    "envs.overcooked_ai.plain": "envs.overcooked_ai.plain_state",
    "envs.overcooked_ai.scripted": "envs.overcooked_ai.scripted_player",
    "envs.overcooked_ai.wanted_seen": "envs.overcooked_ai.wanted_pot_observations",
    "envs.overcooked_text.checks": "envs.overcooked_text.setting_checks",
    "envs.overcooked_text.cook": "envs.overcooked_text.cook_rules",
    "envs.overcooked_text.macro": "envs.overcooked_text.macro_execution",
    "envs.overcooked_text.observations": "envs.overcooked_text.observation_space",
    "envs.overcooked_text.pair": "envs.overcooked_text.scripted_team",
    "envs.overcooked_text.scripted": "envs.overcooked_text.scripted_player",
    "envs.overcooked_text.text": "envs.overcooked_text.observation_text",
    "envs.overcooked_text.view": "envs.overcooked_text.cook_view",
    "envs.overcooked_text.wording": "envs.overcooked_text.text_cache",
    "envs.overcooked_text.words": "envs.overcooked_text.view_sentences",
    "envs.plain_forms": "envs.wrappers",
    "envs.referential.scripted": "envs.referential.scripted_player",
    "envs.telling": "envs.telling_game",
    "envs.told_game": "envs.telling_game",
    "evaluation.array_policy": "agents.array_policy",
    "evaluation.decision": "agents.decision",
    "evaluation.drift": "evaluation.message_drift",
    "evaluation.environments": "agents.policy_env",
    "evaluation.executors": "evaluation.subgoal_executors",
    "evaluation.grounded_policy": "agents.emma_policy",
    "evaluation.numeric_policy": "agents.numeric_policy",
    "evaluation.planned": "evaluation.planned_play",
    "evaluation.planned_games": "evaluation.planned_play",
    "evaluation.policy": "agents.load_policy",
    "experiments.plain_stages": "experiments.stages_without_tune",
    "language.accounts": "chat.usage",
    "language.breaker": "chat.circuit_breaker",
    "language.cassettes": "chat.cassettes",
    "language.chat": "chat.client",
    "language.chat_answers": "chat.answers",
    "language.chat_batch": "chat.batch",
    "language.chat_cache": "chat.cache",
    "language.chat_dialect": "chat.dialect",
    "language.chat_model": "chat.chat_model",
    "language.chat_wire": "chat.request_retries",
    "language.endpoint": "chat.endpoint",
    "language.forms": "chat.answer_schemas",
    "language.local_chat": "chat.local_chat",
    "language.message_server": "chat.message_server",
    "language.plain": "language.plain_scoring",
    "language.purposes": "chat.purposes",
    "language.templates": "language.prompt_files",
    "learners.comm_ppo_learner": "learners.multi_agent_ppo_learner",
    "learners.group_advantages": "learners.group_baseline_learner",
    "learners.message_drift": "learners.message_kl_coeff",
    "learners.pass_share": "learners.epoch_progress",
    "learners.semi_markov_gae": "learners.gae_connector",
    "modules.core": "agents.language_agent",
    "modules.emma_inputs": "agents.emma_inputs",
    "modules.emma_network": "agents.emma_network",
    "modules.emma_settings": "agents.emma_settings",
    "modules.encoding": "agents.encoding",
    "modules.memo": "agents.bounded_cache",
    "modules.message_loss": "agents.label_loss",
    "modules.numeric_network": "agents.numeric_network",
    "modules.policy_folder": "agents.policy_folder",
    "modules.policy_manifest": "agents.policy_manifest",
    "modules.recorded": "agents.recorded_settings",
    "modules.settings": "agents.settings",
    "modules.speech": "agents.utterance_policy",
    "modules.value_norm": "agents.value_norm",
    "planning.agreement": "planning.rewards.reward_agreement",
    "planning.answered": "planning.answer_authors",
    "planning.chat_forms": "planning.planner_forms",
    "planning.deps": "planning.deps_planner",
    "planning.env_wrapper": "planning.planned_env",
    "planning.game": "planning.planning_game",
    "planning.judged": "planning.judgements",
    "planning.kitchen.proposed_states": "planning.proposed_states",
    "planning.kitchen.reward_agreement": "planning.rewards.reward_agreement",
    "planning.kitchen.state_translation": "planning.state_translation",
    "planning.kitchen.subgoal_dataset": "planning.subgoal_dataset",
    "planning.latex": "planning.manuals.latex",
    "planning.manual": "planning.manuals.manual",
    "planning.rewards": "planning.rewards.reward_code",
    "planning.sandbox": "planning.rewards.sandbox",
    "planning.sandbox_worker": "planning.rewards.sandbox_worker",
    "planning.shipped": "planning.shipped_cassettes",
    "planning.subgoal_rewards": "planning.rewards.subgoal_rewards",
    "planning.telling": "planning.subgoal_observations",
    "planning.translation": "planning.state_translation",
    "play.session_log": "play.session_recorder",
    "runners.onion_soup": "env_runners.overcooked_ai",
    "sessions": "session_files",
    "teachers.chat": "teachers.chat_teacher",
    "teachers.collect": "teachers.collect_labels",
    "teachers.env_wrapper": "teachers.taught_env",
    "teachers.requests": "teachers.message_meaning",
    "teachers.scripted": "teachers.scripted_teacher",
}
"""Old -> new module, both below this package."""

NAMES = {
    "algorithms.comm_ppo.CommPPOConfig": "algorithms.multi_agent_ppo.MultiAgentPPOConfig",
    "evaluation.planned_games.PolicyExecutor": "evaluation.subgoal_executors.PolicyExecutor",
    "evaluation.planned_games.ScriptedExecutor": "evaluation.subgoal_executors.ScriptedExecutor",
    "learners.comm_ppo_learner.CommPPOLearner": "learners.multi_agent_ppo_learner.MultiAgentPPOLearner",
    "modules.speech.SpeechEncoder": "agents.utterance_policy.UtteranceEncoder",
    "modules.speech.SpeechTerms": "agents.utterance_policy.UtteranceTerms",
    "modules.speech.speech_terms": "agents.utterance_policy.utterance_terms",
}
"""Old -> new dotted name of what was renamed in a module of `MODULES`, both below this package."""

# Folders that are gone; Python imports them before the modules that were in them.
_FOLDERS = frozenset({"runners"})


class _OldNames(MetaPathFinder, Loader):
    """Finds modules of `MODULES` that no other finder has found; each hands out the attributes of the new one."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """A spec for an old name, else `None`."""
        root, _, name = fullname.partition(".")
        if root != _ROOT or not (name in MODULES or name in _FOLDERS):
            return None
        return ModuleSpec(fullname, self, is_package=name in _FOLDERS)

    def exec_module(self, module: ModuleType) -> None:
        """Gives a module of an old name the attributes of the new one."""
        name = module.__name__.partition(".")[2]
        if name in MODULES:
            module.__getattr__ = renamed(module.__name__)  # type: ignore[method-assign]
            message = f"`{module.__name__}` has moved to `{_ROOT}.{MODULES[name]}`."
            # Python shows it where a user's own program imports the old name, and not while RLlib unpickles.
            warnings.warn(message, DeprecationWarning, stacklevel=2)


def renamed(module: str) -> Callable[[str], Any]:
    """A module's `__getattr__` that hands out what was in an old module of the same name.

    Args:
        module: Full name of the old module. A package of that name has modules of its own, which come first.
    """
    old = module.partition(".")[2]

    def __getattr__(name: str) -> Any:  # noqa: N807  (it becomes one)
        if name.startswith("__") or _has_module(module, name):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, attribute = NAMES.get(f"{old}.{name}", f"{MODULES[old]}.{name}").rpartition(".")
        return getattr(importlib.import_module(f"{_ROOT}.{place}"), attribute)

    return __getattr__


def _has_module(module: str, name: str) -> bool:
    """True if a package of the name `module` has a module `name`."""
    return hasattr(sys.modules.get(module), "__path__") and find_spec(f"{module}.{name}") is not None


# Old names that packages or other modules have now: these hand out old names themselves, by `renamed`.
_TAKEN = frozenset({"envs.minirts.commanders", "envs.minirts.game", "planning.rewards"})
_finder = _OldNames()


def install() -> None:
    """Lets Python find modules under their old names; may be called again."""
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
