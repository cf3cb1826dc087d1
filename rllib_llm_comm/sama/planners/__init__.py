"""Planners, made from settings by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from pydantic import Field, create_model

from rllib_llm_comm.chat.answers import any_answer, form_in
from rllib_llm_comm.chat.cassettes import asks, describe_recording, open_chat
from rllib_llm_comm.chat.chat_model import ChatCounters, ChatError, ChatModel
from rllib_llm_comm.chat.settings import Chat
from rllib_llm_comm.core.errors import UserError, within
from rllib_llm_comm.core.registry import Registry
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.interface import GameInfo
from rllib_llm_comm.policies.find_checkpoint import is_shipped
from rllib_llm_comm.policies.policy_manifest import read_manifest
from rllib_llm_comm.policies.recorded_settings import has_no_text, model_stays_inside, packaged_models
from rllib_llm_comm.sama.planners.baselines import (
    AroundPlanner,
    DisturbedPlanner,
    GuessingPlanner,
    Plan4MCPlanner,
    RandomPlanner,
    ScriptedPlanner,
)
from rllib_llm_comm.sama.planners.chat import (
    ChatPlanner,
    ChatPlanSettings,
    DepsPlanSettings,
    QuestionSettings,
    SamaPlanSettings,
)
from rllib_llm_comm.sama.planning_game import PlanningGame
from rllib_llm_comm.sama.plans import Planner, PlanRequest
from rllib_llm_comm.sama.recordings import find_recording, recordings, require_recorded, with_recording


class RecordedPlanSettings(ChatPlanSettings):
    """As `chat`, with the answers of a recording."""

    planner, slow = "cassette", False


_SOURCES: Mapping[str, Any] = {
    "chat": (Chat | None, Field(None, description="The chat model, as for `open_chat`.")),
    "cassette": (
        str | Path | None,
        Field(None, description="The recording: a path, or the name of one that comes with the package."),
    ),
}


@dataclass(frozen=True)
class _AskingModel:
    """Makes a planner that asks a chat model."""

    name: str
    how: type[QuestionSettings]
    planner: type[ChatPlanner] = ChatPlanner

    @property
    def told_by(self) -> type:
        """Whose docstring says what it is."""
        return self.how if self.planner is ChatPlanner else self.planner

    @property
    def source(self) -> str:
        """Name of the setting that says whom it asks."""
        return "cassette" if self.how is RecordedPlanSettings else "chat"

    @cached_property
    def settings_model(self) -> type[Settings]:
        """The planner's settings, and whom it asks; a chat model that is given takes its place."""
        asked = {self.source: _SOURCES[self.source]}
        made: type[Settings] = create_model(self.how.__name__, __base__=self.how, **asked)
        return made

    def __call__(self, model: ChatModel | None = None, **given: Any) -> Planner:
        asked = self.open(given) if model is None else model
        settings = self.how(**{k: v for k, v in given.items() if k not in _SOURCES})
        require_recorded(asked, settings)
        return self.planner(asked, settings)

    def open(self, given: Mapping[str, Any]) -> ChatModel:
        told = self.settings_model.checked("planner", {key: one for key, one in given.items() if key != "name"})
        asked = getattr(told, self.source)
        if asked is None:
            example = "{model: gpt-4o}" if self.source == "chat" else "plans.jsonl"
            raise UserError(f"`planner.{self.source}` is missing; give for example `{example}`.", "missing")
        return open_chat(with_recording({"cassette": asked} if self.source == "cassette" else asked))


@dataclass(frozen=True)
class _AroundAnother:
    """Makes a planner around another one."""

    planner: type[AroundPlanner]

    @property
    def told_by(self) -> type:
        """Whose docstring says what it is."""
        return self.planner

    @property
    def settings_model(self) -> type[Settings]:
        """The planner's."""
        return self.planner.settings_model

    def __call__(self, model: ChatModel | None = None, **given: Any) -> Planner:
        with within("planner.planner"):
            inner = make_planner(given.pop("planner", ScriptedPlanner.name), model)
        return self.planner(inner, **given)


