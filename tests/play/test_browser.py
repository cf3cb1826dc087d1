"""The page in a real browser: people who take seats, act by keys, speak, and ask why."""

import json
import time

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("websockets")

from served import served  # noqa: E402
from test_table import table_of  # noqa: E402

from rllib_llm_comm.play.host import set_table  # noqa: E402
from rllib_llm_comm.verco.teachers.base import ScriptedTeacher

READY = "document.body && document.body.dataset.status === 'ready' && typeof game === 'object' && game !== null"


def seated(chromium, running, agent):
    """A page whose person sits down."""
    page = chromium.open(running.door.url)
    page.until(READY)
    page.click(f"button[data-seat={agent}]")
    page.until(f"game.you === {json.dumps(agent)}")
    return page


def say(page, text):
    """Writes a message as a person does: `m`, the words, Enter."""
    page.key("m")
    page.write(text)
    page.key("Enter")


def press(page, action):
    """Presses the digit of an action, on the page of the menu where it stands."""
    place = page.value(f"game.options.findIndex((option) => option.action === {action})")
    assert place >= 0, "a person can only do what the page offers"
    for _ in range(place // 9):
        page.key("]")
    page.key(str(place % 9 + 1))


def test_a_person_serves_a_salad_and_gets_an_answer(chromium):
    """Alice is told the order; Bob, a shipped agent, has the foods and knows nothing but what she says."""
    table = set_table("zoo:told_salad", seed=2)
    food = table.env.unwrapped.kitchen.recipe.split()[0]
    teacher, moments = ScriptedTeacher(), []
    with served(table) as running:
        page = seated(chromium, running, "alice")
        assert f"make a {food} salad" in page.value("$('text').textContent")
        say(page, f"Please bring the {food}!")
        page.until("game.said !== ''")
        assert page.value("$('saying').textContent").endswith(f'"please bring the {food}"')
        page.key("w")
        while not page.value("game.over"):
            moment = page.until("(game.over || game.asked && game.chosen === null) && `${game.moment}`")
            if page.value("game.over"):
                break
            moments.append(moment)
            assert len(moments) < 60, page.text()
            press(page, teacher.advise(table.env.unwrapped, "alice"))
            page.until(f"game.over || game.moment > {moment}")
            if len(moments) == 1:
                answer = page.value("game.why.bob")
                shown = page.value("document.querySelector('#why [data-agent=bob]').innerText")
        assert page.value("$('state').textContent").startswith("The end: served.")
        log = page.value("$('log').innerText")
    assert answer["heard"] == {"alice": f"please bring the {food}"}
    assert food in answer["candidates"][answer["action"]], "Bob does what he was asked for"
    assert answer["influence"] > 0.1, "and does it because he was asked"
    assert f'alice: "please bring the {food}"' in shown and "in silence" in shown
    assert table.episode.success
    assert [line.said for line in table.lines if line.agent == "bob" and line.said] and "Bob" in log


def test_two_browsers_are_two_seats(chromium):
    nasty = "<img src=x onerror=document.title='run'><script>document.title='run'</script>"
    table = table_of("door", policy="random", told_to=["alice"])
    with served(table) as running:
        alice, bob = (seated(chromium, running, agent) for agent in ("alice", "bob"))
        assert bob.value("document.querySelector('button[data-seat=alice]').disabled")
        say(alice, nasty)
        bob.until("Object.keys(game.heard).length === 1")
        assert "<img src=x onerror=" in bob.value("document.querySelector('#heard .said').textContent")
        assert bob.value("document.querySelectorAll('#heard img, #heard script').length") == 0
        assert alice.value("game.told") == table.env.unwrapped.fact and bob.value("game.told") == ""
        alice.key("1")
        alice.until("game.chosen !== null")
        assert bob.value("game.moment") == 0, "the game waits for both"
        bob.key("1")
        for page in (alice, bob):
            page.until("game.moment === 1")
        time.sleep(0.2)
        assert bob.value("document.title") != "run"


def test_arrow_keys_walk_and_the_page_waits_for_nobody_else(chromium):
    table = table_of("overcooked_ai", policy="stay", layout="cramped_room")
    kitchen = table.env.unwrapped.kitchen
    x, y = kitchen.cook(0).cell
    with served(table) as running:
        page = seated(chromium, running, "alice")
        for number, key in enumerate(("ArrowUp", "ArrowRight", "ArrowLeft", ".", " "), 1):
            page.key(key)
            page.until(f"game.moment === {number} && game.asked && game.chosen === null")
        assert kitchen.cook(0).cell == (x, y - 1), "up, right and left again"
        assert page.value("$('picture').naturalWidth") > 100
        say(page, "arrows. and spaces stay text")
        page.until("game.said !== ''")
        assert page.value("game.said") == "arrows. and spaces stay text" and kitchen.time == 5


def test_watching_step_by_step_and_anew_from_a_seed(chromium):
    with served(table_of("door", policy="random", seed=4)) as running:
        page = chromium.open(running.door.url)
        page.until(READY)
        assert page.value("game.paused") and page.value("$('mine').hidden") and not page.value("$('texts').hidden")
        page.key("s")
        page.until("game.moment === 1")
        page.value("$('seed').value = 9; $('restart').click()")
        page.until("game.episode === 2 && game.seed === 9 && game.moment === 0")
        page.key("p")
        page.until("game.over")
        assert page.value("$('state').textContent").startswith("The end: ")
