"""What foreign runners and clients call of blueprints and what belongs to them, one by one and all together."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from agentq.coordinator.errors import Invalid
from agentq.coordinator.server import views
from agentq.coordinator.server.access import allowed
from agentq.coordinator.server.foreign import archive
from agentq.coordinator.server.foreign.admitting import OrRunner
from agentq.coordinator.server.foreign.routes_runner import embassy_of, fields_of
from agentq.coordinator.server.foreign.shelf import Shelf
from agentq.coordinator.server.foreign.shelf_answers import listed, whole
from agentq.coordinator.server.foreign.shelf_kinds import KINDS, Kind
from agentq.coordinator.server.routers import workers
from agentq.coordinator.server.service import service_of
from agentq.coordinator.tokens import Scope

router = APIRouter(tags=["blueprints"])

READ = allowed("read")
NAMED: dict[Kind, tuple[str, str]] = {
    "agents": ("an agent", "agents"),
    "capabilities": ("a capability", "capabilities"),
    "scripts": ("a script", "scripts"),
    "mcp-servers": ("an MCP server", "MCP servers"),
}
LOOK = Depends(OrRunner(Scope.READ))
ADMIN = allowed("admin")
ARCHIVE = "application/gzip"
PACKED: dict[int | str, dict[str, Any]] = {200: {"content": {ARCHIVE: {}}}}
LISTS: dict[Kind, str] = {
    "agents": "agents",
    "capabilities": "capabilities",
    "scripts": "scripts",
    "mcp-servers": "mcp_servers",
}


def _shelf(request: Request) -> Shelf:
    return embassy_of(request).shelf


@router.get("/agents", summary="List agents: blueprints, and those that workers offer", dependencies=[READ])
async def agents(
    request: Request,
    tags: Annotated[str, Query(description="Only those that have all of these, with commas between them.")] = "",
    raw: Annotated[bool, Query(description="As they were stored, without their capabilities.")] = False,
) -> Response:
    wanted = [tag.strip() for tag in tags.split(",") if tag.strip()]
    offers = await workers.offers(service_of(request))
    found = await service_of(request).ask(_shelf(request).agents, offers, wanted, raw=raw)
    return views.told([whole("agents", each) for each in found])


@router.get("/agents/{name}", summary="An agent", dependencies=[LOOK])
async def agent(request: Request, name: str, raw: bool = False) -> Response:
    offers = await workers.offers(service_of(request))
    return views.told(whole("agents", await service_of(request).ask(_shelf(request).agent, name, offers, raw=raw)))


@router.patch("/agents/{name}/status", summary="Make an agent active or inactive", dependencies=[ADMIN])
async def status(request: Request, name: str) -> Response:
    wanted = (await fields_of(request)).get("status")
    if wanted not in ("active", "inactive"):
        raise Invalid('status: it is "active" or "inactive".')
    changed = await service_of(request).ask(_shelf(request).change, "agents", name, {"status": wanted})
    return views.told(whole("agents", changed))


@router.get(
    "/scripts/{name}/download",
    summary="A script and what is known of it, as an archive",
    dependencies=[LOOK],
    responses=PACKED,
)
async def download(request: Request, name: str) -> Response:
    script = await service_of(request).ask(_shelf(request).get, "scripts", name)
    headers = {"content-disposition": f'attachment; filename="{name}.tar.gz"'}
    return Response(archive.of_script(name, script), headers=headers, media_type=ARCHIVE)


@router.get(
    "/config/export",
    summary="All blueprints and what belongs to them, as an archive",
    dependencies=[ADMIN],
    responses=PACKED,
)
async def export(request: Request) -> Response:
    everything = await service_of(request).ask(_shelf(request).everything)
    headers = {"content-disposition": 'attachment; filename="config.tar.gz"'}
    return Response(archive.of_everything(everything), headers=headers, media_type=ARCHIVE)


@router.post("/config/import", summary="Put an archive in the place of what there is", dependencies=[ADMIN])
async def import_(request: Request) -> Response:
    """The archive as the body, or as the first file of a form. Of the kinds that it has a folder for nothing stays."""
    file = _file_of(await request.body(), request.headers.get("content-type", ""))
    everything, kinds = await asyncio.to_thread(archive.unpacked, file)
    counts = await service_of(request).ask(_shelf(request).replace, everything, kinds)
    told = {f"{LISTS[kind]}_imported": now for kind, (now, _) in counts.items()}
    told |= {f"{LISTS[kind]}_replaced": before for kind, (_, before) in counts.items()}
    return views.told({"ok": True, "message": "Configuration imported successfully", **told})


def _file_of(body: bytes, content_type: str) -> bytes:
    """The file in a form; the body itself if it is none."""
    kind, _, rest = content_type.partition("boundary=")
    if not kind.startswith("multipart/form-data") or not rest:
        return body
    mark = b"--" + rest.strip('"').encode("latin-1")
    part = next((part for part in body.split(mark) if b"filename=" in part.partition(b"\r\n\r\n")[0]), None)
    if part is None:
        raise archive.NoArchive("The form has no file in it.")
    return part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")


def _routes_of(kind: Kind) -> None:
    """List, get, add, change and remove, of one kind."""

    async def page(request: Request) -> Response:
        found = await service_of(request).ask(_shelf(request).all, kind)
        return views.told([listed(kind, each) for each in found])

    async def get(request: Request, name: str) -> Response:
        return views.told(whole(kind, await service_of(request).ask(_shelf(request).get, kind, name)))

    async def add(request: Request) -> Response:
        fields = await fields_of(request)
        return views.told(whole(kind, await service_of(request).ask(_shelf(request).add, kind, fields)), 201)

    async def change(request: Request, name: str) -> Response:
        fields = await fields_of(request)
        return views.told(whole(kind, await service_of(request).ask(_shelf(request).change, kind, name, fields)))

    async def remove(request: Request, name: str) -> Response:
        await service_of(request).ask(_shelf(request).remove, kind, name)
        return Response(status_code=204)

    one, many = NAMED[kind]
    if kind != "agents":
        router.add_api_route(f"/{kind}", page, methods=["GET"], summary=f"List {many}", dependencies=[READ])
        look = LOOK if kind == "scripts" else READ
        router.add_api_route(f"/{kind}/{{name}}", get, methods=["GET"], summary=f"Get {one}", dependencies=[look])
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
    _routes_of(each)
