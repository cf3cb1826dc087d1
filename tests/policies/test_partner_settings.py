"""Settings of partners and pools: their kinds, names, shares, and the refusals of what is none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.policies.partner_settings import PartnerSettings, parse_partners, shares, with_absolute_paths
from tests.refusal import refused

shares_of_one = st.floats(0, 1)
words = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
policies = st.one_of(st.sampled_from(["scripted", "random", "stay", "my.module:player"]), words.map("runs/{}".format))


@st.composite
def entries(draw):
    """An entry of a pool that is allowed, as a text or a mapping."""
    policy = draw(policies)
    if draw(st.booleans()):
        return policy
    noise = draw(shares_of_one)
    entry = {
        "policy": policy, "weight": draw(st.floats(1e-6, 1e6)), "noise": noise,
        "pauses": draw(st.floats(0, 1)) * (1 - noise) * 0.999,
        "speech": draw(st.sampled_from(["own", "scripted", "none"])),
    }  # fmt: skip
    if policy == "scripted":
        entry["habit"] = draw(st.sampled_from(["", "one_pot", "onions_only", "dishes_only"]))
    return entry


@given(st.lists(entries(), min_size=1, max_size=8))
def test_pools_keep_their_order_give_every_partner_its_name_and_share_and_go_through_json(value):
    pool = parse_partners(value)
    assert [one.policy for one in pool] == [one if isinstance(one, str) else one["policy"] for one in value]
    assert len({one.name for one in pool}) == len(pool)
    drawn = shares(pool)
    assert sum(drawn) == pytest.approx(1) and min(drawn) > 0
    for one, share in zip(pool, drawn, strict=True):
        assert share == pytest.approx(one.weight / sum(other.weight for other in pool))

    assert parse_partners(json.loads(json.dumps([one.to_dict() for one in pool]))) == pool
    assert parse_partners(pool) == pool


@given(
    st.sampled_from(["weight", "noise", "pauses"]),
    st.one_of(st.floats(max_value=-1e-9), st.booleans(), st.just(float("nan")), words),
)
def test_numbers_out_of_their_range_are_refused_with_their_place(setting, value):
    with refused(f"partners[1].{setting}", None):
        parse_partners(["random", {"policy": "random", setting: value}], "partners")


def test_the_kind_of_a_partner(tmp_path, monkeypatch):
    kinds = {"scripted": "scripted", "random": "random", "stay": "stay", "a.b:c": "function", "runs/a": "checkpoint"}
    assert {policy: PartnerSettings(policy=policy).kind for policy in kinds} == kinds
    monkeypatch.chdir(tmp_path)
    assert PartnerSettings(policy="run:one").kind == "function"
    assert PartnerSettings(policy=r"C:\runs\one").kind == "checkpoint"
    (tmp_path / "run:one").mkdir()
    assert PartnerSettings(policy="run:one").kind == "checkpoint"
    (found,) = with_absolute_paths(parse_partners(["run:one"]))
    assert (found.policy, found.name) == (str(tmp_path / "run:one"), "run:one")
    assert with_absolute_paths(parse_partners(["random"])) == parse_partners(["random"])


def test_names_tell_what_differs():
    pool = parse_partners(
        ["random", "random", {"policy": "random", "name": "random 2"}, "/long/way/to/sp/seed_1/checkpoint_000010"]
        + [{"policy": "scripted", "noise": 0.25, "habit": "one_pot"}]
        + [{"policy": "scripted", "speech": "scripted", "word_order": "reversed", "word_noise": 0.5}]
    )
    assert [one.name for one in pool] == [
        "random", "random 3", "random 2", "sp/seed_1/checkpoint_000010", "scripted, one pot, noise 0.25",
        "scripted, speech scripted, words reversed, word noise 0.5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([], ("pool", "invalid", "list")), ("scripted", ("pool", "invalid", "list")), ([3], ("pool[0]", "type")),
        ([{}], ("pool[0].policy", "missing")),
        (["scriptedd"], ("pool[0].policy", "invalid", "Did you mean 'scripted'")),
        ([{"policy": " "}], ("pool[0].policy", "invalid", "`policy` is empty")),
        ([{"policy": "random", "weigth": 1}], ("pool[0].weigth", "unknown", "Did you mean 'weight'")),
        ([{"policy": "random", "weight": 0}], ("pool[0].weight", "range")),
        ([{"policy": "random", "noise": 0.6, "pauses": 0.6}], ("pool[0].noise",)),
        ([{"policy": "random", "habit": "one_pot"}], ("pool[0].habit", "invalid", "scripted")),
        ([{"policy": "scripted", "habit": "one pot"}], ("pool[0].habit", "choice", "Did you mean 'one_pot'")),
        ([{"policy": "scripted", "greedy": True}], ("pool[0].greedy",)),
        ([{"policy": "scripted", "max_prompt_tokens": 512}], ("pool[0].max_prompt_tokens",)),
        ([{"policy": "scripted", "word_order": "reversed"}], ("pool[0].word_order",)),
        ([{"policy": "zoo:told_salad", "speech": "none", "word_noise": 0.5}], ("pool[0].word_noise",)),
        ([{"policy": "random", "name": "a"}, {"policy": "stay", "name": "a"}], ("pool", "invalid", "two .* 'a'")),
    ],
)  # fmt: skip
def test_what_is_no_pool_is_refused(value, told):
    with refused(*told):
        parse_partners(value)
