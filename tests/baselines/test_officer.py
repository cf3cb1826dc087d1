"""Officers that follow sentences: distribution and network, demonstrations, cloning, games under commanders."""

from __future__ import annotations

import functools
import itertools
import json
import re

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rllib_llm_comm.baselines.red.collective_choice import PARTS, CollectiveChoice
from rllib_llm_comm.baselines.red.officer_cloning import (
    INDEX,
    SEEN,
    OfficerCloningSettings,
    OfficerDemonstrationSettings,
    clone_into,
    clone_officers,
    decisions_of,
    drawn_decisions,
    mean_nll,
    provenance_of,
    read_demonstrations,
    write_demonstrations,
    write_officer,
)
from rllib_llm_comm.baselines.red.officer_network import (
    CellKeys,
    MapEncoder,
    OfficerNetwork,
    OfficerSettings,
    allowed_values,
    distinct_views,
    marks_of_others,
    planes_of,
    team_view,
)
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts.collective_command import GO_ON_AT, HEADS, KIND_AT, SIZES, masks
from rllib_llm_comm.envs.minirts.commanders import make_commander
from rllib_llm_comm.envs.minirts.officer_view import OWN, SENTENCES, observe
from rllib_llm_comm.envs.minirts.officers import checkpoints_of
from rllib_llm_comm.envs.minirts.side import Side
from rllib_llm_comm.evaluation.planner_scores import PlannedGames, PlanningSetup, ScriptedExecutor
from rllib_llm_comm.policies.load_policy import load_policy
from tests.envs.plain_views import planes
from tests.refusal import refused

SMALL = OfficerSettings(filters=8, width=16, words=8, keys=8, init_seed=0)
SHORT = OfficerDemonstrationSettings(games=4, max_tick=1500, seed=1)


def batch_of(rows, numbers):
    seen = decisions_of(rows.columns, numbers)
    return {name: torch.from_numpy(seen[name]) for name in SEEN}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("demonstrations") / "short"
    write_demonstrations(root, SHORT)
    return root


@pytest.fixture(scope="module")
def rows(folder):
    return read_demonstrations(folder)


@pytest.fixture(scope="module")
def officer(rows, tmp_path_factory):
    how = OfficerCloningSettings(network=SMALL, epochs=5, lr=1e-2, batch_size=32, idle=1.0)
    found = clone_officers(rows, how)
    target = tmp_path_factory.mktemp("officer") / "policy"
    env_config = {"num_agents": 2, "opponent": "medium2", "max_tick": 1500}
    write_officer(target, found.network, "BehaviorCloning", env_config, provenance_of(rows, how, found))
    return target


# ---- the distribution -----------------------------------------------------------------------------------------


def random_choice(rows=1, units=3):
    draw = torch.Generator().manual_seed(5)
    shapes = {"go_on": (), "flags": (units,), "kind": (units, 7), "train": (units, 16), "build": (units, 16)}
    shapes |= dict.fromkeys(("resource", "enemy", "site", "cell", "resource_keys", "enemy_keys"), (units, 4))
    shapes |= {"cell_keys": (1024, 4)}
    parts = {name: torch.randn(rows, *shape, generator=draw) for name, shape in shapes.items()}
    return CollectiveChoice(**parts, allowed=torch.ones(rows, sum(HEADS[:5]), dtype=torch.bool))


def test_log_probabilities_of_all_actions_sum_to_one():
    choice = random_choice()
    choice.allowed[:] = False
    for part, values in ((0, (1, 4)), (1, (0, 2)), (3, (2, 5))):  # gather from two, or train one of two
        choice.allowed[:, [sum(HEADS[:part]) + value for value in values]] = True
    total = 0.0
    for flags in np.ndindex(2, 2, 2):
        for kind, part, value in ((1, 1, 0), (1, 1, 2), (4, 3, 2), (4, 3, 5)):
            action = np.zeros((1, len(SIZES)), np.int64)
            action[0, KIND_AT], action[0, part], action[0, len(HEADS) : len(HEADS) + 3] = kind, value, flags
            total += float(choice.logp(torch.from_numpy(action)).exp())
    goes_on = torch.zeros(1, len(SIZES), dtype=torch.int64)
    goes_on[0, GO_ON_AT] = 1
    assert total + float(choice.logp(goes_on).exp()) == pytest.approx(1.0, abs=1e-5)


