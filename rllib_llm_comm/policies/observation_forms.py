"""Any observation space in plain data, and its observations as vectors of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rllib_llm_comm.core.errors import UserError, shown
from rllib_llm_comm.envs.interface import ACTION_MASK, parts_of

_VECTOR, _OBSERVATION = "vector", "observation"
_BESIDE = (ACTION_MASK, "state")  # parts that are no part of what an agent sees
Form = Mapping[str, Any]


def form_of(space: gym.Space, agent: Any = "") -> dict[str, Any]:
    """A space as plain data, from which `flat` makes vectors.

    Of a Dict with a Box `vector` or with `observation` (as PettingZoo's games with masks have it) that part alone
    counts; of another Dict all parts do, in the order of their names, but for `action_mask` and `state`.

    Args:
        space: The space.
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
    if isinstance(space, gym.spaces.Box):
        return {"size": int(np.prod(space.shape))}
    if isinstance(space, gym.spaces.MultiBinary):
        return {"size": int(np.prod(space.shape))}
    if isinstance(space, gym.spaces.Discrete):
        return {"first": int(space.start), "size": int(space.n)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        return {"counts": [int(count) for count in space.nvec.reshape(-1)], "size": int(space.nvec.sum())}
    raise UserError(
        f"the observation space of agent {agent!r} holds {space}, but must be made of numbers (Box, Discrete, "
        "MultiDiscrete, MultiBinary, or a Dict of these); make the environment tell its observation in numbers, for "
        f"example as a Dict with a Box `{_VECTOR}`."
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
        seen: The observation.
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
