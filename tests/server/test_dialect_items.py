"""Agents, capabilities, scripts and MCP servers, as clients of the dialect use them."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.dialect_items import GREET, LISTS, client_without_items, start, stored
from support.dialect_runner import Parties
from support.http_servers import Serving

ORCHESTRATOR = {
    "id": "orchestrator",
    "name": "Agent Orchestrator",
    "description": "Spawn and manage child agents",
    "url": "${runner.orchestrator_mcp_url}",
    "config_schema": {
        "X-Agent-Session-Id": {"type": "string", "description": "Of the parent", "required": True, "sensitive": False},
        "X-Agent-Tags": {"type": "string", "required": False, "sensitive": False},
    },
    "default_config": {"X-Agent-Session-Id": "${runtime.session_id}", "X-Agent-Tags": "internal"},
}


@pytest.fixture(scope="module")
def serving(hasty: Serving) -> Serving:
    return hasty


@pytest.fixture
def http(parties: Parties) -> Iterator[httpx.Client]:
    with client_without_items(parties) as client:
        yield client


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_of_what_is_kept_is_an_array(http: httpx.Client, kind: str) -> None:
    assert http.get(f"/{kind}").json() == []


def test_an_agent_of_which_little_is_said_is_active_and_autonomous(http: httpx.Client) -> None:
    """As `POST /agents` is sent by a dashboard: what is not filled in is null or left away."""
    asked = {"name": "helper", "description": "Helps", "system_prompt": "You help.", "tags": None, "mcp_servers": None}
    said = stored(http, "agents", asked)

    expected = {
        "name": "helper",
        "description": "Helps",
        "type": "autonomous",
        "system_prompt": "You help.",
        "tags": [],
        "capabilities": [],
        "status": "active",
    }
    for told in (said, http.get("/agents/helper").json(), http.get("/agents").json()[0]):
        assert {**told, **expected} == told
        assert set(told) == {*expected, "created_at", "modified_at"}


def test_an_empty_value_clears_a_field_and_null_leaves_it(http: httpx.Client) -> None:
    stored(http, "agents", {"name": "helper", "description": "Helps", "system_prompt": "You help.", "tags": ["a"]})

    told = http.patch("/agents/helper", json={"description": "Helps more", "tags": [], "system_prompt": None}).json()

    assert (told["description"], told["tags"], told["system_prompt"]) == ("Helps more", [], "You help.")


def test_what_has_no_good_name_is_refused_with_400(http: httpx.Client) -> None:
    for kind in ("agents", "capabilities", "scripts"):
        assert http.post(f"/{kind}", json={"name": "no/good", "description": "x"}).status_code == 400


def test_capabilities_and_scripts_are_listed_in_short_and_told_whole(http: httpx.Client) -> None:
    stored(http, "capabilities", {"name": "style", "description": "Brief", "text": "Be brief."})
    stored(http, "capabilities", {"name": "tools", "description": "T", "mcp_servers": {"o": {"ref": "orchestrator"}}})
    stored(http, "scripts", GREET)

    style, tools = http.get("/capabilities").json()
    times = {name: style.pop(name) for name in ("created_at", "modified_at")}
    assert all(times.values())
    assert style == {
        "name": "style",
        "description": "Brief",
        "type": "text",
        "has_script": False,
        "script_name": None,
        "has_text": True,
        "has_mcp": False,
        "mcp_server_names": [],
    }
    assert (tools["type"], tools["has_mcp"], tools["mcp_server_names"]) == ("mcp", True, ["o"])
    assert http.get("/capabilities/style").json()["text"] == "Be brief."
    (script,) = http.get("/scripts").json()
    assert {name: script[name] for name in script if not name.endswith("_at")} == {
        "name": "greet",
        "description": "Says hello",
        "script_file": "g.py",
        "has_parameters_schema": True,
        "has_demands": True,
        "demand_tags": ["uv"],
    }
    assert http.get("/scripts/greet").json()["script_content"] == "print('hello')\n"


def test_what_an_agent_leans_on_cannot_be_deleted(http: httpx.Client) -> None:
    stored(http, "capabilities", {"name": "style", "description": "Brief", "text": "Be brief."})
    stored(http, "scripts", GREET)
    stored(http, "agents", {"name": "writer", "description": "Writes", "capabilities": ["style"]})
    stored(http, "agents", {"name": "greeter", "description": "Greets", "type": "procedural", "script": "greet"})

    for path, detail in (
        ("/capabilities/style", "Capability is referenced by agents: writer"),
        ("/scripts/greet", "Script is referenced by agents: greeter"),
    ):
        refused = http.delete(path)
        assert (refused.status_code, refused.json()["detail"]) == (409, detail)
    assert [http.delete(f"/agents/{name}").status_code for name in ("writer", "greeter")] == [204, 204]
    assert [http.delete(path).status_code for path in ("/capabilities/style", "/scripts/greet")] == [204, 204]


NOTIFY = {
    "name": "notify",
    "description": "Sends a note",
    "script_file": "n.py",
    "script_content": "print(1)\n",
    "parameters_schema": {
        "type": "object",
        "properties": {
            "who": {"type": "string", "description": "To whom"},
            "how": {"enum": ["mail", "sms"], "default": "mail"},
            "times": {"type": "integer"},
            "to": {"type": "array"},
            "loud": {"type": "boolean", "description": "Cry"},
            "force": {"type": "boolean"},
        },
        "required": ["who", "force"],
    },
}
TOLD_OF_IT = """You note.

