"""Templates of an experiment, from labels to a restored run whose folder of templates is gone."""

import json
import logging
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toys import COLOURS, ENV_ID, ColourTalk, language_model, register, words_of

from rllib_llm_comm import MessageSFTConfig, Verco, VercoConfig, load_policy
from rllib_llm_comm.core.errors import UserError
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")

MINE = {"message": "{text}{subgoal} so i say:", "action": "{text}{subgoal} i may {options}.{heard} next i"}


def verco(**language):
    return (
        VercoConfig()
        .environment(register(), env_config={"length": 4})
        .language_model(**language_model(temperature=2.0, **language))
        .training(train_batch_size_per_learner=8, num_epochs=1)
        .debugging(seed=0)
    )


def other_prompts(caplog):
    return [record.getMessage() for record in caplog.records if "other prompts" in record.getMessage()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of templates, and checkpoints of SFT and PPO with them."""
    root = tmp_path_factory.mktemp("prompts")
    (mine := root / "mine").mkdir()
    for name, text in MINE.items():
        (mine / f"{name}.txt").write_text(text + "\n")
    seen = [COLOURS[n % 3] for n in range(60)]
    labels = {
        "prompt": [f"you are alice. you see {c}. it is step {n}." for n, c in enumerate(seen)],
        "message": [f"i see {colour}" for colour in seen],
        "env": [json.dumps({"id": ENV_ID, "settings": {}})] * len(seen),
    }
    pq.write_table(pa.table(labels), root / "labels.parquet")
    sft = (
        MessageSFTConfig()
        .offline_data(input_=str(root / "labels.parquet"))
        .language_model(**language_model(prompts=str(mine)))
        .training(lr=1e-2, judge_interval=0)
        .build_algo()
    )
    base = sft.learner_group._learner.module["shared"].unwrapped().network.lm.base
    text = words_of(base, sft.labels.train["label_ids"][0])
    assert " so i say: i see " in text and " i say: i see" not in text.replace("so i say", "")
    taught = sft.save_to_path(str(root / "sft"))
    sft.stop()
    algo = verco(prompts=str(mine)).communication(message_checkpoint=taught).build_algo()
    played = algo.save_to_path(str(root / "verco"))
    algo.stop()
    return mine, taught, played


def test_the_same_prompts_are_no_news_and_a_restored_run_has_them_without_their_folder(trained, caplog):
    mine, taught, played = trained
    assert other_prompts(caplog) == []
    shutil.move(mine, f"{mine}-away")
    try:
        with running(Verco.from_checkpoint(played)) as algo:
            network = algo.env_runner.module["shared"].unwrapped().network
            assert network.settings.prompts["action"] == MINE["action"]
            episodes = algo.env_runner.sample(num_timesteps=4)
            rows = [single.observations[0] for episode in episodes for single in episode.agent_episodes.values()]
            assert rows and all(" i may name " in words_of(network.lm.base, row["prompt_ids"]) for row in rows)
            assert algo.train()["learners"]["shared"]["ratio_first_minibatch"] < 1e-5
        observations, _ = ColourTalk().reset(seed=0)
        policy = load_policy(played)
        policy.reset(seed=0)
        assert " i may name " in policy.act(observations)["alice"].prompt
        with pytest.raises(UserError, match="`prompts` is .*no folder is there"):
            verco(prompts=str(mine)).build_algo()
    finally:
        shutil.move(f"{mine}-away", mine)


def test_other_prompts_are_told_where_an_adapter_or_a_run_is_taken_over(trained, caplog, monkeypatch):
    mine, taught, played = trained
    monkeypatch.setattr("rllib_llm_comm.verco.policy._told", set())
    with caplog.at_level(logging.WARNING), running(verco().communication(message_checkpoint=taught)) as algo:
        (line,) = other_prompts(caplog)
        assert "message differ" in line and taught in line
        algo.restore_from_path(played)
        _, line = other_prompts(caplog)
        assert "message, action differ" in line
        algo.train()
    assert len(other_prompts(caplog)) == 2


def test_a_file_says_them_and_is_refused_before_anything_starts(tmp_path):
    (tmp_path / "action.txt").write_text("{text}{subgoal} next i")
    with pytest.raises(UserError, match=r"`prompts` .*\{heard\}"):
        verco(prompts=str(tmp_path)).validate()
    settings = VercoConfig().update_from_dict({"prompts": {"action": MINE["action"]}})
    assert settings.language_model_settings().templates.lists_options
