"""Items that clients of the dialect store, and a client of a server without any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from support.dialect_runner import Parties

LISTS = ("agents", "capabilities", "scripts", "mcp-servers")
GREET = {
    "name": "greet",
    "description": "Says hello",
    "script_file": "g.py",
    "script_content": "print('hello')\n",
    "parameters_schema": {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]},
    "demands": {"tags": ["uv"]},
}


@contextmanager
def client_without_items(parties: Parties) -> Iterator[httpx.Client]:
    """A client of a server without stored items."""
    client = parties.client().http
    _clear(client)
    yield client
    _clear(client)


def _clear(client: httpx.Client) -> None:
    for kind in LISTS:
        for each in client.get(f"/{kind}").json():
            client.delete(f"/{kind}/{each.get('id') or each['name']}")


def stored(client: httpx.Client, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """The response to storing a new item."""
    answer = client.post(f"/{kind}", json=body)
    assert answer.status_code == 201, answer.text
    told: dict[str, Any] = answer.json()
    return told


def start(http: httpx.Client, **fields: Any) -> httpx.Response:
    """Ask for a run."""
    return http.post("/runs", json={"type": "start_session", "parameters": {"prompt": "go"}, **fields})
