"""What foreign runs are made from: blueprints of agents, capabilities, scripts and servers of tools, by name.

They stand in one hash of the store, so that all servers have the same. A blueprint may lean on capabilities, whose text
is added to its own, and whose servers of tools are added to its servers. Beside the blueprints that somebody stored
stand the agents that workers offer: their profiles are the workers', and only their names are known here.

`${params.NAME}`, `${scope.NAME}` and `${runtime.NAME}` in a blueprint are replaced when it goes to a runner: once, in
the blueprint as it was stored. What is put in is never looked at again, and nothing ever comes from the environment of
this process: `${env.NAME}` in a blueprint is left for the runner to replace, or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Duplicate, Invalid, NotFound, refusal
from agentq.coordinator.fields import Name, one_sentence
from agentq.coordinator.limits import SHELF_BYTES
from agentq.coordinator.link import fields_of
from agentq.coordinator.records import Records
from agentq.coordinator.server.foreign.speaking import moment
from agentq.coordinator.server.foreign.validating import check_schema
from agentq.coordinator.store import Store
from agentq.coordinator.turn import AGENT_LABEL, ANY_AGENT

Kind = Literal["agents", "capabilities", "scripts", "mcp-servers"]
KINDS: tuple[Kind, ...] = ("agents", "capabilities", "scripts", "mcp-servers")
STORED = tuple(f"{kind}/" for kind in KINDS)
OWNED = "owned/"
"""What the fields begin with that name the runners that bring agents along."""
Fields = dict[str, Any]
OFFERED: Fields = {
    "description": "An agent that workers offer.",
    "type": "autonomous",
    "tags": [],
    "status": "active",
    "source": "worker",
}
"""What is said of an agent that nobody stored a blueprint of."""
HOME = 0
"""The partition that the shelf stands in."""

_PLACE = re.compile(r"\$\{(params|scope|runtime)\.([\w.-]+)\}")


class Hook(BaseModel):
    """An agent that is asked before, or told after, a run."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: Literal["agent"] = "agent"
    agent_name: Name
    on_error: Literal["block", "continue"] = "continue"
    timeout_seconds: Annotated[float, Field(gt=0, le=86_400)] = 300


class Hooks(BaseModel):
    """Those of a blueprint."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    on_run_start: Hook | None = None
    on_run_finish: Hook | None = None


class Blueprint(BaseModel):
    """What is known of an agent; fields that we decide nothing by are kept as they are."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name
    description: str = ""
    type: Literal["autonomous", "procedural"] = "autonomous"
    status: Literal["active", "inactive"] = "active"
    system_prompt: str | None = None
    tags: Annotated[tuple[str, ...], Field(fail_fast=True)] = ()
    capabilities: Annotated[tuple[str, ...], Field(fail_fast=True)] = ()
    mcp_servers: dict[str, JsonValue] | None = None
    parameters_schema: dict[str, JsonValue] | None = None
    demands: dict[str, JsonValue] | None = None
    hooks: Hooks | None = None


class Capability(BaseModel):
    """Text and servers of tools that blueprints share."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name
    description: str = ""
    text: str = ""
    mcp_servers: dict[str, JsonValue] | None = None


class Program(BaseModel):
    """A script that procedural agents run; runners fetch it."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name
    description: str = ""
    script_file: str | None = None
    script_content: str = ""