def test_draws_are_as_frequent_as_their_probabilities():
    choice = random_choice(rows=1)
    many = CollectiveChoice(**{name: value.expand(20000, *value.shape[1:]) for name, value in vars(choice).items()})
    drawn = many.sample(torch.Generator().manual_seed(0))
    assert float(drawn[:, GO_ON_AT].double().mean()) == pytest.approx(float(choice.go_on.sigmoid()), abs=0.01)
    acted = drawn[drawn[:, GO_ON_AT] == 0]
    flagged = acted[:, len(HEADS) : len(HEADS) + 3].double().mean(0)
    assert torch.allclose(flagged, choice.flags[0].sigmoid().double(), atol=0.015)
    everybody = acted[(acted[:, len(HEADS) : len(HEADS) + 3] == 1).all(1)]
    chances = choice.kind[0].mean(0).softmax(-1).double()
    shares = torch.bincount(everybody[:, KIND_AT], minlength=7) / len(everybody)
    assert torch.allclose(shares.double(), chances, atol=0.03)


def test_parts_that_an_action_does_not_use_do_not_count():
    choice = random_choice()
    action = choice.sample(torch.Generator().manual_seed(1))
    action[0, GO_ON_AT], action[0, KIND_AT] = 0, 4  # train
    other = action.clone()
    for part, kinds in PARTS.items():
        if 4 not in kinds:
            other[0, part] = 3 - action[0, part].clamp(max=2)
    assert float(choice.logp(action)) == float(choice.logp(other))
    other[0, 3] = (action[0, 3] + 1) % 16
    assert float(choice.logp(action)) != float(choice.logp(other))


# ---- the network ----------------------------------------------------------------------------------------------


def test_the_network_sees_what_planes_and_masks_say(rows):
    env = SHORT.env()
    env.reset(seed=2)
    commander = make_commander("oracle", env.executor, minirts.parallel_env().commands)
    checked = 0
    while env.agents and checked < 60:
        for number in range(2):
            seen = {name: torch.from_numpy(part)[None] for name, part in observe(env.team, number).items()}
            assert np.array_equal(allowed_values(seen)[0].numpy(), masks(env.team, number)[: sum(HEADS[:5])] > 0)
            ours, theirs = planes_of(seen)[0].numpy(), planes(env.team, number)
            assert np.array_equal(ours[[*range(7), 7]], theirs[[*range(7), 10]])
            assert np.array_equal(ours[9:24], theirs[11:26]) and np.array_equal(ours[25:42], theirs[26:43])
            env.executor.command(number, commander(number))
            checked += 1
        orders = env.executor.give_orders()
        env.game.step(orders, 50)
        env.team.look()
        env.executor.settle()


def test_possible_actions_only_and_the_same_log_probabilities_alone_and_in_a_batch(rows):
    network = OfficerNetwork(SMALL).eval()
    batch = batch_of(rows, np.arange(0, len(rows), 9))
    with torch.no_grad():
        choice, values = network(batch)
        actions = choice.sample(torch.Generator().manual_seed(0))
        alone = [network({k: v[i : i + 1] for k, v in batch.items()})[0].logp(actions[i : i + 1]) for i in range(8)]
    assert torch.allclose(choice.logp(actions)[:8], torch.cat(alone), atol=1e-5)
    assert values.shape == (len(actions),)
    allowed = allowed_values(batch)
    for part in (0, 1, 2, 3, 4):
        used = (actions[:, GO_ON_AT] == 0) & torch.isin(actions[:, KIND_AT], torch.tensor(PARTS[part]))
        assert allowed[used, sum(HEADS[:part]) + actions[used, part]].all()


