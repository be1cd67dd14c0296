"""Renders the API document as a page at `/docs`.

The page is self-contained: no script and no external resource, so that it works offline and runs no other code in the
server's origin.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from fastapi import FastAPI
from starlette.responses import HTMLResponse, Response

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
METHODS = ("get", "post", "put", "patch", "delete")
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --mark: #2a7; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 14px/1.45 ui-monospace, monospace; }
pre { background: var(--soft); padding: .7rem 1rem; overflow-x: auto; border-radius: 6px; }
nav a { margin-right: 1rem; } nav { line-height: 2; }
h2 { margin: 2.5rem 0 .6rem; border-bottom: 1px solid var(--line); }
details { border: 1px solid var(--line); border-radius: 6px; margin: .35rem 0; padding: 0 .9rem; }
summary { cursor: pointer; padding: .45rem 0; } summary code { font-weight: 600; }
.verb { display: inline-block; width: 4.4rem; color: var(--mark); }
.what { opacity: .75; margin-left: .6rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; }
td p { margin: 0; }
th, td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0; border-top: 1px solid var(--line); }
"""

OpenApiDocument = Mapping[str, Any]


def install_docs(app: FastAPI, last_tags: Collection[str]) -> None:
    """Serve the app's document, operations with these tags last. It is rendered once on first use."""
    cached_page = cache(lambda: render_page(app.openapi(), last_tags))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(cached_page(), headers={"content-security-policy": CONTENT_SECURITY_POLICY})


def render_page(document: OpenApiDocument, last_tags: Collection[str] = ()) -> str:
    """Render a document as a page."""
    info = document["info"]
    tags: dict[str, list[str]] = {}
    for tag, path, method, operation in sorted(_list_operations(document), key=lambda each: each[0] in last_tags):
        tags.setdefault(tag, []).append(_render_operation(path, method, operation))
    refusals = sorted(
        {each for *_, operation in _list_operations(document) for each in _list_error_responses(operation)}
    )
    links = "".join(f'<a href="#{_make_anchor(tag)}">{escape(tag)}</a> ' for tag in (*tags, "schemas"))
    sections = "".join(
        f'<h2 id="{_make_anchor(tag)}">{escape(tag)}</h2>{"".join(shown)}' for tag, shown in tags.items()
    )
    schemas = "".join(_render_schema(name, each) for name, each in sorted(document["components"]["schemas"].items()))
    title = escape(info["title"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}: the API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f"<h1>{title}</h1><p>{escape(info['summary'])}</p>{_render_prose(info['description'])}"
        '<p>For programs: <a href="/openapi.json">/openapi.json</a>.</p>'
        f"{_render_table(('refused with', ''), refusals)}<nav>{links}</nav>{sections}"
        f"<h2 id='schemas'>schemas</h2>{schemas}</html>"
    )


def _list_operations(document: OpenApiDocument) -> Iterator[tuple[str, str, str, OpenApiDocument]]:
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                yield next(iter(methods[method].get("tags", ())), "others"), path, method, methods[method]


def _render_operation(path: str, method: str, operation: OpenApiDocument) -> str:
    parts = [_render_prose(operation.get("description", ""))]
    rows = [
        (
            f"<code>{escape(each['name'])}</code>",
            each["in"],
            _render_type(each["schema"]),
            _render_prose(each.get("description", "")),
        )
        for each in operation.get("parameters", ())
    ]
    if rows:
        parts.append(_render_table(("parameter", "in", "type", ""), rows))
    body = operation.get("requestBody", {}).get("content", {})
    parts += [
        f"<h4>Body: {_render_type(each.get('schema', {}))}</h4>{_render_examples(each)}" for each in body.values()
    ]
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            for kind, each in answer.get("content", {"": {}}).items():
                of = _render_type(each["schema"]) if "schema" in each else escape(answer["description"])
                parts.append(f"<h4>{status} {escape(kind)} {of}</h4>{_render_examples(each)}")
    refused = " ".join(sorted(status for status, _ in _list_error_responses(operation)))
    parts.append(f"<p>Refused with {refused}.</p>" if refused else "")
    verb = f'<code class="verb">{method.upper()}</code><code>{escape(path)}</code>'
    summary = f'<summary>{verb}<span class="what">{escape(operation.get("summary", ""))}</span></summary>'
    return f'<details id="{_make_anchor(method, path)}">{summary}{"".join(parts)}</details>'


def _list_error_responses(operation: OpenApiDocument) -> Iterator[tuple[str, str]]:
    """The statuses of errors, with their descriptions."""
    for status, answer in operation["responses"].items():
        if not status.startswith("2"):
            yield status, escape(answer["description"])


def _render_examples(content: OpenApiDocument) -> str:
    """Examples of a body."""
    shown = [(each.get("summary", ""), each["value"]) for each in content.get("examples", {}).values()]
    if "example" in content:
        shown.append(("", content["example"]))
    return "".join(
        (f"<p>{escape(summary)}:</p>" if summary else "")
        + f"<pre>{escape(value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False))}</pre>"
        for summary, value in shown
    )


def _render_schema(name: str, schema: OpenApiDocument) -> str:
    needed = schema.get("required", ())
    rows = [
        (
            f"<code>{escape(each)}</code>{' *' if each in needed else ''}",
            _render_type(of),
            _render_prose(of.get("description", "")),
        )
        for each, of in schema.get("properties", {}).items()
    ]
    inner = _render_table(("field", "type", ""), rows) if rows else f"<p>{_render_type(schema)}</p>"
    prose = _render_prose(schema.get("description", ""))
    summary = f"<summary><code>{escape(name)}</code></summary>"
    return f'<details id="{_make_anchor("schema", name)}">{summary}{prose}{inner}</details>'


def _render_type(schema: OpenApiDocument) -> str:
    """The type of a value in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{_make_anchor("schema", name)}">{escape(name)}</a>'
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_render_type(each) for each in schema[several]))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(f"<code>{escape(json.dumps(each))}</code>" for each in values)
    if schema.get("type") == "array":
        return f"list of {_render_type(schema.get('items', {}))}"
    kind = schema.get("type", "anything")
    return "nothing" if kind == "null" else escape(str(kind))


def _render_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{each}</td>' for each in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _render_prose(text: str) -> str:
    """Paragraphs, with text between backticks as code."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return "".join(f"<p>{each}</p>" for each in marked.split("\n\n") if each.strip())


def _make_anchor(*parts: str) -> str:
    return re.sub(r"\W+", "-", "-".join(parts)).strip("-")
