"""The table of partners: of a study of which one kitchen is done, and its page."""

import json
import shutil
from argparse import Namespace
from pathlib import Path

import partners_cells
import partners_page
import partners_table
import pytest

from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.policy_folder import network_file, write_policy
from rllib_llm_comm.policies.policy_manifest import GROUNDED, NUMERIC, PolicyManifest
from rllib_llm_comm.policies.stage_record import MARKER, StageRecord
from rllib_llm_comm.sama.emma.network import EmmaNetwork, EmmaSettings, emma_space
from tests import forked

KITCHEN = {"layout": "cramped_room", "horizon": 20, "observe": ["vector"], "vector": "planes"}
SIZE = 26 * 5 * 4
SCRIPT = Path(partners_table.__file__)


def write_cook(folder, seed):
    network = NumericNetwork(NumericSettings(init_seed=seed, hiddens=[8]), SIZE, 6)
    model = {**network.settings.to_dict(), "size": SIZE, "actions": 6, "critic_size": None}
    env = "rllib_llm_comm/overcooked_ai-v0"
    write_policy(folder, network_file(network), PolicyManifest("X", model, {}, env, KITCHEN, kind=NUMERIC))


def write_follower(folder, layout):
    settings = {"observe": ["entities"], "action_level": "goal_cell", "layout": layout, "horizon": 20}
    env, how = subgoal_env(**settings), EmmaSettings(width=4, filters=4, hiddens=[8], init_seed=0)
    space = emma_space("alice", env.observation_space("alice"), env.action_space("alice"), how)
    symbols, shape = int(space["frames"].high.max()) + 1, list(space["frames"].shape[1:3])
    sizes = {"symbols": symbols, "shape": shape, "actions": int(env.action_space("alice").n), "state_size": 0}
    network = EmmaNetwork(how, encoder=load_text_encoder(), **sizes)
    env_id = "rllib_llm_comm/overcooked_ai_subgoals-v0"
    manifest = PolicyManifest("EMMA", {**how.to_dict(), **sizes}, {}, env_id, settings, kind=GROUNDED)
    write_policy(folder, network_file(network), manifest)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study whose first kitchen is done; in the second one FCP is still running."""
    folder = tmp_path_factory.mktemp("studies") / "mine"
    names = ("held_out", *partners_page.METHODS)
    for kitchen, seeds in zip(partners_page.KITCHENS, (2, 1), strict=False):
        for place, name in enumerate(names):
            stage, outputs = folder / f"{kitchen}.{name}", []
            for seed in range(seeds):
                checkpoint = stage / f"trial_{seed}" / "checkpoint_000001"
                for past in ("policy", "past/initial/policy", "past/half_way/policy"):
                    write_cook(checkpoint / past, 10 * place + seed)
                row = {"num_env_steps_sampled_lifetime": 1000.0, "time_total_s": 90.0, "learners": {}}
                learned = {"score_by_partner": {"seed_1_final": 60.0 + 20 * seed, "seed_2_final": float("nan")}}
                fcp = {"game_steps_with_population": 3000, "env_runners": learned}
                row |= {"fcp": fcp, "pbt": {"population": {"game_steps": 2000.0}}}.get(name, {})
                (checkpoint.parent / "result.json").write_text('{"time_total_s": 30}\n' + json.dumps(row) + "\n")
                params = {"num_epochs": 8, "critic_observation": "partner", "seed": seed}
                (checkpoint.parent / "params.json").write_text(json.dumps(params))
                outputs.append(f"trial_{seed}/checkpoint_000001")
            running = name == "fcp" and kitchen != partners_page.KITCHENS[0]
            record = StageRecord(
                stage=stage.name, run="X", fingerprint="0", outputs=outputs, status="running" if running else "finished"
            )
            (stage / MARKER).write_text(record.model_dump_json())
    return folder


def options(study, folder, **more):
    plain = {"episodes": 1, "planner": "scripted", "emma": [], "fcp": None, "fcp_final": None}
    return Namespace(study=study, json=folder, **{**plain, **more})


def test_the_script_on_a_study_that_still_runs(study, tmp_path):
    page = tmp_path / "partners.md"
    words = [str(study), "--json", str(tmp_path / "figures"), "--page", str(page), "--episodes", "2"]
    done = forked.run(SCRIPT, *words, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    text = page.read_text()
    assert "in 0 of 1 kitchens" in text and f"$ python benchmarks/partners_table.py {' '.join(words)}\n" in text
    for row in (
        "| asymmetric_advantages | fcp |",
        "| counter_circuit | held_out, self_play, pbt, fcp, cole |",
        "| cramped_room | FCP | 2 | 3,000 | 1.5 |",
        "| cramped_room | PBT | 2 | 2,000 | 1.5 |",
        "| cramped_room | 8 | told | - | - | 70.0 ± 10.0 | - | 0.0 ± 0.0 |",  # of FCP with its trained members
    ):
        assert row in text
    assert "## cramped_room" in text and "## asymmetric_advantages" not in text
    assert text[text.index("## What is missing") :] in done.stdout
    told = json.loads((tmp_path / "figures" / "table.json").read_text())
    assert list(told["kitchens"]) == ["cramped_room"] and told["missing"]["asymmetric_advantages"] == ["fcp"]
    (cell,) = tmp_path.glob("figures/cramped_room/fcp.json")
    assert str(tmp_path.parent) not in cell.read_text()  # no path of this machine
    assert json.loads(cell.read_text())["players"][0]["policy"] == "mine/cramped_room.fcp/trial_0/checkpoint_000001"


def test_a_kitchen_of_an_earlier_table_stays_until_the_study_has_it(study, tmp_path):
    kept = {"methods": {"fcp": {"seeds": 3}}}
    names = partners_page.KITCHENS
    (tmp_path / "table.json").write_text(json.dumps({"kitchens": dict.fromkeys(names[:3], kept)}))
    table = partners_table.table_of(options(study, tmp_path))
    assert table["kitchens"][names[1]] == kept == table["kitchens"][names[2]]  # FCP is running, nothing is there
    assert table["kitchens"][names[0]]["methods"]["fcp"]["seeds"] == 2  # the study's own
    assert set(table["missing"]) == set(names[3:]) and table["planner"] is None


def test_a_cell_is_played_again_for_other_games_only(study, tmp_path):
    def kept(episodes, players):
        partners_cells.kept_cell("cramped_room", "pbt", players, options(study, tmp_path, episodes=episodes))
        path = tmp_path / "cramped_room" / "pbt.json"
        told = json.loads(path.read_text())
        return path.stat().st_mtime_ns, told["episodes"], len(told["players"])

    players = partners_cells.checkpoints(study / "cramped_room.pbt")
    first = kept(1, players)
    assert kept(1, players) == first
    elsewhere = tmp_path / "other" / "place"
    shutil.copytree(players[0], elsewhere)
    assert kept(1, [elsewhere, players[1]]) == first  # the same weights
    write_cook(elsewhere / "policy", 77)
    assert kept(1, [elsewhere, players[1]])[0] > first[0]  # others under the same path
    assert kept(2, players)[1:] == (2, 2)
    assert kept(2, players[:1])[1:] == (2, 1)


@pytest.mark.slow
def test_emma_is_a_row_where_its_folders_are(study, tmp_path):
    emma = tmp_path / "emma_0" / "emma"
    outputs = []
    for trial, kitchen in enumerate(("coordination_ring", "cramped_room")):
        outputs.append(f"trial_{trial}/checkpoint_000001")
        write_follower(emma / outputs[-1] / "policy", kitchen)
        row = {"env_runners": {"num_episodes_lifetime": 5}, "time_total_s": 60.0}
        (emma / f"trial_{trial}" / "result.json").write_text(json.dumps(row))
        (emma / f"trial_{trial}" / "params.json").write_text("{}")
    record = StageRecord(stage="emma", run="EMMA", fingerprint="0", outputs=outputs, status="finished")
    (emma / MARKER).write_text(record.model_dump_json())
    table = partners_table.table_of(options(study, tmp_path / "figures", emma=[str(emma)]))
    text = partners_page.page(table)
    assert "| EMMA, told | 0.0 | - | 0.0 |" in text and "under the planner `scripted`" in text
    assert "| cramped_room | EMMA, told | 1 | 2,000 | 1.0 |" in text
    cell = json.loads((tmp_path / "figures" / "cramped_room" / "emma.json").read_text())
    assert cell["planning"] == {"planner": "scripted"} and cell["notes"][0].startswith("emma 0: told by the planner")
    assert {one["name"][:3] for one in cell["groups"]["the other methods"]["partners"]} == {"sel", "pbt", "fcp", "col"}
    table = partners_table.table_of(options(study, tmp_path / "figures", emma=["nowhere/{kitchen}"]))
    assert table["missing"]["cramped_room"] == ["emma"] and "emma" not in table["kitchens"]["cramped_room"]["methods"]


def test_learners_of_other_folders_take_the_place_of_the_studys_or_a_row_of_their_own(study, tmp_path):
    """In the second kitchen the study's FCP has not ended, but learners for its populations are elsewhere."""
    kitchen = partners_page.KITCHENS[1]
    trial = study / f"{kitchen}.fcp" / "trial_0"
    for name in ("fcp_learners", "fcp_final"):
        copy = shutil.copytree(trial, tmp_path / name / kitchen / "seed_0")
        taken = {"num_epochs": 8, "critic_observation": "own", "population_from": str(trial)}
        (copy / "params.json").write_text(json.dumps(taken))
    elsewhere = {"fcp": tmp_path / "fcp_learners", "fcp_final": tmp_path / "fcp_final"}
    table = partners_table.table_of(options(study, tmp_path, **elsewhere))
    text = partners_page.page(table)
    assert list(table["kitchens"][kitchen]["methods"]) == [*partners_page.METHODS, "fcp_final"]
    assert "`FCP, final`: the paper's ablation" in text
    assert f"| {kitchen} | FCP, final | 1 | 3,000 | 2.0 |" in text  # with the members' half minute
    assert table["missing"]["cramped_room"] == ["fcp_final"]


@pytest.mark.parametrize(
    ("mean", "error", "told"),
    [(5.0, 2.0, "yes"), (5.0, 2.5, "no"), (-9.0, 1.0, "no"), (5.0, None, "-"), (0.0, 0.0, "no")],
)
def test_a_difference_counts_from_two_errors_on(mean, error, told):
    assert partners_page.beats({"mean": mean, "standard_error": error}) == told


def test_a_difference_of_single_seeds_has_no_error():
    one, other = {"mean": 3.0, "standard_error": None}, {"mean": 1.0, "standard_error": 2.0}
    assert partners_table.difference(one, other) == {"mean": 2.0, "standard_error": None}
    assert partners_table.difference(other, {**one, "standard_error": 1.5}) == {"mean": -2.0, "standard_error": 2.5}
    assert partners_page.estimate(one) == "3.0" and partners_page.estimate(other) == "1.0 ± 2.0"