class Tools(BaseModel):
    """A server of tools."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: Name | None = None
    name: str = ""


MODELS: dict[Kind, type[BaseModel]] = {
    "agents": Blueprint,
    "capabilities": Capability,
    "scripts": Program,
    "mcp-servers": Tools,
}
SINGULAR: dict[Kind, str] = {
    "agents": "Agent",
    "capabilities": "Capability",
    "scripts": "Script",
    "mcp-servers": "MCP server",
}
_name: TypeAdapter[str] = TypeAdapter(Name)


class NoAgent(Invalid):
    """There is no such agent, or it is inactive."""


class Shelf:
    """Everything that is stored, in all servers the same."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.records = Records(store)

    def get(self, kind: Kind, name: str) -> Fields:
        """One of them, as it was stored."""
        text = self.store.connection.command("HGET", self._key(), f"{kind}/{name}")
        if text is None:
            raise NotFound(f"{SINGULAR[kind]} not found: {name[:80]}{self._near(kind, name)}")
        found: Fields = json.loads(text)
        return found

    def all(self, kind: Kind) -> list[Fields]:
        """All of a kind, by name."""
        fields = fields_of(self.store.connection.command("HGETALL", self._key()))
        return [json.loads(fields[name]) for name in sorted(fields) if name.startswith(f"{kind}/")]

    def add(self, kind: Kind, body: Any, *, name: str | None = None) -> Fields:
        """Store one that is new."""
        name = _named(kind, body, name)
        if self.store.connection.command("HEXISTS", self._key(), f"{kind}/{name}"):
            raise Duplicate(f"{SINGULAR[kind]} already exists: {name}")
        return self._put(kind, name, body, {})

    def change(self, kind: Kind, name: str, body: Any) -> Fields:
        """Store one anew, with what is given changed."""
        before = self.get(kind, name)
        if not isinstance(body, dict):
            raise Invalid("What is to be changed is told as a JSON object.")
        return self._put(kind, name, {**before, **body}, before)

    def remove(self, kind: Kind, name: str) -> None:
        """Take one away."""
        self.get(kind, name)
        self._shelve({f"{kind}/{name}": ""})

    def everything(self) -> dict[str, Fields]:
        """All that is stored, by kind and name, as `agents/researcher`."""
        fields = fields_of(self.store.connection.command("HGETALL", self._key()))
        return {name: json.loads(value) for name, value in fields.items() if name.startswith(STORED)}

    def replace(self, everything: Mapping[str, Any]) -> dict[Kind, int]:
        """Put this in the place of all that is stored; of each kind, how many there are now."""
        fields = fields_of(self.store.connection.command("HGETALL", self._key()))
        rows = {name: value for name, value in fields.items() if name.startswith(OWNED)}
        counts = dict.fromkeys(KINDS, 0)
        for path, body in everything.items():
            kind, _, name = path.partition("/")
            if kind not in MODELS:
                raise Invalid(f"{path[:80]!r} is nothing that is kept here; there are {', '.join(KINDS)}.")
            rows[path] = _told(kind, _named(kind, body, name), body, {})
            counts[kind] += 1
        self._shelve(rows, wipe=True)
        return counts

    def _put(self, kind: Kind, name: str, body: Any, before: Fields) -> Fields:
        text = _told(kind, name, body, before)
        self._shelve({f"{kind}/{name}": text})
        found: Fields = json.loads(text)
        return found

    def _shelve(self, rows: Mapping[str, str], *, wipe: bool = False) -> None:
        words = [word for row in rows.items() for word in row]
        refused = refusal(self.store.call("shelve", HOME, 1 if wipe else "", *words), "shelf")
        if refused is not None:
            raise refused

    def revision(self) -> str:
        """What changes whenever something here does."""
        return self.store.connection.command("HGET", self._key(), "revision") or "0"

    def _key(self) -> str:
        self.store.guard()
        return self.store.key(HOME, "shelf")

    def _near(self, kind: Kind, name: str) -> str:
        near = get_close_matches(name, [each["name"] for each in self.all(kind) if "name" in each], 1)
        return f". Did you mean {near[0]}?" if near else ""

    # ---- agents

    def blueprint(self, name: str) -> Blueprint | None:
        """The blueprint of an agent; None where nobody stored one."""
        text = self.store.connection.command("HGET", self._key(), f"agents/{name}")
        return Blueprint.model_validate_json(text) if text is not None else None

    def check_agent(self, name: str) -> Blueprint | None:
        """The blueprint of an agent that is asked for.

        Refuses one that is inactive. As long as no blueprint is stored, what an agent is is its runners' business, and
        any name is taken; as soon as there are some, a name has to be one of them, or of an agent that a worker offers.
        """
        found = self.blueprint(name)
        if found is None:
            offered, stored = self.offered(), [each["name"] for each in self.all("agents")]
            if stored and name not in offered:
                near = get_close_matches(name, [*stored, *offered], 1)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise NoAgent(f"There is no agent {name}; GET /agents tells which there are.{hint}")
        elif found.status == "inactive":
            raise NoAgent(f"The agent {name} is inactive; PATCH /agents/{name}/status makes it active.")
        return found

    def offered(self) -> set[str]:
        """The agents that workers have."""
        labels = {label for worker in self.records.workers() for label in worker.identity.labels}
        return {label.removeprefix(AGENT_LABEL) for label in labels - {ANY_AGENT} if label.startswith(AGENT_LABEL)}

    def owner(self, agent: str) -> str | None:
        """The runner that brought an agent along."""
        found: str | None = self.store.connection.command("HGET", self._key(), f"{OWNED}{agent}")
        return found

    def own(self, runner: str, agents: Iterable[str]) -> None:
        """A runner brings agents along; an empty name takes them away from whoever did."""
        rows = {f"{OWNED}{agent}": runner for agent in agents}
        if rows:
            self._shelve(rows)

    def agents(self, offers: Mapping[str, Fields], tags: Iterable[str] = (), *, raw: bool = False) -> list[Fields]:
        """All agents that have all of these tags: those stored, and those that workers offer."""
        wanted = set(tags)
        stored = {each["name"]: each if raw else self.resolved(each) for each in self.all("agents")}
        found = [{**offers.get(name, {}), **each} for name, each in stored.items()]
        found += [{**OFFERED, **offer} for name, offer in offers.items() if name not in stored]
        return [each for each in found if wanted <= set(each.get("tags") or ())]

    def agent(self, name: str, offers: Mapping[str, Fields], *, raw: bool = False) -> Fields:
        """One of them."""
        try:
            stored = self.get("agents", name)
        except NotFound:
            if name not in offers:
                raise
            return {**OFFERED, **offers[name]}
        return {**offers.get(name, {}), **(stored if raw else self.resolved(stored))}

    def filled(
        self, name: str, params: Mapping[str, Any], scope: Mapping[str, JsonValue], session: str
    ) -> Fields | None:
        """A blueprint with its capabilities, as a run of a session gets it; None where none is stored."""
        try:
            stored = self.resolved(self.get("agents", name))
        except NotFound:
            return None
        found: Fields = filled_in(stored, {"params": params, "scope": scope, "runtime": {"session_id": session}})
        return found

    def executes(self, name: str, blueprint: Blueprint | None, default: str) -> str:
        """The agent of workers that executes what names this one.

        A stored blueprint stands for the default agent, which gets its system prompt, unless a worker or a runner has
        an agent of that name. What no blueprint is stored of, or is procedural, only runners know.
        """
        if blueprint is None or blueprint.type == "procedural":
            return name
        return name if self.owner(name) is not None or name in self.offered() else default

    def resolved(self, blueprint: Fields) -> Fields:
        """A blueprint together with its capabilities."""
        texts, servers = [blueprint.get("system_prompt") or ""], dict(blueprint.get("mcp_servers") or {})
        missing = []
        for name in blueprint.get("capabilities") or ():
            try:
                capability = self.get("capabilities", name)
            except NotFound:
                missing.append(name)
                continue
            texts.append(capability.get("text") or "")
            servers = {**(capability.get("mcp_servers") or {}), **servers}
        prompt = "\n\n".join(filter(None, texts))
        lacking = {"missing_capabilities": missing} if missing else {}
        return {**blueprint, "system_prompt": prompt or None, "mcp_servers": servers or None, **lacking}


