"""EMMA's network: against a plain loop over rows, cells and symbols."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rllib_llm_comm.baselines.numeric.policy import NumericPolicy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env
from rllib_llm_comm.language.text_encoder import load_text_encoder, padded
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.sama.emma import policy as emma_frozen
from rllib_llm_comm.sama.emma.emma import EmmaObservations
from rllib_llm_comm.sama.emma.network import (
    FRAMES,
    MANUAL,
    EmmaEncoder,
    EmmaNetwork,
    EmmaSettings,
    emma_space,
    sentences,
)
from rllib_llm_comm.sama.emma.policy import FrozenActor, GroundedPolicy
from tests.episodes import episode_of, spaces
from tests.refusal import refused

SETTINGS = EmmaSettings(width=6, filters=5, hiddens=[8], critic_observation="state", init_seed=0)


def kitchen(**settings):
    return subgoal_env(**{"observe": ["entities", "state"], "action_level": "goal_cell", **settings})


def network(settings=SETTINGS, **how):
    env = kitchen(**how)
    space = emma_space("alice", env.observation_space("alice"), env.action_space("alice"), settings)
    net = EmmaNetwork(
        settings,
        symbols=int(space["frames"].high.max()) + 1,
        shape=space["frames"].shape[1:3],
        actions=int(env.action_space("alice").n),
        state_size=space["critic_state"].shape[0],
        encoder=load_text_encoder(),
    )
    drawn = torch.Generator().manual_seed(0)
    torch.nn.init.normal_(net.actor.head.weight, std=1.0, generator=drawn)  # otherwise all logits are nearly equal
    return env, space, net


def rows_of(env, settings=SETTINGS, steps=12):
    encoder = EmmaEncoder(load_text_encoder(), settings)
    rng = np.random.default_rng(0)
    observations, _ = env.reset(seed=0)
    frames = {agent: [] for agent in env.possible_agents}
    rows = []
    for _ in range(steps):
        for agent, seen in observations.items():
            rows.append(encoder.encode(seen, frames[agent], True))
        chosen = {a: int(rng.choice(np.flatnonzero(seen["action_mask"]))) for a, seen in observations.items()}
        observations, *_ = env.step(chosen)
    return rows


def batch_of(rows):
    return {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}


def pooled(pool, states):
    heads = []
    for head in range(4):
        weights = torch.softmax(torch.stack([pool.scale(s)[head] for s in states]), 0)
        heads.append(sum(w * s for w, s in zip(weights, states, strict=True)))
    return pool.project(torch.relu(pool.hidden(pool.norm(torch.cat(heads)))))


def by_hand(net, row):
    """Logits of one row, symbol by symbol as the papers write it."""
    encoder, part = load_text_encoder(), net.actor.grounding
    texts = [encoder.states(padded([s]))[0] for s in sentences(row["manual_tokens"])]
    keys, values = [pooled(part.key, s) for s in texts], [pooled(part.value, s) for s in texts]
    subgoal = row["subgoal_tokens"][row["subgoal_tokens"] > 0].tolist()
    if subgoal:
        states = encoder.states(padded([subgoal]))[0]
        asked = pooled(part.subgoal_key, states), pooled(part.subgoal_value, states)

    def meaning(symbol):
        query = part.query.weight[symbol] / np.sqrt(net.settings.width)
        weights = torch.softmax(torch.stack([query @ key for key in keys]), 0)
        total = sum(w * v for w, v in zip(weights, values, strict=True))
        if subgoal:
            total = total + torch.sigmoid(query @ asked[0]) * asked[1]
        return total

    planes = []
    for frame in row["frames"]:
        cells = torch.zeros(frame.shape[0], frame.shape[1], net.settings.width)
        for y, x in np.ndindex(frame.shape[:2]):
            there = [meaning(int(s)) for s in frame[y, x, :-1] if s]
            if there:
                cells[y, x] += 0.5 * torch.stack(there).mean(0)
            if frame[y, x, -1]:
                cells[y, x] += 0.5 * net.actor.own.weight[int(frame[y, x, -1])]
        planes.append(cells.permute(2, 0, 1))
    seen = torch.relu(net.actor.around(torch.relu(net.actor.mix(torch.cat(planes)[None]))))
    return net.actor.head(seen).flatten()


@torch.no_grad()
def test_logits_are_those_of_the_plain_loop():
    env, _, net = network()
    rows = rows_of(env, steps=2)[:3]
    rows[1]["subgoal_tokens"] = np.zeros_like(rows[1]["subgoal_tokens"])  # nothing is asked for
    texts = EmmaEncoder(load_text_encoder(), SETTINGS).texts
    rows[2] |= texts("go to the pot", "Pots are hot. Onions are round.")
    batch = batch_of(rows)
    logits = net.logits(batch)
    for row, found in zip(rows, logits, strict=True):
        allowed = row["action_mask"] != 0
        np.testing.assert_allclose(found[allowed], by_hand(net, row)[allowed], rtol=1e-4, atol=1e-4)
        assert (found[~allowed] < -1e8).all()


@torch.no_grad()
def test_values_of_rows_do_not_depend_on_each_other():
    env, _, net = network()
    batch = batch_of(rows_of(env, steps=4))
    values = torch.cat([net.values({n: v[i : i + 1] for n, v in batch.items()}) for i in range(8)])
    torch.testing.assert_close(net.values(batch), values, rtol=1e-4, atol=1e-4)


def test_every_weight_is_trained_and_the_encoder_is_not():
    env, _, net = network()
    batch = batch_of(rows_of(env))
    # Constant shifts of all logits do not count, so look at one cell.
    (net.logits(batch).clamp(min=-10)[:, 7].sum() + net.critic_outputs(batch).sum()).backward()
    silent = [name for name, weight in net.named_parameters() if weight.grad is None or not weight.grad.any()]
    # softmax over tokens ignores a constant: the biases of its scores have no gradient.
    assert all(name.endswith("scale.bias") for name in silent), silent
    assert not any("encoder" in name for name in net.state_dict())


def test_other_action_spaces_get_a_flat_head():
    env, space, net = network(action_level="primitive")
    assert net.logits(batch_of(rows_of(env, steps=2))).shape == (4, 6)


@pytest.mark.parametrize(("name", "width"), [("subgoal", 3), ("manual", 100)])
def test_texts_are_never_cut(name, width):
    env, _, _ = network()
    settings = SETTINGS.replace(**{f"max_{name}_tokens": width})
    with refused(f"max_{name}_tokens"):
        rows_of(env, settings, steps=1)


# ---- emmaObservations: spaces, and frames that survive the cuts of an episode ------------------------------------


def test_arrays_are_in_their_space_and_frames_survive_cuts():
    env = kitchen()
    piece = EmmaObservations(*spaces(env), settings=EmmaSettings(critic_observation="auto"))
    observations, infos = env.reset(seed=0)
    episode = episode_of(env, agent_to_module_mapping_fn=lambda *args, **kwargs: "shared")
    episode.add_env_reset(observations=observations, infos=infos)
    rng = np.random.default_rng(0)
    maps = {agent: [seen["entities"]] for agent, seen in observations.items()}
    for step in range(8):
        piece(rl_module=None, batch={}, episodes=[episode])
        piece(rl_module=None, batch={}, episodes=[episode])  # a second look changes nothing
        for agent, single in episode.agent_episodes.items():
            arrays = single.get_observations(-1)
            assert piece.observation_space[agent].contains(arrays)
            expected = [np.zeros_like(maps[agent][0])] * 2 + maps[agent]
            np.testing.assert_array_equal(arrays["frames"], np.stack(expected[-3:]))
        if step == 4:
            episode = episode.cut()
        chosen = {a: int(rng.choice(np.flatnonzero(o["action_mask"]))) for a, o in observations.items()}
        observations, rewards, ended, cut, infos = env.step(chosen)
        for agent, seen in observations.items():
            maps[agent].append(seen["entities"])
        over = {"__all__": False}
        episode.add_env_step(
            observations, chosen, rewards, infos, terminateds={**ended, **over}, truncateds={**cut, **over}
        )


@pytest.mark.parametrize(
    ("observe", "critic", "lacks"),
    [
        ("vector", "auto", "`entities`"), ("entities", "state", "`state`"), ("entities", "auto", ""),
        ("entities", "own", ""),
    ],
)  # fmt: skip
def test_maps_are_a_must_and_a_state_only_where_it_is_wanted(observe, critic, lacks):
    def made():
        return EmmaObservations(*spaces(kitchen(observe=[observe])), settings=EmmaSettings(critic_observation=critic))

    if lacks:
        with pytest.raises(UserError, match=lacks):
            made()
    else:
        assert "critic_state" not in made().observation_space["alice"].spaces


def test_an_environment_may_write_into_its_last_observation():
    env = kitchen()
    piece = EmmaObservations(*spaces(env), settings=EmmaSettings(frames=3, critic_observation="state"))
    observations, infos = env.reset(seed=0)
    seen = observations["alice"]
    episode = episode_of(env, agent_to_module_mapping_fn=lambda *args, **kwargs: "shared")

    def look(number):
        for name in ("entities", "state", "action_mask"):
            seen[name].fill(number)
        return {"alice": dict(seen)}

    episode.add_env_reset(observations=look(0))
    piece(rl_module=None, batch={}, episodes=[episode])
    for number in (1, 2):
        episode.add_env_step(observations=look(number), actions={"alice": 0}, rewards={"alice": 0.0})
        piece(rl_module=None, batch={}, episodes=[episode])
    rows = episode.agent_episodes["alice"].get_observations()
    assert [frame.flat[0] for frame in rows[-1]["frames"]] == [0, 1, 2]
    assert [row["critic_state"][0] for row in rows] == [row["action_mask"][0] for row in rows] == [0, 1, 2]


# ---- what EMMA remembers of texts: the same as computed anew, and forgotten when weights change ------------------


SUBGOALS = ["", "go to floor 1:1", "fetch a dish from the dish stack", "go to floor 1:1", "deliver the soup"]


def test_a_frozen_actor_has_the_networks_chances(monkeypatch):
    env, _, net = network()
    encoder = EmmaEncoder(load_text_encoder(), SETTINGS)
    manual = env.reset(seed=0)[0]["alice"][MANUAL]
    rows = rows_of(env)
    for place, row in enumerate(rows):
        row |= encoder.texts(SUBGOALS[place % len(SUBGOALS)], manual)
    batch = batch_of(rows)
    with torch.no_grad():
        expected = net.logits(batch).double().softmax(-1).numpy()
    told = [SUBGOALS[place % len(SUBGOALS)] for place in range(len(rows))]
    frozen = FrozenActor(net, encoder, manual)
    frames, allowed = batch[FRAMES].numpy(), batch[ACTION_MASK].numpy()
    assert np.allclose(frozen.probabilities(frames, told, allowed), expected, atol=1e-6)
    monkeypatch.setattr(emma_frozen, "_REMEMBERED", 4)  # what is known is thrown away in between
    for part in (slice(0, 3), slice(3, 5), slice(5, 7)):
        found = frozen.probabilities(frames[part], told[part], allowed[part])
        assert np.allclose(found, expected[part], atol=1e-6)


def test_a_manual_is_read_anew_when_weights_have_changed():
    env, _, net = network()
    batch = batch_of(rows_of(env, steps=2))
    with torch.no_grad():
        first = net.logits(batch)
        assert torch.equal(net.logits(batch), first) and len(net._manuals) == 1
        net.actor.grounding.value.project.weight += 0.5
        changed = net.logits(batch)
    assert not torch.equal(changed, first)
    assert torch.allclose(net.logits(batch), changed, atol=1e-6)  # with gradients nothing is remembered
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    net.logits(batch).max().backward()
    assert net.actor.grounding.key.project.weight.grad.abs().sum() > 0
    optimizer.step()
    with torch.no_grad():
        remembered = net.logits(batch)
    assert torch.allclose(remembered, net.logits(batch), atol=1e-6)
    assert not torch.allclose(remembered, changed, atol=1e-3)


def test_meanings_are_those_of_each_pair_alone_whatever_the_batch():
    env, _, net = network()
    encoder = EmmaEncoder(load_text_encoder(), SETTINGS)
    manual = env.reset(seed=0)[0]["alice"][MANUAL]
    batch = batch_of([encoder.texts(subgoal, manual) for subgoal in SUBGOALS])
    with torch.no_grad():
        meant, rows = net.meanings(batch, torch.device("cpu"))
    assert meant.shape[0] == len(net._pairs) == len(set(SUBGOALS)) and rows[1] == rows[3]
    for place, subgoal in enumerate(SUBGOALS):
        fresh = network()[2]
        fresh.load_state_dict(net.state_dict())
        with torch.no_grad():
            alone, _ = fresh.meanings(batch_of([encoder.texts(subgoal, manual)]), torch.device("cpu"))
        assert torch.equal(alone[0], meant[rows[place]])


# ---- what policies of numbers and maps keep of an episode is theirs, also where an environment reuses its ----


def numeric_policy():
    """A team of untrained CommNet agents with vectors of four numbers and three actions."""
    net = NumericNetwork(NumericSettings(network="commnet", init_seed=0), 4, 3)
    model = {"actions": 3, "size": 4}
    manifest = PolicyManifest(algorithm="CommNet", model_config=model, communication={}, kind="numeric")
    return NumericPolicy(net.eval(), manifest)


def test_a_mask_without_an_open_action_is_told():
    seen = {"vector": np.zeros(4, np.float32), "action_mask": np.zeros(3, np.int8)}
    with pytest.raises(UserError, match="`action_mask` of agent 'alice'"):
        numeric_policy().act({"alice": seen})


def test_vectors_of_busy_agents():
    policy = numeric_policy()
    vectors = {agent: np.full(4, index, np.float32) for index, agent in enumerate(("alice", "bob"))}
    policy.act({agent: {"vector": vector} for agent, vector in vectors.items()})
    vectors["bob"].fill(9.0)  # bob is busy now
    memory = policy._memory
    batch = policy.batch([("alice", memory, {"vector": vectors["alice"]})])
    assert batch["team_vectors"][0, :, 0].tolist() == [0.0, 1.0]


def test_earlier_maps():
    env, _, net = network()
    model = {"actions": int(env.action_space("alice").n)}
    manifest = PolicyManifest(algorithm="EMMA", model_config=model, communication={}, kind="grounded")
    policy = GroundedPolicy(net.eval(), manifest)
    seen = env.reset(seed=0)[0]["alice"]
    memory = policy.begin(0)
    for number in (1, 2, 3):
        seen["entities"].fill(number)
        batch = policy.batch([("alice", memory, seen)])
    assert batch["frames"][0, :, 0, 0, 0].tolist() == [1, 2, 3]
