"""What listeners would have weighed in silence, beside each decision of a replay."""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_message_drift import manifest_of, network_of
from test_replay import NASTY, RandomCooks, checked, opened
from toys import ColourTalk, randomise
from typer.testing import CliRunner

from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.envs.overcooked_text import parallel_env
from rllib_llm_comm.evaluation.frames import Counterfactuals, frame_of, total_variation
from rllib_llm_comm.evaluation.replay import write_replay
from rllib_llm_comm.evaluation.rollout import Episode, record
from rllib_llm_comm.policies.decision import Decision, OneGamePolicy
from rllib_llm_comm.policies.policy_folder import write_policy
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.policy import LanguagePolicy, policy_files
from rllib_llm_comm.verco.settings import CommunicationSettings, ModuleSettings

HEARD, SILENT = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.6, 0.3])
KEYS = ("silent", "influence", "changed")


class Obeys(OneGamePolicy):
    """Bob hears alice at every second moment; what he would do without her is told by `judge`."""

    def __init__(self, silent=SILENT, heard=HEARD, said="the first"):
        self.silent, self.heard, self.said, self.asked = silent, heard, said, []

    def reset(self, seed=None):
        self.moment = -1

    def act(self, observations, explore=True):
        self.moment += 1
        ears = {"alice": {}, "bob": {"alice": self.said} if self.said and self.moment % 2 == 0 else {}}
        return {a: Decision(0, self.said, ears[a], ["a", "b", "c"], self.heard, 0.0, "") for a in observations}

    def judge(self, rows):
        self.asked.append([(agent, heard) for agent, _, heard in rows])
        return np.stack([self.silent for _ in rows])


def told(page):
    return checked(page.read_text())["sides"][0]["episodes"][0]


def shown(chromium, page, moment):
    """What stands on the page at a moment, without its program."""
    return re.sub(r"<script.*?</script>", "", opened(chromium, page, moment), flags=re.DOTALL)


def test_decisions_with_something_heard_and_no_others_are_scored_in_silence(tmp_path):
    player = Obeys()
    (episode,) = record(player, env=ColourTalk(length=4))
    moments = [frame["agents"]["bob"] for frame in episode.frames]
    assert player.asked == [[("bob", {})]] * 2  # one batch per moment in which somebody heard something
    for moment in (0, 2):
        assert moments[moment]["silent"] == [0.1, 0.6, 0.3] and moments[moment]["influence"] == 0.6
        assert moments[moment]["changed"] is True
    assert not any(key in moments[moment] for moment in (1, 3, 4) for key in KEYS)
    assert not any(key in frame["agents"]["alice"] for frame in episode.frames for key in KEYS)
    assert episode.no_silence == ""
    moments[2]["influence"] = 0.2
    curves = told(write_replay(episode, tmp_path / "r.html"))["curves"]
    assert curves == {"influence of messages on bob": [0.6, 0.0, 0.2, 0.0, 0.0]}


@pytest.mark.parametrize(
    ("heard", "silent"), [(HEARD, np.array([0.5, 0.3, 0.2])), (np.full(3, 1 / 3), np.array([0.2, 0.2, 0.6]))]
)
def test_a_message_that_leaves_the_order_or_breaks_a_tie_changes_no_most_likely_action(heard, silent):
    (episode,) = record(Obeys(silent, heard), env=ColourTalk(length=2))
    assert episode.frames[0]["agents"]["bob"]["changed"] is False


def test_it_can_be_left_out_and_the_page_says_why_there_is_nothing_to_show(tmp_path):
    player = Obeys()
    (episode,) = record(player, env=ColourTalk(length=4), counterfactuals=False)
    assert not player.asked and not any(k in f["agents"]["bob"] for f in episode.frames for k in KEYS)
    assert "`counterfactuals` is off" in told(write_replay(episode, tmp_path / "r.html"))["influence"]

    class Mute(Obeys):
        judge = None

    (unasked,) = record(Mute(), env=ColourTalk(length=4))
    assert "cannot be asked" in told(write_replay(unasked, tmp_path / "a.html"))["influence"]
    (silence,) = record(Obeys(said=""), env=ColourTalk(length=4))
    assert told(write_replay(silence, tmp_path / "b.html"))["influence"].startswith("Nobody heard a message")


def test_the_page_shows_it_in_a_browser(chromium, tmp_path):
    page = write_replay(record(Obeys(), env=ColourTalk(length=4)), tmp_path / "r.html")
    episode = told(page)
    assert episode["influence"] == (
        "Mean influence of messages (total variation, 0 to 1): bob 0.60 over 2 decisions, another most likely action "
        "than in silence in 2."
    )
    dom = shown(chromium, page, 2)
    assert "influence of what it heard: <b>0.60</b>" in dom and "in silence another action" in dom
    assert dom.count('class="silent"') == 3 and 'class="up">+60<' in dom and 'class="down">\u221240<' in dom
    assert dom.count('class="turned"') == 2 and "what bob heard changed the most likely action" in dom
    quiet = shown(chromium, page, 1)
    assert 'class="silent"' not in quiet and "influence of what it heard" not in quiet