_VARIANTS: tuple[type[QuestionSettings], ...] = (
    ChatPlanSettings,
    RecordedPlanSettings,
    DepsPlanSettings,
    SamaPlanSettings,
)
_ASKING = {one.planner: _AskingModel(one.planner, one) for one in _VARIANTS}
TRAINED = "trained:"
"""Before the checkpoint of a planner that was trained."""
WITH_MODEL = tuple(_ASKING)
"""Those that ask a chat model."""
PLANNERS: Registry[Callable[..., Planner]] = Registry(
    "planner",
    {
        ScriptedPlanner.name: ScriptedPlanner,
        Plan4MCPlanner.name: Plan4MCPlanner,
        RandomPlanner.name: RandomPlanner,
        **{one.name: _AroundAnother(one) for one in (DisturbedPlanner, GuessingPlanner)},
        **_ASKING,
        "trained": "rllib_llm_comm.sama.planners.trained:TrainedPlanner",
    },
    apart=("model",),
)
"""A planner's maker takes its settings; one with an argument `model` is given the chat model of `make_planner`. The
settings are those of its `settings_model`, or else its other arguments (`core.settings.settings_of`)."""


def register_planner(name: str, maker: Callable[..., Planner]) -> None:
    """Makes a planner of one's own known by name.

    Args:
        maker: Called with the settings beside `name`, once per environment. A `ChatPlanner` with another `plan` gets
            its chat model and its settings (of its `settings_model`) as `chat` does.

    Raises:
        UserError: If that model is no `QuestionSettings`.
    """
    if isinstance(maker, type) and issubclass(maker, ChatPlanner) and maker.__init__ is ChatPlanner.__init__:
        if not issubclass(maker.settings_model, QuestionSettings):
            raise UserError(
                f"`settings_model` of the planner {name!r} is {maker.settings_model.__name__} but must be derived from "
                "`QuestionSettings` (`rllib_llm_comm.sama.planners.chat`), such as `ChatPlanSettings`."
            )
        maker = _AskingModel(name, maker.settings_model, maker)
    PLANNERS.register(name, maker)


def make_planner(settings: str | Mapping[str, Any] | Planner, model: ChatModel | None = None) -> Planner:
    """A planner from settings as they stand in YAML files.

    Args:
        settings: A name, or a dict with `name` and the planner's settings; "trained:CHECKPOINT" is
            short for "trained" with `policy`. A planner is given back as it is.
        model: The chat model, in place of `chat`: one client for the planners of many environments.

    Raises:
        UserError: If there is no such planner or a setting is not allowed.
    """
    if isinstance(settings, Planner):
        return settings
    name, given = PLANNERS.checked(_named_settings(settings) if isinstance(settings, str) else settings)
    maker = PLANNERS[name]
    return maker(**given, model=model) if "model" in inspect.signature(maker).parameters else maker(**given)


def fallback_of(settings: str | Mapping[str, Any]) -> str:
    """The `fallback` of a planner that asks a language model; empty for others."""
    given = _undisturbed(settings)
    maker = PLANNERS.get(given.get("name"))
    if not isinstance(maker, _AskingModel):
        return ""
    return str(given.get("fallback", maker.how.defaults()["fallback"]))


def planner_model(settings: str | Mapping[str, Any] | Planner) -> ChatModel | None:
    """The chat model that the planners of many environments can share; `None` for planners that ask none.

    Raises:
        UserError: If a setting is not allowed.
    """
    given = _undisturbed(settings)
    maker = PLANNERS.get(given.get("name"))
    return maker.open(given) if isinstance(maker, _AskingModel) else None


def played_recording(settings: str | Mapping[str, Any] | Planner) -> Path | None:
    """The recording from which a planner has all its answers; `None` for planners that ask somebody, or nobody.

    Raises:
        UserError: If there is no such recording.
    """
    given = _undisturbed(settings)
    if not isinstance(PLANNERS.get(given.get("name")), _AskingModel):
        return None
    source = given if given.get("name") == "cassette" else given.get("chat")
    if not isinstance(source, Mapping) or not source.get("cassette") or asks(source):
        return None
    return find_recording(str(source["cassette"]))


