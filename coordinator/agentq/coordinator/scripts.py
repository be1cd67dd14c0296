"""The Lua scripts: found as files, completed from the Python tables, checked against what Python says it sends.

A script file begins with a header that names its arguments, replies, verbs and flags, and goes on with the body. What
the server gets is the flags, the namespace's base and key builders, the limits, the arrows of those verbs, what the
body needs of the prelude and of what the header `USES` (see `linking`), and the body as `main`. Every script has one
key, the base of its partition, which routes it in a cluster; all keys it touches share that slot. It is called by the
digest of its text, so that two versions of agentq can share a server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from types import MappingProxyType

from agentq.coordinator import limits
from agentq.coordinator.connection import Source
from agentq.coordinator.keys import lua_builders
from agentq.coordinator.lifecycle import BUDGETS, TRANSITIONS
from agentq.coordinator.linking import linked, words_in

Patch = Callable[[str, str], str]
"""Changes the text of a script, given its name; how tests plant bugs and how a server without flags is served."""


Bounds = Mapping[str, int]
"""Limits by name, where others are set than those of limits.py."""
NO_BOUNDS: Bounds = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Header:
    """What a script file says of itself."""

    purpose: str
    arguments: tuple[str, ...]
    rows: tuple[str, ...]
    reply: str
    verbs: tuple[str, ...]
    flags: str
    uses: tuple[str, ...]


def read_file(name: str) -> str:
    """The text of a script file, `subject/verb`."""
    return (files("agentq.coordinator") / "lua" / f"{name}.lua").read_text(encoding="utf-8")


def read_shared(name: str) -> str:
    """The text of a file that scripts share."""
    return read_file(f"shared/{name}")


def read_header(name: str, text: str) -> Header:
    """Parse the comment that a script file begins with."""
    comment = text.partition("]]")[0]
    purpose = re.match(r"--\[\[ ([\w/]+): (.*)", comment)
    if purpose is None or purpose[1] != name:
        raise ValueError(f"lua/{name}.lua does not begin with '--[[ {name}: what it does'")
    fields = dict(re.findall(r"^([A-Z]{4,})(?= |$) *(.*)$", comment, re.MULTILINE))
    unknown = fields.keys() - {"KEYS", "ARGV", "ROWS", "REPLY", "VERBS", "FLAGS", "USES"}
    if unknown or fields.get("KEYS") != "base" or not fields["ARGV"].startswith("now_ms"):
        raise ValueError(f"lua/{name}.lua has a header that is not understood: {fields}")
    return Header(
        purpose[2],
        tuple(fields["ARGV"].split()[1:]),
        tuple(fields.get("ROWS", "").split()),
        fields["REPLY"].strip(),
        tuple(fields["VERBS"].split()),
        fields["FLAGS"].strip(),
        tuple(fields.get("USES", "").split()),
    )


class Script:
    """One verb's script, with the arguments that Python sends: first `arguments`, then any number of `rows`."""

    def __init__(self, name: str, arguments: str = "", rows: str = "") -> None:
        self.name = name
        self.text = read_file(name)
        self.header = read_header(name, self.text)
        self.width = len(self.header.rows)
        if (self.header.arguments, self.header.rows) != (tuple(arguments.split()), tuple(rows.split())):
            raise TypeError(f"lua/{name}.lua takes {self.header.arguments} {self.header.rows}, not what Python sends")

    def assemble(self, patch: Patch | None = None, bounds: Bounds = NO_BOUNDS) -> Source:
        """The text for the server; a patch sees each file's text first, with its name."""
        patched = patch or (lambda _, text: text)
        closing = "" if "no-writes" in self.header.flags else "flush_writes()"
        body = patched(self.name, self.text)
        files = [_body(name, patched(name, read_shared(name))) for name in ("prelude", "lanes", *self.header.uses)]
        rest = f"{_body(self.name, body)}\nend\nlocal reply = main()\n{closing}"
        shared, body = linked(files, rest, lua_builders())
        parts = [
            f"#!lua flags={self.header.flags.replace(' ', ',')}" if self.header.flags else "#!lua",
            "local base = KEYS[1]",
            _limits_lua(words_in((shared, body)), bounds),
            _arrows_lua(self.header.verbs),
            shared,
            self._arguments_lua(),
            "local function main()",
            body,
            "return reply",
        ]
        text = patched("whole", "\n".join(parts))
        return Source(self.name, text, sha1(text.encode()).hexdigest())

    def _arguments_lua(self) -> str:
        lines = [f"local {name} = ARGV[{place}]" for place, name in enumerate(self.header.arguments, 2)]
        if self.header.rows:
            first = len(self.header.arguments) + 2
            columns = ", ".join(f"ARGV[row + {place}]" for place in range(self.width))
            lines += [
                f"local row = {first - self.width}",
                f"local function next_row() row = row + {self.width} return {columns} end",
            ]
        return "\n".join(lines)


