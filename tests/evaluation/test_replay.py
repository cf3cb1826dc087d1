"""Pages of replays: their data, what a browser shows of it, and texts that no page may run."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from chat_server import ChatServer
from corridor import Corridor
from PIL import Image
from planner_model import planner
from pydantic import TypeAdapter, ValidationError

from rllib_llm_comm.envs import overcooked_ai
from rllib_llm_comm.envs.interface import PRIVATE
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env
from rllib_llm_comm.envs.overcooked_text import parallel_env
from rllib_llm_comm.evaluation.replay import TileSheets, write_comparison, write_replay
from rllib_llm_comm.evaluation.replay_schema import ReplayPage
from rllib_llm_comm.evaluation.rollout import Episode, evaluate, record
from rllib_llm_comm.policies.decision import Decision, OneGamePolicy
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

NASTY = "<script>alert(1)</script> & </script>"


class RandomCooks(OneGamePolicy):
    """Plays uniformly among the allowed actions and says something that no page should run."""

    def reset(self, seed=None):
        self.rng = np.random.default_rng(seed)

    def act(self, observations, explore=True):
        decisions = {}
        for agent, observation in observations.items():
            chances = observation["action_mask"] / observation["action_mask"].sum()
            decisions[agent] = Decision(
                action=int(self.rng.choice(len(chances), p=chances)), said=NASTY, heard={"bob": NASTY},
                candidates=list(observation["candidates"]), probabilities=chances, value=0.5, prompt="",
            )  # fmt: skip
        return decisions


@pytest.fixture(scope="module")
def episodes():
    return record(RandomCooks(), episodes=2, seed=5, env=parallel_env(max_game_steps=40))


def test_figures_and_traces_agree_and_are_fixed_by_the_seed_and_rewards_of_the_frames_add_up(episodes):
    env = parallel_env(max_game_steps=40)
    result = evaluate(RandomCooks(), episodes=2, seed=5, env=env)
    assert result == evaluate(RandomCooks(), episodes=2, seed=5, env=env)
    assert result.lengths == [e.length for e in episodes] == [40, 40]
    assert result.returns == [pytest.approx(np.mean(list(e.returns.values())), abs=1e-4) for e in episodes]
    assert result.success_rate == 0.0 and result.sampled

    for episode in episodes:
        for agent in episode.agents:
            total = sum(frame["agents"][agent]["reward"] for frame in episode.frames)
            assert total == pytest.approx(episode.returns[agent])


class Idle(OneGamePolicy):
    """Takes the first action in any game."""

    def act(self, observations, explore=True):
        return {agent: Decision(0, "", {}, ["left", "right"], np.array([1.0, 0.0]), 0.0, "") for agent in observations}


@pytest.mark.parametrize("solved", [True, False])
@pytest.mark.parametrize("words", [None, ("escaped", "caught")])
def test_a_game_has_its_own_words_for_its_end_and_no_kitchens(tmp_path, solved, words):
    class Maze(Corridor):
        metadata = {"name": "maze"} if words is None else {"name": "maze", "success_words": words}

        def step(self, actions):
            *rest, infos = super().step(actions)
            return *rest, {agent: {"task_success": solved} for agent in infos}

    page = write_replay(record(Idle(), env=Maze(3)), tmp_path / "replay.html").read_text()
    good, bad = words or ("solved", "not solved")
    assert f'"headline":"{good if solved else bad}"' in page and "served" not in page


def checked(page: str) -> ReplayPage:
    """The JSON of a page, which has the keys and types of the schema and no others."""
    content = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL).group(1)
    return TypeAdapter(ReplayPage).validate_json(content)


def test_the_json_of_a_page_has_the_schema(episodes, tmp_path):
    page = write_comparison({"one": episodes, "other": episodes}, tmp_path / "replay.html", title="Two").read_text()
    told = checked(page)
    assert [side["title"] for side in told["sides"]] == ["one", "other"] and told["drawing"]["pictures"]
    busy = {"text", "subgoal", "reward", "events", "busy", "total"}
    asked = busy | {"said", "heard", "candidates", "probabilities", "action", "phrase", "value"}
    frames = told["sides"][0]["episodes"][0]["frames"]
    assert {frozenset(part) for frame in frames for part in frame["agents"].values()} == {
        frozenset(busy), frozenset(asked)
    }  # fmt: skip
    for change in ('"undone":false', '"total":0.0', '"picture":0', '"drawing":'):  # of each class of parts one
        assert change in page
        with pytest.raises(ValidationError):
            checked(page.replace(change, f'"other":{change.partition(":")[2]}', 1))


@pytest.mark.parametrize("words", ["won", ("won",), ("won", 3)])
def test_words_that_are_none_are_told(words):
    class Odd(Corridor):
        metadata = {"name": "odd", "success_words": words}

    with refused("metadata['success_words']"):
        record(Idle(), env=Odd(3))


def test_the_page_tells_who_answered(tmp_path):
    """A server that refuses every assignment and reflection."""

    def model(prompt: str) -> str:
        refused = "Give each of these" in prompt or "Which phase made the mistake" in prompt
        return "no" if refused else planner(prompt)

    with ChatServer(model) as server:
        asked = server.settings(max_tokens=2000)
        game = overcooked_ai.parallel_env(observe=["entities"], action_level="primitive", horizon=30)
        env = PlannedSubgoals(game, {"name": "chat", "chat": asked, "objects": False}, wait=True, patience=9)
        page = write_replay(record(Idle(), env=env), tmp_path / "replay.html").read_text()
    told = checked(page)
    (episode,) = told["sides"][0]["episodes"]
    count = len(episode["rounds"])
    assert episode["answers"][:2] == [f"plans: model {count}", f"assignments: rules {count}"] and count > 1
    assert episode["answers"][-1] == "fallback: rules" and "by_" not in episode["headline"]
    assert not any("_by_" in name for name in episode["curves"])
    by = {"goal": "model", "decomposition": "model", "assignment": "rules"}
    assert all(attempt["by"] == by for (attempt,) in episode["rounds"])


def test_page_is_self_contained_and_its_texts_are_data(episodes, tmp_path):
    page = write_replay(episodes, tmp_path / "a" / "replay.html", title="Two <cooks>").read_text()
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", page)
    assert NASTY not in page and "Two &lt;cooks&gt;" in page
    assert page.count("<script") == 2 and len(page) < 400_000 and '"headline":"not served"' in page
    assert page == write_replay(episodes, tmp_path / "b.html", title="Two <cooks>").read_text()
    assert not list(tmp_path.rglob("*.tmp"))


def test_tiles_give_the_pictures_back():
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 255, (100, 150, 3), dtype=np.uint8) for _ in range(3)]
    pictures.append(pictures[1].copy())
    pictures[2][:64, :64] = pictures[0][:64, :64]
    sheets = TileSheets()
    assert [sheets.add(picture) for picture in pictures] == [0, 1, 2, 1]
    drawing = sheets.layout()
    (source,) = sheets.data_urls()
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(source.split(",")[1]))))
    size, across = drawing["tile"], 3
    assert len({tile for layout in drawing["pictures"] for tile in layout["tiles"]}) == 17
    for picture, layout in zip(pictures, drawing["pictures"], strict=False):
        canvas = np.zeros((2 * size, 3 * size, 3), np.uint8)
        for place, tile in enumerate(layout["tiles"]):
            y, x = size * (place // across), size * (place % across)
            v, u = size * (tile // drawing["columns"]), size * (tile % drawing["columns"])
            canvas[y : y + size, x : x + size] = sheet[v : v + size, u : u + size]
        assert np.array_equal(canvas[: layout["height"], : layout["width"]], picture)


def opened(chromium, page, moment):
    """The page's DOM after a browser has run it."""
    tab = chromium.open("about:blank")
    tab.call("Page.navigate", url=f"file://{page}#frame={moment}")
    tab.until("document.body && document.body.dataset.status === 'ready'")
    return tab.value("document.documentElement.outerHTML")


