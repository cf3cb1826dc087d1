"""Shipped policies: their cards, their files, and every command that takes `zoo:NAME`."""

import configparser
import fnmatch
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rllib_llm_comm import load_policy
from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.evaluation.evaluate_checkpoint import evaluate_checkpoint
from rllib_llm_comm.evaluation.play_settings import EvaluationSettings
from rllib_llm_comm.evaluation.replay import replay_checkpoint
from rllib_llm_comm.experiments.experiment_file import ExperimentFile, TrainSettings, parse_experiments
from rllib_llm_comm.experiments.pipeline import run_file
from rllib_llm_comm.play.host import set_table
from rllib_llm_comm.play.table import SeatViews
from rllib_llm_comm.policies import find_checkpoint as zoo
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from rllib_llm_comm.policies.partner_settings import PartnerSettings, with_absolute_paths
from rllib_llm_comm.policies.policy_manifest import read_manifest

ROOT = Path(__file__).parents[2]
POLICIES = zoo.shipped_policies()
NAMES = sorted(POLICIES)
ONE_OF_EACH = {(shipped.game, read_manifest(zoo.FOLDER / name).algorithm): name for name, shipped in POLICIES.items()}
FEW = 3
OFFICERS = {"red_officer"}  # orders for units, which are under commanders of their own
EPISODES = {"emma_cramped_room": 20}
SHORT = {
    "overcooked_ai-v0": {"horizon": 20}, "overcooked_ai_subgoals-v0": {"horizon": 20}, "minirts-v0": {"max_tick": 500},
    "overcooked_text-v0": {"max_game_steps": 10},
    "overcooked_ai_planner-v0": {"game": {"layout": "cramped_room", "horizon": 20}},
}  # fmt: skip
_MOST_BYTES = 58 * 10**5


def played(name, figures, episodes):
    """Returns of the first episodes of a card, played now."""
    settings = EvaluationSettings(messages=figures.messages, planner=figures.planner)
    found = evaluate_checkpoint(f"zoo:{name}", episodes=episodes, seed=figures.seed, settings=settings)
    return found.figures.returns


@pytest.mark.parametrize("name", NAMES)
def test_the_first_episodes_of_every_card_come_out_as_it_says(name):
    """Another processor may round otherwise and so draw another action here and there."""
    figures = POLICIES[name].figures[0]
    same = np.isclose(played(name, figures, FEW), figures.returns[:FEW], atol=2e-4)
    assert same.sum() >= FEW - 1, (name, figures.returns[:FEW])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_figures_of_every_card_come_out_again(name):
    for figures in POLICIES[name].figures:
        found = np.array(played(name, figures, figures.episodes))
        noise = found.std() / np.sqrt(len(found))
        assert abs(found.mean() - figures.return_mean) <= max(0.02, 2 * noise), (name, figures.messages)


@pytest.mark.parametrize("name", NAMES)
def test_a_card_tells_what_its_episodes_were(name):
    card = POLICIES[name]
    assert card.name == name and card.what and card.trained and card.limits and card.licence == "Apache-2.0"
    for figures in card.figures:
        assert len(figures.returns) == figures.episodes == EPISODES.get(name, 100)
        assert np.mean(figures.returns) == pytest.approx(figures.return_mean, abs=1e-3)
    assert card.figures[0].messages is None
    policy = load_policy(f"zoo:{name}")
    assert list(policy.env().possible_agents) == card.seats and policy.manifest.env == card.game
    if policy.manifest.kind == "language":
        base = policy.network.lm.base
        assert (card.base_model, card.base_model_sha256) == (base.name, base.sha256) and base.sha256
        assert policy.manifest.base_model_sha256 == base.sha256
    else:
        assert card.base_model == card.base_model_sha256 == ""
    text = zoo.card_text(card)
    assert f"| {card.figures[0].return_mean:.3f} |" in text and card.limits in text


def test_all_policies_are_small_and_tell_nothing_of_who_made_them():
    files = [path for path in zoo.FOLDER.rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) <= _MOST_BYTES
    for path in files:
        assert path.suffix in (".json", ".safetensors"), path
        if path.suffix == ".json":
            told = json.dumps(json.loads(path.read_text()))
            assert not re.search(r'"(/|~|[A-Za-z]:\\)', told), f"{path} names a place of a machine"


def test_every_file_is_in_the_wheel():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    patterns = config["options.package_data"]["rllib_llm_comm.policies"].split()
    for path in zoo.FOLDER.rglob("*"):
        name = path.relative_to(zoo.FOLDER.parent).as_posix()
        parts = name.count("/")
        assert path.is_dir() or any(p.count("/") == parts and fnmatch.fnmatch(name, p) for p in patterns), name


