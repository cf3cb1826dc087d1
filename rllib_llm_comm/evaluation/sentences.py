"""Sentences of strangers and what players do with them: all players are asked in the same situations."""

from __future__ import annotations

import base64
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.core.json_file import read_json
from rllib_llm_comm.envs.games import scripted_player_of
from rllib_llm_comm.envs.interface import ACTION_MASK, PRIVATE, parts_of, secret_of
from rllib_llm_comm.evaluation.communication import RequestReader
from rllib_llm_comm.evaluation.cross_play import CrossPlay
from rllib_llm_comm.evaluation.figures import render_page
from rllib_llm_comm.evaluation.frames import Counterfactuals, frame_of, image_of, phrases_of
from rllib_llm_comm.evaluation.play_settings import CrossPlaySettings
from rllib_llm_comm.policies.decision import Request
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.policies.seated_policy import SeatedPolicy
from rllib_llm_comm.verco.message_protocol import heard_by

SITUATIONS, GAMES = 4, 40
"""Situations per stranger, and games that are begun for them at most (ours)."""
RULE = (
    f"A stranger plays all seats. Of its games, whose seeds count up, each gives the first moment in which an agent "
    f"that is told less than others has to choose and hears something with a meaning. Moments with the same view and "
    f"sentence count once; {SITUATIONS} per stranger, of {GAMES} games at most."
)
SCORES = ("asked", "asked_silent", "asked_share", "asked_share_silent", "scripted", "scripted_silent", "changed")
"""Figures of a choice that are averaged over situations and players; those that are `None` do not count."""
_DATA = "data:image/webp;base64,"
_PICTURE = re.compile(re.escape(_DATA) + "[A-Za-z0-9+/=]*")


def ask_players(
    cross: CrossPlay, settings: CrossPlaySettings, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any] | None:
    """Asks all players what they would do with sentences of strangers, and without.

    The strangers are the partners; without any the players are strangers to each other.

    Args:
        cross: The players and partners.
        settings: Those that `cross` was made with.
        progress: Called with the numbers of players that were asked and of all.

    Returns:
        Plain values: `rule`, `players` (`name`, and `method`, what they are seeds of), `situations` and `pictures`. A
        situation has `stranger`, `group`, `seed`, `game_step`, `listener`, `secret`, `text` (the listener's view),
        `heard` (by speaker), `meaning`, `scripted` (the scripted player's choice, which knows the secret), `picture`
        (its number), and per player in `choices` its likeliest action with and without the sentence (`action`,
        `silent_action`), the probabilities of the former in both (`probability`, `probability_silent`), `influence`,
        and `SCORES`: whether the action is what was asked for or the scripted player's, and the probability of all
        that was asked for (`None` where nothing that can be done was asked for, or nobody knows). `None` if nobody
        said anything with a meaning, or nobody hears.
    """
    players = {name: policy for one in cross.players if (policy := cross.alone(name := one.name)).judge is not None}
    groups = {one.name: group for group, partners in cross.groups.items() for one in partners}
    pictures: dict[str, int] = {}
    situations, moments = list[dict[str, Any]](), list[tuple[PlayedGame, Any, dict[str, str], str]]()
    for name in (groups or players) if players else ():
        for game, listener, heard, meaning in _moments(cross.alone(name), settings):
            moments.append((game, listener, heard, meaning))
            situations.append(
                {
                    "stranger": name,
                    "group": groups.get(name, ""),
                    "seed": game.seed,
                    "game_step": max((int(info.get("game_step", 0)) for info in game.infos.values()), default=0),
                    "listener": str(listener),
                    "secret": secret_of(game.infos),
                    "text": _text(game, listener),
                    "heard": heard,
                    "meaning": meaning,
                    "scripted": _scripted(game, listener),
                    "picture": _picture(game.env, pictures),
                    "choices": {},
                }
            )
    for number, (name, policy) in enumerate(players.items()):
        for situation, moment in zip(situations, moments, strict=True):
            situation["choices"][name] = _choice(policy, *moment, situation["scripted"])
        if progress:
            progress(number + 1, len(players))
    if not situations:
        return None
    told = [{"name": name, "method": ""} for name in players]
    return {"rule": RULE, "players": told, "situations": situations, "pictures": list(pictures)}


