"""The partners of a pool, loaded for the onion-soup kitchens' arrays of games."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rllib_llm_comm.baselines.population.kitchen_partners import FrozenPartner
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.envs.overcooked_ai.env import difference
from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout
from rllib_llm_comm.policies.partner_settings import CHECKPOINT, FUNCTION, PartnerSettings
from rllib_llm_comm.policies.policy_folder import PolicyExport, find_policy, load_network, network_file
from rllib_llm_comm.policies.policy_manifest import NUMERIC, PolicyManifest, read_manifest

PLANES = 26


def check_partner(partner: PartnerSettings, env_config: Mapping[str, Any]) -> None:
    """Refuses a partner that cannot play in arrays of games; of a checkpoint only `policy.json` is read.

    Args:
        partner: The partner.
        env_config: Settings of the kitchen.

    Raises:
        UserError: If it is a function, talks, has a habit or `unstuck`, or is a policy that is not numeric or of
            another kitchen.
    """
    where = f"the partner {partner.name!r}"
    refused = {
        "policy": partner.kind == FUNCTION,
        "habit": bool(partner.habit),
        "unstuck": bool(partner.unstuck),
        "speech": partner.speech == "scripted",
    }
    for setting in (name for name, found in refused.items() if found):
        raise UserError(
            f"`{setting}` of {where} is {getattr(partner, setting)!r}, which the arrays of games do not know; take "
            "checkpoints, 'scripted', 'random' or 'stay', without habits, `unstuck` and speech."
        )
    if partner.kind == CHECKPOINT:
        _check_manifest(read_manifest(find_policy(partner.policy)), where, env_config)


def load_partners(pool: Sequence[PartnerSettings], env_config: Mapping[str, Any]) -> tuple[FrozenPartner, ...]:
    """Loads the networks of a pool's checkpoints (safetensors and JSON, no pickles).

    Args:
        pool: The partners.
        env_config: Settings of the kitchen.

    Raises:
        UserError: If one cannot be read or cannot play in this kitchen.
    """
    return tuple(_load(partner, env_config) for partner in pool)


def read_policy(folder: Path, env_config: Mapping[str, Any]) -> tuple[PolicyExport, PolicyManifest]:
    """A policy of a folder with its manifest (safetensors and JSON, no pickles).

    Args:
        folder: The policy folder.
        env_config: Settings of the kitchen in which it is to play.

    Raises:
        UserError: If it cannot be read or cannot play in this kitchen.
    """
    manifest = read_manifest(folder)
    _check_manifest(manifest, f"the policy {str(folder)!r}", env_config)
    return PolicyExport(manifest.kind, network_file(load_network(folder, manifest)), manifest.model_config), manifest


def _load(partner: PartnerSettings, env_config: Mapping[str, Any]) -> FrozenPartner:
    check_partner(partner, env_config)
    player: str | PolicyExport = partner.policy
    if partner.kind == CHECKPOINT:
        player, _ = read_policy(find_policy(partner.policy), env_config)
    return FrozenPartner(partner.name, player, partner.weight, partner.noise, partner.pauses, partner.greedy)


def _check_manifest(manifest: PolicyManifest, where: str, env_config: Mapping[str, Any]) -> None:
    settings = manifest.model_config
    if manifest.kind != NUMERIC or settings.get("network", "mlp") != "mlp" or manifest.env != ENV_ID:
        raise UserError(
            f"{where} is a policy of {manifest.algorithm} for {manifest.env!r}, but the arrays of games seat numeric "
            f"policies for {ENV_ID!r} only, such as those of SelfPlayPPO."
        )
    if reason := difference(env_config, manifest.env_config):
        raise UserError(f"{where} {reason}")
    layout = get_layout(env_config.get("layout", "cramped_room"))
    if settings.get("size") != PLANES * layout.width * layout.height:
        raise UserError(
            f"{where} sees {settings.get('size')} numbers, which are not the {PLANES} lossless planes of "
            f"{layout.name!r} alone; take policies of SelfPlayPPO, or others with `env_config.vector` 'planes'."
        )
