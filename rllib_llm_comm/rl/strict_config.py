"""Base of all our configs: unknown keys are refused; agents share a policy, or each has its own."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, get_type_hints

import numpy as np
from pydantic import AfterValidator, Field, ValidationInfo, create_model
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.utils import force_list
from ray.rllib.utils.annotations import override
from ray.tune.result import TRIAL_INFO
from ray.util.debug import log_once

from rllib_llm_comm.core.errors import (
    LARGEST,
    UserError,
    as_in_files,
    did_you_mean,
    require_choice,
    require_whole,
    shown,
    within,
)
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.policy_manifest import names_a_folder
from rllib_llm_comm.rl.callbacks import ResultWarnings
from rllib_llm_comm.rl.rllib_adapter import agents_of, ensure_registered

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.callbacks.callbacks import RLlibCallback
    from typing_extensions import Self

SHARED_POLICY = "shared"
"""Id of the module by which all agents act."""
_LARGEST_SEED = 2**31 - 1  # NumPy takes twice that, and RLlib adds to it for every runner
_SPECIAL_KEYS = ("multiagent", "class", "optimizer", "model", "_enable_new_api_stack", TRIAL_INFO)
PER_AGENT = "per_agent"
_SHARING = ("shared", PER_AGENT)
"""Words that the setting `policies` takes."""


def shared_policy(agent_id: Any, episode: Any = None, **kwargs: Any) -> str:
    """Maps every agent to the one shared policy, as Verco does."""
    return SHARED_POLICY


def require_schedule(setting: str, value: Any, high: float, unit: str = "step") -> None:
    """Raises a `UserError` unless a setting is a number from 0 on, or a schedule of such numbers.

    Args:
        setting: Its name.
        value: A number, or pairs of a step (or decision) and a number; the first step is 0, and steps rise.
        high: The largest number that is allowed.
        unit: What the schedule counts.
    """
    pairs = list(value) if isinstance(value, list | tuple) else [(0, value), (1, value)]
    if (
        len(pairs) < 2
        or any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs)
        or any(isinstance(one, bool) or not isinstance(one, int | float) for pair in pairs for one in pair)
        or pairs[0][0] != 0
        or any(before[0] >= after[0] for before, after in itertools.pairwise(pairs))
        or not all(0.0 <= number <= high and math.isfinite(number) for _, number in pairs)
    ):
        numbers = "numbers of at least 0" if math.isinf(high) else f"numbers from 0 to {high:g}"
        raise UserError(
            f"`{setting}` is {shown(value)} but must be a number or a schedule of pairs [{unit}, number] such as "
            f"[[0, 1.0], [50000, 0.05]], with {numbers} and at least two {unit}s that rise from 0."
        )


def _schedule(value: Any, info: ValidationInfo) -> Any:
    require_schedule(str(info.field_name), value, math.inf, "decision")
    return value


_Model = TypeVar("_Model", bound=Settings)
Schedule = Annotated[float | list[Any], AfterValidator(_schedule)]
"""A number, or pairs [decisions, number], interpolated linearly."""


class Discount(Settings):
    """How much later rewards count."""

    gamma: float = Field(0.99, ge=0, le=1)
    """Discount per game step, not per decision (TWOSOME, PyMARL)."""


def select_fields(
    model: type[Settings],
    *names: str,
    base: type[Settings] = Settings,
    narrowed: Mapping[str, Any] = MappingProxyType({}),
    **defaults: Any,
) -> type[Any]:
    """A model of some settings of another.

    Args:
        model: The other. Its validators are left out: they run when the whole of it is made of the same values.
        *names: The settings.
        base: The model to which they are added.
        narrowed: Types of settings that allow less than there.
        **defaults: Further settings, with other defaults than there.

    Raises:
        ValueError: If the other has no setting of a name.
    """
    if unknown := sorted({*names, *defaults} - set(model.model_fields)) or sorted(set(narrowed) - {*names, *defaults}):
        raise ValueError(
            f"{model.__name__} has no setting {unknown[0]!r}.{did_you_mean(unknown[0], model.model_fields)}"
        )
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        allowed = narrowed.get(name, field.annotation)
        if name in defaults:
            fields[name] = (Annotated[allowed, field], defaults[name])
        elif name in names:
            fields[name] = (allowed, field)
    named = model if base is Settings else base
    # The fields have their docstrings; Pydantic would search every module on the stack for a class of this name.
    made = create_model(
        named.__name__,
        __base__=base,
        __module__=named.__module__,
        __doc__=named.__doc__,
        __cls_kwargs__={"use_attribute_docstrings": False},
        **fields,
    )
    made.model_config["use_attribute_docstrings"] = True  # of models that are derived from it
    return made


def with_defaults(**defaults: Any) -> Callable[[type[_Model]], type[_Model]]:
    """Gives a model other defaults than the models have that it is derived from; of classes a decorator.

    Raises:
        ValueError: From what is returned, if the model has no setting of a name.
    """
    return lambda model: select_fields(model, base=model, **defaults)


class StrictConfigMixin(AlgorithmConfig):
    """An RLlib config whose own settings are declared in models (`Settings`); refuses unknown keys.

    Every setting is an attribute, and so a flat key of a YAML file's `config:`; an attribute begins with its model's
    default.

    Attributes:
        algorithm: The algorithm that it builds: the class that names it as its `config_class`. In a tuple, since Ray
            walks through classes that are attributes of classes, and would go in a circle.
        settings_models: The fluent method that sets them -> the model that declares them.
        acts_by_vectors: True if its agents see vectors, of the length that games of the training have.
    """

    algorithm: ClassVar[tuple[type[Algorithm], ...]] = ()
    settings_models: ClassVar[Mapping[str, type[Settings]]] = {}
    acts_by_vectors: ClassVar[bool] = False

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets RLlib's defaults, then those of the models."""
        super().__init__(algo_class=algo_class or next(iter(self.algorithm), None))
        for model in self.settings_models.values():
            for name, value in model.defaults().items():
                setattr(self, name, list(value) if isinstance(value, tuple) else value)

    @classmethod
    def setting_types(cls) -> dict[str, Any]:
        """The type of each setting that a model declares."""
        return {name: kind for model in cls.settings_models.values() for name, kind in get_type_hints(model).items()}

    def assign(self, method: str, settings: Settings | None, values: Mapping[str, Any]) -> Self:
        """Sets what a fluent method was given; what its model does not have is for RLlib's method of that name.

        Args:
            method: Its name.
            settings: Of the method's model or a part of it; the fields that were set count.
            values: Settings by name, which count in place of those.

        Raises:
            UserError: If neither has a setting of a name.
        """
        own = set(self.settings_models[method].model_fields)
        if settings is not None:
            if not isinstance(settings, Settings) or not {*own}.intersection(type(settings).model_fields):
                names = ", ".join(sorted(own)[:3])
                raise UserError(f"`{method}` was given {shown(settings)} but takes settings by name, such as {names}.")
            values = {**{name: getattr(settings, name) for name in settings.model_fields_set}, **values}
        bases = [base for base in type(self).__mro__ if base.__module__.startswith("ray.")]
        rllibs = [vars(base)[method] for base in bases if method in vars(base)]
        known = own | {name for one in rllibs for name in inspect.signature(one).parameters} - {"self", "kwargs"}
        for name, value in values.items():
            if name not in known:
                models = self.settings_models.items()
                other = next((other for other, model in models if name in model.model_fields), None)
                hint = f" It is one of `.{other}(...)`." if other else did_you_mean(name, sorted(known))
                raise UserError(f"`{name}` is no setting of `{type(self).__name__}.{method}`.{hint}", "unknown")
            if name in own and value is not NotProvided:
                setattr(self, name, value)
        others = {name: value for name, value in values.items() if name not in own}
        if others:
            rllibs[0](self, **others)
        return self

    def checked_settings(self, method: str) -> Any:
        """The settings of a fluent method's model as they are now.

        Raises:
            UserError: If a value is not allowed, or some do not fit together.
        """
        model = self.settings_models[method]
        return model.from_mapping({name: _plain(getattr(self, name)) for name in model.model_fields})

    def check_settings(self) -> None:
        """Checks the settings of all models, and those that differ for single modules."""
        for method in self.settings_models:
            self.checked_settings(method)
        for module, differing in (self.algorithm_config_overrides_per_module or {}).items():
            with within(place := f"algorithm_config_overrides_per_module.{module}"):
                if not isinstance(differing, Mapping):
                    raise UserError(f"`{place}` is {shown(differing)} but must be a mapping of settings.")
                for model in self.settings_models.values():
                    held = {name: getattr(self, name) for name in model.model_fields}
                    given = {name: value for name, value in differing.items() if name in model.model_fields}
                    model(**{name: _plain(value) for name, value in {**held, **given}.items()})

    def policy_record(self) -> dict[str, Any]:
        """What a policy folder tells of the training: fields of its `PolicyManifest`."""
        return {"communication": {}}

    def _set_shared_policy(self) -> None:
        self.policies = {SHARED_POLICY}
        self.policy_mapping_fn = shared_policy
        # A batch counts decisions, not environment steps, in which only some agents are asked.
        self.count_steps_by = "agent_steps"

    def add_callback(self, callback: type[RLlibCallback]) -> None:
        """Adds a class of callbacks, unless it or a subclass is there already."""
        present: list[Any] = force_list(getattr(self, "callbacks_class"))  # noqa: B009  (untyped in RLlib)
        if not any(isinstance(cls, type) and issubclass(cls, callback) for cls in present):
            self.callbacks_class = [*present, callback]

    def update_from_dict(self, config_dict: Mapping[str, Any]) -> Self:
        """As RLlib's, but takes NumPy's numbers and refuses unknown keys (RLlib would set and never look at them)."""
        known = {name for name in vars(self) if not name.startswith("__")} | set(_SPECIAL_KEYS)
        # RLlib keeps some settings behind properties, such as `train_batch_size_per_learner`.
        properties = inspect.getmembers(type(self), lambda member: isinstance(member, property))
        known |= {name for name, member in properties if member.fset is not None}
        for key in config_dict:
            if str(key).startswith("__"):  # Tune's own, such as `__stdout_file__`
                continue
            if key not in known and self._translate_special_keys(key, warn_deprecated=False) not in known:
                public = [name for name in known if not name.startswith("_")]
                raise UserError(
                    f"`{key}` is no setting of {type(self).__name__}.{did_you_mean(str(key), public)}", "unknown"
                )
        # Tune's own draws are NumPy's numbers, which settings of networks and files know nothing of.
        return super().update_from_dict({key: _plain(value) for key, value in config_dict.items()})

    @override(AlgorithmConfig)
    def multi_agent(
        self, *, policies: str | Collection[str] | Mapping[str, Any] | None = NotProvided, **kwargs: Any
    ) -> Self:
        """As RLlib's; a word for `policies` is for `validate`, which knows whether the algorithm takes it."""
        if policies is not NotProvided:
            _require_policies(policies)
        if isinstance(policies, str):
            self.policies = policies  # type: ignore[assignment]
            policies = NotProvided
        super().multi_agent(policies=policies, **kwargs)
        return self

    def validate(self) -> None:
        """RLlib's checks, without its warnings about the new API stack, the only one that our algorithms have."""
        self._validate_seed()
        _require_policies(self.policies)
        if isinstance(self.policies, str):
            raise UserError(
                f"`policies` is {self.policies!r}, a word that {self.algo_class.__name__} does not take; omit it, so "
                "that all agents act by one policy, or take an algorithm with the choice, such as Verco or TWOSOME."
            )
        for module in self.algorithm_config_overrides_per_module or {}:
            require_choice("algorithm_config_overrides_per_module", module, sorted(self.policies))
        # RLlib gives each warning once per process, so one that counts as given is not printed.
        for line in (f"{self.algo_class.__name__}_on_new_api_stack", "RLModule(config=[RLModuleConfig object])"):
            log_once(line)
        self.add_callback(ResultWarnings)  # the last, so that it has seen what the others warn of
        super().validate()

    def _validate_seed(self) -> None:
        if self.seed is not None:
            self.require_whole_setting("seed", 0, _LARGEST_SEED)

    def require_whole_setting(self, name: str, low: int, high: int = LARGEST) -> None:
        """Raises a `UserError` unless a setting is a whole number in a range."""
        value = getattr(self, name)
        # Tune's own draws are NumPy's numbers.
        require_whole(name, value.item() if isinstance(value, np.integer) else value, low, high)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _require_policies(policies: object) -> None:
    if not isinstance(policies, Collection):
        raise UserError(
            f"`policies` is {as_in_files(policies)} but must be a list of names, a mapping of names to policies, or "
            "the word 'shared' or 'per_agent'.",
            "type",
        )


