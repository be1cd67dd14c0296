"""Stores blueprints of agents, capabilities, scripts and MCP servers by name, in one hash that all servers share.

A blueprint may use capabilities: their texts are added to its system prompt, and their MCP servers to its own. Agents
that workers offer are listed beside the stored blueprints; only their names are known here, their profiles are the
workers'.

A blueprint is filled in for a runner in placeholders.py. A change is computed from the stored values and written only
if these are still unchanged (compare-and-set by revision).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NoReturn

from pydantic import JsonValue

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Duplicate, Invalid, NotFound, Stale, TryLater, WrongState, refusal_error
from agentq.coordinator.model.agent_options import AGENT_LABEL, ANY_AGENT_LABEL
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.storage.socket_link import pairs_to_dict
from agentq.coordinator.storage.store import NamespaceStore
from agentq.dialects.agent_orchestrator.blueprints.models import (
    KIND_LABELS,
    KIND_PREFIXES,
    KINDS,
    Blueprint,
    Fields,
    Kind,
    describe_usage,
    encode_at_path,
    encode_item,
    read_name,
)
from agentq.dialects.agent_orchestrator.blueprints.parameter_schema import InvalidWithDetail
from agentq.dialects.agent_orchestrator.blueprints.placeholders import (
    PlaceholderValues,
    check_references,
    fill_placeholders,
    resolve_references,
)
from agentq.dialects.agent_orchestrator.demands import DialectDemands
from agentq.dialects.agent_orchestrator.run_translation import format_time
from agentq.dialects.agent_orchestrator.runners.registration import AUTONOMOUS, PROCEDURAL, RunnerRegistration

OWNED_PREFIX = "owned/"
"""Prefix of the fields that hold the agents that runners bring along."""
OFFERED_DEFAULTS: Fields = {
    "description": "An agent that workers offer.",
    "type": "autonomous",
    "tags": [],
    "status": "active",
    "source": "worker",
}
"""Fields of an agent that has no stored blueprint."""
BLUEPRINTS_PARTITION = 0
"""The partition of the blueprints."""
SEPARATOR = "\n\n---\n\n"
"""Separates a system prompt and the texts of its capabilities."""
CHANGE_ATTEMPTS_MAX = 20
"""How often a change is tried while other clients make changes."""
ANY_OBJECT_SCHEMA: Mapping[str, JsonValue] = {"type": "object"}
"""The schema for parameters of a script that has none."""


class AgentUnavailable(Invalid):
    """There is no such agent, or it is inactive."""


class ScriptNotFound(Invalid):
    """There is no such script."""


class BlueprintInUse(WrongState):
    """The item cannot be removed: agents or capabilities use it."""


class BlueprintStore:
    """The stored items; the same for all servers."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self.run_queries = RunQueries(store)

    def get(self, kind: Kind, name: str) -> Fields:
        """One item, as it was stored."""
        text = self.store.connection.command("HGET", self._key(), f"{kind}/{name}")
        if text is None:
            self._raise_missing(kind, name)
        found: Fields = json.loads(text)
        return found

    def _raise_missing(self, kind: Kind, name: str) -> NoReturn:
        raise NotFound(f"{KIND_LABELS[kind]} not found: {name[:80]}{self._suggest(kind, name)}")

    def list_kind(self, kind: Kind) -> list[Fields]:
        """All items of a kind, by name."""
        fields = pairs_to_dict(self.store.connection.command("HGETALL", self._key()))
        return [json.loads(fields[name]) for name in sorted(fields) if name.startswith(f"{kind}/")]

    def add(self, kind: Kind, body: Any) -> Fields:
        """Store a new item."""
        name = read_name(kind, body, None)
        text = encode_item(kind, name, body, {})
        self._check_script(kind, body)

        def decide(stored: Mapping[str, str]) -> dict[str, str]:
            if f"{kind}/{name}" in stored:
                raise Duplicate(f"{KIND_LABELS[kind]} already exists: {name}")
            return {f"{kind}/{name}": text}

        self._update(decide, f"{kind}/{name}")
        found: Fields = json.loads(text)
        return found

    def change(self, kind: Kind, name: str, body: Any) -> Fields:
        """Change fields of a stored item."""
        if not isinstance(body, dict):
            raise Invalid("Changes are a JSON object.")
        changed = {field: value for field, value in body.items() if value is not None}
        self._check_script(kind, changed)

        def decide(stored: Mapping[str, str]) -> dict[str, str]:
            if f"{kind}/{name}" not in stored:
                self._raise_missing(kind, name)
            before = json.loads(stored[f"{kind}/{name}"])
            return {f"{kind}/{name}": encode_item(kind, name, {**before, **changed}, before)}

        found: Fields = json.loads(self._update(decide, f"{kind}/{name}")[f"{kind}/{name}"])
        return found

    def _check_script(self, kind: Kind, body: Fields) -> None:
        """Refuse a capability whose script does not exist."""
        script = body.get("script")
        if kind == "capabilities" and script and self._find("scripts", script) is None:
            raise ScriptNotFound(f"Script not found: {script}")

    def remove(self, kind: Kind, name: str) -> None:
        """Remove an item that no agent or capability uses."""

        def decide(stored: Mapping[str, str]) -> dict[str, str]:
            if f"{kind}/{name}" not in stored:
                self._raise_missing(kind, name)
            for others in ("agents", "capabilities"):
                using = [each for each in map(json.loads, _list_kind(stored, others)) if _depends_on(each, kind, name)]
                if using:
                    names = ", ".join(each["name"] for each in using)
                    raise BlueprintInUse(f"{KIND_LABELS[kind]} is referenced by {others}: {names}")
            return {f"{kind}/{name}": ""}

        self._update(decide)

    def export(self) -> dict[str, Fields]:
        """All stored items, by kind and name, such as `agents/researcher`."""
        fields = pairs_to_dict(self.store.connection.command("HGETALL", self._key()))
        return {name: json.loads(value) for name, value in fields.items() if name.startswith(KIND_PREFIXES)}

    def replace(self, items: Mapping[str, Any], kinds: Iterable[Kind]) -> dict[Kind, tuple[int, int]]:
        """Replace all items of some kinds; for each kind, how many there are now and were before."""
        encoded = {path: encode_at_path(path, body) for path, body in items.items()}
        replaced_prefixes = tuple(f"{kind}/" for kind in kinds)
        before = dict.fromkeys(KINDS, 0)

        def decide(stored: Mapping[str, str]) -> dict[str, str]:
            before.update({kind: len(_list_kind(stored, kind)) for kind in kinds})
            return {name: "" for name in stored if name.startswith(replaced_prefixes)} | encoded

        self._update(decide)
        return {kind: (sum(path.startswith(f"{kind}/") for path in encoded), before[kind]) for kind in KINDS}

    def _update(self, decide: Callable[[Mapping[str, str]], dict[str, str]], only: str = "") -> dict[str, str]:
        """Write the rows that `decide` computes from the stored values (all, or only one), if these are unchanged; else
        retry."""
        for _ in range(CHANGE_ATTEMPTS_MAX):
            stored = self._read(only)
            rows = decide(stored)
            try:
                self._write(rows, stored.get("revision", "0"))
            except Stale:
                continue
            return rows
        raise TryLater("Other clients keep changing the stored items; try again in a moment.")

    def _read(self, only: str) -> dict[str, str]:
        command, key = self.store.connection.command, self._key()
        if not only:
            return pairs_to_dict(command("HGETALL", key))
        found = zip(("revision", only), command("HMGET", key, "revision", only), strict=True)
        return {name: value for name, value in found if value is not None}

    def _write(self, rows: Mapping[str, str], expected: str = "") -> None:
        arguments = [word for row in rows.items() for word in row]
        refused = refusal_error(
            self.store.call("dialect/put_blueprints", BLUEPRINTS_PARTITION, "", expected, *arguments), "shelf"
        )
        if refused is not None:
            raise refused

    def revision(self) -> str:
        """A counter that changes with every change."""
        return self.store.connection.command("HGET", self._key(), "revision") or "0"

    def _key(self) -> str:
        self.store.guard()
        return self.store.key(BLUEPRINTS_PARTITION, "blueprints")

    def _suggest(self, kind: Kind, name: str) -> str:
        closest = get_close_matches(name, [each["name"] for each in self.list_kind(kind) if "name" in each], 1)
        return f". Did you mean {closest[0]}?" if closest else ""

    # ---- agents

    def get_blueprint(self, name: str) -> Blueprint | None:
        """The blueprint of an agent, merged with its script; None if there is none."""
        known = self._find_agent(name)
        return Blueprint.model_validate(self.resolve(known)) if known is not None else None

    def _find_agent(self, name: str) -> Fields | None:
        """An agent as it was stored, or as the runner describes it that brought it along."""
        stored, owned = self.store.connection.command("HMGET", self._key(), f"agents/{name}", f"{OWNED_PREFIX}{name}")
        if stored is not None:
            found: Fields = json.loads(stored)
            return found
        return _parse_owned_agent(owned) if owned is not None else None

    def check_agent(self, name: str) -> Blueprint | None:
        """The blueprint of a requested agent; None if it has none.

        Refuses an agent that is inactive, or whose script does not exist. While no blueprint is stored, every name is
        accepted, since only the runners know their agents. Otherwise the name must be a stored one, or that of an agent
        that a worker offers.
        """
        found = self.get_blueprint(name)
        if found is None:
            offered, stored = self.list_offered_agents(), [each["name"] for each in self.list_kind("agents")]
            if stored and name not in offered:
                closest = get_close_matches(name, [*stored, *offered], 1)
                hint = f" Did you mean {closest[0]}?" if closest else ""
                raise AgentUnavailable(f"There is no agent {name}; GET /agents lists them.{hint}")
        elif found.status == "inactive":
            raise AgentUnavailable(f"The agent {name} is inactive; PATCH /agents/{name}/status makes it active.")
        elif found.script is not None and self._find("scripts", found.script) is None:
            detail: dict[str, Any] = {
                "error": "script_not_found",
                "message": f"Script '{found.script}' referenced by agent '{name}' not found",
                "agent_name": name,
                "script_name": found.script,
            }
            raise InvalidWithDetail(detail)
        return found

    def check_mcp_servers(self, blueprint: Blueprint | None, values: PlaceholderValues) -> None:
        """Refuse a blueprint whose MCP servers are not registered or lack required settings."""
        if blueprint is not None:
            check_references(blueprint.mcp_servers, values, self._find_mcp_server)

    def _find_mcp_server(self, ref: str) -> Fields | None:
        return self._find("mcp-servers", ref)

    def _find(self, kind: Kind, name: str) -> Fields | None:
        try:
            return self.get(kind, name)
        except NotFound:
            return None

    def list_offered_agents(self) -> set[str]:
        """The names of the agents that workers offer."""
        labels = {label for worker in self.run_queries.workers() for label in worker.identity.labels}
        return {
            label.removeprefix(AGENT_LABEL) for label in labels - {ANY_AGENT_LABEL} if label.startswith(AGENT_LABEL)
        }

    def find_owner(self, agent: str) -> str | None:
        """The runner that brought an agent along."""
        found: str | None = self.store.connection.command("HGET", self._key(), f"{OWNED_PREFIX}{agent}")
        known = _parse_owned_agent(found) if found is not None else None
        return found if known is None else str(known["runner_id"])

    def add_owned_agents(self, runner: str, registration: RunnerRegistration) -> None:
        """Add the agents that a runner brings along."""
        rows = {f"{OWNED_PREFIX}{each['name']}": json.dumps(each) for each in _describe_agents(runner, registration)}
        if rows:
            self._write(rows)

    def remove_owned_agents(self, registration: RunnerRegistration) -> None:
        """Remove the agents of a runner that has left."""
        rows = {f"{OWNED_PREFIX}{agent.name}": "" for agent in registration.agents}
        if rows:
            self._write(rows)

    def list_agents(self, offers: Mapping[str, Fields], tags: Iterable[str] = (), *, raw: bool = False) -> list[Fields]:
        """All agents with all of these tags, stored or offered by workers, by name."""
        wanted_tags = set(tags)
        stored = {each["name"]: each if raw else self.resolve(each) for each in self.list_kind("agents")}
        found = {name: {**offers.get(name, {}), **each} for name, each in stored.items()}
        found |= {name: self._describe_offered(name, offers) for name in offers if name not in stored}
        return [each for _, each in sorted(found.items()) if wanted_tags <= set(each.get("tags") or ())]

    def get_agent(self, name: str, offers: Mapping[str, Fields], *, raw: bool = False) -> Fields:
        """One agent, stored or offered by workers."""
        stored = self._find("agents", name)
        if stored is None:
            if name not in offers:
                self._raise_missing("agents", name)
            return self._describe_offered(name, offers)
        return {**offers.get(name, {}), **(stored if raw else self.resolve(stored))}

    def _describe_offered(self, name: str, offers: Mapping[str, Fields]) -> Fields:
        """The description of an agent that has no stored blueprint."""
        return {**OFFERED_DEFAULTS, **offers[name], **(self._find_agent(name) or {})}

    def fill(self, name: str, values: PlaceholderValues) -> Fields | None:
        """A blueprint with its capabilities and MCP servers, filled in for a run; None if there is none."""
        known = self._find_agent(name)
        if known is None:
            return None
        resolved = self.resolve(known)
        servers = resolve_references(resolved.get("mcp_servers"), self._find_mcp_server)
        found: Fields = fill_placeholders({**resolved, "mcp_servers": servers}, values)
        return {field: value for field, value in found.items() if value is not None}

    def choose_agent(self, name: str, blueprint: Blueprint | None, default: str) -> str:
        """The agent that our workers execute for this name.

        A stored blueprint runs on the default agent with the blueprint's system prompt, unless a worker or a runner has
        an agent of that name. An agent without a blueprint, or a procedural one, only runners can execute.
        """
        if blueprint is None or blueprint.type == "procedural":
            return name
        return name if self.find_owner(name) is not None or name in self.list_offered_agents() else default

    def resolve(self, blueprint: Fields) -> Fields:
        """A blueprint merged with its capabilities, or with the parameters and demands of its script."""
        if blueprint.get("type") == PROCEDURAL:
            return self._resolve_script(blueprint)
        texts, servers = [blueprint.get("system_prompt") or ""], dict(blueprint.get("mcp_servers") or {})
        missing = []
        for name in blueprint.get("capabilities") or ():
            capability = self._find("capabilities", name)
            if capability is None:
                missing.append(name)
                continue
            script = self._find("scripts", capability["script"]) if capability.get("script") else None
            texts += [capability.get("text") or "", describe_usage(script) if script is not None else ""]
            servers = {**(capability.get("mcp_servers") or {}), **servers}
        prompt = SEPARATOR.join(filter(None, texts))
        warning = {"missing_capabilities": missing} if missing else {}
        return {**blueprint, "system_prompt": prompt or None, "mcp_servers": servers or None, **warning}

    def _resolve_script(self, blueprint: Fields) -> Fields:
        script = self._find("scripts", blueprint["script"]) if blueprint.get("script") else None
        if script is None:
            return blueprint
        own_demands, script_demands = (
            DialectDemands.read(blueprint.get("demands")),
            DialectDemands.read(script.get("demands")),
        )
        demands = own_demands.merge_below(script_demands).model_dump(
            mode="json", exclude_none=True, exclude_defaults=True
        )
        schema = script.get("parameters_schema") or blueprint.get("parameters_schema") or dict(ANY_OBJECT_SCHEMA)
        return {**blueprint, "parameters_schema": schema, "demands": demands or None}


def _list_kind(stored: Mapping[str, str], kind: Kind) -> list[str]:
    return [stored[name] for name in sorted(stored) if name.startswith(f"{kind}/")]


def _depends_on(other: Fields, kind: Kind, name: str) -> bool:
    """Whether an agent or a capability needs the item."""
    if kind == "capabilities":
        return name in (other.get("capabilities") or ())
    return kind == "scripts" and other.get("script") == name


def _describe_agents(runner: str, registration: RunnerRegistration) -> list[Fields]:
    """The stored description of the agents that a runner brings along; only that runner can execute them."""
    now, kind = format_time(wall_ms()), PROCEDURAL if registration.is_procedural else AUTONOMOUS
    common = {"runner_id": runner, "type": PROCEDURAL, "created_at": now, "modified_at": now}
    demands = {} if registration.is_procedural else {"demands": {"executor_type": kind}}
    return [{**agent.model_dump(mode="json", exclude_none=True), **common, **demands} for agent in registration.agents]


def _parse_owned_agent(text: str) -> Fields | None:
    """The stored description of an agent that a runner brought along; None for old entries, which hold only the
    runner's id."""
    found: Fields | None = json.loads(text) if text.startswith("{") else None
    return found
