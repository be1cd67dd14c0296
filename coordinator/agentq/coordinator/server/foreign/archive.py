"""Archives of blueprints and what belongs to them, in the layout that other coordinators have on their disks.

    agents/NAME/agent.json              and agent.system-prompt.md, agent.mcp.json, .disabled
    capabilities/NAME/capability.json   and capability.text.md, capability.mcp.json
    scripts/NAME/script.json            and the file that it names
    mcp-servers/ID/mcp-server.json

Everything else in an archive, as a README.md, is passed over. `KIND/NAME.json`, as our own archives once had it, is
read as well. Nothing of an archive is ever written to a disk.
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

from agentq.coordinator.errors import Invalid
from agentq.coordinator.limits import SHELF_BYTES, SHELF_KEPT
from agentq.coordinator.server.foreign.shelf_kinds import KINDS, Kind
from agentq.coordinator.server.submitting import read

Fields = dict[str, Any]
UNPACKED_BYTES = 64 << 20
"""What an archive may hold in all, unpacked."""
FILES_EACH = 8
"""Files of one agent or script that are looked at, on average."""
MAIN: Mapping[str, str] = {
    "agents": "agent.json",
    "capabilities": "capability.json",
    "scripts": "script.json",
    "mcp-servers": "mcp-server.json",
}
BESIDE: Mapping[str, tuple[str, str]] = {
    "agents": ("system_prompt", "agent.system-prompt.md"),
    "capabilities": ("text", "capability.text.md"),
}
"""The field that stands in a file of its own, and that file."""
TOOLS: Mapping[str, str] = {"agents": "agent.mcp.json", "capabilities": "capability.mcp.json"}
DISABLED = ".disabled"
OF_THE_STORE = ("created_at", "modified_at", "updated_at")
"""What is said by whoever stores it."""

_FLAT = re.compile(r"([a-z-]+)/([^/]+)\.json")
_DEEP = re.compile(r"([a-z-]+)/([^/]+)/([^/]+)")


class NoArchive(Invalid):
    """It cannot be read, or nothing of what is kept here is in it."""


class Unpacked(NamedTuple):
    """What an archive holds: by kind and name, as `agents/researcher`; and the kinds that it speaks of."""

    everything: dict[str, Fields]
    kinds: tuple[Kind, ...]


def packed(files: Mapping[str, str], folders: Iterable[str] = ()) -> bytes:
    """An archive of these files."""
    archive_of = io.BytesIO()
    with tarfile.open(fileobj=archive_of, mode="w:gz") as archive:
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name, text in files.items():
            entry, body = tarfile.TarInfo(name), text.encode()
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return archive_of.getvalue()


def of_everything(everything: Mapping[str, Fields]) -> bytes:
    """All that is kept; a folder for each kind says that what is not in it is not there."""
    files: dict[str, str] = {}
    for path, body in sorted(everything.items()):
        kind, _, name = path.partition("/")
        assert kind in KINDS, path
        files |= {f"{path}/{file}": text for file, text in _files_of(kind, name, body).items()}
    return packed(files, KINDS)


def of_script(name: str, script: Fields) -> bytes:
    """A script and what is known of it, in a folder of its name."""
    return packed({f"{name}/{file}": text for file, text in _files_of("scripts", name, script).items()})


def _files_of(kind: str, name: str, body: Fields) -> dict[str, str]:
    about = {field: value for field, value in body.items() if field not in OF_THE_STORE and value is not None}
    files: dict[str, str] = {}
    if kind in BESIDE:
        field, file = BESIDE[kind]
        text = about.pop(field, None)
        if text:
            files[file] = str(text)
    if kind in TOOLS and about.get("mcp_servers"):
        files[TOOLS[kind]] = json.dumps({"mcpServers": about.pop("mcp_servers")}, indent=2)
    if kind == "agents" and about.pop("status", "active") == "inactive":
        files[DISABLED] = ""
    if kind == "scripts":
        about["script_file"] = _plain(str(about.get("script_file") or f"{name}.py"))
        files[about["script_file"]] = str(about.pop("script_content", ""))
    return {MAIN[kind]: json.dumps(about, indent=2), **files}


def _plain(file: str) -> str:
    """The name of a file without its folders: what is unpacked elsewhere stays in its folder."""
    return file.rpartition("/")[2] or "script"


def unpacked(body: bytes) -> Unpacked:
    """What an archive holds."""
    files: dict[str, bytes] = {}
    folders: set[str] = set()
    try:
        # Unpacked first: what stands before an entry may itself be of any size.
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as whole:
            content = whole.read(UNPACKED_BYTES + 1)
        if len(content) > UNPACKED_BYTES:
            raise NoArchive("The archive holds more than can be kept.")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for entry in archive:
                path = _within(entry.name)
                folders.add(path.partition("/")[0])
                file = archive.extractfile(entry) if entry.isfile() else None
                if file is None or not _is_known(path):
                    continue
                if len(files) > FILES_EACH * SHELF_KEPT or entry.size > 2 * SHELF_BYTES:
                    raise NoArchive("The archive holds more than can be kept.")
                files[path] = file.read()
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError) as error:
        raise NoArchive(f"The archive cannot be read: {error}.") from error
    kinds = tuple(kind for kind in KINDS if kind in folders)
    if not kinds:
        raise NoArchive(f"The archive has none of the folders {', '.join(KINDS)}.")
    return Unpacked(_everything(files), kinds)


def _within(name: str) -> str:
    """The path of an entry from the first folder of a kind on; all of them may stand in a folder together."""
    parts = name.removeprefix("./").strip("/").split("/")
    first = next((at for at, part in enumerate(parts) if part in KINDS), 0)
    return "/".join(parts[first:])


def _is_known(path: str) -> bool:
    flat, deep = _FLAT.fullmatch(path), _DEEP.fullmatch(path)
    if flat is not None:
        return flat[1] in KINDS
    if deep is None or deep[1] not in KINDS:
        return False
    known = (MAIN[deep[1]], BESIDE.get(deep[1], ("", ""))[1], TOOLS.get(deep[1]), DISABLED)
    return deep[1] == "scripts" or deep[3] in known


def _everything(files: Mapping[str, bytes]) -> dict[str, Fields]:
    found: dict[str, Fields] = {}
    for path, content in files.items():
        kind, name = path.split("/")[:2]
        if _FLAT.fullmatch(path) is not None:
            found[f"{kind}/{name.removesuffix('.json')}"] = _object(path, content)
        elif path == f"{kind}/{name}/{MAIN[kind]}":
            found[f"{kind}/{name}"] = _one(kind, f"{kind}/{name}", files)
    return found


def _one(kind: str, at: str, files: Mapping[str, bytes]) -> Fields:
    """One of a kind, put together from its files."""
    about = _object(f"{at}/{MAIN[kind]}", files[f"{at}/{MAIN[kind]}"])
    if kind in BESIDE:
        field, file = BESIDE[kind]
        if f"{at}/{file}" in files:
            about[field] = _text(f"{at}/{file}", files)
    if kind in TOOLS and f"{at}/{TOOLS[kind]}" in files:
        about["mcp_servers"] = _object(f"{at}/{TOOLS[kind]}", files[f"{at}/{TOOLS[kind]}"]).get("mcpServers")
    if kind == "agents":
        about["status"] = "inactive" if f"{at}/{DISABLED}" in files else about.get("status", "active")
    if kind == "scripts" and "script_content" not in about:
        file = f"{at}/{_plain(str(about.get('script_file') or ''))}"
        if file not in files:
            raise NoArchive(f"{at}: the archive lacks the file that script_file names.")
        about["script_content"] = _text(file, files)
    return about


def _object(path: str, content: bytes) -> Fields:
    try:
        found = read(content)
    except (Invalid, ValueError) as error:
        raise NoArchive(f"{path[:80]}: {error}") from error
    if not isinstance(found, dict):
        raise NoArchive(f"{path[:80]}: it should be a JSON object.")
    return found


def _text(path: str, files: Mapping[str, bytes]) -> str:
    try:
        return files[path].decode()
    except UnicodeDecodeError as error:
        raise NoArchive(f"{path[:80]}: it is no text in UTF-8.") from error
