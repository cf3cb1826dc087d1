"""Strict settings: what is refused, and how it is told."""

from __future__ import annotations

import copy
import pickle
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, model_validator
from ray.exceptions import RayTaskError

from rllib_llm_comm.core.errors import (
    UserError,
    names_and_hint,
    placed,
    require_choice,
    require_number,
    require_whole,
    within,
)
from rllib_llm_comm.core.registry import Registry
from rllib_llm_comm.core.settings import Settings, Several, settings_of
from tests.refusal import refused


class Inner(Settings):
    share: float = Field(0.5, ge=0, le=1)
    """Of something."""


class Outer(Settings):
    inner: Inner = Inner()
    """Of something."""


class Rank(Settings):
    """Settings of everything that a field can be."""

    r: int = Field(8, ge=1, le=4096)
    """Rank."""
    rate: float | None = Field(0.5, gt=0)
    """Rate."""
    mode: Literal["max", "min"] = "max"
    """Mode."""
    widths: Several[Annotated[int, Field(ge=1)]] = Field((128, 128), max_length=3)
    """Widths."""
    layers: Annotated[int, Field(ge=1)] | Literal["all"] = "all"
    """Layers."""
    parts: dict[str, Inner] = {}
    """Parts."""
    trained: bool = False
    """Whether."""
    examples: Literal[0, 1, 3] = 1
    """Examples."""
    kept: Literal[False] | str | None = None
    """Where."""
    held: Inner | Outer | None = None
    """Held."""
    chunk: int = Field(8, ge=4, le=64, multiple_of=4)
    """Chunk."""

    @model_validator(mode="after")
    def _fit(self) -> Rank:
        if self.trained and self.r == 7:
            raise UserError("`r` is 7 but must be another number with `trained`; set it to 8.")
        return self


@pytest.mark.parametrize(
    ("values", "setting", "code", "allowed"),
    [
        ({"r": 0}, "r", "range", "from 1 to 4096"),
        ({"r": True}, "r", "type", "a whole number"),
        ({"r": "8"}, "r", "type", "a whole number"),
        ({"r": None}, "r", "type", "a whole number"),
        ({"r": 7, "trained": True}, "r", "invalid", "another number with `trained`"),
        ({"rate": 0}, "rate", "range", "larger than 0"),
        ({"rate": "2e-3"}, "rate", "type", "in YAML write 2.0e-3"),
        ({"rate": float("nan")}, "rate", "range", "a finite number"),
        ({"chunk": 6}, "chunk", "range", "a whole number from 4 to 64, a multiple of 4"),
        ({"mode": "mox"}, "mode", "choice", "Did you mean 'max'?"),
        ({"widths": 5}, "widths", "type", "a list of whole numbers"),
        ({"widths": [1, 2, 3, 4]}, "widths", "range", "at most 3"),
        ({"widths": [0]}, "widths.0", "range", "at least 1"),
        ({"layers": "al"}, "layers", "type", "'all'"),
        ({"layers": 0}, "layers", "range", "at least 1"),
        ({"parts": {"a": {"share": 2}}}, "parts.a.share", "range", "from 0"),
        ({"parts": {"a": {"shore": 1}}}, "parts.a.shore", "unknown", "Did you mean 'share'?"),
        ({"parts": {1: {}}}, "parts", "type", "must be a text"),
        ({"parts": 3}, "parts", "type", "a mapping"),
        ({"held": {"shore": 1}}, "held.shore", "unknown", "known are share"),
        ({"held": {1: 2}}, "held", "type", "must be a text"),
        ({"trained": 1}, "trained", "type", "true or false"),
        ({"examples": True}, "examples", "type", "one of 0, 1, 3"),
        ({"examples": 1.0}, "examples", "type", "one of 0, 1, 3"),
        ({"kept": 0}, "kept", "type", "false or a text"),
        ({"rate": True}, "rate", "type", "is true but"),
        ({"r": None}, "r", "type", "is null but"),
        ({"lora_r": 1}, "lora_r", "unknown", "known are r, rate"),
    ],
)
@pytest.mark.parametrize("name", ["", "verco.config"])
def test_one_sentence_tells_the_setting_and_what_is_allowed(values, setting, code, allowed, name):
    with refused(".".join(filter(None, [name, setting])), code) as told:
        Rank.checked(name, values) if name else Rank(**values)
    text = str(told.value)
    assert allowed in text
    assert text.count("\n") == 0 and len(text) < 300


class Wide(Rank):
    size: int
    """Size."""


def test_settings_are_taken_from_what_holds_them_as_attributes():
    wide = Wide(size=3, r=4, trained=True)
    assert Rank.from_attributes(wide) == Rank(r=4, trained=True) and type(Rank.from_attributes(wide)) is Rank
    assert Rank.from_attributes(wide, r=5) == Rank(r=5, trained=True)
    with pytest.raises(UserError, match="`size` is missing"):
        Wide.from_attributes(Rank())
    with pytest.raises(UserError, match="`nothing` is no known key"):
        Rank.from_attributes(wide, nothing=1)


