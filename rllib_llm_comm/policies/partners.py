"""Partners: players that hold an agent's seat in any registered game and do not learn; need no Ray."""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import load_setting
from rllib_llm_comm.envs.games import game_of, record_of, scripted_player_of
from rllib_llm_comm.envs.interface import ACTION_MASK, asked, parts_of, secret_of, teacher_state
from rllib_llm_comm.policies.decision import Decision, Hearing, Memory, Request, choose
from rllib_llm_comm.policies.partner_settings import (
    CHECKPOINT,
    FUNCTION,
    PEOPLE,
    RANDOM,
    SCRIPTED,
    STAY,
    PartnerSettings,
)
from rllib_llm_comm.policies.policy import Policy, Spoken, TalkingPolicy, TrainedPolicy

if TYPE_CHECKING:
    from rllib_llm_comm.policies.recorded_people import RecordedPeople

Player = Callable[[Mapping[str, Any]], Any]
"""Gives the action for an observation, or a pair of action and message."""
_VERSION = re.compile(r"-v\d+$")


class StuckRule:
    """Removes an agent's last actions from its choices when it has stood still (Carroll et al. 2019, their code).

    Args:
        turns: N >= 1, turns of standing still; theirs: 3.
    """

    def __init__(self, turns: int) -> None:
        self._past: deque[tuple[Hashable, int]] = deque(maxlen=turns)

    def note(self, pose: Hashable, action: int) -> None:
        """Takes in a turn.

        Args:
            pose: Place and direction before it.
        """
        self._past.append((pose, action))

    def rest(self, probabilities: np.ndarray, pose: Hashable) -> np.ndarray:
        """The probabilities (K,) without the actions of the last N turns, if the pose was the same in all, and is now.

        The others are renormalised; if they have no chance at all, they get equal ones among those that were not taken
        (ours). If no action is left, nothing is removed (ours).

        Args:
            probabilities: (K,) probabilities.
            pose: Place and direction now.
        """
        if len(self._past) < (self._past.maxlen or 0) or any(before != pose for before, _ in self._past):
            return probabilities
        left = np.ones(len(probabilities), bool)
        left[[action for _, action in self._past]] = False
        if not left.any():
            return probabilities
        rest = np.where(left, probabilities, 0.0)
        total = float(rest.sum())
        return rest / total if total > 0 else left / left.sum()


def pose_of(env: Any, agent: Any) -> Hashable:
    """An agent's place and direction, as its game tells it.

    Raises:
        UserError: If the game tells none.
    """
    record = game_of(env.unwrapped)
    if record is None or not record.pose:
        raise UserError(
            f"`unstuck` needs a game that tells where its agents stand, but {type(env.unwrapped).__name__} does not; "
            "omit it, or register the game with `pose`."
        )
    pose: Hashable = record.code("pose")(env.unwrapped, agent)
    return pose


def own_actions(env: Any, agent: Any, manifest: Any, seed: int) -> Any:
    """An agent's own actions in an episode, as of `GameRecord.actions`; `None` if they are the game's.

    Args:
        env: The game, after its reset; `None` if nobody told it.
        seed: Of the episode; draws what carrying them out needs, as an environment with these actions would.

    Raises:
        UserError: If the agent cannot play this game.
    """
    actions = _code_for(env, manifest, "actions")
    return actions and actions(env.unwrapped, agent, manifest.env_config, np.random.default_rng(seed))


def _code_for(env: Any, manifest: Any, part: str) -> Any:
    """A part of a game's record, for a policy that was trained in this game; `None` where there is none."""
    record = None if env is None else game_of(env.unwrapped)
    if record is None or manifest is None or manifest.env not in record.entry_points or not getattr(record, part):
        return None
    return record.code(part)


