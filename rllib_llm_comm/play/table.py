"""A game whose seats are held by people and by agents, and the view of each seat; knows nothing of browsers."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import game_of
from rllib_llm_comm.envs.interface import PRIVATE, parts_of
from rllib_llm_comm.evaluation.frames import Counterfactuals, ansi_of, event_words, frame_of, image_of, phrases_of
from rllib_llm_comm.evaluation.replay import headline
from rllib_llm_comm.evaluation.replay_schema import Frame
from rllib_llm_comm.evaluation.rollout import Episode, EpisodeRecorder
from rllib_llm_comm.language.prompts import limit_words
from rllib_llm_comm.policies.decision import Decision
from rllib_llm_comm.policies.partners import allowed_actions, require_wait
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.policies.policy import Spoken
from rllib_llm_comm.policies.seated_policy import SeatedPolicy
from rllib_llm_comm.verco.message_protocol import heard_by

MOST_CHARACTERS = 300
"""Longest message that a person may write, in characters."""
MAX_WORDS = 20
"""Longest message that a person may write, in words, where the agents' own limit is not known."""
_LINES = 200


@dataclass
class Person:
    """Somebody who holds a seat.

    Attributes:
        name: The name that it gave.
        said: Its latest message, in words as agents hear them; it is heard until the next one.
        spoke: True if it said that since its last decision.
        action: The action that it has chosen for this moment; `None` if it still thinks.
        forced: True if the clock has chosen in its place: it waits.
    """

    name: str
    said: str = ""
    spoke: bool = False
    action: int | None = None
    forced: bool = False


@dataclass(frozen=True)
class Line:
    """One agent in one moment, for the log of the page.

    Attributes:
        step: The game step of the decision.
        agent: The agent.
        said: Its message.
        phrase: Its action in words.
        events: Events of the game that concern it.
        reward: Its reward.
    """

    step: int
    agent: str
    said: str
    phrase: str
    events: tuple[str, ...]
    reward: float


@dataclass
class TableMoment:
    """A played moment, with everything that was known when it was decided.

    Attributes:
        frame: As in replays, without drawings; agents that did not decide are `busy`.
        people: The seats that people held, with their names.
        spoke: The people who said something new before they chose.
        forced: The people who did not choose: the clock let them wait.
        rewards: Rewards of the step, by agent.
        events: Events of the step, by agent.
    """

    frame: Frame
    people: dict[str, str]
    spoke: frozenset[str] = frozenset()
    forced: frozenset[str] = frozenset()
    rewards: dict[str, float] = field(default_factory=dict)
    events: dict[str, list[str]] = field(default_factory=dict)


Watcher = Callable[["Table", TableMoment], None]
"""Called after every step with the moment that was played."""