def test_what_is_said_changes_what_is_ordered_and_silence_is_possible(rows):
    network, batch = OfficerNetwork(SMALL).eval(), batch_of(rows, np.arange(40, 60))
    silent = {**batch, SENTENCES: torch.zeros_like(batch[SENTENCES])}
    with torch.no_grad():
        told, untold = (network(seen)[0].kind_chances() for seen in (batch, silent))
    assert bool(batch[SENTENCES].any()) and not torch.allclose(told, untold) and bool(untold.isfinite().all())


@functools.cache
def both_views(decisions):
    """The side as each commander sees it, and as one commander of all its units sees it, at some decision of a game."""
    env = minirts.parallel_env(opponent="medium2", max_tick=2000, observe=["vector"])
    env.reset(seed=7)
    commander = make_commander("oracle", env.executor, env.commands)
    for _ in range(decisions):
        env.step({agent: env.commands.index(commander(number)) for number, agent in enumerate(env.agents)})
    alone = Side(env.game, env.team.player, 1)
    seen = [observe(env.team, number) for number in range(2)] + [observe(alone, 0)]
    return {name: torch.from_numpy(np.stack([one[name] for one in seen])) for name in seen[0]}


@pytest.mark.parametrize("decisions", [0, 25, 38])
def test_the_critics_shared_view_is_that_of_one_commander_of_all_units(decisions):
    seen = both_views(decisions)
    shared = team_view(seen)
    alice, bob, alone = ({name: part[row] for name, part in shared.items()} for row in range(3))
    assert not torch.equal(seen[OWN][0], seen[OWN][1])
    for commander in (alice, bob):
        for name, part in alone.items():
            ours, theirs = commander[name].tolist(), part.tolist()
            assert (sorted(ours) == sorted(theirs)) if name == OWN else (ours == theirs)
    assert torch.equal(*planes_of(shared)[:2]) and torch.equal(seen[OWN][2], alone[OWN])


@pytest.mark.parametrize("stride", [1, 2])
def test_the_map_is_encoded_as_by_convolutions_over_all_planes(stride):
    seen, torch_rng = both_views(38), torch.Generator().manual_seed(0)
    encoder = MapEncoder(SMALL.replace(stride=stride))
    ours, plain = encoder.begin(seen), encoder.first(planes_of(seen))
    assert torch.allclose(ours, plain, atol=1e-6)
    shared = ours + encoder.added(marks_of_others(seen), len(ours))
    assert torch.allclose(shared, encoder.first(planes_of(team_view(seen))), atol=1e-6)
    weights = torch.randn(plain.shape, generator=torch_rng)
    of_ours, of_plain = (
        torch.autograd.grad((one * weights).sum(), tuple(encoder.first.parameters())) for one in (ours, plain)
    )
    for one, other in zip(of_ours, of_plain, strict=True):
        assert torch.allclose(one, other, atol=1e-3) and other.abs().max() > 1
    keys = CellKeys(encoder, encoder.finish(ours), seen)
    every = encoder.cell_keys(encoder.finish(plain), planes_of(seen))
    assert torch.allclose(keys[torch.tensor([2, 0])], every[[2, 0]], atol=1e-6)
    assert torch.allclose(keys[1:][torch.tensor([1])], every[2:], atol=1e-6)


def test_officers_of_a_side_share_a_view_and_any_other_difference_makes_two():
    seen = both_views(38)
    assert [part.tolist() for part in distinct_views(seen)] == [[0], [0, 0, 0]]
    for name, part in seen.items():
        changed = part.clone()
        changed[1].view(-1)[0] += 1
        first, shared = distinct_views({**seen, name: changed})
        assert sorted(first.tolist()) == [0, 1] and shared[0] == shared[2] != shared[1], name