def test_the_page_works_in_a_browser_and_its_curves_show_what_the_game_counts(chromium, tmp_path):
    counts = [{"gold": g, "won": k // 3, "odd": g / 0.7} for k, g in enumerate((5.0, 9.0, -2.0, 7.5))]
    frames = [
        {"game_step": k, "ansi": "x", "image": None, "metrics": one, "agents": {}} for k, one in enumerate(counts)
    ]
    frames[1]["metrics"]["odd"] = float("nan")
    episode = Episode("toy", {}, [], 0, metrics=frames[-1]["metrics"], frames=frames)
    page = write_replay(episode, tmp_path / "replay.html")
    assert '"curves":{"gold":[5.0,9.0,-2.0,7.5]}' in page.read_text()
    dom = opened(chromium, page, 2)
    assert 'data-status="ready"' in dom and 'data-frame="2"' in dom and dom.count('class="side"') == 1
    assert dom.count("<polyline") == 1 and "<b>-2</b>" in dom
    assert 'points="0.00,14.82 33.33,1.00 66.67,39.00 100.00,6.18"' in dom


def test_two_runs_side_by_side_in_a_browser(chromium, tmp_path):
    env = parallel_env(map_name="B", max_game_steps=30)
    sides = {
        name: record(RandomCooks(), episodes=2, seed=seed, env=env) for name, seed in (("talking", 0), ("silent", 50))
    }
    page = write_comparison(sides, tmp_path / "both.html", title="Both")
    steps = {frame["game_step"] for episodes in sides.values() for frame in episodes[0].frames}
    dom = opened(chromium, page, len(steps) - 1)  # the last moment of the common clock
    assert 'data-status="ready"' in dom and f'data-frame="{len(steps) - 1}"' in dom
    assert dom.count('class="side"') == 2 and ">talking</h2>" in dom and ">silent</h2>" in dom
    assert dom.count(">the episode is over<") == 4  # both cooks of both runs
    assert f"{len(steps)} of {len(steps)}" in dom


def test_subgoals_and_actions_have_words(tmp_path):
    """Also where agents see numbers only."""

    class Stays(OneGamePolicy):
        def act(self, observations, explore):
            even = np.full(20, 0.05)
            return {a: Decision(0, "", {}, [str(i) for i in range(20)], even, 0.0, "") for a in observations}

    env = subgoal_env(observe=["vector"], action_level="goal_cell", horizon=2)
    frame = record(Stays(), env=env)[0].frames[0]["agents"]["alice"]
    assert frame["subgoal"] == "" and frame["candidates"][7] == "go to floor 2,1"
    env = subgoal_env(observe=["entities"], action_level="goal_cell", horizon=2)
    episode = record(Stays(), env=env)
    assert episode[0].frames[0]["agents"]["bob"]["subgoal"] in write_replay(episode, tmp_path / "r.html").read_text()


def test_the_page_shows_the_order_and_who_is_told_it(tmp_path):
    env = parallel_env(recipe=["tomato salad", "onion salad"], told_to=["bob"], max_game_steps=12)
    (episode,) = record(RandomCooks(), episodes=1, seed=1, env=env)
    _, infos = env.reset(seed=1)
    for frame in episode.frames:
        assert frame["agents"]["alice"]["told"] == "" and frame["agents"]["bob"]["told"] == infos["bob"][PRIVATE]
    page = write_replay(episode, tmp_path / "told.html").read_text()
    assert f'"told":"{infos["bob"][PRIVATE]}"' in page and "tomato salad or onion salad" in page
    (open_episode,) = record(RandomCooks(), episodes=1, seed=1, env=parallel_env(max_game_steps=12))
    assert not any("told" in card for frame in open_episode.frames for card in frame["agents"].values())
