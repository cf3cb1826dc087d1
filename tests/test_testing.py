"""The contract tests find what is wrong with an environment."""

import re

import numpy as np
import pytest
from gymnasium import spaces
from odd_games import Odd
from pettingzoo import ParallelEnv
from pettingzoo.env_registry import registration
from pettingzoo.utils import BaseParallelWrapper

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import GAMES, GameRecord, register_game
from rllib_llm_comm.envs.games import game_of, make_env, scripted_player_of
from rllib_llm_comm.envs.overcooked_text import parallel_env
from rllib_llm_comm.policies.partner_settings import PartnerSettings
from rllib_llm_comm.policies.partners import make_player, pose_of, require_wait
from rllib_llm_comm.rl.rllib_adapter import ensure_registered, registered_maker
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.testing import check_env
from tests.refusal import refused

ID = "rllib_llm_comm/overcooked_text-v0"


FAULTY_INFOS = {
    "rewards": {"step_rewards": [0.5]}, "solved": {"task_success": "no"}, "private": {"private": 1},
    "busy": {"needs_action": False},
}  # fmt: skip


class Talkers(ParallelEnv):
    """A minimal text environment with a switch for each fault."""

    metadata = {"name": "talkers", "render_modes": []}

    def __init__(self, fault=""):
        self.fault, self.possible_agents, self.agents = fault, ["ann", "bo"], []
        words = spaces.Text(20, min_length=0)
        phrases = 1 if fault == "candidates" else 2
        seen = {"text": words, "candidates": spaces.Tuple([words] * phrases)}
        mask = spaces.Box(0, 1, (2,), np.int8)
        self.spaces = {agent: spaces.Dict({**seen, "action_mask": mask}) for agent in self.possible_agents}
        self.choices = {agent: spaces.Discrete(2) for agent in self.possible_agents}

    def observation_space(self, agent):
        return self.spaces[agent]

    def action_space(self, agent):
        return self.choices[agent]

    def _look(self):
        fault = self.fault
        text = "" if fault == "text" else "too long for a space of twenty" if fault == "space" else "hello"
        if fault == "random":
            text = "hello" + "x" * int(np.random.default_rng().integers(9))
        phrases = ("go",) if fault == "candidates" else ("go", "go") if fault == "twice" else ("go", "stay")
        closed = [0, 0] if fault == "mask" and self.time == 4 else [1, int(fault == "twice")]
        mask = np.array(closed, np.int8)
        return {a: {"text": text, "candidates": phrases, "action_mask": mask} for a in self.agents}

    def reset(self, seed=None, options=None):
        self.agents, self.time = list(self.possible_agents), 0
        return self._look(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.time += 1
        over = self.time == 6
        observations = self._look()
        extra = FAULTY_INFOS.get(self.fault, {})
        over = over and self.fault != "busy"
        infos = {agent: dict(extra) for agent in self.agents}
        rewards = dict.fromkeys(self.agents, 1.0)
        terminated = dict.fromkeys(self.agents, over and self.fault == "limit")
        truncated = dict.fromkeys(self.agents, over)
        if over:
            self.agents = []
        return observations, rewards, terminated, truncated, infos


def failures(results):
    return {result.name for result in results if not result.ok}


def test_nothing_of_the_kitchen_is_left_out():
    assert {result.status for result in check_env(ID, settings={"max_game_steps": 40})} == {"passed"}


def test_a_scripted_player_that_is_not_for_a_kitchen_is_no_fault_of_it():
    results = check_env("rllib_llm_comm/overcooked_ai-v0", settings={"layout": "simple_tomato"}, steps=5)
    assert failures(results) == set()
    (told,) = [result for result in results if "scripted player" in result.name]
    assert told.status == "skipped" and "simple_tomato" in told.detail


class Terminated(BaseParallelWrapper):
    """A game whose time limit terminates."""

    def step(self, actions):
        seen, rewards, terminated, truncated, infos = super().step(actions)
        return seen, rewards, {**terminated, **truncated}, dict.fromkeys(truncated, False), infos


@pytest.mark.parametrize(("game", "limit"), [(ID, "max_game_steps"), ("rllib_llm_comm/overcooked_ai-v0", "horizon")])
def test_a_limit_that_terminates_is_found_by_whichever_name(game, limit):
    results = check_env(lambda: Terminated(make_env(game, **{limit: 20})), steps=50)
    assert "a time limit truncates and does not terminate" in failures(results)


def test_a_users_environment_may_be_a_class_or_an_instance():
    results = check_env(Talkers, steps=40)
    assert not failures(results)
    skipped = {result.name.split()[0]: result.detail for result in results if result.status == "skipped"}
    assert skipped.keys() == {"step", "a", "MAPPO", "QMIX"}  # it shows words alone, and tells no time limit
    assert all("does not begin" in skipped[name] and "'ann'" in skipped[name] for name in ("MAPPO", "QMIX"))
    # A Text space prints its alphabet, and a terminal shows 400 characters: the remedy comes within them.
    assert all("observation in numbers" in skipped[name][:400] for name in ("MAPPO", "QMIX"))
    results = check_env(Talkers(), steps=40)
    assert not failures(results)
    assert "PettingZoo parallel_seed_test" in {r.name for r in results if r.status == "skipped"}


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("text", "text is not empty"), ("space", "observations lie in their spaces"),
        ("candidates", "candidates match the actions"), ("mask", "mask allows an action"),
        ("rewards", "step rewards add up"), ("limit", "a time limit truncates and does not terminate"),
        ("random", "same seed, same episodes"), ("busy", "somebody can act until the end"),
        ("solved", "runs under RLlib"), ("private", "runs under RLlib"),
    ],
)  # fmt: skip
def test_each_fault_is_found(fault, check):
    results = check_env(lambda: Talkers(fault), steps=150)
    assert check in failures(results)
    assert all(result.detail for result in results if result.status == "failed")


