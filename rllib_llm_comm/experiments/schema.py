"""The JSON schema of experiment and study files, so that an editor completes and checks them.

It is made of what checks the files themselves: the models of experiments, studies and stages, the configs of
algorithms, and the constructors of games. It is a little wider than they are: settings that exclude each other are told
by `rllib train` alone.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from rllib_llm_comm.chat.settings import AskingChat
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.registry import Registry
from rllib_llm_comm.core.settings import Settings, settings_of
from rllib_llm_comm.envs.games import GAMES
from rllib_llm_comm.evaluation.collect_demonstrations import OF_PARTNERS
from rllib_llm_comm.experiments.algorithm_settings import (
    algorithm_names,
    config_annotations,
    config_settings,
    default_of,
    find_algorithm,
    fits,
    holds_plain_values,
    range_of,
)
from rllib_llm_comm.experiments.experiment_file import MODEL, OLD_CHECKPOINT_KEYS, Experiment
from rllib_llm_comm.experiments.search_space import SEARCHES
from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS
from rllib_llm_comm.experiments.study_file import Study
from rllib_llm_comm.policies.partner_settings import PartnerSettings
from rllib_llm_comm.sama.planners import PLANNERS
from rllib_llm_comm.sama.rewards.subgoal_rewards import REWARDS
from rllib_llm_comm.verco.settings import LanguageModelSettings
from rllib_llm_comm.verco.teachers.base import TEACHERS, PeopleSettings

Schema = dict[str, Any]
_REFERENCE: Schema = {"type": "string", "pattern": r"\$\{[^{}]+\}", "description": "The result of another stage."}
_LONGEST = 300  # characters of a description
_REGISTRIES: Mapping[str, Registry[Any]] = {one.setting: one for one in (PLANNERS, TEACHERS, REWARDS)}
_KINDS = (*_REGISTRIES, "player", "pool")
"""Settings that are mappings, or hold some, whose keys depend on what they name."""
# A line of a docstring's "Args" or "Attributes".
_ENTRY = re.compile(r"^ {4,8}`?\**(\w+)`?(?: \([^)]*\))?: (.+(?:\n {8,}.+)*)", re.MULTILINE)


class _Lenient(GenerateJsonSchema):
    """Types that no file can hold allow anything; fields that are not for files are left out."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> Schema:
        return {}

    def field_is_present(self, field: Any) -> bool:
        return not field.get("serialization_exclude")

    def tagged_union_schema(self, schema: Any) -> Schema:
        return {"anyOf": super().tagged_union_schema(schema)["oneOf"]}


def file_schema() -> Schema:
    """The schema of experiment files and of study files."""
    configs: dict[str, Schema] = {name: _model(kind.model(), _REFERENCE) for name, kind in STAGE_KINDS.items()}
    texts: dict[str, Schema] = {}
    parts: dict[str, Schema] = {}
    for name in algorithm_names():
        try:
            configs[name] = _algorithm_config(name, texts, parts)
        except (ImportError, UserError):  # one of RLlib's that needs what is not installed
            continue
    runs = [
        {
            "if": {"properties": {"run": {"const": name}}, "required": ["run"]},
            "then": {"properties": {"config": _ref(f"config of {name}")}},
        }
        for name in configs
    ]
    environments = dict(_environments(parts))
    games = [
        {
            "if": {"properties": {"env": {"const": env}}, "required": ["env"]},
            "then": {"properties": {"config": {"properties": {"env_config": _ref(f"settings of {env}")}}}},
        }
        for env in environments
    ]
    experiment, study = _model(Experiment), _model(Study)
    inner = {**experiment.pop("$defs", {}), **study.pop("$defs", {})}
    for config in configs.values():
        inner |= config.pop("$defs", {})
    keys = experiment["properties"]
    checkpoints = inner["CheckpointSettings"]["properties"]
    keys |= {old: checkpoints[new] for old, new in OLD_CHECKPOINT_KEYS.items()}
    keys["run"] = inner["StudySystem"]["properties"]["run"] = {
        "enum": list(configs),
        "description": "An algorithm, or a stage that trains nothing.",
    }
    keys["env"] = {"anyOf": [{"enum": list(environments)}, {"type": ["string", "null"]}]}
    experiment["allOf"] = [*runs, *games]
    inner["StudySystem"]["allOf"] = runs
    study["properties"]["env"] = {"anyOf": [{"enum": list(environments)}, {"type": "string"}]}
    study["properties"]["shared"] = {"type": "object", "additionalProperties": _ref("experiment")}
    study["properties"][MODEL] = _ref("language model")
    study["allOf"] = [
        {
            "if": {"properties": {"env": {"const": env}}, "required": ["env"]},
            "then": {"properties": {"scenarios": {"additionalProperties": _ref(f"settings of {env}")}}},
        }
        for env in environments
    ]
    experiments = {
        "type": "object",
        "properties": {MODEL: {"anyOf": [_ref("language model"), _ref("experiment")]}},
        "additionalProperties": _ref("experiment"),
    }
    kinds = {f"keys of {kind}": {"anyOf": forms} for kind, forms in _kinds(parts).items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Experiments or a study of rllib_llm_comm",
        "if": {"required": ["systems", "scenarios"]},
        "then": _ref("study"),
        "else": experiments,
        "$defs": {
            **inner,
            **parts,
            **kinds,
            "experiment": experiment,
            "study": study,
            "language model": {**_model(LanguageModelSettings), "required": []},
            "search": _search(),
            **{f"config of {name}": one for name, one in configs.items()},
            **{f"settings of {env}": one for env, one in environments.items()},
            **{f"setting {name}": one for name, one in texts.items()},
        },
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name.replace('/', '~1').replace(' ', '%20')}"}


