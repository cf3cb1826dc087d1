"""Trained policies of agents that see numbers or maps, and the forms of what they see; needs no Ray."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from pydantic import Field
from torch import nn
from typing_extensions import Self, override

from rllib_llm_comm.core.errors import UserError, shown, space_text
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.interface import ACTION_MASK, parts_of
from rllib_llm_comm.policies.decision import Decision, Memory, Request, choose
from rllib_llm_comm.policies.policy import TrainedPolicy
from rllib_llm_comm.policies.policy_folder import load_array_network, network_file
from rllib_llm_comm.policies.policy_manifest import PolicyManifest, require_silence

_VECTOR, _OBSERVATION = "vector", "observation"
_BESIDE = (ACTION_MASK, "state")  # parts that are no part of what an agent sees
Form = Mapping[str, Any]
Observation = Mapping[str, Any]
MOST_SIZE = 10**7
"""Most inputs or actions of a network: a strange folder is told before it fills the memory."""


class ActorRecord(Settings):
    """What a policy folder tells of a network that acts."""

    actions: int = Field(ge=1, le=MOST_SIZE)
    """Number of actions, of the agent that has most."""


class VectorRecord(ActorRecord):
    """What a policy folder tells of a network that acts by vectors."""

    size: int = Field(ge=1, le=MOST_SIZE)
    """Length of an agent's vector, of the longest."""