def test_equal_phrases_of_open_actions_are_told():
    (told,) = [one for one in check_env(lambda: Talkers("twice"), steps=20) if one.name.startswith("candidates")]
    assert told.ok and "called 'go'" in told.detail


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("four results", "`step` of the game Talkers gives 4 results"),
        ("number", "the rewards in step 1 are 1.0"),
        ("crash", "ZeroDivisionError in `step` (test_testing.py, line "),
    ],
)
def test_what_a_step_must_give_is_told_in_a_sentence(fault, told):
    class Faulty(Talkers):
        def step(self, actions):
            results = super().step(actions)
            if fault == "crash":
                raise ZeroDivisionError("the game itself")
            return results[:4] if fault == "four results" else (results[0], 1.0, *results[2:])

    Faulty.__name__ = "Talkers"
    first = check_env(Faulty, steps=20)[0]
    assert not first.ok and first.detail.startswith(told)


@pytest.mark.parametrize("kind", ["masked", "mask of -1", "mask of halves"])
def test_random_play_keeps_to_the_mask_and_masks_are_0_or_1(kind):
    results = {result.name: result for result in check_env(lambda: Odd(kind), steps=40)}
    assert results["plays with random actions"].ok
    kept = kind == "masked"
    assert results["mask allows an action"].ok is kept and results["runs under RLlib"].ok is kept
    assert kept or "`action_mask` of agent 'a' in step 3" in results["runs under RLlib"].detail


def test_an_environment_without_text_is_told_so():
    class Silent(Talkers):
        def observation_space(self, agent):
            return self.numbers[agent]

        def __init__(self):
            super().__init__()
            self.numbers = {agent: spaces.Discrete(3) for agent in self.possible_agents}

        def _look(self):
            return dict.fromkeys(self.agents, 1)

    results = {result.name: result for result in check_env(Silent, steps=20)}
    assert not failures(results.values())
    assert results["text is not empty"].status == "skipped"
    assert "`text`" in results["text is not empty"].detail


def test_unknown_names_and_settings_are_refused():
    with pytest.raises(UserError, match="Did you mean"):
        check_env("rllib_llm_comm/overcooked_txt-v0")
    with pytest.raises(UserError, match="map_name"):
        check_env(ID, settings={"map_nam": "A"})
    assert parallel_env().env_id == ID


class Scripted:
    """A scripted player, with a switch for each fault."""

    def __init__(self, action=0, said="i go"):
        self.action, self.said = action, said

    def messages(self, state, agents, rng):
        return dict.fromkeys(agents, self.said)

    def advise(self, env, agent):
        return self.action


class ToldTalkers(Talkers):
    """Talkers with a state that a teacher may see."""

    teacher_state = "everything"


right, forbidden, deaf, wordless = Scripted(), Scripted(action=1), Scripted(said="hm"), Scripted(said=3)


def understand(message):
    return "go" if message == "i go" else None


RECORD = {"scripted_player": f"{__name__}:right", "sayings": f"{__name__}:understand"}
RIGHT, PLAYER = "its record is right", "its scripted player plays and talks"


def register(env=ToldTalkers, **changed):
    """Registers a game with a record like the right one."""
    record = {"name": "talkers", "package": __name__, "entry_points": {"mine/talkers-v0": env}, **RECORD, **changed}
    register_game(GameRecord(**record))


def checked(**changed):
    """Registers a game and checks it: failed check -> its reason."""
    register(**changed)
    results = check_env("mine/talkers-v0", steps=20)
    assert {RIGHT, PLAYER} <= {result.name for result in results}
    return {result.name: result.detail for result in results if not result.ok}


@pytest.fixture
def registries(monkeypatch):
    """The registries of games are as before afterwards."""
    monkeypatch.setattr(GAMES, "_entries", dict(GAMES._entries))
    yield
    for registry in (registration.parallel_registry, registration.aec_registry):
        registry.pop("mine/talkers-v0", None)
        registry.pop("mine/chat-v0", None)


