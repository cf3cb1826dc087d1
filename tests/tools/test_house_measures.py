"""The measures of the house see what they count."""

from tools.house import declarations, entered_by_update, files_told, loaded_by


def test_a_setting_is_declared_once():
    homes = {"lora_r": "LanguageModelSettings", "entropy_coeff": "PPOTraining", "requests_per_minute": "ChatSettings"}
    assert {key: declarations(key) for key in homes} == {key: [home] for key, home in homes.items()}


def test_the_way_to_a_gradient_names_all_files_that_an_update_enters():
    entered = {name for name in entered_by_update() if name.startswith(("verco/", "rl/", "language/"))}
    assert {"verco/verco.py", "rl/multi_agent_ppo.py", "language/scoring.py"} <= entered <= files_told("Learn")


def test_agents_without_language_load_no_other_slice():
    loaded = loaded_by("rllib_llm_comm.baselines.numeric.mappo")
    assert loaded["baselines"] > 0 and not any(loaded[name] for name in ("language", "chat", "sama", "verco"))