class Table:
    """Plays episodes in which people hold some of the seats.

    All agents that are asked speak first; people may speak until they choose. What a person says is heard until it says
    something else, also by agents that decide later. When every person who is asked has chosen, the agents choose,
    having heard everybody, and the game goes on. A seat that a person leaves is played by its agent again.

    Args:
        policy: The holders of the seats that no person takes.
        make_env: Makes the game.
        explore: True if checkpoints' actions are drawn.
        silence: True to score what agents would have done without the messages that they heard.
        max_words: Longest message of a person, in words.
        seed: Seed of the first episode.

    Attributes:
        env: The game.
        game: The episode that is played.
        people: The people at the table, by agent.
        watchers: Called after every step.
        why: The latest decision of each agent with all that it weighed (`core.session_files.AgentFrame`).
        lines: The latest lines of the log.
        notice: A sentence for everybody about something that went wrong; empty if nothing did.
        moments: Moments that were played in this episode.
        episodes: Episodes that were begun.
    """

    def __init__(
        self,
        policy: SeatedPolicy,
        make_env: Callable[..., Any],
        *,
        explore: bool = True,
        silence: bool = True,
        max_words: int = MAX_WORDS,
        seed: int = 0,
    ) -> None:
        self.policy, self.explore, self.max_words = policy, explore, max_words
        self.env = make_env()
        self.people: dict[str, Person] = {}
        self.watchers: list[Watcher] = []
        self.episodes = 0
        self._silence = Counterfactuals(policy, silence)
        self.restart(seed)

    @property
    def agents(self) -> list[str]:
        """Names of all seats."""
        return [str(agent) for agent in self.env.possible_agents]

    @property
    def seed(self) -> int:
        """Seed of the episode."""
        return self.game.seed

    @property
    def episode(self) -> Episode:
        """The counts of the episode so far."""
        return self._recorder.episodes[self.game.seed]

    @property
    def over(self) -> bool:
        """True if the episode has ended."""
        return self.game.over

    def restart(self, seed: int) -> None:
        """Begins an episode; everybody keeps the seat, nobody has said anything.

        Args:
            seed: Fixes everything but what people do.
        """
        self._recorder = EpisodeRecorder(self.policy)
        self.game = PlayedGame(self.env, seed, [self._recorder])
        self.policy.reset(seed=seed)
        self.policy.meet(self.env)
        self.why: dict[str, Any] = {}
        self.lines: list[Line] = []
        self.notice = ""
        self.moments = 0
        self.episodes += 1
        self._said: dict[str, Spoken] = {}
        for person in self.people.values():
            person.said, person.spoke, person.action = "", False, None
        self._open()

    def sit(self, agent: str, name: str = "person") -> Person:
        """Gives a seat to a person.

        Raises:
            UserError: If there is no such seat, another person holds it, or nobody but its agents can play there.
        """
        if agent not in self.agents:
            raise UserError(f"there is no seat {agent!r}; the seats are {', '.join(self.agents)}.")
        if agent in self.people:
            raise UserError(f"the seat of {agent!r} is taken by {self.people[agent].name}; choose another one.")
        holder = self.policy.seats[agent]
        if holder.needs_the_team:
            raise UserError(
                f"the agents of {holder.settings.name!r} exchange vectors inside of one network, so nobody else can "
                "join them; watch them, or play with another checkpoint."
            )
        if not isinstance(self.env.action_space(agent), Discrete):
            raise UserError(
                f"the actions of {agent!r} are {self.env.action_space(agent)}, which nobody can choose by hand; take "
                "settings of the game with numbered actions."
            )
        person = self.people[agent] = Person(limit_words(name[:MOST_CHARACTERS], 4) or "person")
        self._said.pop(agent, None)
        self.policy.mailbox.pop(agent, None)  # what its agent has said is not the person's word
        return person

    def stand(self, agent: str) -> None:
        """Gives a person's seat back to its agent."""
        if self.people.pop(agent, None) is not None:
            self.policy.mailbox.pop(agent, None)

    def say(self, agent: str, text: str) -> str:
        """Lets a person speak.

        Returns:
            What the others hear: one line of at most `max_words` words, in small letters as agents write.
        """
        said = limit_words(text[:MOST_CHARACTERS].lower(), self.max_words).rstrip(" .,;:!")
        person = self._person(agent)
        person.said, person.spoke = said, bool(said)
        self.policy.mailbox[agent] = said
        return said

    def choose(self, agent: str, action: int) -> None:
        """Takes a person's action for this moment.

        Raises:
            UserError: If it is not asked, or the action is not allowed.
        """
        person = self._person(agent)
        if agent not in self.asked():
            raise UserError(f"{agent} is not asked now.")
        allowed = self.allowed(agent)
        if not 0 <= action < len(allowed) or not allowed[action]:
            raise UserError(f"action {action} is not allowed for {agent} now.")
        person.action, person.forced = action, False

    def asked(self) -> list[str]:
        """The seats that have to choose now."""
        return [str(agent) for agent in self.game.asked]

    def thinking(self) -> list[str]:
        """The people who are asked and have not chosen."""
        return [agent for agent in self.asked() if agent in self.people and self.people[agent].action is None]

    def allowed(self, agent: str) -> np.ndarray:
        """bool (K,): the actions of a seat that are allowed now."""
        return allowed_actions(self.env, agent, self.game.observations[agent])

    def phrases(self, agent: str) -> list[str]:
        """The actions of a seat in words."""
        seen = parts_of(self.game.observations[agent])
        numbered = [str(phrase) for phrase in seen.get("candidates", range(len(self.allowed(agent))))]
        return phrases_of(self.env.unwrapped, agent, seen, numbered)

    def heard(self, agent: str) -> dict[str, str]:
        """The latest message of everybody else, by speaker."""
        return heard_by(agent, self.policy.mailbox)

    def wait_for_nobody(self) -> None:
        """Lets people who still think wait a moment.

        Raises:
            UserError: If the game has no action of waiting.
        """
        for agent in self.thinking():
            self.people[agent].action = require_wait(self.env, agent, "clock")
            self.people[agent].forced = True

    def advance(self) -> bool:
        """Plays one moment, if all people who are asked have chosen.

        Returns:
            True if it was played.
        """
        if self.over or self.thinking():
            return False
        self._open()
        machines = self._machines()
        decided = self._decide(machines)
        decisions = {agent: decided.get(agent) or self._chosen(agent) for agent in self.asked()}
        game = self.game
        frame = frame_of(self.env, game.observations, game.infos, decisions, game.rewards, drawn=False)
        self._silence.add_to(frame, game.observations, decided)
        spoke = frozenset(agent for agent in decisions if agent in self.people and self.people[agent].spoke)
        forced = frozenset(agent for agent in decisions if agent in self.people and self.people[agent].forced)
        moment = TableMoment(frame, {agent: person.name for agent, person in self.people.items()}, spoke, forced)
        self.why |= {str(agent): frame["agents"][str(agent)] for agent in decided}
        game.step(decisions)
        moment.rewards = {str(agent): float(reward) for agent, reward in game.rewards.items()}
        moment.events = {str(agent): list(info.get("events", ())) for agent, info in game.infos.items()}
        self._close(moment)
        return True

    def _machines(self) -> dict[str, Any]:
        """Observations of the agents that are asked and are no people."""
        return {agent: self.game.observations[agent] for agent in self.asked() if agent not in self.people}

    def _open(self) -> None:
        """Lets the agents that are asked speak, each once in a moment."""
        if self.over:
            return
        self.policy.note(self.game.infos)
        silent = {agent: seen for agent, seen in self._machines().items() if agent not in self._said}
        if silent:
            self._said |= self.policy.speak(silent, self.explore)

    def _decide(self, machines: Mapping[str, Any]) -> dict[str, Decision]:
        """The agents' decisions. What people said is taken back where it does not fit into an agent's prompt."""
        if not machines:
            return {}
        try:
            return self.policy.act(machines, self.explore, self._said)
        except UserError as error:
            if not any(person.said for person in self.people.values()):
                raise
            self.notice = f"What people said could not be heard and was taken back: {error}"
            for agent, person in self.people.items():
                person.said, person.spoke = "", False
                self.policy.mailbox.pop(agent, None)
            return self.policy.act(machines, self.explore, self._said)

    def _chosen(self, agent: str) -> Decision:
        """A person's decision; like every player without a network it has one action with p = 1."""
        person = self.people[agent]
        phrases = self.phrases(agent)
        action = int(person.action or 0)
        probabilities = np.eye(len(phrases))[action]
        return Decision(action, person.said, self.heard(agent), phrases, probabilities, np.nan, "")

    def _close(self, moment: TableMoment) -> None:
        """Ends a moment: people think anew, the log goes on, and agents that are asked next speak."""
        step = moment.frame["game_step"]
        for agent, card in moment.frame["agents"].items():
            events = tuple(str(event) for event in moment.events.get(agent, ()))
            reward = moment.rewards.get(agent, 0.0)
            if not card["busy"] or events or reward:
                self.lines.append(Line(step, agent, card.get("said", ""), card.get("phrase", ""), events, reward))
        del self.lines[:-_LINES]
        for agent, person in self.people.items():
            person.action, person.forced = None, False
            person.spoke = person.spoke and agent not in moment.spoke
        self.moments += 1
        self._said = {}
        for watch in self.watchers:
            watch(self, moment)
        self._open()

    def _person(self, agent: str) -> Person:
        if agent not in self.people:
            raise UserError(f"nobody holds the seat of {agent!r}; sit down first.")
        return self.people[agent]