def test_the_critic_of_the_team_judges_alike_and_the_actor_stays_as_it_is():
    seen = both_views(38)
    own = OfficerNetwork(SMALL).eval()
    team = OfficerNetwork(SMALL.replace(critic_observation="team")).eval()
    with torch.no_grad():
        (chances, values), (same, judged) = own(seen), team(seen)
        again, whole = team.choose(seen)
    every = torch.arange(3)
    for name, part in vars(chances).items():
        ours, theirs = (vars(one)[name][every] for one in (same, again))
        assert torch.equal(part[every], ours) and torch.equal(ours, theirs), name
    assert torch.allclose(judged, judged[2].expand(3), atol=1e-6) and torch.equal(team.values(whole), judged)
    assert torch.equal(team.judged(seen), judged) and torch.equal(own.judged(seen), values)
    assert abs(float(values[0] - values[1])) > 1e-4 and torch.equal(judged[2], values[2])
    with refused("critic_observation", "choice"):
        OfficerSettings(critic_observation="state")


# ---- demonstrations -------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_demonstrations_and_a_cut_call_goes_on(rows, tmp_path):
    fewer = SHORT.replace(games=2)
    write_demonstrations(tmp_path / "two", fewer)
    grown = write_demonstrations(tmp_path / "two", SHORT)
    assert list(grown.games) == list(rows.games)
    assert all(np.array_equal(grown.columns[name], rows.columns[name]) for name in rows.columns)
    assert {game["commander"] for game in rows.games} <= {"oracle", "random", "adversarial"}
    assert rows.columns[SENTENCES].any()


def test_other_settings_and_damaged_files_are_refused(folder, tmp_path):
    with pytest.raises(UserError, match="other settings"):
        write_demonstrations(folder, OfficerDemonstrationSettings(games=5, max_tick=1500, seed=2))
    with pytest.raises(UserError, match="`rllib officer demonstrations`"):
        read_demonstrations(tmp_path)
    for name in (INDEX, "part-00000.npz"):
        copy = tmp_path / name
        copy.mkdir()
        for path in folder.iterdir():
            (copy / path.name).write_bytes(path.read_bytes())
        (copy / name).write_bytes(b"{}")
        with pytest.raises(UserError, match="cannot be read"):
            read_demonstrations(copy)
    with refused("commanders"):
        OfficerDemonstrationSettings(commanders={})


# ---- cloning --------------------------------------------------------------------------------------------------


def test_idle_decisions_count_for_those_that_are_left_out(rows):
    among = np.arange(len(rows))
    drawn, weights = drawn_decisions(rows.columns["action"], among, 0.25, np.random.default_rng(0))
    idle = rows.columns["action"][drawn, GO_ON_AT] == 1
    busy = (rows.columns["action"][:, GO_ON_AT] == 0).sum()
    assert (weights[idle] == 4.0).all() and (weights[~idle] == 1.0).all() and (~idle).sum() == busy
    assert weights.sum() == pytest.approx(len(rows), rel=0.25)


def test_cloning_learns_from_games_and_is_kept_as_a_policy(rows, officer):
    network = load_policy(officer).network
    untrained = mean_nll(OfficerNetwork(SMALL), rows, np.arange(len(rows)))
    assert mean_nll(network, rows, np.arange(len(rows))) < 0.9 * untrained
    told = json.loads((officer / "policy.json").read_text())
    assert told["kind"] == "officer" and told["provenance"]["demonstrations"]["games"] == SHORT.games
    assert all(path.suffix in (".json", ".safetensors") for path in officer.iterdir())


def test_the_best_pass_so_far_is_kept_and_can_be_gone_on_from(folder, officer, tmp_path):
    kept = []

    def stop(done, total):
        if (tmp_path / "cut" / "policy.json").exists():
            raise KeyboardInterrupt

    how = OfficerCloningSettings(network=SMALL, epochs=3, batch_size=64)
    with pytest.raises(KeyboardInterrupt):
        clone_into(tmp_path / "cut", folder, how, stop)
    assert len(json.loads((tmp_path / "cut" / "policy.json").read_text())["provenance"]["held_out_nll"]) == 1
    on = OfficerCloningSettings(network=SMALL, epochs=1, batch_size=64, lr=1e-9, start=str(tmp_path / "cut"))
    found = clone_into(tmp_path / "more", folder, on, lambda done, total: kept.append(done))
    assert kept and found.nll[0] == pytest.approx(load_nll(tmp_path / "cut"), abs=1e-3)
    with pytest.raises(UserError, match="has the network"):
        clone_into(tmp_path / "more", folder, OfficerCloningSettings(start=str(officer)))


