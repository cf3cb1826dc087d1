"""The measures of the house see what they count."""

from tools.house import declarations, loaded_by, way_of_verco


def test_a_setting_is_declared_once():
    homes = {"lora_r": "LanguageModelSettings", "entropy_coeff": "PPOTraining", "requests_per_minute": "ChatSettings"}
    assert {key: declarations(key) for key in homes} == {key: [home] for key, home in homes.items()}


def test_the_way_of_verco_holds_its_stage_its_language_and_shared_learners_but_no_other_method():
    way = way_of_verco()
    ours = ("experiments.tune_stage", "verco.verco", "language.scoring", "rl.multi_agent_ppo")
    assert {f"rllib_llm_comm.{name}" for name in ours} <= set(way)
    assert not any(".sama." in name or ".baselines." in name for name in way)


def test_agents_without_language_load_no_other_slice():
    loaded = loaded_by("rllib_llm_comm.baselines.numeric.mappo")
    assert loaded["baselines"] > 0 and not any(loaded[name] for name in ("language", "chat", "sama", "verco"))