def test_a_right_record_passes_and_a_game_that_cannot_be_made_is_told_in_a_sentence(registries):
    assert not checked()
    with pytest.raises(UserError, match="'mine/talkers-v0' cannot be made: ZeroDivisionError"):
        checked(env=lambda: 1 / 0)


@pytest.mark.parametrize(
    ("changed", "check", "told"),
    [
        ({"sayings": f"{__name__}:understnd"}, RIGHT, "`sayings` of the game 'talkers'.*has no attribute"),
        ({"planning": f"{__name__}:understand"}, RIGHT, "must be a PlanningGame"),
        ({"planning": "nowhere:Planning"}, RIGHT, "`planning` of the game 'talkers'.*No module named 'nowhere'"),
        ({"package": "elsewhere"}, RIGHT, "`package` is 'elsewhere'.*ToldTalkers"),
        ({"scripted_player": f"{__name__}:forbidden"}, PLAYER, "`advise` gives ann the action 1, but allowed are .0."),
        ({"scripted_player": f"{__name__}:deaf"}, PLAYER, "understands nothing.*'hm'"),
        ({"scripted_player": f"{__name__}:wordless"}, PLAYER, "must give a text"),
        ({"env": Talkers}, PLAYER, "has no `teacher_state`"),
    ],
)
def test_each_fault_of_a_record_is_found(registries, changed, check, told):
    found = checked(**changed)
    assert check in found and re.search(told, found[check]), found


@pytest.mark.parametrize(
    ("part", "play"),
    [
        ("scripted_player", scripted_player_of),
        ("pose", lambda env: pose_of(env, "ann")),
        ("wait", lambda env: require_wait(env, "ann", "stay")),
        ("partner", lambda env: make_player(PartnerSettings(policy="scripted"), env, "ann", None)),
        ("planning", planning_game),
    ],
)
def test_what_a_record_names_wrongly_is_told_in_play(registries, part, play):
    register(**{part: f"{__name__}:nobody"})
    with refused(part):
        play(ToldTalkers())


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"name": "door"}, "`name` is 'door', which is a game already"),
        ({"entry_points": {"rllib_llm_comm/door-v0": Talkers}}, "the id of the game 'door'"),
        ({"entry_points": "mine/talkers-v0"}, "`entry_points` .* must be a mapping"),
        ({"success_words": ("opened",)}, "`success_words` .* must be a tuple of two texts"),
    ],
)
def test_a_record_that_cannot_be_is_not_registered(registries, changed, told):
    with pytest.raises(UserError, match=told):
        register(**changed)
    assert "talkers" not in GAMES


@pytest.mark.parametrize(
    ("name", "env_id"), [("talkers", "mine/talkers-v0"), ("chat", "mine/talkers-v0"), ("chat", "mine/chat-v0")]
)
def test_a_class_that_is_defined_anew_replaces_itself_under_whatever_name(registries, name, env_id):
    def cell():
        return type("Talkers", (Talkers,), {"__module__": __name__, "__qualname__": "Talkers"})

    register_game(GameRecord("talkers", __name__, {"mine/talkers-v0": cell()}))
    ensure_registered("mine/talkers-v0")
    newer = cell()
    register_game(GameRecord(name, __name__, {env_id: newer}))
    assert game_of(newer()).name == name and type(make_env(env_id).unwrapped) is newer
    assert ("talkers" in GAMES) == (name == "talkers")
    ensure_registered(env_id)
    assert type(registered_maker(env_id)({}).env) is newer
    with pytest.raises(UserError, match=f"the id of the game '{name}'"):
        register_game(GameRecord("other", __name__, {env_id: ToldTalkers}))


def test_two_games_of_one_class_live_side_by_side_and_a_name_that_cannot_be_costs_none(registries):
    register_game(GameRecord("talkers", __name__, {"mine/talkers-v0": Talkers}))
    register_game(GameRecord("chat", __name__, {"mine/chat-v0": Talkers}))
    assert {"talkers", "chat"} <= set(GAMES)
    newer = type("Talkers", (Talkers,), {"__module__": __name__, "__qualname__": "Talkers"})
    with refused("name"):
        register_game(GameRecord(7, __name__, {"mine/talk-v0": newer}))
    for env_id in ("mine/talkers-v0", "mine/chat-v0"):
        assert type(make_env(env_id).unwrapped) is Talkers


@pytest.mark.parametrize("entry", [f"{__name__}:nobody", "nowhere:nobody"])
def test_an_entry_point_that_leads_nowhere_is_told(registries, entry):
    register_game(GameRecord("talkers", __name__, {"mine/talkers-v0": entry}))
    for make in (make_env, check_env):
        with pytest.raises(UserError, match=r"'mine/talkers-v0' .* cannot be imported"):
            make("mine/talkers-v0")
