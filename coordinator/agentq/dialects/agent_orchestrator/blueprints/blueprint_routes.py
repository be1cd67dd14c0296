"""Routes for blueprints, capabilities, scripts and MCP servers, one by one and as an archive."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from agentq.coordinator.errors import Invalid
from agentq.coordinator.security.tokens import TokenScope
from agentq.dialects.agent_orchestrator.blueprints import archive
from agentq.dialects.agent_orchestrator.blueprints.models import KINDS, Kind
from agentq.dialects.agent_orchestrator.blueprints.responses import render_item, render_list_item
from agentq.dialects.agent_orchestrator.blueprints.store import BlueprintStore
from agentq.dialects.agent_orchestrator.runners.runner_routes import get_services, read_fields
from agentq.server.auth.access_control import require_scope
from agentq.server.auth.runner_scopes import ScopeOrRunner
from agentq.server.http import responses
from agentq.server.routes import workers
from agentq.server.service import get_service

router = APIRouter(tags=["blueprints"])

READ = require_scope("read")
KIND_TITLES: dict[Kind, tuple[str, str]] = {
    "agents": ("an agent", "agents"),
    "capabilities": ("a capability", "capabilities"),
    "scripts": ("a script", "scripts"),
    "mcp-servers": ("an MCP server", "MCP servers"),
}
READ_OR_RUNNER = Depends(ScopeOrRunner(TokenScope.READ))
ADMIN = require_scope("admin")
ARCHIVE_TYPE = "application/gzip"
ARCHIVE_RESPONSES: dict[int | str, dict[str, Any]] = {200: {"content": {ARCHIVE_TYPE: {}}}}
COUNT_PREFIXES: dict[Kind, str] = {
    "agents": "agents",
    "capabilities": "capabilities",
    "scripts": "scripts",
    "mcp-servers": "mcp_servers",
}


def _get_store(request: Request) -> BlueprintStore:
    return get_services(request).blueprints


@router.get("/agents", summary="List agents: blueprints, and agents that workers offer", dependencies=[READ])
async def list_agents(
    request: Request,
    tags: Annotated[str, Query(description="Only those that have all of these, with commas between them.")] = "",
    raw: Annotated[bool, Query(description="As they were stored, without their capabilities.")] = False,
) -> Response:
    wanted_tags = [tag.strip() for tag in tags.split(",") if tag.strip()]
    offers = await workers.list_agent_offers(get_service(request))
    found = await get_service(request).call_in_thread(_get_store(request).list_agents, offers, wanted_tags, raw=raw)
    return responses.json_response([render_item("agents", each) for each in found])


@router.get("/agents/{name}", summary="Get an agent", dependencies=[READ_OR_RUNNER])
async def get_agent(request: Request, name: str, raw: bool = False) -> Response:
    offers = await workers.list_agent_offers(get_service(request))
    return responses.json_response(
        render_item(
            "agents", await get_service(request).call_in_thread(_get_store(request).get_agent, name, offers, raw=raw)
        )
    )


@router.patch("/agents/{name}/status", summary="Activate or deactivate an agent", dependencies=[ADMIN])
async def set_agent_status(request: Request, name: str) -> Response:
    status = (await read_fields(request)).get("status")
    if status not in ("active", "inactive"):
        raise Invalid('status: it is "active" or "inactive".')
    changed = await get_service(request).call_in_thread(_get_store(request).change, "agents", name, {"status": status})
    return responses.json_response(render_item("agents", changed))


@router.get(
    "/scripts/{name}/download",
    summary="A script and its description, as an archive",
    dependencies=[READ_OR_RUNNER],
    responses=ARCHIVE_RESPONSES,
)
async def download_script(request: Request, name: str) -> Response:
    script = await get_service(request).call_in_thread(_get_store(request).get, "scripts", name)
    headers = {"content-disposition": f'attachment; filename="{name}.tar.gz"'}
    return Response(archive.pack_script(name, script), headers=headers, media_type=ARCHIVE_TYPE)


@router.get(
    "/config/export",
    summary="All blueprints and related items, as an archive",
    dependencies=[ADMIN],
    responses=ARCHIVE_RESPONSES,
)
async def export_config(request: Request) -> Response:
    items = await get_service(request).call_in_thread(_get_store(request).export)
    headers = {"content-disposition": 'attachment; filename="config.tar.gz"'}
    return Response(archive.pack_all(items), headers=headers, media_type=ARCHIVE_TYPE)


@router.post("/config/import", summary="Replace the stored items with an archive", dependencies=[ADMIN])
async def import_config(request: Request) -> Response:
    """Replaces all items of each kind that the archive has a folder for. The archive is the body, or the first file
    of a form."""
    file = _extract_file(await request.body(), request.headers.get("content-type", ""))
    items, kinds = await asyncio.to_thread(archive.unpack_archive, file)
    counts = await get_service(request).call_in_thread(_get_store(request).replace, items, kinds)
    counted = {f"{COUNT_PREFIXES[kind]}_imported": now for kind, (now, _) in counts.items()}
    counted |= {f"{COUNT_PREFIXES[kind]}_replaced": before for kind, (_, before) in counts.items()}
    return responses.json_response({"ok": True, "message": "Configuration imported successfully", **counted})


def _extract_file(body: bytes, content_type: str) -> bytes:
    """The file in a multipart form; the body itself if it is not a form."""
    kind, _, rest = content_type.partition("boundary=")
    if not kind.startswith("multipart/form-data") or not rest:
        return body
    mark = b"--" + rest.strip('"').encode("latin-1")
    part = next((part for part in body.split(mark) if b"filename=" in part.partition(b"\r\n\r\n")[0]), None)
    if part is None:
        raise archive.InvalidArchive("The form has no file in it.")
    return part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")


def _add_kind_routes(kind: Kind) -> None:
    """Add the routes that list, get, add, change and remove items of one kind."""

    async def page(request: Request) -> Response:
        found = await get_service(request).call_in_thread(_get_store(request).list_kind, kind)
        return responses.json_response([render_list_item(kind, each) for each in found])

    async def get(request: Request, name: str) -> Response:
        return responses.json_response(
            render_item(kind, await get_service(request).call_in_thread(_get_store(request).get, kind, name))
        )

    async def add(request: Request) -> Response:
        fields = await read_fields(request)
        return responses.json_response(
            render_item(kind, await get_service(request).call_in_thread(_get_store(request).add, kind, fields)), 201
        )

    async def change(request: Request, name: str) -> Response:
        fields = await read_fields(request)
        return responses.json_response(
            render_item(kind, await get_service(request).call_in_thread(_get_store(request).change, kind, name, fields))
        )

    async def remove(request: Request, name: str) -> Response:
        await get_service(request).call_in_thread(_get_store(request).remove, kind, name)
        return Response(status_code=204)

    one, many = KIND_TITLES[kind]
    if kind != "agents":
        router.add_api_route(f"/{kind}", page, methods=["GET"], summary=f"List {many}", dependencies=[READ])
        dependency = READ_OR_RUNNER if kind == "scripts" else READ
        router.add_api_route(f"/{kind}/{{name}}", get, methods=["GET"], summary=f"Get {one}", dependencies=[dependency])
    router.add_api_route(
        f"/{kind}", add, methods=["POST"], status_code=201, summary=f"Store {one}", dependencies=[ADMIN]
    )
    for method in ("PATCH", "PUT"):
        router.add_api_route(
            f"/{kind}/{{name}}",
            change,
            methods=[method],
            summary=f"Change {one}",
            dependencies=[ADMIN],
            operation_id=f"{method.lower()}_{kind}",
        )
    router.add_api_route(
        f"/{kind}/{{name}}", remove, methods=["DELETE"], status_code=204, summary=f"Remove {one}", dependencies=[ADMIN]
    )


for each in KINDS:
    _add_kind_routes(each)