def own_policy(agent_id: Any, episode: Any = None, **kwargs: Any) -> str:
    """Maps every agent to the policy of its name."""
    return str(agent_id)


def agents_apart(config: Any) -> list[str]:
    """The agents that have a policy of their own under a config; none where they share one.

    Args:
        config: Of an algorithm that was built.
    """
    return sorted(config.policies) if getattr(config, "policy_mapping_fn", None) is own_policy else []


class AgentPoliciesMixin(StrictConfigMixin):
    """Adds `policies: shared | per_agent` to `.multi_agent(...)`, and so to a YAML file's `config:`."""

    @override(AlgorithmConfig)
    def multi_agent(
        self,
        *,
        policies: str | Collection[str] | Mapping[str, Any] | None = NotProvided,
        policy_mapping_fn: Callable[..., str] | None = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets who acts by which policy.

        Args:
            policies: `"shared"` (default; Verco): all agents act by one message adapter, one action adapter and one
                critic. `"per_agent"` (ours): each agent has its own three on the one base model; the agents are those
                of the environment. Or policies as RLlib takes them, with a `policy_mapping_fn`.
            policy_mapping_fn: As of RLlib.
            **kwargs: RLlib's other settings.
        """
        if isinstance(policies, str):
            require_choice("policies", policies, _SHARING)  # until validate() knows the agents
        super().multi_agent(policies=policies, policy_mapping_fn=policy_mapping_fn, **kwargs)
        return self

    @override(AlgorithmConfig)
    def validate(self) -> None:
        """Finds the agents where each has a policy of its own."""
        _require_policies(self.policies)
        if isinstance(self.policies, str):
            require_choice("policies", self.policies, _SHARING)
            if self.policies == PER_AGENT:
                self.policies = self._agents()
                self.policy_mapping_fn = own_policy
            else:
                self._set_shared_policy()
        if self.policy_mapping_fn is shared_policy and SHARED_POLICY not in self.policies:
            raise UserError(
                f"`policies` is {sorted(map(str, self.policies))!r} but no `policy_mapping_fn` tells which agent acts "
                "by which; set it, or use 'shared' or 'per_agent'."
            )
        super().validate()

    def _agents(self) -> set[str]:
        ensure_registered(self.env)
        agents = agents_of(self.env, self.env_config)
        odd = [agent for agent in agents if not names_a_folder(agent)]
        if odd or not agents:
            raise UserError(
                f"`policies` is 'per_agent' but the agents of `env` {self.env!r} are {list(agents)!r}; each must have "
                "a name of letters, digits, '_' and '-', since its policy is saved in a folder of that name."
            )
        return set(agents)