def decide(
    policy: Policy,
    episodes: Sequence[Request],
    own: Sequence[Mapping[Any, Any]],
    envs: Sequence[Any],
    explore: bool,
) -> list[dict[Any, Decision]]:
    """Decisions in the game's actions; agents with own actions are asked when they have no goal.

    Args:
        episodes: Per episode the policy's memory and what its agents see.
        own: Per episode and agent its own actions, or `None`.
        envs: The games.
        explore: True if actions are drawn.
    """
    asked = []
    for (memory, observations), actions in zip(episodes, own, strict=True):
        free = {}
        for agent, seen in observations.items():
            if actions[agent] is None:
                free[agent] = seen
            elif actions[agent].free():
                free[agent] = {**seen, ACTION_MASK: actions[agent].mask()}
        asked.append(Request(memory, free))
    made = policy.act_together(asked, explore)
    return [
        {
            agent: decisions[agent] if one is None else _towards(one, decisions.get(agent), env, agent)
            for agent, one in actions.items()
        }
        for decisions, actions, env in zip(made, own, envs, strict=True)
    ]


def _towards(own: Any, decision: Decision | None, env: Any, agent: Any) -> Decision:
    """The game's action towards an agent's goal, whose probabilities are those of a draw that is over."""
    if decision is not None:
        own.choose(decision.action)
    count, action = int(env.action_space(agent).n), int(own.action())
    value = np.nan if decision is None else decision.value
    return Decision(action, "", {}, [str(one) for one in range(count)], np.eye(count)[action], value, "")


def speak_ahead(asked: Sequence[tuple[Partner, Sequence[Request]]], explore: bool = True) -> None:
    """Lets partners on one base model share the pass of what they are going to say, where that is quicker.

    Args:
        asked: Partners, with what `speak_together` of each is going to be given.
        explore: As for `Partner.speak_together`.
    """
    talkers = _talkers((partner, episodes) for partner, episodes in asked if partner.settings.speech == "own")
    if len(talkers) > 1:
        talkers[0][0].write_ahead(talkers, explore)


def judge_ahead(asked: Sequence[tuple[Partner, Sequence[Request]]]) -> None:
    """Lets partners on one base model share the pass of their choices, where that is quicker; all have spoken.

    Args:
        asked: Partners, with what `act_together` of each is going to be given.
    """
    talkers = _talkers(asked)
    if len(talkers) > 1:
        talkers[0][0].judge_ahead(talkers)


def _talkers(asked: Iterable[tuple[Partner, Sequence[Request]]]) -> list[tuple[TalkingPolicy, list[Request]]]:
    return [
        (partner.policy, partner.requests(episodes))
        for partner, episodes in asked
        if isinstance(partner.policy, TalkingPolicy)
    ]


@dataclass
class PartnerMemory(Memory):
    """State of a partner in one episode between two calls; `env` has to be set before the first call.

    Attributes:
        seed: Seed of the episode.
        rng: Draws its actions.
        mailbox: The latest message of every speaker of the episode.
        policy: The memory of a checkpoint's policy.
        players: Per agent the player of this episode, for partners that are no checkpoints.
        replies: Per agent the action that came with its message, until it is asked for.
        still: Per agent its rule for standing still, where it has one.
        actions: Per agent of a checkpoint its own actions (`GameRecord.actions`), or `None` if it plays the game's.
    """

    seed: int
    rng: np.random.Generator
    mailbox: MutableMapping[str, str] = field(default_factory=dict)
    policy: Memory | None = None
    players: dict[Any, Player] = field(default_factory=dict)
    replies: dict[Any, int] = field(default_factory=dict)
    actions: dict[Any, Any] = field(default_factory=dict)
    still: dict[Any, StuckRule] = field(default_factory=dict)