def load_nll(policy):
    return json.loads((policy / "policy.json").read_text())["provenance"]["held_out_nll"][0]


# ---- games ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_officer(tmp_path_factory):
    """An untrained officer of another size."""
    network = OfficerNetwork(OfficerSettings(filters=4, width=8, words=4, keys=4, init_seed=1)).eval()
    with torch.no_grad():
        network.go_on[-1].bias.fill_(-3.0)  # it orders most of the time
    return write_officer(tmp_path_factory.mktemp("other") / "policy", network, "BehaviorCloning", {}, {})


def played(env, seed, until=None):
    env.reset(seed=seed)
    commander = make_commander("oracle", env.executor, env.commands, seed)
    return go_on(env, commander, until)


def go_on(env, commander, until=None):
    while env.agents and (until is None or env.game.tick < until):
        env.step({agent: env.commands.index(commander(number)) for number, agent in enumerate(env.agents)})
    return env.game.tick, env.whole()


@pytest.mark.parametrize("executor", ["trained:{0}", "switch:{0}:{1}"])
def test_trained_officers_play_under_commanders_reproducibly(officer, other_officer, executor):
    executor = executor.format(officer, other_officer)
    env = minirts.parallel_env(executor=executor, opponent="medium2", max_tick=1200, observe=["vector"])
    first = played(env, 3)
    assert played(env, 3) == first and played(env, 4) != first
    played(env, 3, until=600)
    middle = env.snapshot()
    assert go_on(env, make_commander("oracle", env.executor, env.commands, 3)) == first
    other = minirts.parallel_env(**env.settings)
    other.reset(seed=9)
    other.restore(middle)
    assert go_on(other, make_commander("oracle", other.executor, other.commands, 3)) == first


def test_a_switch_is_one_officer_while_a_command_is_in_force_and_another_while_none_is(officer, other_officer):
    names = f"switch:{officer}:{other_officer}", f"trained:{officer}", f"trained:{other_officer}"
    switch, told, untold = (
        minirts.parallel_env(executor=name, num_agents=1, opponent="medium2", max_tick=4000, observe=["vector"])
        for name in names
    )
    for env in (switch, told, untold):
        env.reset(seed=5)
    rng, used = np.random.default_rng(0), []
    while switch.agents:
        possible = [c for c in switch.commands if c.kind >= 0 and not switch.executor.refusal(0, c)]
        if rng.random() < 0.3:
            switch.executor.orders[0].jobs.clear()
        elif possible and rng.random() < 0.3:
            switch.executor.command(0, possible[rng.integers(len(possible))])
        middle, in_force = switch.snapshot(), bool(switch.executor.orders[0].jobs)
        alone = told if in_force else untold
        alone.restore(middle)
        assert alone.executor.give_orders() == (orders := switch.executor.give_orders())
        used.append((in_force, bool(orders)))
        switch.game.step(orders, 50)
        switch.team.look()
        switch.executor.settle()
        if switch.game.over or switch.game.tick > 2500:
            break
    turns = sum(one[0] != other[0] for one, other in itertools.pairwise(used))
    assert {(True, True), (False, True)} <= set(used) and turns > 3


def test_each_commander_of_a_switch_has_the_officer_that_it_needs(tmp_path):
    folders = []
    for name, bias in (("rests", 50.0), ("orders", -50.0)):
        network = OfficerNetwork(SMALL)
        with torch.no_grad():
            network.go_on[-1].bias.fill_(bias)
            network.flag.bias.fill_(-bias)
        folders.append(str(write_officer(tmp_path / name, network, "BehaviorCloning", {}, {})))
    env = minirts.parallel_env(executor="switch:" + ":".join(folders), max_tick=1000, observe=["vector"])
    env.reset(seed=0)
    env.executor.command(0, env.commands[1])  # alice's peasants shall mine
    ordered = set()
    for _ in range(10):
        orders = env.executor.give_orders()
        ordered |= {env.team.owner(env.game.unit(one.unit)) for one in orders}
        env.game.step(orders, 50)
        env.team.look()
    assert ordered == {1}


