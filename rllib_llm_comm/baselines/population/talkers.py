"""Populations of agents that talk: members are adapters on one base model, which this process holds once."""

from __future__ import annotations

import dataclasses
import gc
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from pydantic import Field
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.utils.annotations import override
from ray.rllib.utils.checkpoints import Checkpointable

from rllib_llm_comm.baselines.population.cole import COLEConfigMixin, COLEMixin, COLESettings
from rllib_llm_comm.baselines.population.fcp import FCPConfigMixin, FCPMixin, FCPPopulation
from rllib_llm_comm.baselines.population.pbt import PBTConfigMixin, PBTMixin, PBTSettings
from rllib_llm_comm.baselines.population.responder import AS_PARTNER, Matches, MemberSettings, Met, Responder
from rllib_llm_comm.core.errors import LARGEST, UserError, within
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.language.adapters import ACTION, MESSAGE
from rllib_llm_comm.policies.find_checkpoint import is_named
from rllib_llm_comm.policies.partner_settings import PartnerSettings
from rllib_llm_comm.policies.partners import Partner, game_difference
from rllib_llm_comm.policies.play_loop import Observer, PlayedGame, play_games
from rllib_llm_comm.policies.policy_folder import PolicyExport, read_export
from rllib_llm_comm.policies.policy_manifest import LANGUAGE, PolicyManifest, read_manifest
from rllib_llm_comm.policies.recorded_settings import reaches_outside
from rllib_llm_comm.policies.seated_policy import SeatedPolicy
from rllib_llm_comm.policies.signatures import is_own_checkpoint
from rllib_llm_comm.rl.partners_and_planning import PartnersSettings, SeatPartners, use_partners
from rllib_llm_comm.rl.past_policies import PastPolicy
from rllib_llm_comm.rl.policy_checkpoints import on_every_learner
from rllib_llm_comm.rl.rllib_adapter import playable_id
from rllib_llm_comm.rl.strict_config import PER_AGENT, agents_apart, with_defaults
from rllib_llm_comm.verco.advantages import SPEAKER
from rllib_llm_comm.verco.language_network import LanguageNetwork, base_of
from rllib_llm_comm.verco.module import LLMCommModule
from rllib_llm_comm.verco.policy import LanguagePolicy, check_adapter_of, has_base, load_adapter_of, take_files
from rllib_llm_comm.verco.settings import LanguageModelSettings
from rllib_llm_comm.verco.verco import Verco, VercoConfig

logger = logging.getLogger(__name__)

TRAITS = ("greedy", "noise", "pauses", "speech", "word_noise", "word_order")
"""Keys of `as_partner`: how a member that talks may differ as a partner from what it has learned."""
_OF_TRAINING = (
    "advantage_floor", "anneal", "clip_param", "critic_lr", "critic_warmup", "entropy_coeff", "gamma", "grad_clip",
    "lambda_", "lr", "minibatch_size", "num_envs_per_env_runner", "num_epochs", "target_kl", "temperature",
    "train_batch_size_per_learner", "value_clip_mode", "vf_clip_param", "vf_loss_coeff",
)  # fmt: skip
_OF_TALK = (
    "action_checkpoint", "constant_message", "max_message_words", "message_checkpoint", "message_credit",
    "message_entropy_coeff", "message_kl_coeff", "message_kl_target", "message_lr", "message_menu",
    "message_temperature", "messages", "train_messages",
)  # fmt: skip
TALKER_SETTINGS = (*_OF_TRAINING, *_OF_TALK)
"""Settings in which members that talk may differ: of their updates, and of what they say and how they came to."""
_MODES = ("student", "menu", "none", "constant")
_OF_BASE = {*LanguageModelSettings.model_fields} - {*TALKER_SETTINGS}
_ONE_SHAPE = ("lora_r", "lora_alpha", "lora_target_modules", "lora_layers", "prompt_format", "dtype", "quantization")


