"""The settings, their sources, and the constraints between their times.

Sources, highest precedence first: a flag; the environment; the named file or the nearest `agentq.toml`; the user's own
`~/.config/agentq/config.toml`; the system's `/etc/agentq/agentq.toml`; the default. `settings_files.py` decides what
each file may set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agentq.coordinator.bounds import KEEP_MS, PARTITIONS, QUEUES, SCHEDULES, SESSIONS, WORKTREE_BYTES
from agentq.coordinator.config.server_settings import LogLevel, PositiveMilliseconds, ServerSettings
from agentq.coordinator.config.settings_files import IgnoredSetting, SettingsFile, find_settings_files
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.agent_options import AGENT_LABEL
from agentq.coordinator.model.demands import is_built_in_label
from agentq.coordinator.model.field_types import Label, Name, describe_error

VARIABLE_PREFIX = "AGENTQ_"
WORKER_TABLE = "worker"
"""The table of a file with the settings of workers."""
SERVER_TABLE = "server"
"""The table of a file with the settings of the HTTP server."""
AGENTS_TABLE = "agents"
"""The table of a file with the profiles of coding agents, which only workers and `agentq agents` read."""
DEFAULT_SOURCE = "default"
URL_FILE_VARIABLE = f"{VARIABLE_PREFIX}URL_FILE"

AnyModel = TypeVar("AnyModel", bound=BaseModel)


worker_url: str | None = None
"""In a worker's children that call functions: the server's address from the worker, which is in no environment; empty
where their runs must not know it."""


def is_server_hidden() -> bool:
    """Whether this is a child of a worker whose runs must not know the server."""
    return worker_url == ""


class Settings(BaseModel):
    """Each field can be set as AGENTQ_<NAME> in capitals, and by its name in a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[str, Field(description="the server; without it, agentq brings its own")] = ""
    namespace: Annotated[str, Field(description="a name that keeps installations on one server apart")] = "default"
    partitions: Annotated[
        int, Field(ge=1, le=PARTITIONS, description="slots of a cluster that the namespace is spread over")
    ] = 1
    heartbeat_ms: Annotated[PositiveMilliseconds, Field(description="how often a worker renews its lease")] = 5_000
    lease_ms: Annotated[PositiveMilliseconds, Field(description="how long a silent worker is taken to be alive")] = (
        30_000
    )
    reap_grace_ms: Annotated[PositiveMilliseconds, Field(description="time between a reaper's mark and its sweep")] = (
        2_500
    )
    forget_ms: Annotated[
        PositiveMilliseconds, Field(description="how long a live worker may not know of a run that it holds")
    ] = 15_000
    tick_ms: Annotated[PositiveMilliseconds, Field(description="the longest time between two rounds of a duty")] = 5_000
    queues_max: Annotated[
        int,
        Field(
            ge=1, le=1_000_000, description="queues that may have runs, in each partition; of more, runs are refused"
        ),
    ] = QUEUES
    sessions_max: Annotated[
        int,
        Field(ge=1, le=10_000_000, description="sessions, those closed in the last week among them, in each partition"),
    ] = SESSIONS
    schedules_max: Annotated[int, Field(ge=1, le=1_000_000, description="schedules, in each partition")] = SCHEDULES
    home: Annotated[
        str, Field(description="the folder for what agentq keeps on this machine; by default `~/.local/share/agentq`")
    ] = ""
    results: Annotated[
        str,
        Field(description="the store for large results of functions, such as `file:///srv/results`; see sdk/README.md"),
    ] = ""

    def bounds(self) -> dict[str, int]:
        """The bounds of `bounds.py` that can be set, by name."""
        return {"QUEUES": self.queues_max, "SESSIONS": self.sessions_max, "SCHEDULES": self.schedules_max}

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
        """Make settings; raises `Invalid` with one sentence."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise Invalid(f"A setting is wrong: {describe_error(error)}") from error

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read settings from variables; the others have their defaults."""
        names = {VARIABLE_PREFIX + name.upper(): name for name in cls.model_fields}
        inherited = {"url": worker_url} if worker_url else {}
        return cls.checked(**inherited, **{names[key]: value for key, value in environment.items() if key in names})

    def to_environment(self) -> dict[str, str]:
        """The variables that set every setting, for a child process; they override its files."""
        return {VARIABLE_PREFIX + name.upper(): str(value) for name, value in self.model_dump().items()}