---

Use it well.

---

## Local Script: notify
**Description:** Sends a note

**Usage:**
```bash
uv run --script scripts/notify/n.py --who <who> [--how <mail|sms>] [--times <N>] [--to <value1,value2,...>] [--loud] --force
```

**Arguments:**
- `--who` (required) - To whom
- `--how` (optional) One of: mail, sms [default: mail]
- `--times` (optional) (integer)
- `--to` (optional) (array)
- `--loud` (optional) (boolean) - Cry
- `--force` (required) (boolean)

---

## Local Script: plain
**Description:** Does it

**Usage:**
```bash
uv run --script scripts/plain/p.py
```"""  # noqa: E501


def test_an_agent_is_told_how_to_call_the_scripts_of_its_capabilities(parties: Parties, http: httpx.Client) -> None:
    """Word for word as the other coordinator tells it, to clients and to the runner."""
    runner = parties.hand()
    stored(http, "scripts", NOTIFY)
    stored(http, "scripts", {"name": "plain", "description": "Does it", "script_file": "p.py", "script_content": "1"})
    scripted = {"name": "notes", "description": "d", "type": "script", "script": "notify", "text": "Use it well."}
    stored(http, "capabilities", scripted)
    stored(http, "capabilities", {"name": "plainly", "description": "d", "type": "script", "script": "plain"})
    agent = {"name": "scribe", "description": "d", "system_prompt": "You note.", "capabilities": ["notes", "plainly"]}
    stored(http, "agents", agent)

    assert http.get("/agents/scribe").json()["system_prompt"] == TOLD_OF_IT
    assert http.get("/agents/scribe", params={"raw": "true"}).json()["system_prompt"] == "You note."
    assert set(runner.poll() or {}) == {"sync_scripts", "remove_scripts"}
    start(http, agent_name="scribe")
    assert runner.run()["resolved_agent_blueprint"]["system_prompt"] == TOLD_OF_IT


def test_a_capability_has_a_script_that_is_there_and_stays(http: httpx.Client) -> None:
    asked = {"name": "greets", "description": "d", "type": "script", "script": "greet"}
    refused = http.post("/capabilities", json=asked)
    assert (refused.status_code, refused.json()["detail"]) == (400, "Script not found: greet")

    stored(http, "scripts", GREET)
    stored(http, "capabilities", asked)

    changed = http.patch("/capabilities/greets", json={"script": "none"})
    assert (changed.status_code, changed.json()["detail"]) == (400, "Script not found: none")
    kept = http.delete("/scripts/greet")
    assert (kept.status_code, kept.json()["detail"]) == (409, "Script is referenced by capabilities: greets")
    assert http.delete("/capabilities/greets").status_code == http.delete("/scripts/greet").status_code == 204


@pytest.mark.parametrize("schema", [[], "text", {"properties": []}])
def test_the_parameters_of_a_script_are_told_as_a_schema(http: httpx.Client, schema: Any) -> None:
    assert http.post("/scripts", json={**GREET, "parameters_schema": schema}).status_code == 422


def test_a_server_of_tools_has_the_id_that_was_said(http: httpx.Client) -> None:
    said = stored(http, "mcp-servers", {"id": "m1", "name": "M", "url": "http://127.0.0.1:9501/mcp"})

    assert {name: said[name] for name in said if not name.endswith("_at")} == {
        "id": "m1",
        "name": "M",
        "description": None,
        "url": "http://127.0.0.1:9501/mcp",
        "config_schema": None,
        "default_config": None,
    }
    assert said["created_at"]
    assert said["updated_at"]
    changed = http.put("/mcp-servers/m1", json={"name": "Mine"}).json()
    assert (changed["id"], changed["name"], changed["url"]) == ("m1", "Mine", "http://127.0.0.1:9501/mcp")
    assert http.get("/mcp-servers/m1").json()["name"] == "Mine"
    assert http.post("/mcp-servers", json={"id": "m1", "name": "M", "url": "http://x"}).status_code == 409
    assert http.delete("/mcp-servers/m1").status_code == 204
    assert http.get("/mcp-servers/m1").status_code == 404


def test_references_to_tools_become_addresses_as_the_run_is_given(parties: Parties, http: httpx.Client) -> None:
    """The orchestrator that the newest dialect ships is named by reference, and by nothing else."""
    runner = parties.hand()
    stored(http, "mcp-servers", ORCHESTRATOR)
    told = {"orchestrator": {"ref": "orchestrator", "config": {"X-Agent-Tags": "${scope.tags}"}}}
    stored(http, "agents", {"name": "chief", "description": "Leads", "mcp_servers": told})

    made = start(http, agent_name="chief", scope={"tags": "external"}).json()
    given = runner.run()

    assert given["resolved_agent_blueprint"]["mcp_servers"] == {
        "orchestrator": {
            "url": "${runner.orchestrator_mcp_url}",
            "config": {"X-Agent-Session-Id": made["session_id"], "X-Agent-Tags": "external"},
        }
    }
    assert http.get("/agents/chief").json()["mcp_servers"] == told


def test_a_reference_to_nothing_is_refused_before_there_is_a_run(serving: Serving, http: httpx.Client) -> None:
    stored(http, "agents", {"name": "chief", "description": "Leads", "mcp_servers": {"o": {"ref": "nothing"}}})
    before = serving.records.count()

    refused = start(http, agent_name="chief")

    assert refused.status_code == 400
    assert refused.json()["detail"] == {
        "error": "mcp_ref_resolution_failed",
        "message": "Failed to resolve MCP server 'o' (ref: nothing): Not found in registry",
        "server_name": "o",
        "ref": "nothing",
    }
    assert serving.records.count() == before


def test_tools_that_lack_what_they_need_are_refused_before_there_is_a_run(http: httpx.Client) -> None:
    stored(http, "mcp-servers", {**ORCHESTRATOR, "default_config": {"X-Agent-Session-Id": "Bearer ${scope.id}"}})
    stored(http, "agents", {"name": "chief", "description": "Leads", "mcp_servers": {"o": {"ref": "orchestrator"}}})

    detail = start(http, agent_name="chief").json()["detail"]

    assert (detail["error"], detail["server_name"], detail["missing_fields"]) == (
        "missing_required_mcp_config",
        "o",
        ["X-Agent-Session-Id"],
    )
    assert start(http, agent_name="chief", scope={"id": "7"}).status_code == 201


def archive(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in files.items():
            entry, body = tarfile.TarInfo(name), text.encode()
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    return packed.getvalue()


THEIRS = {
    "agents/README.md": "# All agents",
    "agents/chief/agent.json": json.dumps({"name": "chief", "description": "Leads", "tags": ["external"]}),
    "agents/chief/agent.system-prompt.md": "You lead.\n",
    "agents/chief/agent.mcp.json": json.dumps({"mcpServers": {"o": {"ref": "orchestrator"}}}),
    "agents/old/agent.json": json.dumps({"name": "old", "description": "Is no more", "type": "autonomous"}),
    "agents/old/.disabled": "",
    "agents/old/README.md": "# Old",
    "capabilities/style/capability.json": json.dumps({"name": "style", "description": "Brief"}),
    "capabilities/style/capability.text.md": "Be brief.\n",
}


def imported(http: httpx.Client, body: bytes) -> httpx.Response:
    return http.post("/config/import", files={"file": ("config.tar.gz", body, "application/gzip")})


def test_an_archive_of_another_coordinator_comes_in_whole(http: httpx.Client) -> None:
    stored(http, "agents", {"name": "before", "description": "Was here"})
    stored(http, "scripts", GREET)

    told = imported(http, archive(THEIRS)).json()

    counts = {"agents_imported": 2, "capabilities_imported": 1, "agents_replaced": 1, "capabilities_replaced": 0}
    assert {**told, **counts, "message": "Configuration imported successfully"} == told
    chief, old = http.get("/agents").json()
    assert (chief["system_prompt"], chief["tags"]) == ("You lead.\n", ["external"])
    assert (chief["mcp_servers"], chief["type"]) == ({"o": {"ref": "orchestrator"}}, "autonomous")
    assert (old["name"], old["status"]) == ("old", "inactive")
    assert http.get("/capabilities/style").json()["text"] == "Be brief.\n"
    assert [each["name"] for each in http.get("/scripts").json()] == ["greet"]


def test_what_is_exported_is_in_the_layout_of_the_other_coordinator_and_comes_back(http: httpx.Client) -> None:
    imported(http, archive(THEIRS))
    stored(http, "scripts", GREET)
    stored(http, "mcp-servers", ORCHESTRATOR)
    before = [http.get(f"/{kind}").json() for kind in LISTS]

    exported = http.get("/config/export").content

    with tarfile.open(fileobj=io.BytesIO(exported)) as tar:
        files = {each.name for each in tar if each.isfile()}
    assert files == {name for name in THEIRS if not name.endswith("README.md")} | {
        "scripts/greet/script.json",
        "scripts/greet/g.py",
        "mcp-servers/orchestrator/mcp-server.json",
    }
    stored(http, "agents", {"name": "later", "description": "Came after"})
    assert imported(http, exported).json()["agents_replaced"] == 3
    assert [timeless(http.get(f"/{kind}").json()) for kind in LISTS] == [timeless(each) for each in before]


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.endswith("_at")} for row in rows]


@pytest.mark.parametrize(
    "files",
    [
        {"other/x/agent.json": "{}"},
        {"agents/x/agent.json": "{"},
        {"agents/x/agent.json": "[]"},
        {"scripts/x/script.json": '{"name": "x", "script_file": "x.py"}'},
    ],
)
def test_an_archive_that_cannot_be_understood_changes_nothing(http: httpx.Client, files: dict[str, str]) -> None:
    stored(http, "agents", {"name": "before", "description": "Was here"})

    assert imported(http, archive(files)).status_code == 400
    assert [each["name"] for each in http.get("/agents").json()] == ["before"]


def test_a_change_that_was_decided_by_what_is_no_more_is_decided_anew(serving: Serving) -> None:
    """Of those who store the same at once one does, and the others are refused."""
    clients = [serving.client() for _ in range(4)]
    codes: list[int] = []

    def add(client: httpx.Client) -> None:
        codes.append(client.post("/agents", json={"name": "racer", "description": "Is fast"}).status_code)

    threads = [threading.Thread(target=add, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    clients[0].delete("/agents/racer")
    for client in clients:
        client.close()

    assert sorted(codes) == [201, 409, 409, 409]
