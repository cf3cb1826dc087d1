"""Acting with a trained policy, without Ray."""

import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from toys import COLOURS, TESTS, ColourTalk, write_tiny_talker

from rllib_llm_comm import load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.rollout import evaluate
from rllib_llm_comm.language.engines import plain_scores
from rllib_llm_comm.language.prompts import action_prompt, message_prompt
from rllib_llm_comm.policies.decision import Decision
from rllib_llm_comm.verco.encoding import ObservationEncoder, read_observation
from rllib_llm_comm.verco.teachers.base import TEACHERS, Teacher, register_teacher


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(write_tiny_talker(tmp_path_factory.mktemp("trial") / "policy", length=5, busy=[1, 2]).parent)


@pytest.mark.parametrize("explore", [True, False])
def test_episodes_side_by_side_are_those_one_after_the_other(checkpoint, explore):
    figures = [
        evaluate(load_policy(checkpoint), episodes=7, seed=4, explore=explore, num_envs=num_envs)
        for num_envs in (1, 3, 16)
    ]
    assert figures[0] == figures[1] == figures[2] and figures[0].vocabulary > 0
    told = []
    evaluate(load_policy(checkpoint), episodes=5, num_envs=2, progress=lambda *counts: told.append(counts))
    assert told == [(number, 5) for number in range(1, 6)]


def test_decisions_are_kept_with_values_as_numbers():
    whole = Decision(0, "", {}, ["wait"], np.ones(1), lambda: 0.5, "")
    kept = pickle.loads(pickle.dumps(whole))
    assert (kept.value, kept.candidates, vars(kept)["value"]) == (0.5, ["wait"], 0.5)


def test_decisions_tell_all_that_went_into_them(checkpoint):
    policy = load_policy(checkpoint)
    env = policy.env()
    assert isinstance(env, ColourTalk) and env.length == 5
    observations, _ = env.reset(seed=3)
    policy.reset(seed=3)
    decisions = policy.act(observations)
    for agent, other in (("alice", "bob"), ("bob", "alice")):
        decision = decisions[agent]
        assert decision.heard == {other: decisions[other].said}
        assert decision.prompt == action_prompt(observations[agent]["text"], decision.heard)
        assert decision.candidates == [f"name {colour}" for colour in COLOURS]
        assert len(decision.said.split()) <= 4
        network, view = policy.network, read_observation(observations[agent])
        row = ObservationEncoder(network.lm.base, network.settings).encode(view, decision.heard)
        batch = {name: torch.from_numpy(array[None]) for name, array in row.items()}
        with torch.no_grad():
            scores = plain_scores(network.lm, batch["prompt_ids"], batch["candidate_ids"], batch["action_mask"])
            value = network.values(batch)
        np.testing.assert_allclose(decision.probabilities, (scores[0] / 3.0).softmax(-1), atol=1e-4)
        assert decision.value == pytest.approx(float(value[0]), abs=1e-5)
        assert decision.probabilities.sum() == pytest.approx(1.0)


def test_a_busy_agents_message_is_still_heard_and_an_episode_forgets(checkpoint):
    policy = load_policy(checkpoint)
    env = policy.env()
    observations, infos = env.reset(seed=0)
    policy.reset(seed=0)
    first = policy.act(observations)
    observations, _, _, _, infos = env.step({agent: d.action for agent, d in first.items()})
    asked = {agent: o for agent, o in observations.items() if infos[agent]["needs_action"]}
    assert list(asked) == ["alice"]
    second = policy.act(asked)
    assert second["alice"].heard == {"bob": first["bob"].said}
    policy.reset()
    assert policy.act({"alice": observations["alice"]})["alice"].heard == {}


def test_greedy_takes_the_likeliest_seeds_fix_what_is_drawn_and_forbidden_actions_are_never_taken(checkpoint):
    policy = load_policy(checkpoint)
    observations, _ = ColourTalk().reset(seed=0)

    def act(seed, explore=True):
        policy.reset(seed=seed)
        return policy.act(observations, explore=explore)

    assert all(d.action == d.probabilities.argmax() for seed in range(3) for d in act(seed, explore=False).values())
    drawn = [tuple(d.action for d in act(seed).values()) for seed in (*range(9), *range(9))]
    assert drawn[:9] == drawn[9:] and len(set(drawn)) > 1
    raw = {**observations["alice"], "action_mask": np.array([0, 1, 0], np.int8)}
    decision = policy.act({"alice": raw})["alice"]
    assert decision.action == 1 and decision.probabilities.tolist() == [0.0, 1.0, 0.0]


