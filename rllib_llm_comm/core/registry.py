"""Things that settings call by name: one registry per kind of thing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

from rllib_llm_comm.core.errors import UserError, as_in_files, did_you_mean, names_and_hint
from rllib_llm_comm.core.lazy import load_setting
from rllib_llm_comm.core.settings import Settings, settings_of

Thing = TypeVar("Thing")


class Registry(Mapping[str, Thing]):
    """Maps names to things of one kind. An entry is the thing itself, or "module:attribute", imported on first use.

    `items` and `values` import all of them.

    Args:
        setting: The setting whose value is such a name, for messages.
        entries: The first entries, in the order in which names are listed.
        remedy: A sentence for messages about a name that is unknown, such as the function that registers one.
        apart: Arguments of the things that are no settings.
    """

    def __init__(
        self,
        setting: str,
        entries: Mapping[str, Thing | str] | None = None,
        remedy: str = "",
        apart: Collection[str] = (),
    ) -> None:
        self.setting, self.remedy, self._apart = setting, remedy, apart
        self._entries: dict[str, Thing | str] = dict(entries or {})

    def register(self, name: str, thing: Thing | str) -> None:
        """Adds an entry; an entry of the same name is replaced.

        Args:
            name: Its name in settings.
            thing: The thing, or "module:attribute".

        Raises:
            UserError: If the name is no text, or empty.
        """
        if not isinstance(name, str) or not name:
            raise UserError(f"`name` is {name!r} but must be a text: the name of a `{self.setting}` in settings.")
        self._entries[name] = thing

    def forget(self, name: str) -> None:
        """Takes an entry away."""
        del self._entries[name]

    def __getitem__(self, name: str) -> Thing:
        """The thing of a name.

        Raises:
            UserError: If the name is unknown, or its entry cannot be imported.
        """
        self.require(name)
        entry = self._entries[name]
        if not isinstance(entry, str):
            return entry
        found: Thing = load_setting(f"the entry of the `{self.setting}` {name!r}", entry)
        self._entries[name] = found
        return found

    def get(self, name: object) -> Thing | None:  # type: ignore[override]
        """The thing of a name; `None` if the name is unknown."""
        return self[name] if isinstance(name, str) and name in self._entries else None

    def require(self, name: object) -> None:
        """Raises a `UserError` unless a name is known; imports nothing."""
        if name not in self:
            names = names_and_hint(name, self, repr)
            remedy = f" {self.remedy}" if self.remedy else ""
            raise UserError(f"`{self.setting}` is {as_in_files(name)} but must be one of {names}{remedy}", "unknown")

    def settings_of(self, name: str) -> type[Settings]:
        """The model of the settings of a thing beside its name (`core.settings.settings_of`).

        Raises:
            UserError: As of `registry[name]`.
        """
        return settings_of(self[name], self._apart)  # type: ignore[arg-type]

    def named(self, given: object) -> tuple[str, dict[str, Any]]:
        """What files give of a thing, a name or a mapping with `name` and settings, as name and settings.

        Raises:
            UserError: If it is neither, or the name is unknown.
        """
        if not isinstance(given, str | Mapping):
            allowed = f"a name ({', '.join(self)}), or a mapping with `name` and settings"
            raise UserError(f"`{self.setting}` is {as_in_files(given)} but must be {allowed}.", "type")
        settings = {"name": given} if isinstance(given, str) else dict(given)
        if "name" not in settings:
            for key in settings:
                if hint := did_you_mean(str(key), ["name"]):
                    raise UserError(f"`{self.setting}.{key}` is no known key.{hint}", "unknown")
            raise UserError(f"`{self.setting}.name` is missing; give one of {', '.join(map(repr, self))}.", "missing")
        self.require(name := settings.pop("name"))
        return name, settings

    def checked(self, given: object) -> tuple[str, dict[str, Any]]:
        """As `named`, with settings that are allowed.

        Raises:
            UserError: If one is not, too.
        """
        name, settings = self.named(given)
        self.settings_of(name).checked(self.setting, settings)
        return name, settings

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)