def test_planners_give_subgoals_to_trained_officers(officer):
    executor = ScriptedExecutor(minirts.ENV_ID, {"executor": f"trained:{officer}", "max_tick": 600})
    game = PlannedGames(executor, {"opponent": "simple"}, PlanningSetup(patience=40))
    first = game.play(seed=1)
    assert first["metrics"]["subgoals_refused"] == 0 and game.play(seed=1) == first
    scripted = PlannedGames(
        ScriptedExecutor(minirts.ENV_ID, {"max_tick": 600}), {"opponent": "simple"}, PlanningSetup()
    )
    assert scripted.play(seed=1)["metrics"] != first["metrics"]


def test_a_recorded_officer_in_a_folder_is_used_and_others_are_withheld(officer, tmp_path):
    folder = tmp_path / "policy"
    folder.mkdir()
    for path in officer.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    told = json.loads((folder / "policy.json").read_text())
    cases = [(f"trained:{officer}", False), ("scripted", False), (f"switch:{officer}:{officer}", False)]
    cases += [("trained:hf:some/body", True), (f"switch:{officer}:hf:some/body", True)]
    for recorded, elsewhere in cases:
        told["env_config"] = {"executor": recorded, "max_tick": 300}
        (folder / "policy.json").write_text(json.dumps(told))
        policy = load_policy(folder)
        if elsewhere:
            with pytest.raises(UserError, match=f'recorded `env_config.executor` "{re.escape(recorded)}"'):
                policy.env()
        else:
            assert policy.env().unwrapped.settings["executor"] == recorded


def test_by_itself_the_policy_plays_at_the_level_red(officer):
    policy = load_policy(officer)
    env = policy.env(max_tick=400)
    seen, _ = env.reset(seed=1)
    policy.reset(seed=1)
    told = set()
    while env.agents:
        decisions = policy.act(seen)
        assert all(decision.probabilities.sum() == pytest.approx(1.0) for decision in decisions.values())
        words = {one.candidates[one.choice] for one in decisions.values() if one.action[GO_ON_AT]}
        assert words <= {"go on"}
        told |= words
        seen, *_ = env.step({agent: decision.action for agent, decision in decisions.items()})
    assert told == {"go on"}
    with pytest.raises(UserError, match="has no `own_units`"):
        policy.act({"alice": {"vector": np.zeros(3)}})


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"executor": "trained:"}, "`executor` is 'trained:'"),
        ({"executor": "switch:zoo:red_officer"}, "`executor` is 'switch:zoo:red_officer' .*two"),
        ({"executor": "switch:a:b:c"}, "`executor` is 'switch:a:b:c'"),
        ({"executor": ["switch", "a", "b"]}, "`executor` is .* text"),
        ({"executor": "switch:/nothing:zoo:red_officer"}, "no checkpoint at '/nothing'"),
        ({"executor": "trained:x", "action_level": "red"}, "`action_level` is 'red'"),
    ],
)
def test_executors_that_cannot_be_are_refused(settings, cause):
    with pytest.raises(UserError, match=cause):
        minirts.parallel_env(**settings)


def test_names_of_checkpoints_may_have_a_colon():
    assert checkpoints_of("trained:hf:some/body") == ("hf:some/body",)
    assert checkpoints_of("switch:hf:some/body:zoo:one") == ("hf:some/body", "zoo:one")
    assert checkpoints_of("switch:zoo:one:zoo") == ("zoo:one", "zoo")
    assert checkpoints_of("switch:zoo:one") is checkpoints_of("switch:one:hf:") is None
    assert checkpoints_of("switch:results/a:hf:some/body@main") == ("results/a", "hf:some/body@main")


def test_an_officer_is_loaded_without_the_compiler():
    """Drawing an embedding's weights on the meta device would import it, which takes seconds."""
    drawn = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.normal_.default:
                drawn.append(args[0].device.type)
            return func(*args, **(kwargs or {}))

    with Watch():
        assert load_policy("zoo:red_officer").network is not None
    assert drawn and set(drawn) == {"cpu"}