def test_other_message_modes(checkpoint):
    observations, _ = ColourTalk().reset(seed=0)
    silent = load_policy(checkpoint, messages="none").act(observations)
    assert all(d.said == "" and d.heard == {} for d in silent.values())
    constant = load_policy(checkpoint, messages="constant").act(observations)
    assert {d.said for d in constant.values()} == {"hello"}
    with pytest.raises(UserError, match="Did you mean 'other_moments'"):
        load_policy(checkpoint, messages="other_moment")


def test_teacher_mode_wraps_the_environment(checkpoint, monkeypatch):
    monkeypatch.setattr(TEACHERS, "_entries", dict(TEACHERS._entries))

    class Oracle(Teacher):
        name = "oracle2"

        def messages(self, request, *, rng):
            return {agent: f"i see {request.state['colours'][agent]}" for agent in request.agents}

    register_teacher("oracle2", Oracle)
    policy = load_policy(checkpoint, messages="teacher", teacher="oracle2")
    env = policy.env()
    observations, _ = env.reset(seed=0)
    decisions = policy.act(observations)
    assert decisions["alice"].heard == {"bob": f"i see {env.unwrapped.colours['bob']}"}
    with pytest.raises(UserError, match="`teacher`"):
        load_policy(checkpoint, messages="teacher").env()


def test_needs_no_ray(checkpoint):
    code = (
        "import sys; from toys import register; register(); from rllib_llm_comm import load_policy\n"
        f"policy = load_policy({checkpoint!r}); env = policy.env(); observations, _ = env.reset(seed=0)\n"
        "print(len(policy.act(observations)), 'ray' in sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": TESTS}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert run.stdout.split() == ["2", "False"], run.stderr[-2000:]


def test_clear_errors(checkpoint):
    policy = load_policy(checkpoint)
    with pytest.raises(UserError, match="`text`"):
        policy.act({"alice": {"vector": [0.0]}})
    assert policy.act({}) == {}
    policy.manifest = replace(policy.manifest, env="toys/unknown-v9")
    with pytest.raises(UserError, match="toys/unknown-v9"):
        policy.env()


def test_how_many_messages_of_other_moments_equal_the_true_ones(checkpoint):
    """Against messages that are written again, one by one, for every observation that is met."""
    policy = load_policy(checkpoint, messages="other_moments")
    found = evaluate(policy, episodes=6, seed=3, num_envs=1)
    assert found == evaluate(policy, episodes=6, seed=3, num_envs=1)  # what was said before does not count
    told = found.shuffled_same_share
    env, same = policy.env(), []
    policy.forget()
    for seed in range(3, 9):
        observations, infos = env.reset(seed=seed)
        policy.reset(seed=seed)
        while env.agents:
            asked = {a: observations[a] for a in env.agents if infos[a]["needs_action"]}
            decisions = policy.act(asked)
            for agent, seen in asked.items():
                prompt = message_prompt(seen["text"], seen["subgoal"])
                own = policy.network.write_messages([prompt], max_words=4, temperature=0.0, seed=None)
                same.append(own == [decisions[agent].said])
            observations, _, _, _, infos = env.step({a: d.action for a, d in decisions.items()})
    assert told == round(sum(same) / len(same), 4) and 0 < told < 1
    for messages in ("student", "none", "constant"):
        assert evaluate(load_policy(checkpoint, messages=messages), episodes=2).shuffled_same_share is None


@pytest.mark.parametrize(
    ("trained", "learned", "played", "told"),
    [
        ("none", None, "other_moments", True), ("none", None, "student", True), ("none", "sft", "student", False),
        ("none", None, "constant", False), ("student", None, "other_moments", False),
    ],
)  # fmt: skip
def test_a_policy_that_never_spoke_says_so_when_it_is_made_to(
    checkpoint, tmp_path, caplog, trained, learned, played, told
):
    manifest = load_policy(checkpoint).manifest
    folder = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, folder)
    talk = {**manifest.communication, "messages": trained}
    silent = replace(manifest, provenance={"message_checkpoint": learned}, communication=talk)
    (folder / "policy" / "policy.json").write_text(silent.to_json())
    load_policy(str(folder), messages=played)
    assert any("learned nothing" in record.getMessage() for record in caplog.records) == told