def test_a_file_that_is_not_the_shipped_one_is_refused(tmp_path, monkeypatch):
    copied = tmp_path / "zoo_policies"
    shutil.copytree(zoo.FOLDER, copied)
    monkeypatch.setattr(zoo, "FOLDER", copied)
    monkeypatch.setattr(zoo, "_card", zoo._card.__wrapped__)
    monkeypatch.setattr(zoo, "_checked", zoo._checked.__wrapped__)
    assert find_checkpoint("zoo:told_salad") == copied / "told_salad"
    weights = copied / "told_salad/adapters/action/adapter_model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    with pytest.raises(UserError, match="adapters/action/adapter_model.safetensors"):
        find_checkpoint("zoo:told_salad")
    (copied / "door" / "more.json").write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        load_policy("zoo:door")
    (copied / "told_salad" / zoo.CARD).write_text("{}")
    with pytest.raises(UserError, match="cannot be read"):
        find_checkpoint("zoo:told_salad")


@pytest.mark.parametrize("name", ["zoo:told_salat", "zoo:../told_salad", "zoo:/etc"])
def test_a_name_that_is_none_is_told_with_the_others(name):
    with pytest.raises(UserError, match="told_salad"):
        load_policy(name)


def test_a_shipped_policy_is_a_partner():
    partner = PartnerSettings(policy="zoo:told_salad")
    assert partner.kind == "checkpoint", "not a function of a module `zoo`"
    assert with_absolute_paths([partner])[0].policy == "zoo:told_salad"


@pytest.mark.parametrize("name", ONE_OF_EACH.values())
def test_policies_of_every_game_and_algorithm_have_a_seat_beside_them_a_replay_and_a_match(name, tmp_path):
    game = POLICIES[name].game.rpartition("/")[2]
    settings = EvaluationSettings(env_config=SHORT.get(game, {}))
    if name in OFFICERS:
        with pytest.raises(UserError, match="by hand"):
            set_table(f"zoo:{name}", settings=settings, seed=1).sit("bob")
        replay_checkpoint(f"zoo:{name}", tmp_path / "replay.html", settings=settings)
        return
    table = set_table(f"zoo:{name}", settings=settings, seed=1)
    seat = table.agents[-1]
    table.sit(seat)
    for _ in range(10):
        if table.thinking():
            assert SeatViews(table).view(seat)["options"], "a person can choose"
            table.choose(seat, int(np.flatnonzero(table.allowed(seat))[0]))
        if not table.advance():
            break
    assert table.moments and np.isfinite(list(table.episode.returns.values())).all()
    page = replay_checkpoint(f"zoo:{name}", tmp_path / "replay.html", settings=settings)
    assert all(agent in page.read_text() for agent in table.agents)
    cross = CrossPlay([f"zoo:{name}", "random"], settings=CrossPlaySettings(episodes=1, env_config=settings.env_config))
    assert cross.names == [f"zoo:{name}", "random"] and np.isfinite(cross.play().matrix(0)).all()


def command(*arguments):
    """What a command prints; it has to succeed."""
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.exception
    return " ".join(done.output.split())


def test_the_commands_take_shipped_policies(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    listed = command("zoo", "list")
    assert all(f"zoo:{name}" in listed for name in NAMES)
    assert "Limits" in command("zoo", "show", "zoo:door")
    command("evaluate", "zoo:door", "--episodes", "3", "--json", "door.json")
    told = json.loads((tmp_path / "door.json").read_text())
    command("replay", "zoo:door")
    assert told["episodes"] == 3 and (tmp_path / "replay_0.html").is_file(), "nothing is written into the package"


def test_the_page_lists_every_policy_with_the_figures_of_its_card():
    page = (ROOT / "docs/guides/zoo.md").read_text()
    for name, card in POLICIES.items():
        (row,) = re.findall(rf"^\| `zoo:{name}` \| (.*) \|$", page, re.MULTILINE)
        what, own, _, *controls = row.split(" | ")
        by_mode = {figures.messages: f"{figures.return_mean:.2f}" for figures in card.figures if not figures.planner}
        assert what == card.what and own == by_mode[None]
        assert controls == [by_mode.get(mode, "-") for mode in ("none", "other_moments", "other_fact")]


def test_stages_of_a_file_take_shipped_policies(tmp_path):
    config = {"checkpoint": "zoo:told_salad", "episodes": 1, "communication": True, "reference": "zoo:told_salad"}
    experiments = parse_experiments({"judged": {"run": "evaluate", "config": config}}, "f")
    run_file(ExperimentFile("f", experiments), TrainSettings(storage_path=str(tmp_path)))
    assert json.loads((tmp_path / "f" / "judged" / "evaluation.json").read_text())["episodes"] == 1
