"""What a user may set, where it comes from, and the relations that must hold between the times.

A flag stands above the environment, that above the nearest `agentq.toml` (in the folder or one above it), that above
the user's own `~/.config/agentq/config.toml`, and that above the default.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentq.coordinator.errors import Invalid
from agentq.coordinator.fields import one_sentence
from agentq.coordinator.limits import PARTITIONS

PREFIX = "AGENTQ_"
FILE = "agentq.toml"
DEFAULT = "default"

Milliseconds = Annotated[int, Field(gt=0, le=86_400_000)]


class Settings(BaseModel):
    """Each field can be set as AGENTQ_<NAME> in capitals, and by its name in a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[str, Field(description="the server; without it, agentq brings its own")] = ""
    namespace: Annotated[str, Field(description="a name that keeps installations on one server apart")] = "default"
    partitions: Annotated[
        int, Field(ge=1, le=PARTITIONS, description="slots of a cluster that the namespace is spread over")
    ] = 1
    heartbeat_ms: Annotated[Milliseconds, Field(description="how often a worker renews its lease")] = 5_000
    lease_ms: Annotated[Milliseconds, Field(description="how long a silent worker is taken to be alive")] = 30_000
    reap_grace_ms: Annotated[Milliseconds, Field(description="time between a reaper's mark and its sweep")] = 2_500
    forget_ms: Annotated[
        Milliseconds, Field(description="how long a live worker may not know of a run that it holds")
    ] = 15_000
    tick_ms: Annotated[Milliseconds, Field(description="the longest time between two rounds of a duty")] = 5_000
    home: Annotated[
        str, Field(description="the folder for what agentq keeps on this machine; by default `~/.local/share/agentq`")
    ] = ""

    @model_validator(mode="after")
    def _times_fit(self) -> Self:
        if self.heartbeat_ms * 3 > self.lease_ms:
            raise ValueError("lease_ms must be at least three times heartbeat_ms, or one late heartbeat costs the runs")
        if self.forget_ms < 2 * self.heartbeat_ms:
            raise ValueError("forget_ms must be at least twice heartbeat_ms, or a reply on its way looks forgotten")
        if self.reap_grace_ms > self.lease_ms:
            raise ValueError("reap_grace_ms must not exceed lease_ms")
        if 3 * self.tick_ms + self.heartbeat_ms > self.lease_ms:
            raise ValueError(
                "lease_ms must be at least heartbeat_ms and three times tick_ms, or an outage that is too short for "
                "the reaper to notice costs the runs"
            )
        return self

    @classmethod
    def checked(cls, **values: object) -> Settings:
        """Make settings, or say in one sentence what is wrong with them."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise Invalid(f"A setting is wrong: {one_sentence(error)}") from error

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read what is set; everything else has its default."""
        names = {PREFIX + name.upper(): name for name in cls.model_fields}
        return cls.checked(**{names[key]: value for key, value in environment.items() if key in names})

    def to_environment(self) -> dict[str, str]:
        """The variables that set all of this, whatever files say, for a process that is started with them."""
        return {PREFIX + name.upper(): str(value) for name, value in self.model_dump().items()}


@dataclass(frozen=True, slots=True)
class Layered:
    """Settings, and where each of them comes from: a flag, a variable, a file, or `default`."""

    settings: Settings
    sources: dict[str, str]


def layered(
    flags: Mapping[str, str | None], environment: Mapping[str, str] = os.environ, folder: Path | None = None
) -> Layered:
    """Put the layers on top of each other, for somebody who stands in a folder."""
    found: dict[str, tuple[object, str]] = {}
    for path in _files(environment, folder or Path.cwd()):
        found |= {name: (value, str(path)) for name, value in _read(path).items()}
    for name in Settings.model_fields:
        variable = PREFIX + name.upper()
        if variable in environment:
            found[name] = (environment[variable], variable)
        if (flag := flags.get(name)) is not None:
            found[name] = (flag, f"--{name}")
    sources = {name: found[name][1] if name in found else DEFAULT for name in Settings.model_fields}
    try:
        return Layered(Settings.model_validate({name: value for name, (value, _) in found.items()}), sources)
    except ValidationError as error:
        wrong = sources.get(str((error.errors()[0]["loc"] or ("",))[0]))
        place = f" in {wrong}" if wrong else ""
        raise Invalid(f"A setting{place} is wrong: {one_sentence(error)}") from error


def _files(environment: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """The files that there are, the one that counts least first."""
    own = environment.get("XDG_CONFIG_HOME", "")
    base = Path(own) if own.startswith("/") else Path(environment.get("HOME", "/"), ".config")
    near = (above / FILE for above in (folder, *folder.parents))
    for path in (base / "agentq" / "config.toml", next((path for path in near if path.is_file()), None)):
        if path is not None and path.is_file():
            yield path


def _read(path: Path) -> dict[str, Any]:
    """What a file sets. Its relative paths are relative to where it lies."""
    import tomllib  # which only those who have a file have to pay for

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Invalid(f"The settings in {path} cannot be read: {error}.") from error
    for name in values:
        if name not in Settings.model_fields:
            known = ", ".join(Settings.model_fields)
            raise Invalid(f"There is no setting {name!r}, which stands in {path}; there are {known}.")
    if isinstance(values.get("home"), str):
        values["home"] = str(path.parent / Path(values["home"]).expanduser())
    return values