class Partner:
    """A frozen player of one or several seats, with messages of its own (`speak_together`).

    Its mistakes are part of its probabilities: with `noise` and `pauses` each action's is
    (1 - noise - pauses) p + noise / allowed, and `pauses` more for waiting. Partners without a network hear nothing
    and have one action with p = 1; `random` is uniform. All of them are drawn, `explore` or not; without `explore` a
    checkpoint's p is that of its most likely action.

    Args:
        settings: Its settings.
        policy: The loaded policy of a checkpoint; `None` for others.
    """

    def __init__(self, settings: PartnerSettings, policy: TrainedPolicy | None = None) -> None:
        self.settings, self.policy = settings, policy
        self.people: RecordedPeople | None = None
        if settings.kind == PEOPLE:
            from rllib_llm_comm.policies.recorded_people import RecordedPeople

            self.people = RecordedPeople(settings.session)

    @property
    def talks(self) -> bool:
        """True if it is a checkpoint of language agents."""
        return isinstance(self.policy, TalkingPolicy)

    @property
    def needs_the_team(self) -> bool:
        """True if its agents exchange vectors inside of one network, which therefore has to hold all seats."""
        return self.policy is not None and self.policy.needs_the_team

    def begin(self, seed: int) -> PartnerMemory:
        """Begins an episode that is played beside others."""
        memory = PartnerMemory(seed, np.random.default_rng(seed))
        if self.policy is not None:
            memory.policy = self.policy.begin(seed)
        return memory

    def speak_together(self, episodes: Sequence[Request], explore: bool = True) -> list[dict[Any, Spoken]]:
        """Lets its agents of several episodes speak; the mailboxes take in their messages.

        Args:
            episodes: Per episode the memory and the observations of its agents that are asked now.
            explore: True if a checkpoint's messages that are part of its policy are drawn.
        """
        spoken: list[dict[Any, Spoken]]
        if self.settings.speech == "own" and isinstance(self.policy, TalkingPolicy):
            spoken = self.policy.speak_together(self.requests(episodes), explore)
        else:
            spoken = [
                {agent: (self._message(memory, agent, seen), None) for agent, seen in observations.items()}
                for memory, observations in episodes
            ]
        if self.settings.word_noise or self.settings.word_order != "own":
            spoken = [
                {agent: self._in_its_words(memory.rng, one) for agent, one in said.items()}
                for (memory, _), said in zip(episodes, spoken, strict=True)
            ]
        for (memory, _), said in zip(episodes, spoken, strict=True):
            memory.mailbox.update({str(agent): message for agent, (message, _) in said.items()})
        return spoken

    def _in_its_words(self, rng: np.random.Generator, spoken: Spoken) -> Spoken:
        """A message as the others hear it, with what it was before `word_order` and `word_noise`."""
        message, own = spoken
        words = message.split()
        if self.settings.word_noise:
            words = [
                word
                for word, drawn in zip(words, rng.random(len(words)), strict=True)
                if drawn >= self.settings.word_noise
            ]
        heard = " ".join(words if self.settings.word_order == "own" else reversed(words))
        return heard, message if own is None else own

    def act_together(
        self, episodes: Sequence[Request], explore: bool = True, spoken: Sequence[Mapping[Any, Spoken]] | None = None
    ) -> list[dict[Any, Decision]]:
        """The decisions of its agents in several episodes.

        Args:
            episodes: As for `speak_together`.
            explore: As for `speak_together`.
            spoken: Their messages, where they have spoken before this call.

        Raises:
            UserError: If the game cannot be played by such a partner.
        """
        spoken = self.speak_together(episodes, explore) if spoken is None else spoken
        drawn = explore and not self.settings.greedy
        chosen = self._choices(episodes, drawn, spoken)
        steady = self.policy is not None and not (self.settings.noise or self.settings.pauses)
        if steady and not self.settings.unstuck:
            return chosen
        for (memory, observations), decisions in zip(episodes, chosen, strict=True):
            for agent, decision in decisions.items():
                pose = pose_of(memory.env, agent) if self.settings.unstuck else None
                made = self._unstuck(memory, agent, pose, decision, drawn)
                made = made if steady else self._mixed(memory, agent, observations[agent], made, explore)
                decisions[agent] = made
                if self.settings.unstuck:
                    memory.still[agent].note(pose, made.action)
        return chosen

    def probabilities(self, heard: Sequence[Hearing], env: Any = None) -> np.ndarray:
        """The probabilities of each candidate behind messages that are given, as of `LanguagePolicy.probabilities`.

        Args:
            heard: As of `LanguagePolicy.probabilities`.
            env: The game, for partners that pause.

        Raises:
            UserError: If it is no checkpoint of language agents.
        """
        if not isinstance(self.policy, TalkingPolicy):
            raise UserError(f"partner {self.settings.name!r} hears nothing; only checkpoints of language agents do.")
        rows = self.policy.probabilities(heard)
        if self.settings.noise or self.settings.pauses:
            mixed = [self._with_mistakes(row, env, one.agent, one.view) for row, one in zip(rows, heard, strict=True)]
            rows = np.stack(mixed)
        return rows

    def requests(self, episodes: Sequence[Request]) -> list[Request]:
        """The episodes as a checkpoint's policy takes them: with its own memories, which share the mailboxes.

        Args:
            episodes: As for `speak_together`.
        """
        for memory, _ in episodes if self.talks else ():
            memory.policy.mailbox, memory.policy.secret = memory.mailbox, memory.secret
        return [
            Request(memory.policy, {agent: self._own_view(memory, agent, seen) for agent, seen in observations.items()})
            for memory, observations in episodes
        ]

    def _own_view(self, memory: PartnerMemory, agent: Any, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """The observation as in the partner's training, where the game can tell it."""
        manifest = None if self.policy is None else self.policy.manifest
        view = _code_for(memory.env, manifest, "view")
        return view(memory.env.unwrapped, agent, seen, manifest.env_config) if manifest and view else seen

    def _message(self, memory: PartnerMemory, agent: Any, seen: Mapping[str, Any]) -> str:
        """Its message where no adapter writes it: of the game's scripted player, of a function, or none."""
        if self.settings.speech == "scripted":
            game = memory.env.unwrapped
            state, player = teacher_state(game), scripted_player_of(teacher_state(game))
            if player is None:
                raise UserError(
                    f"`speech` is 'scripted' but {type(game).__name__} has no scripted player; use 'none', or register "
                    "the game with a `scripted_player`."
                )
            said: dict[str, str] = player.messages(state, tuple(game.possible_agents), memory.rng)
            return said.get(agent, "")
        if self.settings.kind not in (FUNCTION, PEOPLE) or self.settings.speech == "none":
            return ""
        answer = self._player(memory, agent)(seen)
        if not isinstance(answer, tuple):
            memory.replies[agent] = answer
            return ""
        memory.replies[agent], message = answer
        return str(message)

    def _choices(
        self, episodes: Sequence[Request], explore: bool, spoken: Sequence[Mapping[Any, Spoken]]
    ) -> list[dict[Any, Decision]]:
        """Its decisions without mistakes."""
        if isinstance(self.policy, TalkingPolicy):
            return self.policy.act_together(self.requests(episodes), explore, spoken)
        if self.policy is not None:
            own = [self._own_actions(memory, observations) for memory, observations in episodes]
            envs = [memory.env for memory, _ in episodes]
            decisions = decide(self.policy, self.requests(episodes), own, envs, explore)
            return [
                {agent: replace(one, said=said[agent][0]) for agent, one in made.items()}
                for made, said in zip(decisions, spoken, strict=True)
            ]
        return [
            {agent: self._choice(memory, agent, seen, said[agent][0]) for agent, seen in observations.items()}
            for (memory, observations), said in zip(episodes, spoken, strict=True)
        ]

    def _own_actions(self, memory: PartnerMemory, agents: Iterable[Any]) -> dict[Any, Any]:
        """Per agent its own actions in this episode; `None` if they are the game's."""
        new = [agent for agent in agents if agent not in memory.actions]
        manifest = None if self.policy is None else self.policy.manifest
        for agent in new:
            memory.actions[agent] = own_actions(memory.env, agent, manifest, memory.seed)
        return {agent: memory.actions[agent] for agent in agents}

    def _choice(self, memory: PartnerMemory, agent: Any, seen: Mapping[str, Any], said: str) -> Decision:
        """The decision of a partner without a network, without mistakes."""
        allowed = allowed_actions(memory.env, agent, seen)
        if self.settings.kind == RANDOM:
            probabilities = allowed / allowed.sum()
        else:
            action = memory.replies.pop(agent, None)
            action = self._player(memory, agent)(seen) if action is None else action
            action = action[0] if isinstance(action, tuple) else action
            if not isinstance(action, int | np.integer) or not 0 <= action < len(allowed):
                raise UserError(
                    f"partner {self.settings.name!r} chose {action!r} for {agent!r} of "
                    f"{type(memory.env.unwrapped).__name__}, but an action is a whole number from 0 to "
                    f"{len(allowed) - 1}; mend the player."
                )
            probabilities = np.eye(len(allowed))[int(action)]
        names = [str(phrase) for phrase in parts_of(seen).get("candidates", range(len(allowed)))]
        return Decision(int(probabilities.argmax()), said, {}, names, probabilities, np.nan, "")

    def _player(self, memory: PartnerMemory, agent: Any) -> Player:
        if agent not in memory.players and self.people is not None:
            self.people.require_game(memory.env)
            memory.players[agent] = functools.partial(self.people.answer, rng=memory.rng)
        elif agent not in memory.players:
            memory.players[agent] = make_player(self.settings, memory.env, agent, memory.rng)
        return memory.players[agent]

    def _unstuck(
        self, memory: PartnerMemory, agent: Any, pose: Hashable, decision: Decision, explore: bool
    ) -> Decision:
        """The decision; of an agent that stands still one without its last actions, drawn anew."""
        if not self.settings.unstuck:
            return decision
        rule = memory.still.setdefault(agent, StuckRule(self.settings.unstuck))
        probabilities = rule.rest(decision.probabilities, pose)
        if probabilities is decision.probabilities:
            return decision
        return replace(decision, action=choose(probabilities, memory.rng, explore), probabilities=probabilities)

    def _mixed(
        self, memory: PartnerMemory, agent: Any, seen: Mapping[str, Any], decision: Decision, explore: bool
    ) -> Decision:
        """The decision with the partner's mistakes, drawn."""
        probabilities = np.asarray(decision.probabilities, np.float64)
        if self.policy is not None and (self.settings.greedy or not explore):
            probabilities = np.eye(len(probabilities))[int(probabilities.argmax())]
        probabilities = self._with_mistakes(probabilities, memory.env, agent, seen)
        action = int(memory.rng.choice(len(probabilities), p=probabilities))
        return replace(decision, action=action, probabilities=probabilities)

    def _with_mistakes(self, probabilities: np.ndarray, env: Any, agent: Any, seen: Mapping[str, Any]) -> np.ndarray:
        noise, pauses = self.settings.noise, self.settings.pauses
        mixed = (1.0 - noise - pauses) * probabilities
        if noise:
            own = allowed_actions(env, agent, seen)
            allowed = np.zeros(len(probabilities), bool)  # teams may have a width for the agent with the most actions
            allowed[: len(own)] = own
            mixed = mixed + noise * allowed / allowed.sum()
        if pauses:
            mixed[require_wait(env, agent, "pauses")] += pauses
        return np.asarray(mixed / mixed.sum())


def make_partner(settings: PartnerSettings, load_checkpoint: Callable[..., Any]) -> Partner:
    """The partner of some settings.

    Args:
        load_checkpoint: Loads a policy from a path and, where one is set, its `max_prompt_tokens`, as
            `Loading().load` does.

    Raises:
        UserError: If a checkpoint or function cannot be loaded.
    """
    if settings.kind == FUNCTION:
        load_function(settings.policy)
    if settings.kind != CHECKPOINT:
        return Partner(settings)
    longest = {} if settings.max_prompt_tokens is None else {"max_prompt_tokens": settings.max_prompt_tokens}
    return Partner(settings, load_checkpoint(settings.policy, **longest))


def make_player(settings: PartnerSettings, env: Any, agent: Any, rng: np.random.Generator) -> Player:
    """The player of an agent for one episode.

    Args:
        settings: Of a partner that is scripted, stays, or is a function.
        env: The game, after its reset.
        rng: Source of everything that the player draws.

    Raises:
        UserError: If the game has no scripted player, no such habit, or no action of waiting.
    """
    if settings.kind == FUNCTION:
        made: Player = _called(settings.policy, load_function(settings.policy), env, agent, rng)
        if not callable(made):
            raise UserError(
                f"partner {settings.policy!r} returned {type(made).__name__} but must return a function from an "
                "observation to an action."
            )
        return functools.partial(_called, settings.policy, made)
    game = env.unwrapped
    if settings.kind == STAY:
        require_wait(env, agent, "stay")
        return lambda seen: require_wait(env, agent, "stay")
    record = game_of(game)
    if record is not None and record.partner:
        act = record.code("partner")(game, agent, settings.habit, rng)
        return lambda seen: act()
    if settings.habit:
        raise UserError(
            f"`habit` is {settings.habit!r} but the scripted player of {type(game).__name__} has no habits; omit it."
        )
    return lambda seen: _advice(game, agent)


def allowed_actions(env: Any, agent: Any, seen: Mapping[str, Any]) -> np.ndarray:
    """bool (K,): the actions that are allowed now; all where an observation says nothing.

    Raises:
        UserError: If its actions are not numbered.
    """
    count = getattr(env.action_space(agent), "n", None)
    if count is None:
        raise UserError(
            f"the action space of {agent!r} is {env.action_space(agent)} but partners need Discrete actions; choose an "
            "action level with numbered actions."
        )
    return np.asarray(parts_of(seen).get(ACTION_MASK, np.ones(int(count))), bool)


def require_wait(env: Any, agent: Any, wanted: str) -> int:
    """The game's action of doing nothing.

    Args:
        wanted: The setting that needs it, for the message.

    Raises:
        UserError: If the game has none.
    """
    game = env.unwrapped
    record = game_of(game)
    action = record.code("wait")(game, agent) if record is not None and record.wait else None
    if action is None:
        raise UserError(
            f"`{wanted}` needs an action of doing nothing but {type(game).__name__} with these settings has none; use "
            "'random', or register the game with `wait`."
        )
    return int(action)


def _advice(game: Any, agent: Any) -> int:
    """The action of the game's scripted player."""
    player = scripted_player_of(game)
    advice: int | None = None if player is None else player.advise(game, agent)
    if advice is None:
        raise UserError(
            f"`policy` is '{SCRIPTED}' but {type(game).__name__} with these settings has no scripted player that acts; "
            "use 'random' or 'stay', other settings of the game, or register the game with a `scripted_player`."
        )
    return advice


def _called(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a user's function returns; its own mistakes are told as such."""
    try:
        return function(*arguments)
    except UserError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UserError(f"partner {name!r} failed ({reason}); mend the function.") from error


def load_function(name: str) -> Callable[..., Any]:
    """A user's function, by `module:function`.

    Raises:
        UserError: If it cannot be imported.
    """
    found: Callable[..., Any] = load_setting(
        "`policy`", name, "give 'module:function' of a function that can, or the path of a checkpoint that exists"
    )
    return found


def game_difference(
    played: str, settings: Mapping[str, Any], learned: str | None, learned_settings: Mapping[str, Any]
) -> str:
    """The reason why a policy of one environment cannot play in another, as the end of a sentence; empty if it can.

    Environments of one game's record, and versions of one id, are the same game. The game itself tells which of its
    settings have to be the same (`GameRecord.difference`).

    Args:
        played: Id of the environment in which it is to play.
        settings: Its settings.
        learned: Id of the environment of the training; `None` if nobody knows.
        learned_settings: Its settings.
    """
    if learned is None:
        return ""
    record = record_of(played)
    same = learned in record.entry_points if record else _VERSION.sub("", learned) == _VERSION.sub("", played)
    if not same:
        return f"was trained in {learned!r} but `env` is {played!r}; take partners of the same game."
    return str(record.code("difference")(settings, learned_settings)) if record and record.difference else ""


def try_out(partner: Partner, env: Any, seed: int, others: Iterable[Any] = ()) -> None:
    """Begins a game and lets a partner choose once in all seats that are asked, if that costs next to nothing.

    Language agents are only asked whether they can read: writing takes long. A user's function is not called.

    Args:
        env: The game, which is begun anew.
        others: Agents whose seats it does not hold.

    Raises:
        UserError: If it cannot play.
    """
    observations, infos = env.reset(seed=seed)
    free = [agent for agent in asked(env.agents, infos) if agent not in set(others)]
    seen = {agent: observations[agent] for agent in free}
    if partner.settings.pauses:
        for agent in free:
            require_wait(env, agent, "pauses")
    if partner.policy is not None and partner.talks:
        partner.policy.require_readable(seen)
    elif partner.settings.kind != FUNCTION:
        memory = partner.begin(seed)
        memory.env, memory.secret = env, secret_of(infos)
        for agent, decision in partner.act_together([Request(memory, seen)])[0].items():
            _require_actions(env, agent, decision.probabilities)


def _require_actions(env: Any, agent: Any, probabilities: Any) -> None:
    count = int(env.action_space(agent).n)
    if len(probabilities) < count or any(probabilities[count:]):
        raise UserError(
            f"{agent!r} has {count} actions but this policy was trained with {len(probabilities)}; play the game with "
            "the settings of its training, such as `action_level`."
        )