def planner_stands_in(settings: str | Mapping[str, Any] | Planner) -> str:
    """What a planner is, with its name, if it stands in for a language model; empty for others.

    Raises:
        UserError: If it plays a recording that is not there.
    """
    tape, name = played_recording(settings), _undisturbed(settings).get("name")
    planner = name if isinstance(name, Planner) else PLANNERS.get(name)
    what = describe_recording(tape) if tape is not None else getattr(planner, "stands_in", "")
    return f"planner {name.name if isinstance(name, Planner) else name}: {what}" if what else ""


def trained_policy(settings: str | Mapping[str, Any] | Planner | None) -> str | None:
    """The checkpoint of a planner that was trained, also where another disturbs it; `None` for others.

    Args:
        settings: As of `make_planner`; `None`: nobody plans.
    """
    given = {} if settings is None else _undisturbed(settings)
    policy = given.get("policy")
    return policy if given.get("name") == "trained" and isinstance(policy, str) else None


def trained_view(settings: str | Mapping[str, Any] | Planner | None) -> str:
    """What a trained planner reads of a game with fog (`view` of its seats), as its checkpoint recorded it.

    Args:
        settings: As of `trained_policy`.

    Returns:
        Empty of other planners, and where no checkpoint is, or it tells none.
    """
    policy = trained_policy(settings)
    if policy is None or not (is_shipped(policy) or Path(policy).exists()):
        return ""
    from rllib_llm_comm.policies.policy_folder import find_policy  # with torch

    with suppress(UserError):
        return str(read_manifest(find_policy(policy)).env_config.get("view", ""))
    return ""


def from_anywhere(settings: str | Mapping[str, Any]) -> str | dict[str, Any]:
    """Settings of a planner in which the path of a trained one holds in every folder, as a checkpoint records them."""
    given = _named_settings(settings)
    policy = given.get("policy")
    if given.get("name") == "trained" and isinstance(policy, str) and Path(policy).exists():
        here = str(Path(policy).absolute())
        return f"{TRAINED}{here}" if isinstance(settings, str) else {**given, "policy": here}
    if isinstance(given.get("planner"), str | Mapping):
        return {**given, "planner": from_anywhere(given["planner"])}
    return settings if isinstance(settings, str) else given


def trusting(settings: Any) -> Any:
    """Settings of a planner whose user trusts what its checkpoint recorded (`--trust`).

    Args:
        settings: As of `make_planner`, or `None`, or a list of such.
    """
    if isinstance(settings, list):
        return [trusting(one) for one in settings]
    if not isinstance(settings, str | Mapping):
        return settings
    given = _named_settings(settings)
    if given.get("name") == "trained":
        return {**given, "trust": True}
    return {**given, "planner": trusting(given["planner"])} if "planner" in given else settings


def guesses(settings: str | Mapping[str, Any] | Planner | None) -> bool:
    """True if a planner guesses what a game hides from its agents, so that something has to be hidden.

    Args:
        settings: See `rllib_llm_comm.sama.planners.make_planner`; `None`: nobody plans.
    """
    names = [] if settings is None else [one.get("name") for one in _layers(settings)]
    return any(name == GuessingPlanner.name or isinstance(name, GuessingPlanner) for name in names)


def _layers(settings: str | Mapping[str, Any] | Planner) -> Iterator[dict[str, Any]]:
    """Settings of a planner, with its name (or itself as its name), and of those that it disturbs, from outside."""
    given = {"name": settings} if isinstance(settings, Planner) else _named_settings(settings)
    yield given
    if isinstance(settings, AroundPlanner):
        yield from _layers(settings.planner)
    elif given.get("name") in (DisturbedPlanner.name, GuessingPlanner.name):
        yield from _layers(given.get("planner", ScriptedPlanner.name))


def _undisturbed(settings: str | Mapping[str, Any] | Planner) -> dict[str, Any]:
    """Settings of the planner that makes the plans, below those that disturb it."""
    *_, innermost = _layers(settings)
    return innermost


def _named_settings(settings: str | Mapping[str, Any]) -> dict[str, Any]:
    """Settings with `name`; a text is one, or "trained:CHECKPOINT"."""
    if isinstance(settings, str) and settings.startswith(TRAINED):
        return {"name": "trained", "policy": settings.removeprefix(TRAINED)}
    return dict(settings) if isinstance(settings, Mapping) else {"name": settings}


