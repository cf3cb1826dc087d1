"""What frozen cooks of a textual kitchen say: own words, the scripted cook's words, none."""

from __future__ import annotations

import numpy as np

from rllib_llm_comm import load_policy
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.envs.interface import teacher_state
from rllib_llm_comm.envs.overcooked_text.cooks import understand
from rllib_llm_comm.policies.partner_settings import parse_partners
from rllib_llm_comm.policies.partners import make_partner
from rllib_llm_comm.policies.seated_policy import PartnerSeats
from rllib_llm_comm.verco.teachers.base import ScriptedTeacher, TeacherRequest
from tests.refusal import refused

COOK = "zoo:verco_salad"  # trained with seed 0, by labels of the scripted cook
SPEECH = ("own", "scripted", "none")
POOL = [{"policy": COOK, "name": speech, "speech": speech} for speech in SPEECH]
KITCHEN = {"map_name": "B", "recipe": "lettuce-tomato salad", "max_game_steps": 12}
TEXT = "rllib_llm_comm/overcooked_text-v0"
WORDINGS = 60


def scripted_sayings(game, agent):
    """What the game's scripted player may say for an agent now, in all its wordings."""
    request = TeacherRequest(tuple(game.possible_agents), {}, state=teacher_state(game))
    drawn = (ScriptedTeacher().messages(request, rng=np.random.default_rng(seed)) for seed in range(WORDINGS))
    return {messages[agent] for messages in drawn}


def test_the_learner_hears_each_stranger_speak_in_its_way():
    cook = load_policy(COOK)
    partners = {settings.name: make_partner(settings, load_policy) for settings in parse_partners(POOL)}
    heard = {speech: [] for speech in SPEECH}
    for seat, other in (("alice", "bob"), ("bob", "alice")):
        for speech, partner in partners.items():
            game = PartnerSeats(make_env(TEXT, **KITCHEN), [partner], seat=seat)
            for seed in range(6):
                game.reset(seed=seed)
                heard[speech].append(game.mailbox[other])
                seen = {other: game.asked_now[other]}
                expected = {
                    "own": {cook.speak_together([(cook.begin(0), seen)])[0][other][0]},
                    "scripted": scripted_sayings(game.env.unwrapped, other),
                    "none": {""},
                }
                assert heard[speech][-1] in expected[speech]
    assert heard["own"] != heard["scripted"] and set(heard["none"]) == {""} and all(heard["own"])
    assert len(set(heard["scripted"])) > 2, "the scripted player has several wordings"


def test_a_teacher_may_say_each_thing_in_one_wording():
    game = make_env(TEXT, **KITCHEN)
    said = [set(), set(), set()]
    for seed in range(8):
        game.reset(seed=seed)
        request = TeacherRequest(tuple(game.possible_agents), {}, state=teacher_state(game.unwrapped))
        meanings = set()
        for wording, found in enumerate(said):
            messages = ScriptedTeacher(wording=wording).messages(request, rng=np.random.default_rng(seed))
            found.update(messages.values())
            meanings.add(tuple(understand(messages[agent]) for agent in sorted(messages)))
        assert len(meanings) == 1 and None not in min(meanings), "the same is meant"
    assert said[0].isdisjoint(said[1]) and {message.split()[0] for message in said[0]} <= {"please", "i"}
    with refused("wording", "range"):
        ScriptedTeacher(wording=-1)
    door = make_env("rllib_llm_comm/door-v0")
    door.reset(seed=0)
    elsewhere = TeacherRequest(tuple(door.possible_agents), {}, state=teacher_state(door.unwrapped))
    with refused("teacher.wording"):
        ScriptedTeacher(wording=1).messages(elsewhere, rng=np.random.default_rng(0))


def test_a_stranger_may_turn_its_words_around_or_lose_some():
    plain, turned, lossy = (
        make_partner(settings, load_policy)
        for settings in parse_partners(
            [COOK, {"policy": COOK, "word_order": "reversed"}, {"policy": COOK, "word_noise": 0.5}]
        )
    )
    game = make_env(TEXT, **KITCHEN)
    kept = 0
    for seed in range(4):
        seen, _ = game.reset(seed=seed)
        heard = {}
        for partner in (plain, turned, lossy):
            memory = partner.begin(seed)
            memory.env = game
            ((message, own),) = partner.speak_together([(memory, {"bob": seen["bob"]})])[0].values()
            heard[partner] = message.split()
            assert memory.mailbox["bob"] == message and own == (None if partner is plain else " ".join(heard[plain]))
        assert heard[turned] == heard[plain][::-1] and set(heard[lossy]) <= set(heard[plain])
        kept += len(heard[lossy])
    assert 0 < kept < 4 * len(heard[plain])
