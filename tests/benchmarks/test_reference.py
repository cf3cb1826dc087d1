"""The yardsticks compute the same as the package."""

import json
import sys

import pytest
import torch
from update import largest_differences

from harness import Row, main
from reference_loop import ReferenceLoop
from rllib_llm_comm.language.generation import generate_messages
from rllib_llm_comm.language.scoring import feature_size, prompt_features, score_candidates
from stream import new_network, record_stream
from tests.language.random_models import arrays
from twosome_reference import TwosomeReference


@torch.no_grad()
def test_scores_values_and_messages_of_the_reference(adapted):
    base = adapted.base
    torch.manual_seed(0)
    reference = TwosomeReference(adapted, torch.nn.Linear(feature_size(base), 1))
    prompts = ["get the raw kale", "wait", "the first board shelf chop"]
    candidates = [["wait", "get the kale"], ["get the leek", "get the kale"], ["chop the raw kale", "walk"]]
    heads, tails = arrays(base, zip(prompts, candidates, strict=True))
    ours = score_candidates(adapted, heads, tails, torch.ones(tails.shape[:2]))
    torch.testing.assert_close(ours, reference.scores(prompts, candidates), atol=1e-4, rtol=1e-4)
    values = reference.critic(prompt_features(adapted, heads)).squeeze(-1)
    torch.testing.assert_close(values, reference.values(prompts), atol=1e-4, rtol=1e-4)
    assert generate_messages(adapted, prompts) == reference.messages(prompts)


def test_losses_and_gradients_of_the_reference_loop():
    network = new_network()
    loop = ReferenceLoop(network, num_envs=4)
    minibatch = loop.play(24)
    loop.step(minibatch)
    apart = largest_differences(network, loop, minibatch)
    assert apart["loss_difference"] < 1e-4
    assert apart["gradient_difference"] < 1e-3


def test_stream_is_that_of_the_seed():
    one, two = record_stream(40, num_envs=4), record_stream(40, num_envs=4)
    assert one == two
    assert sum(map(len, one)) >= 40


def test_rows_tell_ratio_and_goal(tmp_path, monkeypatch):
    rate = Row("rate", 30.0, 10.0, "1/s", 3.0)
    seconds = Row("seconds", 2.0, 10.0, "s", 6.0, lower_is_better=True)
    assert (rate.ratio, rate.met, seconds.ratio, seconds.met) == (3.0, True, 5.0, False)
    target = tmp_path / "rows.json"
    monkeypatch.setattr(sys, "argv", ["x", "--json", str(target), "--smoke"])
    main("Rows.", lambda options: [rate, seconds])
    rows = json.loads(target.read_text())
    assert [row["met"] for row in rows] == [True, False]
    assert rows[0]["settings"]["smoke"] and list(tmp_path.iterdir()) == [target]
    monkeypatch.setattr(sys, "argv", ["x", "--rounds", "0"])
    with pytest.raises(SystemExit):
        main("Rows.", lambda options: [])