def test_settings_are_plain_data():
    settings = Rank(widths=[1, 2], parts={"a": Inner(share=1)})
    assert settings.widths == (1, 2)
    assert Rank.from_mapping(settings.to_dict()) == settings == pickle.loads(pickle.dumps(settings))
    assert copy.deepcopy(settings) == settings
    assert Rank(examples=3, kept=False).kept is False
    assert settings.replace(r=4).to_dict() == {**settings.to_dict(), "r": 4}
    assert Rank.defaults() == {**Rank().to_dict(), "widths": (128, 128)}
    with pytest.raises(UserError):
        settings.replace(r=0)
    with pytest.raises(Exception, match="frozen"):
        settings.r = 3


class Tied:
    """Takes settings as arguments."""

    def __init__(self, words: tuple[str, ...], share: float = 0.5, model: object = None) -> None: ...


def test_settings_are_those_of_a_model_or_of_arguments():
    model = settings_of(Tied, apart=["model"])
    assert list(model.model_fields) == ["words", "share"] and model.checked("x", {"words": ["a"]})
    for wrong in ({"words": [1]}, {"words": ["a"], "share": "1"}, {"words": ["a"], "model": 1}, {}):
        with pytest.raises(UserError, match="`x."):
            model.checked("x", wrong)
    assert settings_of(lambda **settings: 0).checked("x", {"y": 1})


def test_meaning_and_range_are_in_the_schema():
    schema: dict[str, Any] = Rank.model_json_schema()
    assert schema["properties"]["r"] | {"title": ""} == {
        "default": 8, "description": "Rank.", "maximum": 4096, "minimum": 1, "title": "", "type": "integer",
    }  # fmt: skip
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("place", "sentence", "told"),
    [
        ("a.config", "In `algo.x`: `y` is 1.", "In `a.config.algo.x`: `y` is 1."),
        ("a.config", "In `a.config.x`: `y` is 1.", "In `a.config.x`: `y` is 1."),
        ("a.config.lr", "`lr` is 1.", "`a.config.lr` is 1."),
        ("a.config", "`lr` is 1.", "In `a.config`: `lr` is 1."),
        ("a.config.planner", "`planner.seed` is 1.", "`a.config.planner.seed` is 1."),
    ],
)
def test_an_error_gets_the_full_name_of_its_setting_once(place, sentence, told):
    assert placed(place, sentence) == told


@pytest.mark.parametrize(
    ("name", "count", "told"),
    [
        ("name_33", 30, "name_3, "),
        ("other", 14, "name_0, name_1, "),
        ("name_33", 4, "name_0, name_1, name_2, name_3. Did you mean 'name_3'?"),
        ("other", 0, "none."),
    ],
)
def test_of_many_names_only_the_nearest_are_told_where_one_may_be_meant(name, count, told):
    said = names_and_hint(name, [f"name_{k}" for k in range(count)])
    assert said.startswith(told) and (" and 25 others. Did you mean 'name_3'?" in said) == (count == 30)


@pytest.mark.parametrize(
    ("sentence", "setting"),
    [
        ("`verco.config.lr` is 2 but must be a number.", "verco.config.lr"),
        ("In `verco.config`: `lr` is 2 but must be a number.", "verco.config.lr"),
        ("In `verco.config`: the game has no agents.", "verco.config"),
        ("In `verco.config.recipes.onion soup`: `chops` is 2 but must be 1.", "verco.config.recipes.onion soup.chops"),
        ("`rllib play` needs a package.", ""),
        ("`--track mlflow` needs a package.", ""),
        ("`--track` is 'x' but must be one of 'wandb'.", "--track"),
        ("There is no example 'verc'.", ""),
    ],
)
def test_an_error_tells_the_setting_to_programs(sentence, setting):
    with refused(setting, "range"):
        raise pickle.loads(pickle.dumps(UserError(sentence, "range")))


@pytest.mark.parametrize(
    ("require", "value", "code"),
    [
        (lambda value: require_number("share", value, 0, 1), 2, "range"),
        (lambda value: require_number("share", value, 0, 1), float("nan"), "range"),
        (lambda value: require_number("share", value, 0, 1), True, "type"),
        (lambda value: require_whole("share", value, 0), -1, "range"),
        (lambda value: require_whole("share", value, 0), 1.0, "type"),
        (lambda value: require_choice("share", value, ["a", "b"]), "c", "choice"),
        (Registry("share").require, "c", "unknown"),
        (lambda value: Wide(), None, "missing"),
    ],
)
def test_an_error_tells_what_is_wrong_to_programs(require, value, code):
    with refused("verco.config." + ("size" if code == "missing" else "share"), code), within("verco.config"):
        require(value)


@pytest.mark.parametrize(
    ("given", "setting", "code"),
    [
        ({"nam": "a"}, "share.nam", "unknown"),
        ({"size": 1}, "share.name", "missing"),
        ({"name": None}, "share", "unknown"),
        (5, "share", "type"),
    ],
)
def test_what_has_no_name_is_told_so(given, setting, code):
    with refused(setting, code):
        Registry("share", {"a": object()}).named(given)


def test_an_error_of_rays_tells_what_its_cause_does():
    cause = UserError("`lr` is 2 but must be smaller.", "range")
    with refused("lr", "range", match="(?s)ray::train.*`lr` is 2"):
        raise RayTaskError("train", "ray::train\n`lr` is 2", cause).as_instanceof_cause()