def _body(name: str, text: str) -> str:
    head, end, body = text.partition("]]")
    return f"-- {name}.lua{body}" if end and head.startswith("--[[") else text


def _limits_lua(words: Set[str], bounds: Bounds) -> str:
    used = {name: bounds.get(name, value) for name, value in vars(limits).items() if name.isupper() and name in words}
    return f"local {', '.join(used)} = {', '.join(map(str, used.values()))}" if used else ""


def _arrows_lua(verbs: tuple[str, ...]) -> str:
    """The arrows of these verbs as one text: it costs nothing to make, where a table is made anew in each call."""
    arrows = [
        f";{verb} {source} {target} {row.event}"
        for verb in verbs
        for row in TRANSITIONS
        for source, target in row.arrows()
        if row.verb == verb and source is not None
    ]
    text = f"local ARROWS = '{''.join(arrows)}'"
    if {"fail", "lose", "defer"} & set(verbs):
        text += f"\nlocal BUDGETS = '{''.join(f' {outcome}={budget}' for outcome, budget in BUDGETS.items())}'"
    return text


SCRIPTS: Mapping[str, Script] = MappingProxyType(
    {
        script.name: script
        for script in (
            Script("token/check", "units per_ms burst", "token shown"),
            Script("worker/claim_delivered", "worker epoch nonce count calls", "lane entry"),
            Script("session/set_alias", "alias session keep_ms"),
            Script("dialect/get_runners", "", "runner"),
            Script("webhook/update", "name state why secret overlap_ms op"),
            Script(
                "webhook/record_delivery",
                "name owner lasts_ms op message type body at ok status error took_ms gone wait_ms dice",
            ),
            Script("repair/limit", "limit"),
            Script("queue/close_intake", "queue why"),
            Script("session/create", "name agent cwd model budgets fork op"),
            Script("conversation/bind", "id fence agent_session host account model movable"),
            Script("schedule/record_fault", "name revision why"),
            Script("namespace/bootstrap", "schema partitions"),
            Script("run/cancel", "id reason stop_ms parent fence"),
            Script("conversation/get_transcript", "id fence"),
            Script("conversation/save_transcript", "id fence transcript"),
            Script("worker/claim", "worker epoch nonce count calls fresh", "lane"),
            Script("session/close", "name cancel"),
            Script("conversation/get", "id fence"),
            Script("run/count", "states", "queue"),
            Script("worker/list", "which cursor count"),
            Script("attempt/defer", "id fence due_at_ms delay_ms outcome gate dice"),
            Script("rq/push_job", "id lane job head tail timed"),
            Script("run/add_dependencies", "id seal expires_ms", "parent"),
            Script("worker/deregister", "worker epoch"),
            Script("session/delete", "name"),
            Script("worker/drain", "worker epoch detail order"),
            Script("schedule/list_due", "count"),
            Script(
                "worker/finish_and_claim", "worker epoch way nonce calls dice lanes", "id fence class outcome delay_ms"
            ),
            Script("attempt/fail", "id fence class outcome dice delay_ms"),
            Script("attempt/finish", "", "id fence outcome"),
            Script("schedule/fire", "name revision expected_ms tick_ms id next_ms wake_ms"),
            Script("run/delete", "", "id state"),
            Script("limit/block_until", "limit until_ms why"),
            Script("repair/lane", "lane idle_ms"),
            Script("plan/cancel", "plan why"),
            Script("run/read_results", "queues", "id"),
            Script("worker/heartbeat", "worker epoch lease_ms grace_ms dice applied", "run fence"),
            Script("webhook/create", "name url which secret at op"),
            Script("merge/record_step", "id fence work"),
            Script("merge/get_step", "id fence"),
            Script("rq/import_jobs", "lane source head tail timed room", "id"),
            Script("duty/lock", "owner lasts_ms gap_ms"),
            Script("queue/list_lanes"),
            Script("limit/set", "limit max units per_ms burst when_full"),
            Script("limit/list", "", "limit"),
            Script("merge/enter_queue", "id fence line commit ref"),
            Script("run/list", "plan session before after count class since_ms until_ms ending maker", "queue state"),
            Script("attempt/append_log", "id fence number", "stream text"),
            Script("dialect/set_fields", "kind keep_ms", "id name value"),
            Script("worker/evict", "worker epoch dice why"),
            Script("dialect/track_callbacks", "what", "id"),
            Script("run/get_metrics", "", "id"),
            Script("token/create", "token name kind digest scopes queues units per_ms burst expires_at_ms"),
            Script("attempt/park", "id fence alarm_at_ms alarm_ms reason signals children saved"),
            Script("queue/pause", "queue why"),
            Script("merge/pin_base", "id fence place base_commit"),
            Script("plan/create", "plan name on_failed expected source budget secret"),
            Script("plan/list", "before count", "plan"),
            Script("namespace/use_idempotency_key", "digest body answer lasts_ms"),
            Script("queue/purge", "queue state why"),
            Script("queue/get_rates", "window_ms most"),
            Script("duty/reap_workers", "server gap_ms lease_ms grace_ms dice"),
            Script("rq/return_jobs", "queue lane source before count delete why"),
            Script("attempt/get_wait_result", "id fence after"),
            Script("repair/queue", "queue dice", "state"),
            Script("schedule/resume", "name revision expected_ms next_ms wake_ms"),
            Script("webhook/redeliver", "name message op"),
            Script("worker/register", "worker epoch op lease_ms dice identity"),
            Script("attempt/release", "id fence reason"),
            Script("attempt/report_progress", "id fence number progress"),
            Script("run/requeue", "id op"),
            Script("queue/resume", "queue"),
            Script("plan/retry", "plan which op"),
            Script("token/revoke", "token"),
            Script("schedule/put", "name revision_before revision overlap rule lane spec door next_ms wake_ms"),
            Script("plan/seal", "plan"),
            Script("session/list", "before count", "name"),
            Script("duty/notify_dependents"),
            Script("dialect/put_blueprints", "wipe expected", "name value"),
            Script("run/signal", "id op name data by"),
            Script("conversation/record_spending", "id fence cost input cached output turns totals"),
            Script("attempt/start", "", "id fence"),
            Script("merge/leave_queue", "id fence line"),
            Script("run/submit", "", "id lane spec door"),
            Script("schedule/pause", "name why"),
            Script("dialect/append_event", "session run op event keep_ms"),
            Script("repair/plan", "plan"),
            Script("plan/list_tasks", "plan after count", "state"),
            Script("duty/run_timers"),
            Script("queue/move_runs", "queue state target"),
            Script("schedule/trigger", "name id"),
            Script("webhook/lease", "name owner lasts_ms at"),
            Script("rq/list_unreported", "queue cursor count"),
            Script("webhook/delete", "name"),
            Script("schedule/delete", "name"),
            Script("repair/state_indexes", "", "state"),
            Script("run/wake", "id"),
            Script("webhook/list", "", "name"),
            Script("queue/set_weight", "queue fair weight"),
            Script("run/locate", "", "id"),
            Script("rq/remove_job", "queue source job"),
        )
    }
)


class ScriptSet:
    """All scripts, ready to be sent."""

    def __init__(self, patch: Patch | None = None, bounds: Bounds = NO_BOUNDS) -> None:
        self._patch = patch
        self._bounds = bounds
        self._sources: dict[str, Source] = {}

    def source(self, script: Script) -> Source:
        """The assembled text of a script, made once."""
        found = self._sources.get(script.name)
        if found is None:
            found = self._sources[script.name] = script.assemble(self._patch, self._bounds)
        return found
