"""Which agents are known: the profiles that come with agentq, and on top of them the user's own.

A user's stand as `[agents.NAME]` in the settings files, and as `agents/NAME.toml` beside them. One that says
`like = "claude"` is that one, but for the fields that it sets, in tables field by field; so is one whose name there is
already. What a nearer file says counts more, as with settings. A file that was found near and not named has no say: a
profile names a program, and a repository may bring such a file.
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
    """What stands somewhere of one profile."""

    table: ProfileFields
    source: str


@dataclass(frozen=True, slots=True)
class ProfileRegistry:
    """Profiles by name, and where each comes from: `built in`, or the nearest file that says something of it."""

    by_name: Mapping[str, Profile]
    sources: Mapping[str, str]

    @classmethod
    def load(cls, environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> ProfileRegistry:
        """All that there are, for somebody who stands in a folder; or one sentence about what is wrong with one."""
        known = _load_built_in()
        for file in find_settings_files(environment, folder or Path.cwd()):
            if not file.nearby and not file.fault:
                known |= _resolve_bases(known, dict(_load_file(file.path, environment)))
        return cls(
            {name: _build_profile(name, written) for name, written in known.items()},
            {name: written.source for name, written in known.items()},
        )

    def get(self, name: str) -> Profile:
        """The profile of an agent; without a command, it is only there for others to be like it."""
        found = self.by_name.get(name)
        if found is None:
            raise NotFound(format_unknown_agent(name, self.names()))
        if not found.command:
            raise Invalid(
                f"The agent {name} is only a pattern: name a program in [agents.NAME] of your settings, with "
                f'like = "{name}" and command = "./my-agent".'
            )
        return found

    def names(self) -> list[str]:
        """Those that can be started."""
        return sorted(name for name, profile in self.by_name.items() if profile.command)


def format_unknown_agent(name: str, known: list[str]) -> str:
    """One sentence about a name that nobody has."""
    near = get_close_matches(name, known, 1)
    rest = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
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
    """What a settings file says of agents, and what lies in the folder beside it."""
    tables = _read_toml(path).get(AGENTS_TABLE, {})
    if not isinstance(tables, dict):
        raise Invalid(f"The profiles in {path} cannot be read: [{AGENTS_TABLE}] is a table.")
    for name, table in tables.items():
        yield name, _parse_source(name, table, path, environment)
    for file in sorted((path.parent / AGENTS_TABLE).glob("*.toml")):
        name = file.name.removesuffix(".toml")
        if name in tables:
            raise Invalid(f"The agent {name} stands twice, in {path} and in {file}; leave one away.")
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
    """A path is relative to the file that it stands in; a name is looked up where it is needed."""
    if command.startswith("~/"):
        return environment.get("HOME", "~") + command[1:]
    return str(path.parent.absolute() / command) if "/" in command else command


def _resolve_bases(below: Mapping[str, ProfileSource], own: Mapping[str, ProfileSource]) -> dict[str, ProfileSource]:
    """Each of one layer, made whole by what it is like, in its own layer or in those below."""

    def whole(name: str, asked: tuple[str, ...]) -> ProfileFields:
        if name not in own:
            return below[name].table
        written = own[name]
        like = written.table.get(BASE_FIELD, name)
        if like == name:
            base = below[name].table if name in below else {}
        elif like in asked:
            raise Invalid(f"The profile of {asked[0]} in {written.source} is like itself, by way of {name}.")
        elif like in own or like in below:
            base = whole(like, (*asked, like))
        else:
            raise Invalid(
                f"The profile of {name} in {written.source} is wrong: {BASE_FIELD}: "
                f"{format_unknown_agent(str(like), [*below, *own])}"
            )
        return _merge_tables(base, {field: value for field, value in written.table.items() if field != BASE_FIELD})

    return {name: ProfileSource(whole(name, (name,)), written.source) for name, written in own.items()}


def _merge_tables(base: Mapping[str, Any], upon: Mapping[str, Any]) -> ProfileFields:
    """Tables are merged field by field; a list, as any other value, takes the place of what was there."""
    merged = dict(base)
    for name, value in upon.items():
        below = merged.get(name)
        merged[name] = _merge_tables(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _build_profile(name: str, written: ProfileSource) -> Profile:
    try:
        return Profile.model_validate(written.table)
    except ValidationError as error:
        raise Invalid(
            f"The profile of {name} in {written.source} is wrong: {_format_validation_error(error)}"
        ) from error


def _format_validation_error(error: ValidationError) -> str:
    """What is wrong with it; a field that there is not, with the nearest that there is."""
    # A field that is mistyped is missing under its right name too; what was typed tells more.
    faults = sorted(error.errors(include_url=False), key=lambda fault: fault["type"] != "extra_forbidden")
    first, place = faults[0], [str(part) for part in faults[0]["loc"]]
    if first["type"] == "missing":
        other = "" if place[1:] else f', or say what other agent it is like, as in {BASE_FIELD} = "claude"'
        return f"{'.'.join(place)} is missing; set it{other}."
    if first["type"] != "extra_forbidden":
        return describe_error(error)
    tables: dict[str, type[BaseModel]] = {"accounts": ProfileAccount, "prices": ModelPrice}
    fields = list(tables.get(place[0] if place[1:] else "", Profile).model_fields)
    near = get_close_matches(place[-1], fields, 1)
    rest = f"did you mean {near[0]}?" if near else f"there are {', '.join(fields)}."
    return f"{'.'.join(place)}: there is no such field; {rest}"