class TalkersConfig(VercoConfig):
    """Settings of a Verco learner that meets the members of a population, which are adapters on its base model."""

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: as of Verco."""
        super().__init__(algo_class=algo_class)
        self._adapters_are_known = False  # of a member's run and of a checkpoint: the population has tried them

    def validate(self) -> None:
        """Checks all settings; a `UserError` names one that is not allowed or does not fit the others."""
        self.check_settings()  # what follows takes them for what they are declared as
        for kind, settings in getattr(self, "member_kinds", {}).items():
            if isinstance(settings, Mapping) and (of_base := sorted(settings.keys() & _OF_BASE)):
                raise UserError(
                    f"`member_kinds.{kind}` has {of_base[0]!r} but all members are adapters of one shape on one base "
                    "model with one tokenizer; set it for the whole population."
                )
        for name in ("num_env_runners", "num_learners"):
            if getattr(self, name):
                raise UserError(
                    f"`{name}` is {getattr(self, name)} but must be 0: a population of talkers shares one base "
                    "model in one process."
                )
        if self.planner is not None:
            raise UserError("`planner` is set but members of a population act without subgoals; unset it.")
        if self.policies == PER_AGENT or agents_apart(self):
            raise UserError("`policies` is 'per_agent' but a member has one policy for every seat; omit it.")
        if self.message_credit != SPEAKER:
            raise UserError(
                f"`message_credit` is {self.message_credit!r} but partners' advantages are not computed; use "
                f"{SPEAKER!r}."
            )
        super().validate()
        self.add_callback(SeatPartners)
        self.validate_pool()

    def validate_pool(self) -> None:
        """Checks the population; it brings its own partners."""

    def _of_members(self, setting: str) -> dict[str, Any]:
        """Where members get a setting from, and its value there: their kind, `member_settings`, or this config."""
        shared, kinds = getattr(self, "member_settings", {}), getattr(self, "member_kinds", {})
        found: dict[str, Any] = {}
        for place, own in ({f"member_kinds.{kind}.": own for kind, own in kinds.items()} or {"": {}}).items():
            if setting in own:
                found[f"{place}{setting}"] = own[setting]
            elif setting in shared:
                found[f"member_settings.{setting}"] = shared[setting]
            else:
                found[setting] = getattr(self, setting)
        return found

    def member_adapters(self) -> Iterator[tuple[str, str, str]]:
        """Setting, path and role of all adapters with which members begin."""
        for setting, role in (("message_checkpoint", MESSAGE), ("action_checkpoint", ACTION)):
            for where, path in self._of_members(setting).items():
                if path:
                    yield where, str(path), role

    def require_talkers(self) -> None:
        """Checks what members say, and that their adapters are for this base model; none is loaded.

        Raises:
            UserError: If one is not.
        """
        for where, mode in self._of_members("messages").items():
            if mode not in _MODES:
                raise UserError(
                    f"`{where}` is {mode!r} but a member of a population speaks for itself: one of {', '.join(_MODES)}."
                )
        for kind, own in getattr(self, "member_kinds", {}).items():
            traits = own.get(AS_PARTNER, {})
            silent = own.get("messages", getattr(self, "member_settings", {}).get("messages", self.messages)) == "none"
            if silent and traits.get("speech", "own") == "own":
                for name, plain in (("word_noise", 0), ("word_order", "own")):
                    if traits.get(name, plain) != plain:
                        raise UserError(
                            f"`member_kinds.{kind}.{AS_PARTNER}.{name}` is {traits[name]!r} but members of this kind "
                            "say nothing (`messages` is 'none'); omit it, or let them speak."
                        )
        for where, path, role in self.member_adapters():
            if not (is_named(path) or Path(path).exists()):
                continue  # a stage has still to write it; `require_adapters` asks again
            with within(where):
                check_adapter_of(path, self.base_model, self.prompt_format, self.prompt_date, role)

    def require_adapters(self) -> None:
        """Loads all adapters with which members begin, before the first one is trained.

        Raises:
            UserError: If one does not fit the base model or the adapters' shape.
        """
        network = LanguageNetwork(self.language_model_settings())
        for where, path, role in self.member_adapters():
            with within(where):
                load_adapter_of(network, path, role=role)


class Talkers(Responder, Verco):
    """A Verco learner beside frozen talkers that are in memory; one forward pass per member and moment."""

    kept_as = "Verco"
    _met: tuple[str, ...] = ()

    @override(Algorithm)
    def setup(self, config: Any) -> None:
        """Builds the learner; all adapters of a population are tried before anything is trained."""
        if not config._adapters_are_known:
            config.require_adapters()
        super().setup(config)

    @override(Checkpointable)
    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The config of a population whose adapters were tried; the files of kinds that have begun may be gone."""
        args, kwargs = super().get_ctor_args_and_kwargs()
        return ({**dict(args[0]), "_adapters_are_known": True}, *args[1:]), kwargs

    @property
    @override(Responder)
    def met(self) -> tuple[str, ...]:
        """Names of the partners."""
        return self._met

    @override(Responder)
    def meet(self, partners: Sequence[Met]) -> None:
        """Takes other partners; they share the learner's base model."""
        pool = [self._as_partner(one) for one in partners]
        use_partners(self.env_runner, pool, self.config.self_play_share)
        gc.collect()  # models of partners who left are rings of references, and full collections are rare here
        self._met = tuple(one.name for one in partners)
        first = cast(LanguagePolicy, pool[0].policy).network.lm
        logger.info(
            "%d partners share the learner's base model. Each takes %.1f MiB for its adapters; what all have read "
            "takes up to %d MiB (`prefix_cache_mb`).",
            len(pool), first.adapter_bytes / 2**20, first.prefix_cache_bytes // 2**20,
        )  # fmt: skip

    @override(Responder)
    def play_pairs(
        self, policies: Sequence[PastPolicy], pairs: Sequence[tuple[int, int]], games: int, seed: Sequence[int]
    ) -> Matches:
        """Plays the pairs one after the other, the games of each side by side."""
        players = {
            n: self._as_partner(Met(f"member_{n}", policies[n])) for n in sorted({n for pair in pairs for n in pair})
        }
        env_id, settings = str(playable_id(self.config.env)), dict(self.config.env_config)
        first = np.random.SeedSequence(list(seed)).generate_state(1)[0] % 2**30
        sums = [_Sums() for _ in pairs]
        agents = make_env(env_id, **settings).possible_agents
        for pair, (one, other) in enumerate(pairs):
            seats = {str(agent): players[other if place else one] for place, agent in enumerate(agents)}
            seeds = [int(first) + pair * games + game for game in range(games)]
            play_games(SeatedPolicy(seats), lambda: make_env(env_id, **settings), seeds, observers=[sums[pair]],
                       at_once=games)  # fmt: skip
        del players, seats
        gc.collect()  # as in `meet`
        returns, steps = np.array([one.returns for one in sums]), np.array([float(one.steps) for one in sums])
        return Matches(returns, np.zeros(len(pairs)), steps, games)

    def _as_partner(self, one: Met) -> Partner:
        """A partner on the learner's base model, wherever that lay in the member's own training."""
        settings = PartnerSettings(policy=f"population/{one.name}", name=one.name, weight=one.weight, **one.traits)
        return Partner(settings, one.policy.load(base_model=self.config.base_model, device=self.config.device))

    @override(Responder)
    def take_policy(self, policy: PastPolicy) -> None:
        """Takes over adapters and critic."""
        on_every_learner(self, _load, files=dict(policy.policy.files))
        self.sync_runners()


