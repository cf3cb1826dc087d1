"""The measures of the house see what they count."""

from tools.house import declarations, loaded_by, way_of_verco


def test_a_setting_is_declared_once():
    homes = {"lora_r": "LanguageModelSettings", "entropy_coeff": "PPOTraining", "requests_per_minute": "ChatSettings"}
    assert {key: declarations(key) for key in homes} == {key: [home] for key, home in homes.items()}


def test_the_way_of_verco_begins_at_its_algorithm_and_ends_at_shared_learners():
    way = way_of_verco()
    assert {"rllib_llm_comm.verco.verco", "rllib_llm_comm.rl.multi_agent_ppo_learner"} <= set(way)
    assert not any(".sama." in name or ".baselines." in name for name in way)


def test_agents_without_language_load_no_other_slice():
    loaded = loaded_by("rllib_llm_comm.baselines.numeric.mappo")
    assert loaded["baselines"] > 0 and not any(loaded[name] for name in ("language", "chat", "sama", "verco"))