def _moments(
    stranger: SeatedPolicy, settings: CrossPlaySettings
) -> Iterator[tuple[PlayedGame, Any, dict[str, str], str]]:
    """The situations of a stranger: the game, the listener, what it hears and what that means."""
    known = set[tuple[str, str, tuple[str, ...]]]()
    for seed in range(settings.seed, settings.seed + GAMES):
        found = list(_first(stranger, seed, not settings.greedy))
        for game, listener, heard, meaning in found:
            moment = (str(listener), _text(game, listener), tuple(heard.values()))
            if moment not in known:
                known.add(moment)
                yield game, listener, heard, meaning
            if len(known) == SITUATIONS:
                return


def _first(stranger: SeatedPolicy, seed: int, explore: bool) -> Iterator[tuple[PlayedGame, Any, dict[str, str], str]]:
    """The listeners of the first moment of a game in which one hears something with a meaning, if there is one."""
    game = PlayedGame(stranger.env(), seed)
    requests = RequestReader.of_game(game.env.unwrapped)
    stranger.reset(seed=seed)
    memory = stranger.begin(seed)
    found = False
    while not (game.over or found):
        (decisions,) = stranger.act_together([game.request(memory)], explore)
        told = {agent for agent, info in game.infos.items() if info.get(PRIVATE)}
        listeners = decisions if told.issuperset(game.infos) else [agent for agent in decisions if agent not in told]
        for listener in listeners:
            heard = heard_by(str(listener), memory.mailbox)
            meanings = [message if requests is None else requests.read(message) or "" for message in heard.values()]
            if any(meanings):
                found = True
                yield game, listener, heard, next(filter(None, meanings))
        if not found:
            game.step(decisions)


def _choice(
    policy: SeatedPolicy, game: PlayedGame, listener: Any, heard: Mapping[str, str], meaning: str, scripted: str | None
) -> dict[str, Any]:
    """What a player does with what it hears, and in silence."""
    policy.reset(seed=game.seed)
    memory = policy.begin(game.seed)
    memory.env, memory.secret = game.env, secret_of(game.infos)
    memory.mailbox.update(heard)
    seen = {listener: game.observations[listener]}
    # It says nothing itself: only what it does is asked.
    (decisions,) = policy.act_together([Request(memory, seen)], False, [{listener: ("", None)}])
    frame = frame_of(game.env, seen, game.infos, decisions, {}, drawn=False)
    Counterfactuals(policy).add_to(frame, seen, decisions)
    card = frame["agents"][str(listener)]
    phrases = card["candidates"]
    given, silent = np.array(card["probabilities"]), np.array(card["silent"])
    best, best_silent = int(given.argmax()), int(silent.argmax())
    allowed = np.asarray(parts_of(seen[listener]).get(ACTION_MASK, np.ones(len(phrases))), bool)
    requests = RequestReader.of_game(game.env.unwrapped)
    named = allowed & [requests is not None and requests.names(phrase, meaning) for phrase in phrases]
    asks = bool(named.any())
    return {
        "action": phrases[best],
        "probability": card["probabilities"][best],
        "probability_silent": card["silent"][best],
        "silent_action": phrases[best_silent],
        "influence": card["influence"],
        "changed": card["changed"],
        "asked": bool(named[best]) if asks else None,
        "asked_silent": bool(named[best_silent]) if asks else None,
        "asked_share": round(float(given[named].sum()), 4) if asks else None,
        "asked_share_silent": round(float(silent[named].sum()), 4) if asks else None,
        "scripted": None if scripted is None else phrases[best] == scripted,
        "scripted_silent": None if scripted is None else phrases[best_silent] == scripted,
    }


def _text(game: PlayedGame, listener: Any) -> str:
    return str(parts_of(game.observations[listener]).get("text", ""))


def _scripted(game: PlayedGame, listener: Any) -> str | None:
    """The choice of the game's scripted player, in words; `None` where there is none."""
    env, seen = game.env.unwrapped, parts_of(game.observations[listener])
    player = scripted_player_of(env)
    advice = None if player is None else player.advise(env, listener)
    return None if advice is None else phrases_of(env, listener, seen, seen.get("candidates", ()))[int(advice)]


def _picture(env: Any, known: dict[str, int]) -> int | None:
    """The number of the game's picture, which is kept once; `None` if it draws none."""
    image = image_of(env.unwrapped)
    if image is None:
        return None
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="WEBP", lossless=True)
    return known.setdefault(_DATA + base64.b64encode(buffer.getvalue()).decode(), len(known))