class _Sums(Observer):
    """Sums over games: mean over agents of their returns, and game steps."""

    def __init__(self) -> None:
        self.returns, self.steps = 0.0, 0

    def on_step(self, game: PlayedGame) -> None:
        """Counts a step."""
        self.returns += sum(map(float, game.rewards.values())) / len(game.env.possible_agents)
        self.steps += 1


def _load(learner: Any, files: Mapping[str, bytes]) -> None:
    for module in learner.module.values():
        if isinstance(module.unwrapped(), LLMCommModule):
            take_files(module.unwrapped().network, files)


class OnOneBaseModel(MemberSettings):
    """Members that talk share a base model where one is trained after the other."""

    members_at_once: int | None = Field(0, ge=0, le=LARGEST)
    """0 (ours): members are trained one after the other in the algorithm's own process, on one base model. Else Ray
    tasks, each with a base model of its own; None: as many as this machine has cores, at most all."""


class TalkersPopulation(OnOneBaseModel, FCPPopulation):
    """The population of agents that talk with themselves."""

    population_size: int = Field(4, ge=2, le=1000)
    """N, its members, at least 2. 4 (ours); the paper: 32."""
    member_iterations: int = Field(12, ge=1, le=LARGEST)
    """Training iterations of a member. 12 (ours)."""
    iterations_per_task: int = Field(1, ge=1, le=LARGEST)
    """Iterations of a part of a member's training: what a crash loses at most (ours)."""
    member_keep_every: int = Field(2, ge=1, le=LARGEST)
    """Iterations between the policies among which the half-way one is chosen (ours)."""


