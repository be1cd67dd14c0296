"""Loads agent profiles: the built-in ones, overridden by the user's.

A user's profile is a table `[agents.NAME]` in a settings file, or a file `agents/NAME.toml` beside one. With
`like = "claude"`, or with a name that exists already, it inherits the fields that it does not set; tables are merged
field by field. Nearer files override, as with settings. Settings files found in the working folder are ignored here: a
profile names a program, and a repository may contain such a file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from agentq.coordinator.config.settings import AGENTS_TABLE
from agentq.coordinator.config.settings_files import find_settings_files
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.model.field_types import Name, describe_error
from agentq.worker.agents.profiles.profile import ModelPrice, Profile, ProfileAccount

BUILT_IN_SOURCE = "built in"
BASE_FIELD = "like"

ProfileFields = dict[str, Any]
_name_adapter: TypeAdapter[str] = TypeAdapter(Name)


@dataclass(frozen=True, slots=True)
class ProfileSource:
    """The fields of one profile in one source."""

    table: ProfileFields
    source: str


@dataclass(frozen=True, slots=True)
class ProfileRegistry:
    """Profiles by name, and the source of each: `built in`, or the nearest file that sets one of its fields."""

    by_name: Mapping[str, Profile]
    sources: Mapping[str, str]

    @classmethod
    def load(cls, environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> ProfileRegistry:
        """Load all profiles, as seen from a working folder. Raises `Invalid` if one is wrong."""
        known = _load_built_in()
        for file in find_settings_files(environment, folder or Path.cwd()):
            if not file.nearby and not file.fault:
                known |= _resolve_bases(known, dict(_load_file(file.path, environment)))
        return cls(
            {name: _build_profile(name, written) for name, written in known.items()},
            {name: written.source for name, written in known.items()},
        )

    def get(self, name: str) -> Profile:
        """The profile of an agent. One without a command is only a base for others and is refused."""
        found = self.by_name.get(name)
        if found is None:
            raise NotFound(format_unknown_agent(name, self.names()))
        if not found.command:
            raise Invalid(
                f"The agent {name} is only a base for others: name a program in [agents.NAME] of your settings, with "
                f'like = "{name}" and command = "./my-agent".'
            )
        return found

    def names(self) -> list[str]:
        """The agents that can be started."""
        return sorted(name for name, profile in self.by_name.items() if profile.command)


def format_unknown_agent(name: str, known: list[str]) -> str:
    """The message about an unknown agent, with the most similar name."""
    similar = get_close_matches(name, known, 1)
    rest = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(known)}."
    return f"There is no agent {name[:80]!r}; {rest} `agentq agents` shows them all."


def _load_built_in() -> dict[str, ProfileSource]:
    folder = resources.files("agentq.worker.agents") / "builtin"
    found = {
        file.name.removesuffix(".toml"): ProfileSource(tomllib.loads(file.read_text(encoding="utf-8")), BUILT_IN_SOURCE)
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".toml")
    }
    return _resolve_bases({}, found)


def _load_file(path: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, ProfileSource]]:
    """The profiles in a settings file, and in the folder `agents` beside it."""
    tables = _read_toml(path).get(AGENTS_TABLE, {})
    if not isinstance(tables, dict):
        raise Invalid(f"The profiles in {path} cannot be read: [{AGENTS_TABLE}] is a table.")
    for name, table in tables.items():
        yield name, _parse_source(name, table, path, environment)
    for file in sorted((path.parent / AGENTS_TABLE).glob("*.toml")):
        name = file.name.removesuffix(".toml")
        if name in tables:
            raise Invalid(f"Agent {name} is defined twice: {path}, {file}. Remove one.")
        yield name, _parse_source(name, _read_toml(file), file, environment)


def _read_toml(path: Path) -> ProfileFields:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Invalid(f"The profiles in {path} cannot be read: {error}.") from error


def _parse_source(name: str, table: object, path: Path, environment: Mapping[str, str]) -> ProfileSource:
    try:
        _name_adapter.validate_python(name)
    except ValidationError as error:
        raise Invalid(f"{name[:80]!r} in {path} cannot be the name of an agent: {describe_error(error)}") from error
    if not isinstance(table, dict):
        raise Invalid(f"The profile of {name} in {path} is no table; write [{AGENTS_TABLE}.{name}] above its fields.")
    if isinstance(table.get("command"), str):
        table = table | {"command": _resolve_command(table["command"], path, environment)}
    return ProfileSource(table, str(path))


def _resolve_command(command: str, path: Path, environment: Mapping[str, str]) -> str:
    """Resolve a path relative to its file; a bare name is looked up on PATH later."""
    if command.startswith("~/"):
        return environment.get("HOME", "~") + command[1:]
    return str(path.parent.absolute() / command) if "/" in command else command


def _resolve_bases(lower: Mapping[str, ProfileSource], layer: Mapping[str, ProfileSource]) -> dict[str, ProfileSource]:
    """The profiles of one layer with inherited fields, from the same layer or from those below it."""

    def resolve(name: str, chain: tuple[str, ...]) -> ProfileFields:
        if name not in layer:
            return lower[name].table
        written = layer[name]
        like = written.table.get(BASE_FIELD, name)
        if like == name:
            base = lower[name].table if name in lower else {}
        elif like in chain:
            raise Invalid(f"The profile of {chain[0]} in {written.source} inherits from itself through {name}.")
        elif like in layer or like in lower:
            base = resolve(like, (*chain, like))
        else:
            raise Invalid(
                f"The profile of {name} in {written.source} is wrong: {BASE_FIELD}: "
                f"{format_unknown_agent(str(like), [*lower, *layer])}"
            )
        return _merge_tables(base, {field: value for field, value in written.table.items() if field != BASE_FIELD})

    return {name: ProfileSource(resolve(name, (name,)), written.source) for name, written in layer.items()}


def _merge_tables(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> ProfileFields:
    """Merge tables field by field; a list or any other value replaces the earlier one."""
    merged = dict(base)
    for name, value in overrides.items():
        earlier = merged.get(name)
        merged[name] = _merge_tables(earlier, value) if isinstance(earlier, dict) and isinstance(value, dict) else value
    return merged


def _build_profile(name: str, written: ProfileSource) -> Profile:
    try:
        return Profile.model_validate(written.table)
    except ValidationError as error:
        raise Invalid(
            f"The profile of {name} in {written.source} is wrong: {_format_validation_error(error)}"
        ) from error


def _format_validation_error(error: ValidationError) -> str:
    """The first fault; for an unknown field, with the most similar one."""
    # A mistyped field is also missing under its right name; the unknown field is the better message.
    faults = sorted(error.errors(include_url=False), key=lambda fault: fault["type"] != "extra_forbidden")
    first, place = faults[0], [str(part) for part in faults[0]["loc"]]
    if first["type"] == "missing":
        other = "" if place[1:] else f', or inherit it from another agent, as in {BASE_FIELD} = "claude"'
        return f"{'.'.join(place)} is missing; set it{other}."
    if first["type"] != "extra_forbidden":
        return describe_error(error)
    tables: dict[str, type[BaseModel]] = {"accounts": ProfileAccount, "prices": ModelPrice}
    fields = list(tables.get(place[0] if place[1:] else "", Profile).model_fields)
    similar = get_close_matches(place[-1], fields, 1)
    rest = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(fields)}."
    return f"{'.'.join(place)}: there is no such field; {rest}"