class Hearers(RandomCooks):
    """As its parent, whose texts no page should run; what it would do in silence is known."""

    def judge(self, rows):
        return np.stack([np.full(len(view["candidates"]), 1 / len(view["candidates"])) for _, view, _ in rows])


def test_texts_around_it_are_data(chromium, tmp_path):
    env = parallel_env(max_game_steps=20)
    page = write_replay(record(Hearers(), env=env), tmp_path / "r.html", title="x").read_text()
    assert NASTY not in page and page.count("<script") == 2 and '"silent":[' in page
    # A game may name its agents as it likes; their names stand in the line, in titles and over curves.
    cards = [{"reward": 0.0, "heard": {"a": NASTY}, "said": "", "events": [], "busy": False} for _ in "abc"]
    frames = [{"game_step": k, "ansi": "x", "image": None, "metrics": {}} for k in range(3)]
    for frame, influence, card in zip(frames, (0.1, 0.5, 0.9), cards, strict=True):
        card |= {"text": "", "subgoal": "", "candidates": [NASTY], "probabilities": [1.0], "action": 0, "phrase": NASTY}
        frame["agents"] = {NASTY: card | {"silent": [1.0], "influence": influence, "changed": True}}
    path = write_replay(Episode("toy", {}, [NASTY], 0, frames=frames), tmp_path / "n.html")
    assert NASTY not in path.read_text() and NASTY in told(path)["influence"]
    dom = opened(chromium, path, 1)
    assert 'data-status="ready"' in dom and NASTY not in dom and dom.count("<script") == 2
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in dom


@pytest.fixture(scope="module")
def talkers():
    network = network_of(reference=False, temperature=0.5)
    randomise(network, "action", std=0.5, seed=1)
    return network, manifest_of(network, CommunicationSettings(), length=5)


@pytest.mark.parametrize("kind", ["verco", "twosome", "per_agent"])
def test_language_agents_are_scored_behind_a_prompt_without_messages(talkers, kind):
    network, manifest = talkers
    if kind != "verco":
        scores = {"score_normalization": "word"} if kind == "twosome" else {}
        other = LanguageNetwork(ModuleSettings.from_mapping({**network.settings.to_dict(), **scores}))
        randomise(other, "action", std=0.5, seed=7)
        randomise(other, "message", std=0.5, seed=8)
        network = other if kind == "twosome" else {"alice": network, "bob": other}
    policy = LanguagePolicy(network, CommunicationSettings(max_message_words=4), manifest)
    (episode,) = record(policy, seed=3)
    env = policy.env()
    seen, infos = env.reset(seed=3)
    policy.reset(seed=3)
    spoken = policy.act(seen)
    silent = LanguagePolicy(network, CommunicationSettings(messages="none"), manifest).act(seen)
    cards = episode.frames[0]["agents"]
    for agent in seen:
        assert spoken[agent].heard and not silent[agent].heard
        np.testing.assert_allclose(cards[agent]["silent"], silent[agent].probabilities, atol=1e-4)
        moved = total_variation(spoken[agent].probabilities, silent[agent].probabilities)
        assert moved > 0.01 and cards[agent]["influence"] == pytest.approx(moved, abs=1e-4)
    frame = frame_of(env, seen, infos, spoken, {})
    Counterfactuals(policy).add_to(frame, seen, spoken)
    assert frame["agents"] == cards


def test_the_episode_is_the_same_with_and_without(talkers):
    network, manifest = talkers
    policy = LanguagePolicy(network, CommunicationSettings(max_message_words=4, message_temperature=1.0), manifest)
    one, other = (record(policy, seed=5, counterfactuals=flag)[0] for flag in (True, False))
    strip = [{a: {k: v for k, v in c.items() if k not in KEYS} for a, c in f["agents"].items()} for f in one.frames]
    assert strip == [frame["agents"] for frame in other.frames] and one.messages == other.messages
    assert any("silent" in card for frame in one.frames for card in frame["agents"].values())


def test_the_command_and_its_option(talkers, tmp_path):
    network, manifest = talkers
    write_policy(tmp_path / "policy", policy_files(network), manifest)
    for options, shown_there in (([], True), (["--no-counterfactuals"], False)):
        words = ["replay", str(tmp_path / "policy"), "--out", str(tmp_path / "page.html"), *options]
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output
        assert ('"silent":[' in (tmp_path / "page.html").read_text()) is shown_there