_IN_TRAINING = (_ref("search"), _REFERENCE)
"""What any setting of a training may be instead."""


def _model(model: type[BaseModel], *others: Schema) -> Schema:
    """The schema of a model, with what its fields say of them; `others` as of `_told`."""
    schema = _told(model.model_json_schema(schema_generator=_Lenient), *others)
    return {**schema, "description": (inspect.getdoc(model) or "").split("\n\n")[0]}


def _told(schema: Schema, *others: Schema) -> Schema:
    """A schema in which settings, of models within it, too, may be one of others, such as the result of a stage."""
    for about in (*schema.get("$defs", {}).values(), schema):
        for key, value in about.get("properties", {}).items():
            value.pop("title", None)
            # What is not given may be written as null.
            null: list[Schema] = [] if key in about.get("required", ()) else [{"type": "null"}]
            about["properties"][key] = {**_or(_of_kind(key, value), *null, *others), **_said(value.get("description"))}
    return schema


def _or(schema: Schema, *others: Schema) -> Schema:
    """A setting whose value may also be something else."""
    kept: Schema = {key: schema[key] for key in ("default", "description") if key in schema}
    rest = {key: value for key, value in schema.items() if key not in kept}
    return {"anyOf": [rest, *others], **kept} if rest and others else schema


def _algorithm_config(name: str, texts: dict[str, Schema], parts: dict[str, Schema]) -> Schema:
    """The settings of an algorithm's config object: our own as their fields tell them, RLlib's as its docstrings do.

    Args:
        texts: Settings that several algorithms have alike are added to it, by name.
        parts: Models within settings are added to it.
    """
    config = find_algorithm(name).get_default_config()
    own = {
        key: field
        for model in getattr(config, "settings_models", {}).values()
        for key, field in model.model_fields.items()
    }
    annotations = config_annotations(type(config))
    methods = [vars(base) for base in type(config).__mro__ if base is not object]
    told = _entries(method for base in methods for method in base.values() if inspect.isfunction(method))
    told |= _entries(type(config).__mro__)
    properties: dict[str, Schema] = {}
    for key in config_settings(config):
        attribute = str(config._translate_special_keys(key, warn_deprecated=False))
        if field := own.get(attribute):
            schema = _setting(attribute, field, parts)
        else:
            default = default_of(config, attribute)
            schema = _of_rllib(attribute, default, annotations.get(attribute)) | _said(told.get(attribute))
            schema |= _shown(default)
        known = texts.setdefault(key, schema)
        properties[key] = _ref(f"setting {key}") if known == schema else schema
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _setting(name: str, field: FieldInfo, parts: dict[str, Schema]) -> Schema:
    """A setting as its field declares it, or a search, or the result of another stage."""
    plain = TypeAdapter(Annotated[field.annotation, field]).json_schema(  # type: ignore[arg-type]
        schema_generator=_Lenient
    )
    parts |= _told(plain, *_IN_TRAINING).pop("$defs", {})
    for word in ("default", "description"):
        plain.pop(word, None)
    return {"anyOf": [_of_kind(name, plain), *_IN_TRAINING], **_said(field.description), **_shown(field.default)}