class ListeningModel(ChatModel):
    """Asks nobody: keeps the prompts and answers each in its form without saying anything, so that the next one comes.

    Attributes:
        prompts: The prompts so far.
    """

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.counters = ChatCounters()

    def complete(self, prompt: str, system: str = "") -> str:
        """An answer that says nothing; the empty text where the prompt shows no form."""
        self.prompts.append(prompt)
        form, _ = form_in(prompt)
        return "" if form is None else any_answer(form)


def prompts_of(planner: str | Mapping[str, Any], game: PlanningGame) -> list[str] | None:
    """The prompts of a planner for the moment that a game is in; empty forms answer, so that nobody is asked.

    Args:
        planner: See `rllib_llm_comm.sama.planners.make_planner`.
        game: A game that has begun.

    Returns:
        The prompts, as far as such answers lead; `None` of planners of the user's own that read none.
    """
    heard = ListeningModel()
    made = make_planner(planner, heard)
    if not isinstance(made, ChatPlanner):
        return None
    made.model = heard  # a planner of the user's own may have opened a model by itself
    made.begin()
    with suppress(ChatError, UserError):  # the plan is refused; the prompts until then are enough
        made.plan(PlanRequest(game, game.state()))
    return heard.prompts


def require_different_prompts(
    variants: Sequence[tuple[Mapping[str, Any], str | Mapping[str, Any]]], game: PlanningGame, what: str
) -> None:
    """Refuses a comparison of prompts in which two are the same.

    Args:
        variants: Per variant its labels, as a table names it, and its planner.
        game: A game that has begun.

    Raises:
        UserError: If two variants lead to the same prompts in this game.
    """
    prompts = [(labels, prompts_of(planner, game)) for labels, planner in variants]
    for (one, first), (other, second) in combinations(prompts, 2):
        if first is not None and first == second:
            name = GameInfo(game.env).name
            lacks = "" if any(game.examples("goal")) else f" ({type(game).__name__} has no worked examples)"
            raise UserError(
                f"`rllib planning {what}` would compare identical prompts: in {name!r} {_named(one)} and "
                f"{_named(other)} lead to the same ones{lacks}; compare in another game, or give this one what differs."
            )


def _named(labels: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in labels.items())


# ---- planners that a checkpoint recorded --------------------------------------------------------------------------


def stays_inside(planner: Any) -> bool:
    """True if a planner that a checkpoint recorded asks no server, reads no file and fetches no model."""
    from rllib_llm_comm.language.model_sources import SMOLLM2  # with torch, which planners by rules do not need

    if isinstance(planner, str) and planner.startswith(TRAINED):
        return stays_inside(_named_settings(planner))
    if planner is None or isinstance(planner, str):
        return planner not in WITH_MODEL
    if not isinstance(planner, Mapping):
        return False
    name, rest = planner.get("name"), {key: value for key, value in planner.items() if key != "name"}
    if name == "cassette":
        return rest.get("cassette") in recordings() and _asks_plainly(rest, "cassette")
    if name in WITH_MODEL:
        chat = rest.get("chat")
        if not isinstance(chat, Mapping) or not model_stays_inside(chat.get("local"), (SMOLLM2,)):
            return False
        return has_no_text({**chat, "local": None}) and _asks_plainly(rest, "chat")
    if name == "trained":  # a folder is only read, as safetensors, and may be named
        policy, base = rest.pop("policy", None), rest.pop("base_model", None)
        known = base is None or model_stays_inside(base, packaged_models("base_model"))
        there = isinstance(policy, str) and (is_shipped(policy) or model_stays_inside(policy, ()))
        return there and known and not rest.pop("trust", False) and has_no_text(rest)
    inner = rest.pop("planner", None)
    return stays_inside(inner) and has_no_text(rest)


def _asks_plainly(settings: Mapping[str, Any], whom: str) -> bool:
    """True if questions to a chat model are made without files and models from elsewhere."""
    from rllib_llm_comm.language.base_model import EMBEDDED

    if not model_stays_inside(settings.get("text_encoder", EMBEDDED), packaged_models("text_encoder")):
        return False
    words = ("menu", "nearest", "text_encoder", whom)
    return not settings.get("manual") and has_no_text({k: v for k, v in settings.items() if k not in words})
