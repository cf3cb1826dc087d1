"""MiniRTS officers with trained networks: one that acts by itself at the action level "red", and
`executor="trained:CHECKPOINT"` and RED's Switch, `executor="switch:TOLD:UNTOLD"`, of the game; needs no Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.baselines.red.collective_choice import CollectiveChoice, uniform_numbers
from rllib_llm_comm.baselines.red.officer_network import SEEN, OfficerNetwork, OfficerSettings
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.minirts.collective_command import KIND_WORDS, SIZES, orders_of
from rllib_llm_comm.envs.minirts.engine.rts_game import Order
from rllib_llm_comm.envs.minirts.executor import Executor, Instructions
from rllib_llm_comm.envs.minirts.officer_view import observe
from rllib_llm_comm.envs.minirts.side import Side
from rllib_llm_comm.envs.minirts.words import WAIT, Command
from rllib_llm_comm.policies.array_policy import AgentRequest, ArrayMemory, ArrayPolicy
from rllib_llm_comm.policies.decision import Decision, Request
from rllib_llm_comm.policies.policy_folder import find_policy, load_array_network
from rllib_llm_comm.policies.policy_manifest import MANIFEST, OFFICER, read_manifest


class OfficerPolicy(ArrayPolicy):
    """Gives RED's actions by observations with the part `officer`; in a game at the level "red" nobody commands it.

    With commanders the same network is the game's `executor="trained:CHECKPOINT"`.
    """

    @staticmethod
    def network_builder(settings: dict[str, Any]) -> Callable[[], OfficerNetwork]:
        """Makes a network from `model_config`."""
        checked = OfficerSettings.checked("model_config", settings)
        return lambda: OfficerNetwork(checked)

    def act_together(self, episodes: Sequence[Request], explore: bool = True) -> list[dict[Any, Decision]]:
        """Decisions of several episodes, in one pass of the network; arguments as of `ArrayPolicy.act_together`.

        The candidates are the kinds of commands, with their chances where all own units go along by their flags' means.

        Args:
            explore: As of `ArrayPolicy.act_together`; otherwise the most likely value of each part is taken in turn.
        """
        answers: list[dict[Any, Decision]] = [{} for _ in episodes]
        rows = [(n, a, memory, seen) for n, (memory, views) in enumerate(episodes) for a, seen in views.items()]
        if not rows:
            return answers
        batch = self.batch([(str(agent), memory, seen) for _, agent, memory, seen in rows])
        with torch.no_grad():
            choice, values = self.network(batch)
            chances = choice.kind_chances().double().numpy()
            for index, (number, agent, memory, _) in enumerate(rows):
                answers[number][agent] = Decision(
                    action=_drawn(choice.row(index), memory, explore),
                    said="",
                    heard={},
                    candidates=list(KIND_WORDS),
                    probabilities=chances[index],
                    value=float(values[index]),
                    prompt="",
                )
        return answers

    def batch(self, asked: Sequence[AgentRequest]) -> dict[str, torch.Tensor]:
        """The arrays of all rows.

        Raises:
            UserError: If an observation lacks the part `officer`.
        """
        for agent, _, seen in asked:
            if missing := [name for name in SEEN if name not in seen]:
                raise UserError(
                    f"the observation of {agent!r} has no `{missing[0]}`, which this policy acts on; play MiniRTS with "
                    "`action_level='red'` and `observe=['officer']`."
                )
        return {name: torch.from_numpy(np.stack([np.asarray(seen[name]) for _, _, seen in asked])) for name in SEEN}


def _drawn(choice: CollectiveChoice, memory: ArrayMemory, explore: bool) -> np.ndarray:
    """An action (58,), independent of which other rows are asked at the same time."""
    generator = torch.Generator().manual_seed(int(memory.rng.integers(2**62)))
    action: np.ndarray = choice.sample(generator, greedy=not explore)[0].numpy()
    return action


def load_officer(checkpoint: str | os.PathLike[str], setting: str = "executor") -> OfficerNetwork:
    """The network of a trained officer, shared by all that ask for it in this process. Safetensors and JSON only.

    Args:
        checkpoint: A checkpoint or policy folder, as of `load_policy`.
        setting: Name of the setting that the user has written it in, for messages.

    Raises:
        UserError: If there is none, or it is not one of an officer.
    """
    folder = find_policy(checkpoint)
    network = _loaded(str(folder), (folder / MANIFEST).stat().st_mtime_ns)
    if network is None:
        raise UserError(
            f"{os.fspath(checkpoint)!r} is a policy of {read_manifest(folder).algorithm}, but `{setting}` wants an "
            "officer; write one with `rllib officer clone`."
        )
    return network


@lru_cache(maxsize=8)
def _loaded(folder: str, changed: int) -> OfficerNetwork | None:
    """The network; None if the policy is not one of an officer."""
    manifest = read_manifest(folder)
    if manifest.kind != OFFICER:
        return None
    network: Any = load_array_network(folder, manifest)
    return network.requires_grad_(False)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Question:
    """All that decides an officer's action.

    Attributes:
        uniform: Numbers in [0, 1) that are drawn with, one per part of the action (58,).
    """

    network: OfficerNetwork
    seen: Mapping[str, np.ndarray]
    uniform: torch.Tensor


class TrainedExecutor(Executor):
    """Officers that choose RED's actions by what they see and what is in force; commands are kept as by the scripted.

    What may be commanded, which jobs are open, and when they are done, are the rules of `Executor`. Who does them is up
    to the network: actions are drawn, from the game's seed on.

    Args:
        checkpoint: As of `load_officer`.
        untold: Checkpoint of the network that acts for commanders with no sentence in force; `checkpoint` by default.
    """

    def __init__(self, side: Side, max_buildings: int, checkpoint: str, untold: str | None = None) -> None:
        self._network = load_officer(checkpoint)
        self._untold = None if untold is None else load_officer(untold)
        self._generator = torch.Generator()
        super().__init__(side, max_buildings)

    def begin(self, seed: int = 0) -> None:
        """Begins a game: nothing is in force, and nothing was said."""
        super().begin(seed)
        self._told = Instructions(self.orders)
        self._generator.manual_seed(seed)

    def command(self, commander: int, command: Command) -> None:
        """Puts a command in force and tells the officer; one that would do nothing is dropped."""
        if command.verb == WAIT or self.refusal(commander, command):
            return
        super().command(commander, command)
        self._told.give(commander, command, self.orders[commander])

    def give_orders(self) -> list[Order]:
        """Orders for the next ticks, at most one per unit."""
        return orders_together([self])[0]

    def ask(self) -> list[Question]:
        """Each officer's network, its view now, and the numbers that it draws with; `answer` must follow."""
        told = [self._told.in_force(commander, orders) for commander, orders in enumerate(self.orders)]
        uniform = uniform_numbers(self.side.size, self._generator)
        networks = [self._network if self._untold is None or heard else self._untold for heard in told]
        return [Question(networks[n], observe(self.side, n, told[n]), uniform[n]) for n in range(self.side.size)]

    def answer(self, actions: Sequence[np.ndarray]) -> list[Order]:
        """Orders for the next ticks, at most one per unit, of RED's action (58,) for each of the questions."""
        self._told.pass_time()
        return orders_of(self.side, actions)

    def snapshot(self) -> Any:
        """All that is remembered besides what the side remembers."""
        return super().snapshot(), self._told.snapshot(), self._generator.get_state()

    def restore(self, snapshot: Any) -> None:
        """Goes back."""
        kept, told, state = snapshot
        super().restore(kept)
        self._told.restore(told)
        self._generator.set_state(state)