class WorkerSettings(BaseModel):
    """Each field can be set as AGENTQ_WORKER_<NAME> in capitals, and by its name in the table [worker] of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slots: Annotated[int, Field(ge=1, le=10_000, description="runs at the same time")] = 1
    queues: Annotated[
        tuple[Name, ...], Field(min_length=1, description="the queues to serve, the first first: `a,b`, or a list")
    ] = ("default",)
    labels: Annotated[
        dict[Label, Label],
        AfterValidator(lambda labels: _check_labels(labels)),
        Field(description="what it can offer to runs that demand it: `gpu=a100,disk=ssd`, or a table"),
    ] = {}
    only_matching: Annotated[bool, Field(description="take only runs that demand a label of it")] = False
    name: Annotated[
        Name | None, Field(description="the beginning of the worker's id; the host's name if not given")
    ] = None
    drain_grace_ms: Annotated[
        int, Field(ge=0, description="how long runs may go on after a drain began, before they are handed back")
    ] = 30_000
    children: Annotated[
        int | None, Field(ge=1, le=10_000, description="processes for function runs; if not given, as many as slots")
    ] = None
    async_calls: Annotated[
        int, Field(ge=1, le=10_000, description="asynchronous functions at the same time in one child")
    ] = 100
    child_memory: Annotated[
        int | None, Field(ge=1 << 20, description="bytes of memory that a child may use; if not given, any")
    ] = None
    child_rss: Annotated[
        int | None, Field(ge=1 << 20, description="bytes of resident memory after which a child is replaced")
    ] = None
    child_runs: Annotated[int | None, Field(ge=1, description="calls after which a child is replaced")] = None
    functions: Annotated[
        tuple[Annotated[str, AfterValidator(lambda module: _check_module(module))], ...],
        Field(
            description="modules whose functions may be called though they are no tasks: `shop,billing.jobs`, or a list"
        ),
    ] = ()
    server_queues: Annotated[
        tuple[Name, ...] | None,
        Field(
            description="queues whose functions may reach the server; if not given, all, but for runs with an `env` or "
            "`cwd` of their own"
        ),
    ] = None
    redact: Annotated[bool, Field(description="replace the secrets in what runs write")] = True
    worktree_keep_ms: Annotated[
        int, Field(ge=0, description="how long a worktree stays that no run works in; what it held stays in any case")
    ] = KEEP_MS
    worktree_disk: Annotated[
        int, Field(ge=0, description="bytes of disk that worktrees may take; of more, those go that no run works in")
    ] = WORKTREE_BYTES
    worktree_idle: Annotated[
        int | None,
        Field(
            ge=0, le=1_000, description="worktrees of one repository kept ready; if not given, 8, or as many as slots"
        ),
    ] = None
    connect: Annotated[
        str | None, Field(description="the address of a coordinator, where the worker does not reach the server itself")
    ] = None
    token_file: Annotated[str | None, Field(description="the file with the token that it shows there")] = None
    ca_file: Annotated[
        str | None, Field(description="the certificates that it trusts there, if not this machine's")
    ] = None
    plain_http: Annotated[bool, Field(description="talk to a coordinator without encryption, on a private network")] = (
        False
    )
    log_level: Annotated[
        LogLevel, Field(description="what it writes to stderr; from `info` on, each run that starts and ends")
    ] = "warning"
    log_json: Annotated[bool, Field(description="write it as lines of JSON")] = False

    @field_validator("queues", "functions", "server_queues", mode="before")
    @classmethod
    def _one_line_of_names(cls, value: object) -> object:
        return tuple(value.split(",") if value else ()) if isinstance(value, str) else value

    @field_validator("labels", mode="before")
    @classmethod
    def _one_line_of_labels(cls, value: object) -> object:
        return dict(pair.partition("=")[::2] for pair in value.split(",") if pair) if isinstance(value, str) else value


def _check_module(module: str) -> str:
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{module[:80]!r} is not the name of a module")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise ValueError(f"{module} is of the standard library, which no run calls; call it in a function of yours")
    return module


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    for name in labels:
        if name.startswith(AGENT_LABEL):
            raise ValueError(f"a worker finds its agents by itself, so {name!r} cannot be set; install the agent there")
        if is_built_in_label(name):
            raise ValueError(f"every worker has the label {name!r} by itself, and it cannot be set")
    return labels


@dataclass(frozen=True, slots=True)
class LayeredSettings:
    """Settings and the source of each: a flag, a variable, a file, or `default`."""

    settings: Settings
    worker: WorkerSettings
    server: ServerSettings
    sources: dict[str, str]
    """By name; settings of a worker as `worker.slots`."""
    ignored: tuple[IgnoredSetting, ...] = ()
    """Settings in files that are ignored."""


FILE_BYTES_MAX = 1 << 20
"""The largest settings file."""
TABLE_MODELS: dict[str, type[BaseModel]] = {WORKER_TABLE: WorkerSettings, SERVER_TABLE: ServerSettings}
"""The tables of a file that have a model of their own."""
NEARBY_SETTINGS = frozenset(
    (
        "namespace",
        *(
            f"{WORKER_TABLE}.{name}"
            for name in ("slots", "queues", "labels", "only_matching", "name", "drain_grace_ms")
        ),
        *(f"{WORKER_TABLE}.{name}" for name in ("children", "async_calls", "child_memory", "child_rss", "child_runs")),
    )
)
"""Settings allowed in a file that was found nearby and not named: none that starts a program, reads a file, connects to
or opens another address, or reveals anything."""
NOT_NEARBY_MESSAGE = (
    "it was found by its place; only a file that is named with --config may set that, or the user's own"
)


def load_settings(
    flags: Mapping[str, str | None], environment: Mapping[str, str] = os.environ, folder: Path | None = None
) -> LayeredSettings:
    """Merge the settings of all sources, for a process in a folder."""
    general: dict[str, tuple[object, str]] = {}
    special: dict[str, dict[str, tuple[object, str]]] = {table: {} for table in TABLE_MODELS}
    ignored: list[IgnoredSetting] = []
    for file in find_settings_files(environment, folder or Path.cwd()):
        values, without = _read_allowed(file)
        ignored += without
        for table, found in special.items():
            found |= {name: (value, str(file.path)) for name, value in values.pop(table, {}).items()}
        general |= {name: (value, str(file.path)) for name, value in values.items()}
    general |= dict(_read_variables(Settings, VARIABLE_PREFIX, environment))
    if worker_url and f"{VARIABLE_PREFIX}URL" not in environment:
        general["url"] = (worker_url, "the worker")
    general |= _read_url_file(environment)
    for table, model in TABLE_MODELS.items():
        special[table] |= dict(_read_variables(model, f"{VARIABLE_PREFIX}{table.upper()}_", environment))
    general |= {name: (flag, f"--{name}") for name, flag in flags.items() if flag is not None}
    settings, sources = _validate_settings(Settings, general)
    worker, of_worker = _validate_settings(WorkerSettings, special[WORKER_TABLE])
    server, of_server = _validate_settings(ServerSettings, special[SERVER_TABLE])
    for table, more in ((WORKER_TABLE, of_worker), (SERVER_TABLE, of_server)):
        sources |= {f"{table}.{name}": source for name, source in more.items()}
    return LayeredSettings(settings, worker, server, sources, tuple(ignored))


def _read_variables(
    model: type[BaseModel], prefix: str, environment: Mapping[str, str]
) -> Iterator[tuple[str, tuple[object, str]]]:
    for name in model.model_fields:
        variable = prefix + name.upper()
        if variable in environment:
            yield name, (environment[variable], variable)


def _read_url_file(environment: Mapping[str, str]) -> dict[str, tuple[object, str]]:
    """Read the server's address from the file that AGENTQ_URL_FILE names, so that its password is in no environment.

    AGENTQ_URL wins: our own programs set it for the processes that they start.
    """
    path = environment.get(URL_FILE_VARIABLE)
    if not path or f"{VARIABLE_PREFIX}URL" in environment:
        return {}
    try:
        url = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise Invalid(f"{URL_FILE_VARIABLE}: the address in {path} cannot be read: {error}.") from error
    if not url:
        raise Invalid(
            f"{URL_FILE_VARIABLE}: {path} is empty; write the server's address into it, such as redis://queue.example."
        )
    return {"url": (url, path)}


def _validate_settings(
    model: type[AnyModel], found: Mapping[str, tuple[object, str]]
) -> tuple[AnyModel, dict[str, str]]:
    sources = {name: found[name][1] if name in found else DEFAULT_SOURCE for name in model.model_fields}
    try:
        return model.model_validate({name: value for name, (value, _) in found.items()}), sources
    except ValidationError as error:
        wrong = sources.get(str((error.errors()[0]["loc"] or ("",))[0]))
        place = f" in {wrong}" if wrong else ""
        raise Invalid(f"A setting{place} is wrong: {describe_error(error)}") from error


def _read_allowed(file: SettingsFile) -> tuple[dict[str, Any], list[IgnoredSetting]]:
    """The settings of a file that count, and those that are ignored."""
    if file.fault:
        return {}, [IgnoredSetting("", str(file.path), file.fault)]
    values, has_agents = _read_toml(file.path)
    if not file.nearby:
        return values, []
    refused = [name for name in _setting_names(values) if name not in NEARBY_SETTINGS]
    for name in refused:
        table, _, own = name.rpartition(".")
        del (values[table] if table else values)[own]
    if has_agents or any((file.path.parent / AGENTS_TABLE).glob("*.toml")):
        refused.append(AGENTS_TABLE)
    return values, [IgnoredSetting(name, str(file.path), NOT_NEARBY_MESSAGE) for name in refused]


def _setting_names(values: Mapping[str, Any]) -> list[str]:
    """The names of the settings in a file."""
    general = [name for name in values if name not in TABLE_MODELS]
    return [*general, *(f"{table}.{name}" for table in TABLE_MODELS for name in values.get(table, {}))]


def _read_toml(path: Path) -> tuple[dict[str, Any], bool]:
    """Read a file's settings, and whether it has profiles of agents. Relative paths are relative to its folder."""
    import tomllib  # imported here: only needed if there is a file

    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
        if len(text) > FILE_BYTES_MAX:
            raise ValueError(f"it has more than {FILE_BYTES_MAX} bytes")
        values = tomllib.loads(text.decode())
    except RecursionError as error:
        raise Invalid(f"The settings in {path} cannot be read: they are nested too deeply.") from error
    except (OSError, ValueError) as error:
        raise Invalid(f"The settings in {path} cannot be read: {error}.") from error
    tables, agents = {table: values.get(table, {}) for table in TABLE_MODELS}, values.pop(AGENTS_TABLE, {})
    for table, found in (*tables.items(), (AGENTS_TABLE, agents)):
        if not isinstance(found, dict):
            raise Invalid(f"The settings in {path} cannot be read: [{table}] is a table.")
    known = list(Settings.model_fields)
    known += [f"{table}.{name}" for table, model in TABLE_MODELS.items() for name in model.model_fields]
    for name in _setting_names(values):
        if name not in known:
            raise Invalid(f"There is no setting {name!r}, which stands in {path}; there are {', '.join(known)}.")
    if isinstance(values.get("home"), str):
        values["home"] = str(path.parent / Path(values["home"]).expanduser())
    return values, bool(agents)
