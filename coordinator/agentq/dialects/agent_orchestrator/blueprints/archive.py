"""Packs and reads archives of blueprints and related items, in the layout that other coordinators use on disk.

    agents/NAME/agent.json              and agent.system-prompt.md, agent.mcp.json, .disabled
    capabilities/NAME/capability.json   and capability.text.md, capability.mcp.json
    scripts/NAME/script.json            and the file that it names
    mcp-servers/ID/mcp-server.json

Other files in an archive, such as a README.md, are ignored. `KIND/NAME.json`, the layout of older archives of agentq,
is read as well. Nothing from an archive is ever written to a disk.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agentq.coordinator.bounds import BLUEPRINT_BYTES, BLUEPRINTS_KEPT
from agentq.coordinator.errors import Invalid
from agentq.dialects.agent_orchestrator.blueprints.models import KINDS, Kind
from agentq.server.submission import parse_json

Fields = dict[str, Any]
UNPACKED_BYTES_MAX = 64 << 20
"""The largest size of an unpacked archive."""
FILES_PER_ITEM = 8
"""Files per agent or script, on average; an archive with more is refused."""
MAIN_FILES: Mapping[str, str] = {
    "agents": "agent.json",
    "capabilities": "capability.json",
    "scripts": "script.json",
    "mcp-servers": "mcp-server.json",
}
TEXT_FILES: Mapping[str, tuple[str, str]] = {
    "agents": ("system_prompt", "agent.system-prompt.md"),
    "capabilities": ("text", "capability.text.md"),
}
"""The field that is stored in a file of its own, and the name of that file."""
MCP_FILES: Mapping[str, str] = {"agents": "agent.mcp.json", "capabilities": "capability.mcp.json"}
DISABLED_FILE = ".disabled"
STORE_FIELDS = ("created_at", "modified_at", "updated_at")
"""Fields that the store sets, and an archive does not contain."""

_FLAT_PATH = re.compile(r"([a-z-]+)/([^/]+)\.json")
_NESTED_PATH = re.compile(r"([a-z-]+)/([^/]+)/([^/]+)")


class InvalidArchive(Invalid):
    """The archive cannot be read, or contains no known folder."""


class UnpackedArchive(NamedTuple):
    """The contents of an archive: items by kind and name, such as `agents/researcher`, and the kinds that have a
    folder."""

    items: dict[str, Fields]
    kinds: tuple[Kind, ...]


def pack_files(files: Mapping[str, str], folders: Iterable[str] = ()) -> bytes:
    """Pack files into an archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name, text in files.items():
            entry, body = tarfile.TarInfo(name), text.encode()
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return buffer.getvalue()


def pack_all(items: Mapping[str, Fields]) -> bytes:
    """Pack all items. Every kind has a folder, so that an import also removes items that are not in the archive."""
    files: dict[str, str] = {}
    for path, body in sorted(items.items()):
        kind, _, name = path.partition("/")
        assert kind in KINDS, path
        files |= {f"{path}/{file}": text for file, text in _build_files(kind, name, body).items()}
    return pack_files(files, KINDS)


def pack_script(name: str, script: Fields) -> bytes:
    """Pack a script and its description in a folder of its name."""
    return pack_files({f"{name}/{file}": text for file, text in _build_files("scripts", name, script).items()})


def _build_files(kind: str, name: str, body: Fields) -> dict[str, str]:
    fields = {field: value for field, value in body.items() if field not in STORE_FIELDS and value is not None}
    files: dict[str, str] = {}
    if kind in TEXT_FILES:
        field, file = TEXT_FILES[kind]
        text = fields.pop(field, None)
        if text:
            files[file] = str(text)
    if kind in MCP_FILES and fields.get("mcp_servers"):
        files[MCP_FILES[kind]] = json.dumps({"mcpServers": fields.pop("mcp_servers")}, indent=2)
    if kind == "agents" and fields.pop("status", "active") == "inactive":
        files[DISABLED_FILE] = ""
    if kind == "scripts":
        fields["script_file"] = _strip_folders(str(fields.get("script_file") or f"{name}.py"))
        files[fields["script_file"]] = str(fields.pop("script_content", ""))
    return {MAIN_FILES[kind]: json.dumps(fields, indent=2), **files}


def _strip_folders(file: str) -> str:
    """The name of a file without its folders, so that a runner unpacks it into the item's own folder."""
    return file.rpartition("/")[2] or "script"