def orders_together(executors: Sequence[TrainedExecutor]) -> list[list[Order]]:
    """Orders of several games, as of each one's `give_orders`, with one pass of each network for all of them.

    Each game draws from its own seed. So its orders are those that it gives alone, but where rounding of the batch
    moves a probability across a drawn number: by some 1e-7 of it.

    Args:
        executors: The officers of different games.
    """
    asked = [executor.ask() for executor in executors]
    questions = [question for of_game in asked for question in of_game]
    answers = np.empty((len(questions), len(SIZES)), np.int64)
    for network in {id(question.network): question.network for question in questions}.values():
        rows = [row for row, question in enumerate(questions) if question.network is network]
        answers[rows] = _actions(network, [questions[row] for row in rows])
    left = iter(answers)
    return [executor.answer([next(left) for _ in of_game]) for executor, of_game in zip(executors, asked, strict=True)]


def _actions(network: OfficerNetwork, questions: Sequence[Question]) -> np.ndarray:
    """RED's actions (B, 58), by one pass of a network."""
    seen = [question.seen for question in questions]
    batch = {name: torch.from_numpy(np.stack([one[name] for one in seen])) for name in seen[0]}
    with torch.no_grad():
        choice = network.choice(batch)
        drawn: np.ndarray = choice.sample(uniform=torch.stack([question.uniform for question in questions])).numpy()
    return drawn