class VercoFCPConfig(FCPConfigMixin, TalkersConfig):
    """Settings of `VercoFCP`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import VercoFCPConfig

        config = VercoFCPConfig().environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
        config.communication(message_checkpoint="results/message_sft")
        config.population(size=4, member_kinds={"taught": {}, "lossy": {"as_partner": {"word_noise": 0.3}}})
        algo = config.build_algo()
    """

    settings_models = {**VercoConfig.settings_models, "population": TalkersPopulation}
    member_settings_known = TALKER_SETTINGS
    partner_traits = TRAITS
    not_of_members: ClassVar[tuple[str, ...]] = (
        *FCPConfigMixin.not_of_members, "callbacks_class", "pool", "seat", "self_play_share",
    )  # fmt: skip

    @override(FCPConfigMixin)
    def untrained_member(self) -> VercoConfig:
        """A config of Verco with its defaults: agents that talk with themselves."""
        return VercoConfig()

    @override(FCPConfigMixin)
    def read_member(self, folder: Path) -> tuple[PolicyExport, PolicyManifest]:
        """Reads a member's policy folder; its adapters must be of this base model and of these shapes."""
        manifest = read_manifest(folder)
        self._require_alike(folder, manifest)
        own = {**manifest.model_config, "base_model": self.base_model, "device": self.device}
        manifest = dataclasses.replace(manifest, model_config=own)
        # It becomes part of checkpoints that are signed here. What this config itself says of the game needs no trust.
        others = {name: value for name, value in manifest.env_config.items() if self.env_config.get(name) != value}
        if reaches_outside(dataclasses.replace(manifest, env_config=others)) and not is_own_checkpoint(folder):
            raise UserError(
                f"`population_from` has the member {str(folder)!r}, whose `policy.json` names servers, files or models "
                "beyond this program and was not written by your own `rllib train` here, or changed since; take one "
                "that was, or omit them from the `policy.json`."
            )
        return read_export(folder, manifest), manifest

    def _require_alike(self, folder: Path, manifest: PolicyManifest) -> None:
        where = f"`population_from` has the member {str(folder)!r}"
        if manifest.kind != LANGUAGE or manifest.agents:
            raise UserError(f"{where}, which is no policy of agents that talk and share one; take members of VercoFCP.")
        env_id = playable_id(self.env)
        if env_id is not None and (
            reason := game_difference(env_id, self.env_config, playable_id(manifest.env), manifest.env_config)
        ):
            raise UserError(f"{where}, which {reason}")
        own = self.language_model_settings()
        if not has_base(manifest, base_of(own)):
            raise UserError(
                f"{where} on the base model {manifest.model_config.get('base_model')!r}, whose weights or tokenizer "
                f"are not those of `base_model` {own.base_model!r}; members of a population share one base model."
            )
        for name in _ONE_SHAPE:
            theirs, wanted = manifest.model_config.get(name), own.to_dict()[name]
            if theirs is not None and theirs != wanted:
                raise UserError(
                    f"{where} with `{name}` {theirs!r} but it is {wanted!r} here; members of a population have "
                    "adapters of one shape, so set it to theirs."
                )

    @override(FCPConfigMixin)
    def validate_members(self) -> None:
        """Checks that members talk, too."""
        super().validate_members()
        self.require_talkers()


class VercoFCP(FCPMixin, Talkers):
    """Fictitious co-play of agents that talk; settings: `VercoFCPConfig`."""

    config_class = VercoFCPConfig


class TalkersPBT(OnOneBaseModel, PBTSettings):
    """A population of agents that talk with each other."""

    run_batches: int = Field(1, ge=1, le=LARGEST)
    """Train batches of one PPO run with one partner. 1 (ours); Carroll: 3 of 12,000 steps."""
    selection_games: int = Field(8, ge=2, le=LARGEST)
    """Games of each pair of two agents for the fitness, an even number: half of them in each seat. 8 (ours); Carroll:
    6."""


class VercoPBTConfig(PBTConfigMixin, TalkersConfig):
    """Settings of `VercoPBT`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import VercoPBTConfig

        config = VercoPBTConfig().environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
        algo = config.population(size=3).build_algo()
    """

    settings_models = {**VercoConfig.settings_models, "population": TalkersPBT}
    run_algorithm = Talkers
    member_settings_known = TALKER_SETTINGS
    partner_traits = TRAITS

    def validate_pool(self) -> None:
        """Checks that members talk, and that kinds and mutations share no setting, too."""
        super().validate_pool()
        for name in set(self.mutate) & {name for kind in self.member_kinds.values() for name in kind}:
            raise UserError(f"`{name}` is a setting of `member_kinds` and in `mutate`; omit it from one of the two.")
        self.require_talkers()


class VercoPBT(PBTMixin, Talkers):
    """Population-based training of agents that talk; settings: `VercoPBTConfig`."""

    config_class = VercoPBTConfig

    @override(PBTMixin)
    def run_config(self, settings: Mapping[str, Any], kind: str, place: Sequence[int]) -> Any:
        """The config of a run, whose adapters are known to fit."""
        config = super().run_config(settings, kind, place)
        config._adapters_are_known = True
        return config


class VercoCOLEConfig(COLEConfigMixin, TalkersConfig):
    """Settings of `VercoCOLE`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import VercoCOLEConfig

        config = VercoCOLEConfig().environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
        algo = config.population(initial_size=3).build_algo()
    """

    settings_models = {
        **VercoConfig.settings_models,
        "population": COLESettings,
        "partners": with_defaults(self_play_share=0.25)(PartnersSettings),  # COLE's "1:3"
    }

    def validate_pool(self) -> None:
        """Checks that members talk, too."""
        super().validate_pool()
        self.require_talkers()


class VercoCOLE(COLEMixin, Talkers):
    """Cooperative open-ended learning of agents that talk; settings: `VercoCOLEConfig`."""

    config_class = VercoCOLEConfig