_MOST_NUMBERS = 256
_SHOWN = ("said", "heard", "candidates", "probabilities", "action", "value", "silent", "influence", "changed")


class SeatViews:
    """Views of a table; pictures are made once per moment.

    Args:
        table: The table.
        why: True if people may ask why agents did what they did.
        spectators: True if browsers without a seat are shown the game with the private facts of all seats; otherwise
            they are shown who sits where, and returns.
    """

    def __init__(self, table: Table, why: bool = True, spectators: bool = True) -> None:
        self._table, self._why, self._spectators = table, why, spectators
        self._pictures: dict[str, str] = {}
        self._made = (-1, -1)

    def view(self, seat: str | None) -> dict[str, Any]:
        """The view of a seat, or of somebody who watches.

        Args:
            seat: The agent's name; `None` to watch, which shows everything where there may be spectators.
        """
        table = self._table
        shown = seat is not None or self._spectators
        told: dict[str, Any] = {
            "episode": table.episodes,
            "moment": table.moments,
            "seed": table.seed,
            "step": max((int(info.get("game_step", 0)) for info in table.game.infos.values()), default=0),
            "over": table.over,
            "outcome": headline(table.episode) if table.over else "",
            "returns": {agent: _rounded(total) for agent, total in table.episode.returns.items()},
            "seats": [self._seat(agent) for agent in table.agents],
            "notice": table.notice,
            "you": seat,
            "picture": self._picture(seat) if shown else None,
            "ansi": "",
            "why": self._weighed() if shown else {},
            "log": self._log(seat) if shown else [],
            "hidden": not shown,
        }
        if not shown:
            return told
        if seat is None:
            told["ansi"] = "" if told["picture"] else ansi_of(table.env.unwrapped)
            told["texts"] = {agent: self._read(agent) for agent in table.agents}
            return told
        return {**told, **self._own(seat)}

    def _own(self, seat: str) -> dict[str, Any]:
        """The part that only the holder of a seat is shown."""
        table, game = self._table, self._table.env.unwrapped
        record = game_of(game)
        asked = not table.over and seat in table.asked()
        allowed: list[bool] = table.allowed(seat).tolist() if asked else []
        phrases = table.phrases(seat) if asked else []
        person = table.people[seat]
        return {
            **self._read(seat),
            "asked": asked,
            "chosen": person.action,
            "said": person.said,
            "heard": table.heard(seat),
            "options": [
                {"action": number, "phrase": phrase}
                for number, (phrase, may) in enumerate(zip(phrases, allowed, strict=True))
                if may
            ],
            "keys": record.code("keys")(game, seat) if record is not None and record.keys and asked else {},
        }

    def _weighed(self) -> dict[str, Any]:
        """The latest decision of each agent with all that it weighed; nothing where nobody may ask."""
        cards = self._table.why if self._why else {}
        return {agent: {key: card[key] for key in _SHOWN if key in card} for agent, card in cards.items()}

    def _read(self, agent: str) -> dict[str, str]:
        """An agent's observation in words."""
        game = self._table.game
        seen = game.observations.get(agent, {})
        parts, fact = parts_of(seen), game.infos.get(agent, {}).get(PRIVATE)
        text = str(parts["text"]) if "text" in parts else _numbers(parts.get("observation", seen))
        return {"text": text, "subgoal": str(parts.get("subgoal", "")), "told": str(fact or "")}

    def _seat(self, agent: str) -> dict[str, Any]:
        table = self._table
        person = table.people.get(agent)
        return {
            "agent": agent,
            "by": person.name if person else table.policy.seats[agent].settings.name,
            "person": person is not None,
            "thinking": agent in table.thinking(),
        }

    def _log(self, seat: str | None) -> list[dict[str, Any]]:
        """The lines that a seat knows: everybody's messages, its own actions, rewards and events."""
        lines = []
        for line in self._table.lines:
            own = seat in (None, line.agent)
            if own or line.said:
                lines.append(
                    {
                        "step": line.step,
                        "agent": line.agent,
                        "said": line.said,
                        "phrase": line.phrase if own else "",
                        "events": event_words(self._table.episode.game, line.events) if own else [],
                        "reward": _rounded(line.reward) if own else 0,
                    }
                )
        return lines

    def _picture(self, seat: str | None) -> str | None:
        """The picture as a data URL; `None` where the game draws none for this seat."""
        now = (self._table.episodes, self._table.moments)
        if now != self._made:
            self._pictures, self._made = {}, now
        if (seat or "") not in self._pictures:
            pixels = self._pixels(seat)
            self._pictures[seat or ""] = "" if pixels is None else _data_url(pixels)
        return self._pictures[seat or ""] or None

    def _pixels(self, seat: str | None) -> np.ndarray | None:
        game = self._table.env.unwrapped
        if seat is None:
            return image_of(game)
        record = game_of(game)
        if record is None or not record.picture:
            return None
        pixels: np.ndarray = record.code("picture")(game, seat)
        return pixels


def _numbers(seen: Any) -> str:
    """Observations of games without words: their numbers, if a person can read so many."""
    if isinstance(seen, Mapping) or np.size(seen) > _MOST_NUMBERS:
        return ""
    return np.array2string(np.asarray(seen), precision=3, separator=", ", suppress_small=True)


def _rounded(number: float) -> float | str:
    """A number for JSON, which has no word for those that are not finite."""
    return round(float(number), 3) if math.isfinite(number) else str(number)


def _data_url(pixels: np.ndarray) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