def unpack_archive(body: bytes) -> UnpackedArchive:
    """Read the contents of an archive."""
    files: dict[str, bytes] = {}
    folders: set[str] = set()
    try:
        # Decompress first, with a limit: the headers before an entry can be of any size.
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as compressed:
            content = compressed.read(UNPACKED_BYTES_MAX + 1)
        if len(content) > UNPACKED_BYTES_MAX:
            raise InvalidArchive("The archive holds more than can be kept.")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for entry in archive:
                path = _find_item_path(entry.name)
                folders.add(path.partition("/")[0])
                file = archive.extractfile(entry) if entry.isfile() else None
                if file is None or not _is_known_path(path):
                    continue
                if len(files) > FILES_PER_ITEM * BLUEPRINTS_KEPT or entry.size > 2 * BLUEPRINT_BYTES:
                    raise InvalidArchive("The archive holds more than can be kept.")
                files[path] = file.read()
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError) as error:
        raise InvalidArchive(f"The archive cannot be read: {error}.") from error
    kinds = tuple(kind for kind in KINDS if kind in folders)
    if not kinds:
        raise InvalidArchive(f"The archive has none of the folders {', '.join(KINDS)}.")
    return UnpackedArchive(_read_items(files), kinds)


def _find_item_path(name: str) -> str:
    """The path of an entry from the folder of its kind on. All of these may be in a common folder."""
    parts = name.removeprefix("./").strip("/").split("/")
    first = next((at for at, part in enumerate(parts) if part in KINDS), 0)
    return "/".join(parts[first:])


def _is_known_path(path: str) -> bool:
    flat, deep = _FLAT_PATH.fullmatch(path), _NESTED_PATH.fullmatch(path)
    if flat is not None:
        return flat[1] in KINDS
    if deep is None or deep[1] not in KINDS:
        return False
    known = (MAIN_FILES[deep[1]], TEXT_FILES.get(deep[1], ("", ""))[1], MCP_FILES.get(deep[1]), DISABLED_FILE)
    return deep[1] == "scripts" or deep[3] in known


def _read_items(files: Mapping[str, bytes]) -> dict[str, Fields]:
    found: dict[str, Fields] = {}
    for path, content in files.items():
        kind, name = path.split("/")[:2]
        if _FLAT_PATH.fullmatch(path) is not None:
            found[f"{kind}/{name.removesuffix('.json')}"] = _parse_object(path, content)
        elif path == f"{kind}/{name}/{MAIN_FILES[kind]}":
            found[f"{kind}/{name}"] = _read_item(kind, f"{kind}/{name}", files)
    return found


def _read_item(kind: str, at: str, files: Mapping[str, bytes]) -> Fields:
    """Read one item from its files."""
    fields = _parse_object(f"{at}/{MAIN_FILES[kind]}", files[f"{at}/{MAIN_FILES[kind]}"])
    if kind in TEXT_FILES:
        field, file = TEXT_FILES[kind]
        if f"{at}/{file}" in files:
            fields[field] = _read_text(f"{at}/{file}", files)
    if kind in MCP_FILES and f"{at}/{MCP_FILES[kind]}" in files:
        fields["mcp_servers"] = _parse_object(f"{at}/{MCP_FILES[kind]}", files[f"{at}/{MCP_FILES[kind]}"]).get(
            "mcpServers"
        )
    if kind == "agents":
        fields["status"] = "inactive" if f"{at}/{DISABLED_FILE}" in files else fields.get("status", "active")
    if kind == "scripts" and "script_content" not in fields:
        file = f"{at}/{_strip_folders(str(fields.get('script_file') or ''))}"
        if file not in files:
            raise InvalidArchive(f"{at}: the archive lacks the file that script_file names.")
        fields["script_content"] = _read_text(file, files)
    return fields


def _parse_object(path: str, content: bytes) -> Fields:
    try:
        found = parse_json(content)
    except (Invalid, ValueError) as error:
        raise InvalidArchive(f"{path[:80]}: {error}") from error
    if not isinstance(found, dict):
        raise InvalidArchive(f"{path[:80]}: it should be a JSON object.")
    return found


def _read_text(path: str, files: Mapping[str, bytes]) -> str:
    try:
        return files[path].decode()
    except UnicodeDecodeError as error:
        raise InvalidArchive(f"{path[:80]}: it is no text in UTF-8.") from error