def join_sentences(parts: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """One page's figures of several methods, whose players were asked in the same situations.

    `parts` are names of methods, and what `ask_players` told of all or some of their seeds.
    """
    pictures: dict[str, int] = {}
    joined: dict[tuple[Any, ...], dict[str, Any]] = {}
    players = []
    repeated = Counter(name for _, part in parts for name in _names(part))
    for method, part in parts:
        names = {name: name if repeated[name] == 1 else f"{method}, {name}" for name in _names(part)}
        players += [{"name": name, "method": method} for name in names.values()]
        for one in part["situations"]:
            key = (one["stranger"], one["seed"], one["listener"], one["text"], tuple(one["heard"].items()))
            drawn = one["picture"]
            picture = None if drawn is None else pictures.setdefault(part["pictures"][drawn], len(pictures))
            kept = joined.setdefault(key, {**one, "picture": picture, "choices": {}})
            kept["choices"].update({names[name]: choice for name, choice in one["choices"].items()})
    return {"rule": RULE, "players": players, "situations": list(joined.values()), "pictures": list(pictures)}


def _names(part: Mapping[str, Any]) -> list[str]:
    return [player["name"] for player in part["players"]]


def summary_of(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Means per method and stranger: `method`, `stranger`, `situations`, `influence`, and those of `SCORES`.

    Where players are strangers to each other, what one does with its own sentences does not count.
    """
    rows = []
    for stranger in dict.fromkeys(one["group"] or one["stranger"] for one in told["situations"]):
        met = [one for one in told["situations"] if stranger == (one["group"] or one["stranger"])]
        for method in dict.fromkeys(player["method"] for player in told["players"]):
            names = {player["name"] for player in told["players"] if player["method"] == method}
            made = [choice for one in met for name, choice in _strange(one).items() if name in names]
            means = {name: _mean([one[name] for one in made]) for name in ("influence", *SCORES)}
            rows.append({"method": method, "stranger": stranger, "situations": len(met), **means})
    return rows


def _strange(situation: Mapping[str, Any]) -> Mapping[str, Any]:
    """The choices of a situation without the speaker's own, where it is one of the players; its own if it is alone."""
    choices: Mapping[str, Any] = situation["choices"]
    others = {name: choice for name, choice in choices.items() if situation["group"] or name != situation["stranger"]}
    return others or choices


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None


def read_sentences(path: Path) -> dict[str, Any]:
    """What `write_sentences` wrote as JSON, checked.

    Raises:
        UserError: If it is damaged.
    """
    told = read_json(path, "remove it and ask again with `rllib report FOLDER --sentences`")
    for player in told["players"].elements():
        player["name"].text()
    pictures = told["pictures"].elements()
    for url in pictures:
        if not _PICTURE.fullmatch(url.text()):
            raise url.wrong("a picture")
    for one in told["situations"].elements():
        for name in ("stranger", "group", "listener", "secret", "text"):
            one[name].text()
        for name in ("seed", "game_step"):
            one[name].whole()
        for message in one["heard"].items().values():
            message.text()
        if one["scripted"].content is not None:
            one["scripted"].text()
        if one["picture"].content is not None:
            one["picture"].whole(0, len(pictures) - 1)
        for choice in one["choices"].items().values():
            for name in ("action", "silent_action"):
                choice[name].text()
            for name in ("probability", "probability_silent", "influence", *SCORES):
                if not isinstance(choice[name].content, bool | type(None)):
                    choice[name].number()
    return dict(told.content)


def write_sentences(told: Mapping[str, Any], page: Path, title: str = "Sentences of strangers") -> Path:
    """Writes the figures of `ask_players` or `join_sentences` as a page that needs nothing else, and beside it as JSON.

    Both files appear at once or not at all, and differ in the ending alone.
    """
    rows, page = summary_of(told), page.with_suffix(".html")
    write_atomically(page.with_suffix(".json"), json.dumps({**told, "summary": rows}, separators=(",", ":")) + "\n")
    methods = {player["name"]: player["method"] for player in told["players"]}
    write_atomically(page, render_page("sentences.html", {}, told=told, rows=rows, title=title, methods=methods))
    return page
