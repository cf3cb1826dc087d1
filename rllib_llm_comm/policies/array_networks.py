"""Networks of agents that see numbers or maps, built from the settings and weights of a policy folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from rllib_llm_comm.baselines.red.officer_settings import OfficerSettings
from rllib_llm_comm.baselines.value.q_settings import QSettings
from rllib_llm_comm.baselines.value.q_team import QTeam
from rllib_llm_comm.core.errors import UserError, shown
from rllib_llm_comm.language.base_model import EMBEDDED
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.policy_manifest import GROUNDED, NUMERIC, OFFICER, VALUED
from rllib_llm_comm.policies.recorded_settings import granted
from rllib_llm_comm.policies.settings import require_whole, require_whole_numbers
from rllib_llm_comm.sama.emma.network import EmmaNetwork, EmmaSettings

_MOST_SIZE = 10**7


def build_network(kind: str, model_config: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> Any:
    """Builds the network of a policy of agents that see numbers or maps.

    Args:
        kind: As of `PolicyManifest`.
        model_config: As of `PolicyManifest`.
        weights: By name.

    Raises:
        UserError: If a setting is out of its range.
        RuntimeError: If the weights have other shapes than the settings want.
        KeyError: If settings are missing.
    """
    build = _BUILDERS[kind](dict(model_config))
    require_shapes(build, weights)
    network = build()
    network.load_state_dict(weights)
    return network.eval()


class _Unfilled(TorchFunctionMode):
    """Draws no weights: on the meta device that imports PyTorch's compiler, which takes seconds, to fill nothing."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in (torch.Tensor.normal_, nn.init.normal_):
            return args[0] if args else named["tensor"]
        return func(*args, **named)


def require_shapes(build: Callable[[], nn.Module], weights: Mapping[str, torch.Tensor]) -> None:
    """Compares what would be built with a file's weights before it takes memory and time: sizes may be anything.

    Names, shapes, and whether they are whole numbers are compared.

    Args:
        build: Makes the network.
        weights: From `read_weights`.

    Raises:
        RuntimeError: As of `Module.load_state_dict`, if they differ.
    """
    with torch.device("meta"), _Unfilled():
        planned = {name: _form(tensor) for name, tensor in build().state_dict().items()}
    held = {name: _form(tensor) for name, tensor in weights.items()}
    for name in {**planned, **held}:
        if planned.get(name) != held.get(name):
            there, wanted = (form.get(name, "nothing") for form in (held, planned))
            raise RuntimeError(f"{name!r} holds {there} but its settings want {wanted}")


def _form(tensor: torch.Tensor) -> str:
    return f"{'' if tensor.is_floating_point() else 'whole '}numbers of shape {tuple(tensor.shape)}"


def _numeric(settings: dict[str, Any]) -> Callable[[], NumericNetwork]:
    for name in ("size", "actions"):
        require_whole(name, settings[name], 1, _MOST_SIZE)
    if settings.get("critic_size") is not None:
        require_whole("critic_size", settings["critic_size"], 1, _MOST_SIZE)
    size, actions, critic_size = settings.pop("size"), settings.pop("actions"), settings.pop("critic_size", None)
    team = settings.pop("team", [])  # for `NumericPolicy`; the network knows no names
    if not isinstance(team, list) or not all(isinstance(name, str) for name in team):
        raise UserError(f"`team` is {shown(team)} but must be a list of names.")
    checked = NumericSettings.from_mapping(settings)
    return lambda: NumericNetwork(checked, size, actions, critic_size)


def _grounded(settings: dict[str, Any]) -> Callable[[], EmmaNetwork]:
    sizes = {name: settings.pop(name) for name in ("symbols", "shape", "actions", "state_size")}
    for name in ("symbols", "actions"):
        require_whole(name, sizes[name], 1, _MOST_SIZE)
    require_whole("state_size", sizes["state_size"], 0, _MOST_SIZE)
    require_whole_numbers("shape", sizes["shape"], 2, _MOST_SIZE)
    if len(sizes["shape"]) != 2:
        raise UserError(f"`shape` is {sizes['shape']!r} but must hold two whole numbers.")
    checked = EmmaSettings.from_mapping({**settings, "text_encoder": granted(settings.get("text_encoder", EMBEDDED))})
    encoder = load_text_encoder(checked.text_encoder)
    return lambda: EmmaNetwork(checked, **sizes, encoder=encoder)


def _valued(settings: dict[str, Any]) -> Callable[[], QTeam]:
    sizes = {name: settings.pop(name) for name in ("size", "actions", "agents", "state_size")}
    for name in ("size", "actions", "agents"):
        require_whole(name, sizes[name], 1, _MOST_SIZE)
    require_whole("state_size", sizes["state_size"], 0, 0)
    team, choices, forms = settings.pop("team"), settings.pop("choices"), settings.pop("forms")
    named = isinstance(team, list) and len(team) == sizes["agents"] and all(isinstance(agent, str) for agent in team)
    if not named or not isinstance(choices, Mapping) or not isinstance(forms, Mapping):
        raise UserError(f"`team`, `choices` and `forms` must tell of {sizes['agents']} agents; save it again.")
    for agent in team:
        require_whole(f"choices.{agent}", choices[agent], 1, sizes["actions"])
        if not isinstance(forms[agent], Mapping):
            raise UserError(f"`forms.{agent}` is {str(forms[agent])[:80]!r} but must be a mapping.")
    checked = QSettings.from_mapping(settings)
    return lambda: QTeam(checked, **sizes)


def _officer(settings: dict[str, Any]) -> Callable[[], nn.Module]:
    # Late: it needs the compiled rules of its game, the others do not.
    from rllib_llm_comm.baselines.red.officer_network import OfficerNetwork

    checked = OfficerSettings.from_mapping(settings)
    return lambda: OfficerNetwork(checked)


_BUILDERS: Mapping[str, Callable[[dict[str, Any]], Callable[[], Any]]] = {
    NUMERIC: _numeric,
    GROUNDED: _grounded,
    VALUED: _valued,
    OFFICER: _officer,
}
