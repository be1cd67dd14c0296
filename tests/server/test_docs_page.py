"""The document of the API as a page."""

from __future__ import annotations

import re

import pytest
from support.http_servers import MakeServing
from support.servers import Server

from agentq.server.openapi.docs_page import METHODS, render_page


@pytest.mark.full("takes 2 s")
def test_the_page_shows_every_route_and_schema_and_fetches_nothing(valkey: Server, make_serving: MakeServing) -> None:
    with make_serving(valkey).client() as client:
        answer, document = client.get("/docs"), client.get("/openapi.json").json()

    shown = answer.text
    routes = [(method, path) for path, methods in document["paths"].items() for method in METHODS if method in methods]
    rows = [f'<code class="verb">{method.upper()}</code><code>{path}</code>' for method, path in routes]
    assert [row for row in rows if shown.count(row) != 1] == []
    assert [name for name in document["components"]["schemas"] if f"<summary><code>{name}</code>" not in shown] == []
    assert {link for link in re.findall(r'(?:href|src)="([^"]+)"', shown) if link[0] != "#"} == {"/openapi.json"}
    ids = re.findall(r"""id=["']([^"']+)""", shown)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in re.findall(r'href="(#[^"]+)"', shown)} <= set(ids)
    assert "<script" not in shown
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_what_stands_in_the_document_is_text_and_nothing_else() -> None:
    evil = "<script>alert(1)</script> & `<b>`"
    operation = {
        "tags": [evil],
        "summary": evil,
        "description": evil,
        "parameters": [{"name": evil, "in": "query", "schema": {"enum": [evil]}, "description": evil}],
        "responses": {"200": {"description": evil, "content": {"text/plain": {"example": evil}}}},
    }
    about = {"title": evil, "summary": evil, "description": evil}
    schemas = {evil: {"type": evil, "properties": {evil: {"$ref": evil}}}}

    shown = render_page({"info": about, "paths": {evil: {"get": operation}}, "components": {"schemas": schemas}})

    assert "<script" not in shown
    assert "<b>" not in shown
    assert "&lt;script&gt;alert(1)" in shown