def form_of(space: gym.Space, agent: Any = "") -> dict[str, Any]:
    """A space as plain data, from which `flat` makes vectors.

    Of a Dict with a Box `vector` or with `observation` (as PettingZoo's games with masks have it) that part alone
    counts; of another Dict all parts do, in the order of their names, but for `action_mask` and `state`.

    Args:
        agent: The agent's name, for messages.

    Raises:
        UserError: If it holds something that is no number, such as text.
    """
    if isinstance(space, gym.spaces.Dict):
        for name in (_VECTOR, _OBSERVATION):
            if name in space.spaces:
                return {"part": name, "of": form_of(space.spaces[name], agent)}
        parts = {name: form_of(part, agent) for name, part in sorted(space.spaces.items()) if name not in _BESIDE}
        return {"parts": parts, "size": sum(size_of(part) for part in parts.values())}
    if isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary):
        return {"size": int(np.prod(space.shape))}
    if isinstance(space, gym.spaces.Discrete):
        return {"first": int(space.start), "size": int(space.n)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        return {"counts": [int(count) for count in space.nvec.reshape(-1)], "size": int(space.nvec.sum())}
    raise UserError(
        f"the observation space of agent {agent!r} holds {space_text(space)}, but must be made of numbers (Box, "
        "Discrete, MultiDiscrete, MultiBinary, or a Dict of these); make the environment tell its observation in "
        f"numbers, for example as a Dict with a Box `{_VECTOR}`."
    )


def size_of(form: Form) -> int:
    """Length of the vectors of a form."""
    return size_of(form["of"]) if "part" in form else int(form["size"])


def open_actions(seen: Any, count: int, agent: Any = "") -> np.ndarray:
    """Bool (K,): which actions an observation's `action_mask` leaves open; all where it has none.

    Args:
        seen: An agent's observation.
        count: K, the number of its actions.
        agent: The agent's name, for messages.

    Raises:
        UserError: If the mask is not one of K actions, or leaves none open.
    """
    told = parts_of(seen).get(ACTION_MASK)
    mask = np.ones(count, bool) if told is None else np.asarray(told).reshape(-1) != 0
    if mask.size != count or not mask.any():
        raise UserError(
            f"the `{ACTION_MASK}` of agent {agent!r} is {shown(np.asarray(told).tolist())} but must hold a number for "
            f"each of its {count} actions, and a 1 for at least one of them; play the game with the settings of its "
            "training, and ask only agents that can act."
        )
    return mask


def flat(form: Form, seen: Any, agent: Any = "") -> np.ndarray:
    """An observation as a float32 vector; whole numbers of Discrete spaces are one-hot.

    Args:
        form: As of `form_of`.
        agent: The agent's name, for messages.

    Raises:
        UserError: If the observation is not of this form, or holds a number that is not finite.
    """
    try:
        vector = _flat(form, seen)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(
            f"the observation of {agent!r} is not of the form {str(dict(form))[:200]} ({error})."
        ) from error
    if vector.size != size_of(form):
        raise UserError(
            f"the observation of {agent!r} has {vector.size} numbers but its observation space, or that of the "
            f"policy's training, has {size_of(form)}."
        )
    if not np.isfinite(vector).all():
        raise UserError(
            f"the observation of {agent!r} is {shown(vector.tolist())}, which holds something that is no finite number."
        )
    return vector


def _flat(form: Form, seen: Any) -> np.ndarray:
    if "part" in form:
        return _flat(form["of"], seen[form["part"]])
    if "parts" in form:
        return np.concatenate([_flat(part, seen[name]) for name, part in form["parts"].items()] or [np.zeros(0)])
    if "first" in form:
        return _one_hot(int(seen) - form["first"], form["size"])
    if "counts" in form:
        pairs = zip(np.asarray(seen).reshape(-1), form["counts"], strict=True)
        return np.concatenate([_one_hot(int(number), count) for number, count in pairs])
    return np.asarray(seen, np.float32).reshape(-1)


def _one_hot(number: int, count: int) -> np.ndarray:
    vector = np.zeros(count, np.float32)
    vector[number] = 1.0
    return vector


@dataclass
class ArrayMemory(Memory):
    """State of one episode between two calls.

    Attributes:
        rng: Draws its actions.
        seen: Earlier observations of each agent, as its policy keeps them.
    """

    rng: np.random.Generator
    seen: dict[str, Any] = field(default_factory=dict)


AgentRequest = tuple[str, ArrayMemory, Observation]
"""An agent that is asked, the memory of its game, and its observation."""


class ArrayPolicy(TrainedPolicy):
    """A policy of agents that see numbers or maps and say nothing.

    Args:
        network: The network, with `logits` and `values`.
        manifest: Origin of the policy.
    """

    def __init__(self, network: Any, manifest: PolicyManifest) -> None:
        self.network = network
        self.manifest = manifest
        self._memory = ArrayMemory(np.random.default_rng())

    @staticmethod
    @abstractmethod
    def network_builder(settings: dict[str, Any]) -> Callable[[], nn.Module]:
        """Makes a network of this policy's kind, untrained.

        Args:
            settings: `model_config` of its manifest.

        Raises:
            UserError: If a setting is missing or out of its range.
        """

    @classmethod
    def load(cls, folder: Path, manifest: PolicyManifest, **options: Any) -> Self:
        """The policy of a folder; options of messages are refused."""
        require_silence(options, manifest.algorithm)
        return cls(load_array_network(folder, manifest), manifest)

    @override
    def files(self) -> dict[str, bytes]:
        return network_file(self.network)

    def reset(self, seed: int | None = None) -> None:
        """Begins an episode.

        Args:
            seed: Fixes sampled actions from here on; `None` goes on with the random numbers at hand.
        """
        self._memory = ArrayMemory(self._memory.rng) if seed is None else self.begin(seed)

    @override
    def begin(self, seed: int) -> ArrayMemory:
        return ArrayMemory(np.random.default_rng(seed))

    @override
    def act_together(self, episodes: Sequence[Request], explore: bool = True) -> list[dict[Any, Decision]]:
        answers: list[dict[Any, Decision]] = [{} for _ in episodes]
        rows = [
            (number, agent, memory, seen)
            for number, (memory, observations) in enumerate(episodes)
            for agent, seen in observations.items()
        ]
        if not rows:
            return answers
        asked = [(str(agent), memory, seen) for _, agent, memory, seen in rows]
        batch = self.batch(asked)
        with torch.no_grad():
            probabilities = self.probabilities(batch)
        values = functools.cache(torch.no_grad()(self.values(asked, batch)))  # all of a moment, if one is read
        allowed = batch[ACTION_MASK].numpy() != 0
        for index, (number, agent, memory, seen) in enumerate(rows):
            own = np.where(allowed[index], probabilities[index], 0.0)
            own = own / own.sum()
            action = choose(own, memory.rng, explore)
            self.keep(str(agent), memory, action)
            phrases = parts_of(seen).get("candidates")
            answers[number][agent] = Decision(
                action=action,
                said="",
                heard={},
                candidates=[str(phrase) for phrase in (range(len(own)) if phrases is None else phrases)],
                probabilities=own,
                value=lambda index=index: float(values()[index]),  # type: ignore[misc]
                prompt="",
            )
        return answers

    @abstractmethod
    def batch(self, asked: Sequence[AgentRequest]) -> dict[str, torch.Tensor]:
        """Inputs of the network, one row per agent that is asked; their memories take in the observations.

        Raises:
            UserError: If an observation lacks what the policy acts on.
        """

    def probabilities(self, batch: Mapping[str, torch.Tensor]) -> np.ndarray:
        """Probabilities (B, K) of all rows' actions."""
        probabilities: np.ndarray = self.network.logits(batch).double().softmax(-1).numpy()
        return probabilities

    def keep(self, agent: str, memory: ArrayMemory, action: int) -> None:  # noqa: B027  (most remember no actions)
        """Takes note of an agent's action, where the policy remembers it; most do not."""

    def values(self, asked: Sequence[AgentRequest], batch: dict[str, torch.Tensor]) -> Callable[[], list[float]]:
        """Computes the values of all rows when it is called; what it needs of the memories is taken now."""
        return lambda: self.network.values(batch).tolist()  # type: ignore[no-any-return]

    def masks(self, asked: Sequence[AgentRequest]) -> torch.Tensor:
        """int8 (B, K): which actions are allowed; all where an observation says nothing.

        Raises:
            UserError: If a mask is not one of K actions, or leaves none open.
        """
        count = int(self.manifest.model_config["actions"])
        masks = [open_actions(seen, count, agent) for agent, _, seen in asked]
        return torch.from_numpy(np.stack(masks).astype(np.int8))
