"""Golden data of the strategy game: maps, scenarios and whole games."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.registry import Registry
from rllib_llm_comm.envs.golden import GoldenReport
from rllib_llm_comm.envs.minirts.engine import mapgen, opponents, rts_game, state
from rllib_llm_comm.envs.minirts.engine.rts_game import RTSGame, RTSSettings, Unit
from rllib_llm_comm.envs.minirts.engine.units import CAN_ATTACK, COST, IS_MOBILE, NAMES, RESOURCE, TOWN_HALL, TYPE_OF

_MAX_EVENTS = 40
# Nothing but the income is recorded after so many.
_MAX_DEPOSITS = 60
_SIDES = ("A", "B")
_ORDERS = ("IDLE", "ATTACK", "MOVE", "BUILD", "GATHER")
# Mean positions have three digits behind the point.
_ROUNDING = 6e-4


def replay(episode: Mapping[str, Any], report: GoldenReport) -> None:
    """Replays one map, scenario or game, and notes differences.

    Raises:
        UserError: If its kind is unknown.
    """
    _KINDS[episode["kind"]](episode, report)


def _map(episode: Mapping[str, Any], report: GoldenReport) -> None:
    settings = mapgen.MapSettings(
        fair=episode["fair"], num_peasants=episode["num_peasants"], resource_dist=episode["resource_dist"]
    )
    made = mapgen.generate(mapgen.game_seed(episode["seed"]), settings)
    report.steps += 1
    report.compare(episode["id"], 0, "water", episode["water"], "".join(".W"[cell] for cell in made.terrain))
    units = [[player, NAMES[kind], x, y] for player, kind, x, y in made.units]
    report.compare(episode["id"], 0, "units", episode["units"], units)


def _script(episode: Mapping[str, Any], report: GoldenReport) -> None:
    game = _scenario(episode, episode["init"], (episode["money"][0], episode["money"][1]))
    states = {item["tick"]: item for item in episode["states"]}
    halls = {p: n for n, (p, kind, *_) in reversed(list(enumerate(episode["init"]))) if kind == "TOWN_HALL"}
    first_winner = -1
    for tick in range(episode["ticks"]):
        sent = [command for command in episode["commands"] if command[0] == tick]
        _tick(game, report, [_order(game, command, halls) for command in sent])
        if first_winner < 0 and game.winner >= 0:
            first_winner = tick
        if tick in states:
            _compare_script(episode["id"], states[tick], game, report)
    report.compare(episode["id"], episode["ticks"], "first_winner_tick", episode["first_winner_tick"], first_winner)


def _order(game: RTSGame, command: Sequence[Any], halls: Mapping[int, int]) -> rts_game.Order:
    _, player, number, kind, *arguments = command
    references = {unit.number: unit.ref for unit in game.units()}
    unit = references.get(number, state.NO_ONE)
    match kind:
        case "MOVE":
            return rts_game.Order(player, unit, state.MOVE, x=arguments[0], y=arguments[1])
        case "ATTACK":
            return rts_game.Order(player, unit, state.ATTACK, target=references.get(arguments[0], state.NO_ONE))
        case "GATHER":
            resource = references.get(arguments[0], state.NO_ONE)
            hall = references.get(halls[player], state.NO_ONE)
            return rts_game.Order(player, unit, state.GATHER, target=resource, hall=hall)
        case "BUILD":
            what, x, y = arguments
            return rts_game.Order(player, unit, state.BUILD, what=TYPE_OF[what], x=x, y=y)
        case "TRAIN":
            return rts_game.Order(player, unit, state.TRAIN, what=TYPE_OF[arguments[0]])
    raise UserError(f"a command is {kind!r} but must be MOVE, ATTACK, GATHER, BUILD or TRAIN.")


def _compare_script(name: str, expected: Mapping[str, Any], game: RTSGame, report: GoldenReport) -> None:
    tick = expected["tick"]
    report.compare(name, tick, "money", expected["money"], [game.money(0), game.money(1)])
    wanted = [[*unit[:3], *map(np.float32, unit[3:5]), *unit[5:]] for unit in expected["units"]]
    units = [[u.player, u.number, u.name, np.float32(u.x), np.float32(u.y), u.hp, _running(u)] for u in game.units()]
    report.compare(name, tick, "units", wanted, units)
    cells = [int(game.visible(player).sum()) for player in range(2)]
    report.compare(name, tick, "visible_cells", expected["visible_cells"], cells)


def _running(unit: Unit) -> str:
    if not unit.finished:
        return "TEMP"
    return "BUILD" if unit.order == "TRAIN" else unit.order


def _duel(episode: Mapping[str, Any], report: GoldenReport) -> None:
    game = _scenario(episode, episode["units"])
    commanded = (0, 1) if episode["mode"] == "both" else (0,)
    events: list[list[int]] = []
    units = _sides(game)
    sums = [_hp(own) for own in units]
    for tick in range(episode["end_tick"] + 1):
        _tick(game, report, [o for side in commanded for o in _duel_orders(units[side], units[1 - side])])
        units = _sides(game)
        for side in (1, 0):
            now = _hp(units[side])
            if now != sums[side]:
                events.append([tick, side, now])
                sums[side] = now
        if not all(units):
            break
    alive = [len(own) for own in units]
    outcome = {
        "winner": _SIDES[alive.index(max(alive))]
        if 0 in alive and any(alive)
        else "none"
        if any(alive)
        else "both_dead",
        "end_tick": tick,
        "alive_a": alive[0],
        "alive_b": alive[1],
        "hp_a": sums[0],
        "hp_b": sums[1],
        "first_damage_tick_a": next((at for at, side, _ in events if side == 0), -1),
        "first_damage_tick_b": next((at for at, side, _ in events if side == 1), -1),
        "hp_events": events[:_MAX_EVENTS],
    }
    _compare_all(episode, outcome, report)


def _sides(game: RTSGame) -> list[list[Unit]]:
    """The units of both players, in one reading."""
    both = game.units()
    return [[unit for unit in both if unit.player == side] for side in range(2)]


def _hp(units: Iterable[Unit]) -> int:
    return sum(max(0, unit.hp) for unit in units)


def _duel_orders(own: Iterable[Unit], enemies: Sequence[Unit]) -> Iterable[rts_game.Order]:
    """Every idle unit that can attack goes for the nearest enemy."""
    for unit in own:
        if unit.order == "IDLE" and CAN_ATTACK[unit.type] and enemies:
            yield rts_game.attack(unit, min(enemies, key=lambda enemy: _distance2(unit, enemy)))


def _distance2(a: Unit, b: Unit) -> np.float32:
    dx, dy = np.float32(a.x) - np.float32(b.x), np.float32(a.y) - np.float32(b.y)
    return dx * dx + dy * dy


def _move(episode: Mapping[str, Any], report: GoldenReport) -> None:
    game = _scenario(episode, episode["units"])
    last = game.units(0)[0]
    orders, length, tick = [rts_game.move(last, *episode["to"])], 0.0, 0
    track: list[list[float]] = []
    for tick in range(episode["end_tick"] + 1):
        _tick(game, report, orders)
        orders, before, last = [], last, game.units(0)[0]
        length += float(np.hypot(last.x - before.x, last.y - before.y))
        if tick % 20 == 0:
            track.append([tick, *map(_short, (last.x, last.y))])
        if last.order == "IDLE":
            break
    outcome = {
        "arrived": last.order == "IDLE",
        "end_tick": tick,
        "end": [_short(last.x), _short(last.y)],
        "track": track,
    }
    _compare_all(episode, outcome, report)
    if abs(length - episode["path_length"]) > 1e-3:
        report.compare(episode["id"], tick, "path_length", episode["path_length"], length)


def _gather(episode: Mapping[str, Any], report: GoldenReport) -> None:
    game = _scenario(episode, episode["units"])
    hall = next(unit for unit in game.units(0) if unit.type == TOWN_HALL)
    resource = next(unit for unit in game.units(0) if unit.type == RESOURCE)
    orders = [rts_game.gather(unit, hall, resource) for unit in game.units(0) if IS_MOBILE[unit.type]]
    deposits: list[list[int]] = []
    resource_hp: list[list[int]] = []
    after = game.money(0), game.unit(resource.ref)
    for tick in range(episode["ticks"]):
        _tick(game, report, orders)
        orders, before, after = [], after, (game.money(0), game.unit(resource.ref))
        if len(deposits) == _MAX_DEPOSITS:
            continue
        if after[0] != before[0]:
            deposits.append([tick, after[0]])
        if after[1] and before[1] and after[1].hp != before[1].hp:
            resource_hp.append([tick, after[1].hp])
    _compare_all(episode, {"deposits": deposits, "resource_hp": resource_hp, "income": game.money(0)}, report)


def _train(episode: Mapping[str, Any], report: GoldenReport) -> None:
    game = _scenario(episode, episode["units"], (episode["money0"], 0))
    kind, given = TYPE_OF[episode["unit"]], 0
    events: list[list[Any]] = []
    known = {unit.ref for unit in game.units()}
    for tick in range(episode["ticks"]):
        house, money = game.units(0)[0], game.money(0)
        affordable = money >= COST[kind]
        orders = (
            [rts_game.train(house, kind)] if house.order == "IDLE" and affordable and given < episode["orders"] else []
        )
        given += len(orders)
        _tick(game, report, orders)
        if game.money(0) != money:
            events.append(["money", tick, game.money(0)])
        for unit in game.units():
            if unit.ref not in known:
                known.add(unit.ref)
                events.append(["unit", tick, unit.name, unit.x, unit.y])
    _compare_all(episode, {"events": events}, report)


def _build(episode: Mapping[str, Any], report: GoldenReport) -> None:
    game = _scenario(episode, episode["units"], (episode["money0"], 0))
    what = TYPE_OF[episode["building"]]
    orders = [rts_game.build(game.units(0)[0], what, *episode["at"])]
    known = {unit.ref for unit in game.units()}
    events: list[list[Any]] = []
    hp, tick = 0, 0
    for tick in range(episode["end_tick"] + 1):
        money = game.money(0)
        _tick(game, report, orders)
        orders = []
        if game.money(0) != money:
            events.append(["money", tick, game.money(0)])
        for unit in (unit for unit in game.units() if unit.ref not in known):
            hp = _note_building(events, tick, unit, hp)
    peasant = game.units(0)[0]
    outcome = {"events": events, "peasant_end": [_short(peasant.x), _short(peasant.y)]}
    _compare_all(episode, outcome, report)


def _note_building(events: list[list[Any]], tick: int, building: Unit, hp: int) -> int:
    """Notes what is new about a building; its first four hp are listed. Returns its hp."""
    if building.finished:
        events.append(["finished", tick])
    elif not any(event[0] == "placeholder" for event in events):
        events.append(["placeholder", tick])
    elif building.hp != hp:
        if hp == 0:
            events.append(["construction_hp>0", tick])
        if sum(event[0] == "hp" for event in events) < 4:
            events.append(["hp", tick, building.hp])
    return building.hp


def _scenario(episode: Mapping[str, Any], units: Sequence[Sequence[Any]], money: tuple[int, int] = (0, 0)) -> RTSGame:
    water = episode.get("water")
    terrain = None if water is None else np.array([cell == "W" for cell in water], np.int8)
    return RTSGame.scenario([(p, TYPE_OF[kind], x, y) for p, kind, x, y in units], money, terrain)


def _tick(game: RTSGame, report: GoldenReport, orders: Sequence[rts_game.Order]) -> None:
    codes = np.zeros(len(orders), np.int32)
    # Scenarios speak to units directly, and go on after somebody has won.
    rts_game.run(game.record[0], game.memory[0], rts_game.pack(orders), codes, False, 1, False)
    report.steps += 1


def _short(value: float) -> float:
    """A number with the six digits that the file has."""
    return float(f"{value:.6g}")


def _compare_all(episode: Mapping[str, Any], outcome: Mapping[str, Any], report: GoldenReport) -> None:
    for name, value in outcome.items():
        report.compare(episode["id"], 0, name, episode[name], value)


def replay_game(episode: Mapping[str, Any], report: GoldenReport) -> None:
    """Replays a game with what both sides had every 50 ticks."""
    game = _begin(episode, report)
    name = episode["id"]
    report.compare(name, 0, "init.water", episode["init"]["water"], "".join(".W"[c] for c in game.record["terrain"][0]))
    units = [[u.player, u.name, u.x, u.y] for u in sorted(game.units(), key=lambda unit: unit.number)]
    report.compare(name, 0, "init.units", episode["init"]["units"], units)
    for tick, first, second, both in episode["summaries"]:
        # Taken at the end of the tick of that number.
        game.run(tick + 1 - game.tick)
        for player, expected in enumerate((first, second)):
            _compare_side(name, tick, player, expected, game, report)
        report.compare(name, tick, "seen", both["seen"], [int(game.explored(player).sum()) for player in range(2)])
        report.compare(name, tick, "ore", both["ore"], sum(u.hp for u in game.units(kind=RESOURCE)))
    _finish(episode, game, report)


def replay_result(episode: Mapping[str, Any], report: GoldenReport) -> None:
    """Replays a game of which only the end is known: what was drawn, the winner, the tick and whether it was a jam."""
    _finish(episode, _begin(episode, report), report)


def _begin(episode: Mapping[str, Any], report: GoldenReport) -> RTSGame:
    chosen = {key: episode[key] for key in ("fair", "num_peasants", "num_resources", "resource_dist")}
    settings = RTSSettings(
        map=mapgen.MapSettings(**chosen),
        opponents=(episode["p0"], episode["p1"]),
        money=episode["resource"],
        max_tick=episode["max_tick"],
        frame_skip=episode["fs"],
    )
    seed = episode["seed"]
    game = RTSGame(mapgen.game_seed(seed), settings, (seed, seed))
    report.compare(episode["id"], 0, "drawn", episode["drawn"], [_drawn(game, player) for player in range(2)])
    return game


def _drawn(game: RTSGame, player: int) -> dict[str, Any]:
    drawn = opponents.drawn(game.record, player)
    types = {"type": NAMES[drawn.types[0]]} if drawn.types else {}
    return {**types, "min": drawn.least, "max": drawn.most}


def _finish(episode: Mapping[str, Any], game: RTSGame, report: GoldenReport) -> None:
    while not game.over:
        game.run(1000)
    report.steps += game.tick
    for key, value in (("winner", game.winner), ("end_tick", game.tick), ("error", game.broken)):
        report.compare(episode["id"], game.tick, key, episode[key], value)


def _compare_side(
    name: str, tick: int, player: int, expected: Mapping[str, Any], game: RTSGame, report: GoldenReport
) -> None:
    units = [unit for unit in game.units(player) if unit.type != RESOURCE]
    finished = [unit for unit in units if unit.finished]
    types = [unit.name for unit in finished]
    running = ["BUILD" if unit.order == "TRAIN" else unit.order for unit in finished]
    ours: dict[str, Any] = {
        "res": game.money(player),
        "hp": sum(unit.hp for unit in finished),
        "constructing": len(units) - len(finished),
        "n": {kind: types.count(kind) for kind in types},
        "cmd": {kind: running.count(kind) for kind in _ORDERS},
    }
    for key, value in ours.items():
        report.compare(name, tick, f"p{player}.{key}", expected[key], value)
    mean = _mean_place(finished)
    if not np.allclose(expected["mean_xy"], mean, rtol=0, atol=_ROUNDING):
        report.compare(name, tick, f"p{player}.mean_xy", expected["mean_xy"], mean)


def _mean_place(units: list[Unit]) -> list[float]:
    """Mean place of the mobile units; (-1, -1) if there are none."""
    places = [(unit.x, unit.y) for unit in units if IS_MOBILE[unit.type]]
    return [float(sum(axis) / len(places)) for axis in zip(*places, strict=True)] if places else [-1.0, -1.0]


_KINDS: Registry[Callable[[Mapping[str, Any], GoldenReport], None]] = Registry(
    "kind",
    {
        "map": _map,
        "script": _script,
        "duel": _duel,
        "move": _move,
        "gather": _gather,
        "train": _train,
        "build": _build,
        "game": replay_game,
        "result": replay_result,
    },
)