def filled_in(value: Any, facts: Mapping[str, Mapping[str, Any]]) -> Any:
    """The value with its placeholders replaced, once. One that stands alone becomes what it names, of whatever type."""
    if isinstance(value, dict):
        return {name: filled_in(each, facts) for name, each in value.items()}
    if isinstance(value, list):
        return [filled_in(each, facts) for each in value]
    if not isinstance(value, str):
        return value
    whole = _PLACE.fullmatch(value)
    if whole is not None and whole[2] in facts[whole[1]]:
        return facts[whole[1]][whole[2]]
    return _PLACE.sub(lambda place: _text(facts[place[1]].get(place[2], place[0])), value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _named(kind: Kind, body: Any, name: str | None) -> str:
    if not isinstance(body, dict):
        raise Invalid(f"{SINGULAR[kind]}: a JSON object is needed.")
    said = name or body.get("name") or body.get("id")
    try:
        return _name.validate_python(said)
    except ValidationError as error:
        raise Invalid(f"{SINGULAR[kind]}: name: {one_sentence(error)}") from error


def _told(kind: Kind, name: str, body: Fields, before: Fields) -> str:
    """What is stored."""
    known = {"id": name} if kind == "mcp-servers" else {"name": name}
    now = moment(wall_ms())
    fields = {**body, **known, "created_at": before.get("created_at", now), "modified_at": now}
    try:
        MODELS[kind].model_validate(fields)
    except ValidationError as error:
        raise Invalid(f"{SINGULAR[kind]} {name}: {one_sentence(error)}") from error
    if isinstance(fields.get("parameters_schema"), dict):
        check_schema(fields["parameters_schema"])
    text = json.dumps(fields)
    if len(text) > SHELF_BYTES:
        raise Invalid(f"{SINGULAR[kind]} {name} has {len(text)} bytes; {SHELF_BYTES} is the most.")
    return text
