"""What foreign runners and clients call of blueprints and what belongs to them, one by one and all together."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import tarfile
import zlib
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from agentq.coordinator.errors import Invalid
from agentq.coordinator.limits import SHELF_BYTES, SHELF_KEPT
from agentq.coordinator.server import views
from agentq.coordinator.server.access import allowed
from agentq.coordinator.server.foreign.admitting import OrRunner
from agentq.coordinator.server.foreign.routes_runner import embassy_of, fields_of
from agentq.coordinator.server.foreign.shelf import KINDS, Kind, Shelf
from agentq.coordinator.server.routers import workers
from agentq.coordinator.server.service import service_of
from agentq.coordinator.server.submitting import read
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
UNPACKED_BYTES = 64 << 20
"""What an archive may hold in all, unpacked."""
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
    return views.told({"agents": await service_of(request).ask(_shelf(request).agents, offers, wanted, raw=raw)})


@router.get("/agents/{name}", summary="An agent", dependencies=[LOOK])
async def agent(request: Request, name: str, raw: bool = False) -> Response:
    offers = await workers.offers(service_of(request))
    return views.told(await service_of(request).ask(_shelf(request).agent, name, offers, raw=raw))


@router.patch("/agents/{name}/status", summary="Make an agent active or inactive", dependencies=[ADMIN])
async def status(request: Request, name: str) -> Response:
    wanted = (await fields_of(request)).get("status")
    if wanted not in ("active", "inactive"):
        raise Invalid('status: it is "active" or "inactive".')
    return views.told(await service_of(request).ask(_shelf(request).change, "agents", name, {"status": wanted}))


@router.get(
    "/scripts/{name}/download",
    summary="A script and what is known of it, as an archive",
    dependencies=[LOOK],
    responses=PACKED,
)
async def download(request: Request, name: str) -> Response:
    script = await service_of(request).ask(_shelf(request).get, "scripts", name)
    about = {field: value for field, value in script.items() if field != "script_content"}
    files = {
        "script.json": json.dumps(about, indent=2),
        str(script.get("script_file") or f"{name}.py").rpartition("/")[2]: str(script.get("script_content") or ""),
    }
    return Response(_archive(files), media_type=ARCHIVE)


@router.get(
    "/config/export",
    summary="All blueprints and what belongs to them, as an archive",
    dependencies=[ADMIN],
    responses=PACKED,
)
async def export(request: Request) -> Response:
    everything = await service_of(request).ask(_shelf(request).everything)
    files = {f"{path}.json": json.dumps(body, indent=2) for path, body in sorted(everything.items())}
    headers = {"content-disposition": 'attachment; filename="config.tar.gz"'}
    return Response(_archive(files), headers=headers, media_type=ARCHIVE)


@router.post("/config/import", summary="Put an archive in the place of everything", dependencies=[ADMIN])
async def import_(request: Request) -> Response:
    """The archive as the body, or as the first file of a form."""
    file = _file_of(await request.body(), request.headers.get("content-type", ""))
    everything = await asyncio.to_thread(_unpacked, file)
    counts = await service_of(request).ask(_shelf(request).replace, everything)
    return views.told({"ok": True, "imported": {LISTS[kind]: count for kind, count in counts.items()}})


def _archive(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            entry, body = tarfile.TarInfo(name), text.encode()
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return packed.getvalue()


def _file_of(body: bytes, content_type: str) -> bytes:
    """The file in a form; the body itself if it is none."""
    kind, _, rest = content_type.partition("boundary=")
    if not kind.startswith("multipart/form-data") or not rest:
        return body
    mark = b"--" + rest.strip('"').encode("latin-1")
    part = next((part for part in body.split(mark) if b"filename=" in part.partition(b"\r\n\r\n")[0]), None)
    if part is None:
        raise Invalid("The form has no file in it.")
    return part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")


def _unpacked(body: bytes) -> dict[str, Any]:
    """What an archive holds, by kind and name; nothing of it is ever written to a disk."""
    everything: dict[str, Any] = {}
    try:
        # Unpacked first: what stands before an entry may itself be of any size.
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as packed:
            unpacked = packed.read(UNPACKED_BYTES + 1)
        if len(unpacked) > UNPACKED_BYTES:
            raise Invalid("The archive holds more than can be kept.")
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
            for entry in archive:
                if len(everything) > SHELF_KEPT or entry.size > 2 * SHELF_BYTES:
                    raise Invalid("The archive holds more than can be kept.")
                file = archive.extractfile(entry) if entry.isfile() and entry.name.endswith(".json") else None
                if file is not None:
                    everything[_path(entry.name)] = read(file.read())
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError) as error:
        raise Invalid(f"The archive cannot be read: {error}.") from error
    return everything


def _path(name: str) -> str:
    """Kind and name: `agents/x.json`, or as foreign archives have it, `agents/x/agent.json`."""
    parts = name.removeprefix("./").removesuffix(".json").split("/")
    kind = next((at for at, part in enumerate(parts) if part in KINDS), None)
    if kind is None or len(parts) < kind + 2:
        raise Invalid(f"{name[:80]!r} is nothing that is kept here; there are {', '.join(KINDS)}.")
    return f"{parts[kind]}/{parts[kind + 1]}"


def _routes_of(kind: Kind) -> None:
    """List, get, add, change and remove, of one kind."""

    async def page(request: Request) -> Response:
        return views.told({LISTS[kind]: await service_of(request).ask(_shelf(request).all, kind)})

    async def get(request: Request, name: str) -> Response:
        return views.told(await service_of(request).ask(_shelf(request).get, kind, name))

    async def add(request: Request) -> Response:
        fields = await fields_of(request)
        return views.told(await service_of(request).ask(_shelf(request).add, kind, fields), 201)

    async def change(request: Request, name: str) -> Response:
        fields = await fields_of(request)
        return views.told(await service_of(request).ask(_shelf(request).change, kind, name, fields))

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