def _of_kind(setting: str, schema: Any) -> Any:
    """The schema of a setting; in one of `_KINDS` mappings have known keys, and texts are known names or others."""
    if setting not in _KINDS or not isinstance(schema, dict | list):
        return schema
    if isinstance(schema, list):
        return [_of_kind(setting, one) for one in schema]
    keys = _ref(f"keys of {setting}")
    if schema.get("type") == "object":
        return {**{key: schema[key] for key in ("default", "description") if key in schema}, "anyOf": [keys]}
    if schema == {"type": "string"} and setting in _REGISTRIES:
        return {"anyOf": [{"enum": list(_REGISTRIES[setting])}, schema]}
    if schema.get("items") == {}:
        return {**schema, "items": {"anyOf": [{"type": "string"}, keys]}}
    return {key: _of_kind(setting, value) for key, value in schema.items()}


def _kinds(parts: dict[str, Schema]) -> dict[str, list[Schema]]:
    """The mappings that the settings of `_KINDS` may hold; models within settings are added to `parts`."""
    partner = _keys(PartnerSettings, parts)
    played = {key: partner["properties"][key] for key in OF_PARTNERS}
    return {
        **{setting: _registered(registry, parts) for setting, registry in _REGISTRIES.items()},
        "player": [{**partner, "properties": played}, _keys(PeopleSettings, parts), _keys(AskingChat, parts)],
        "pool": [partner],
    }


def _registered(registry: Registry[Any], parts: dict[str, Schema]) -> list[Schema]:
    """A mapping with each name of a registry and its settings; with a name that is not known any."""
    forms: list[Schema] = [{"properties": {"name": {"not": {"enum": list(registry)}}}, "required": ["name"]}]
    for name in registry:
        form = _keys(registry.settings_of(name), parts)
        properties = {"name": {"const": name}, **form["properties"]}
        forms.append({**form, "properties": properties, "required": ["name", *form["required"]]})
    return forms


def _keys(model: type[Settings], parts: dict[str, Schema]) -> Schema:
    """A mapping of the settings of a model; models within settings are added to `parts`."""
    schema = _model(model, *_IN_TRAINING)
    parts |= schema.pop("$defs", {})
    return {"required": [], "properties": {}, **schema}


def _shown(default: Any) -> Schema:
    return {"default": default} if isinstance(default, bool | int | float | str) else {}


def _of_rllib(name: str, default: Any, annotation: Any) -> Schema:
    """The type and range of one of RLlib's settings; empty where its annotation is wrong about its own default."""
    if annotation is None or not fits(default, annotation) or not holds_plain_values(annotation):
        return {}
    low, high = range_of(name)
    bounds = {"minimum": low} if low > -math.inf else {}
    bounds |= {"maximum": high} if high < math.inf else {}
    plain = TypeAdapter(annotation).json_schema(schema_generator=_Lenient)
    return {"anyOf": [plain, {"type": "null"}, *_IN_TRAINING], **bounds}


def _entries(sources: Iterable[Any]) -> dict[str, str]:
    """Descriptions of parameters and attributes in docstrings of functions and classes; the first one counts."""
    found: dict[str, str] = {}
    for source in sources:
        for name, text in _ENTRY.findall(inspect.getdoc(source) or ""):
            found.setdefault(name, text)
    return found


def _environments(parts: dict[str, Schema]) -> Iterable[tuple[str, Schema]]:
    """Ids of all games, and their settings; models within settings are added to `parts`."""
    for record in GAMES.values():
        for env in record.entry_points:
            game = getattr(record.code("entry_points", env), "game", None)
            if game is None:  # a user's own, whose constructor may take anything
                yield env, {"type": "object"}
                continue
            properties = {"max_cycles": {"type": ["integer", "null"]}}
            for name, field in settings_of(game).model_fields.items():
                properties[name] = _setting(name, field, parts)
            yield env, {"type": ["object", "null"], "properties": properties, "additionalProperties": False}


def _search() -> Schema:
    kinds = [
        {"type": "object", "properties": {kind: {"type": "array"}}, "required": [kind], "additionalProperties": False}
        for kind in SEARCHES
    ]
    return {"anyOf": kinds, "description": "Values to search through, such as {grid_search: [0, 1]}."}


def _said(text: str | None) -> Schema:
    if not text:
        return {}
    words = " ".join(text.split())
    return {"description": words if len(words) <= _LONGEST else f"{words[:_LONGEST].rsplit(' ', 1)[0]} ..."}


def to_text(schema: Mapping[str, Any]) -> str:
    """A schema as the text of its file."""
    return json.dumps(schema, default=str) + "\n"
