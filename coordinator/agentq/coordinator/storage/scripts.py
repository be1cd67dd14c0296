"""The Lua scripts: found as files, completed from Python tables, checked against the arguments that Python sends.

A script file begins with a header that names its arguments, replies, verbs and flags, and goes on with the body. What
the server gets is the flags, the namespace's base and key builders, the limits, the arrows of those verbs, what the
body needs of the prelude and of what the header `USES` (see `lua_linker`), and the body as `main`. Every script has one
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

from agentq.coordinator import bounds as limits
from agentq.coordinator.model.lifecycle import CLASS_BUDGETS, TRANSITIONS
from agentq.coordinator.storage.connection import ScriptSource
from agentq.coordinator.storage.keys import lua_builders
from agentq.coordinator.storage.lua_linker import collect_words, link_script

ScriptPatch = Callable[[str, str], str]
"""Changes the text of a script, given its name; how tests plant bugs and how a server without flags is served."""


LimitOverrides = Mapping[str, int]
"""Limits by name, where others are set than those of limits.py."""
NO_LIMIT_OVERRIDES: LimitOverrides = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ScriptHeader:
    """What a script file says of itself."""

    purpose: str
    arguments: tuple[str, ...]
    rows: tuple[str, ...]
    reply: str
    verbs: tuple[str, ...]
    flags: str
    uses: tuple[str, ...]


def read_script(name: str) -> str:
    """The text of a script file, `subject/verb`."""
    return (files("agentq.coordinator") / "lua" / f"{name}.lua").read_text(encoding="utf-8")


def read_shared(name: str) -> str:
    """The text of a file that scripts share."""
    return read_script(f"shared/{name}")


def parse_header(name: str, text: str) -> ScriptHeader:
    """Parse the comment that a script file begins with."""
    comment = text.partition("]]")[0]
    purpose = re.match(r"--\[\[ ([\w/]+): (.*)", comment)
    if purpose is None or purpose[1] != name:
        raise ValueError(f"lua/{name}.lua does not begin with '--[[ {name}: what it does'")
    fields = dict(re.findall(r"^([A-Z]{4,})(?= |$) *(.*)$", comment, re.MULTILINE))
    unknown = fields.keys() - {"KEYS", "ARGV", "ROWS", "REPLY", "VERBS", "FLAGS", "USES"}
    if unknown or fields.get("KEYS") != "base" or not fields["ARGV"].startswith("now_ms"):
        raise ValueError(f"lua/{name}.lua has a header that is not understood: {fields}")
    return ScriptHeader(
        purpose[2],
        tuple(fields["ARGV"].split()[1:]),
        tuple(fields.get("ROWS", "").split()),
        fields["REPLY"].strip(),
        tuple(fields["VERBS"].split()),
        fields["FLAGS"].strip(),
        tuple(fields.get("USES", "").split()),
    )


class LuaScript:
    """One verb's script, with the arguments that Python sends: first `arguments`, then any number of `rows`."""

    def __init__(self, name: str, arguments: str = "", rows: str = "") -> None:
        self.name = name
        self.text = read_script(name)
        self.header = parse_header(name, self.text)
        self.width = len(self.header.rows)
        if (self.header.arguments, self.header.rows) != (tuple(arguments.split()), tuple(rows.split())):
            raise TypeError(f"lua/{name}.lua takes {self.header.arguments} {self.header.rows}, not what Python sends")

    def assemble(self, patch: ScriptPatch | None = None, bounds: LimitOverrides = NO_LIMIT_OVERRIDES) -> ScriptSource:
        """The text for the server; a patch sees each file's text first, with its name."""
        patched = patch or (lambda _, text: text)
        closing = "" if "no-writes" in self.header.flags else "flush_writes()"
        body = patched(self.name, self.text)
        files = [
            _strip_header(name, patched(name, read_shared(name))) for name in ("prelude", "lanes", *self.header.uses)
        ]
        rest = f"{_strip_header(self.name, body)}\nend\nlocal reply = main()\n{closing}"
        shared, body = link_script(files, rest, lua_builders())
        parts = [
            f"#!lua flags={self.header.flags.replace(' ', ',')}" if self.header.flags else "#!lua",
            "local base = KEYS[1]",
            _render_limits(collect_words((shared, body)), bounds),
            _render_transitions(self.header.verbs),
            shared,
            self._arguments_lua(),
            "local function main()",
            body,
            "return reply",
        ]
        text = patched("whole", "\n".join(parts))
        return ScriptSource(self.name, text, sha1(text.encode()).hexdigest())

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


def _strip_header(name: str, text: str) -> str:
    head, end, body = text.partition("]]")
    return f"-- {name}.lua{body}" if end and head.startswith("--[[") else text


def _render_limits(words: Set[str], bounds: LimitOverrides) -> str:
    used = {name: bounds.get(name, value) for name, value in vars(limits).items() if name.isupper() and name in words}
    return f"local {', '.join(used)} = {', '.join(map(str, used.values()))}" if used else ""


def _render_transitions(verbs: tuple[str, ...]) -> str:
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
        text += f"\nlocal BUDGETS = '{''.join(f' {outcome}={budget}' for outcome, budget in CLASS_BUDGETS.items())}'"
    return text


SCRIPTS: Mapping[str, LuaScript] = MappingProxyType(
    {
        script.name: script
        for script in (
            LuaScript("token/check", "units per_ms burst", "token shown"),
            LuaScript("worker/claim_delivered", "worker epoch nonce count calls", "lane entry"),
            LuaScript("session/set_alias", "alias session keep_ms"),
            LuaScript("dialect/get_runners", "", "runner"),
            LuaScript("webhook/update", "name state why secret overlap_ms operation"),
            LuaScript(
                "webhook/record_delivery",
                "name owner lease_ms operation message type body positions ok status error took_ms gone wait_ms random",
            ),
            LuaScript("repair/limit", "limit"),
            LuaScript("queue/close_intake", "queue why"),
            LuaScript("session/create", "name agent cwd model budgets fork operation"),
            LuaScript("conversation/bind", "id fence agent_session host account model movable"),
            LuaScript("schedule/record_fault", "name revision why"),
            LuaScript("namespace/bootstrap", "schema partitions"),
            LuaScript("run/cancel", "id reason stop_ms parent fence"),
            LuaScript("conversation/get_transcript", "id fence"),
            LuaScript("conversation/save_transcript", "id fence transcript"),
            LuaScript("worker/claim", "worker epoch nonce count calls with_read", "lane"),
            LuaScript("session/close", "name cancel"),
            LuaScript("conversation/get", "id fence"),
            LuaScript("run/count", "states", "queue"),
            LuaScript("worker/list", "set cursor count"),
            LuaScript("attempt/defer", "id fence due_at_ms delay_ms outcome account_limit random"),
            LuaScript("rq/push_job", "id lane job head tail timeout_parts"),
            LuaScript("run/add_dependencies", "id seal expires_ms", "parent"),
            LuaScript("worker/deregister", "worker epoch"),
            LuaScript("session/delete", "name"),
            LuaScript("worker/drain", "worker epoch detail order"),
            LuaScript("schedule/list_due", "count"),
            LuaScript(
                "worker/finish_and_claim",
                "worker epoch caller nonce calls random lanes",
                "id fence class outcome delay_ms",
            ),
            LuaScript("attempt/fail", "id fence class outcome random delay_ms"),
            LuaScript("attempt/finish", "", "id fence outcome"),
            LuaScript("schedule/fire", "name revision expected_ms tick_ms id next_ms wake_ms"),
            LuaScript("run/delete", "", "id state"),
            LuaScript("limit/block_until", "limit until_ms why"),
            LuaScript("repair/lane", "lane idle_ms"),
            LuaScript("plan/cancel", "plan why"),
            LuaScript("run/read_results", "queues", "id"),
            LuaScript("worker/heartbeat", "worker epoch lease_ms grace_ms random applied", "run fence"),
            LuaScript("webhook/create", "name url filter secret positions operation"),
            LuaScript("merge/record_step", "id fence merge_progress"),
            LuaScript("merge/get_step", "id fence"),
            LuaScript("rq/import_jobs", "lane source head tail timeout_parts room", "id"),
            LuaScript("duty/lock", "owner ttl_ms gap_ms"),
            LuaScript("queue/list_lanes"),
            LuaScript("limit/set", "limit max units per_ms burst when_full"),
            LuaScript("limit/list", "", "limit"),
            LuaScript("merge/enter_queue", "id fence line commit ref"),
            LuaScript(
                "run/list", "plan session before after count class since_ms until_ms id_suffix token", "queue state"
            ),
            LuaScript("attempt/append_log", "id fence number", "stream text"),
            LuaScript("dialect/set_fields", "kind keep_ms", "id name value"),
            LuaScript("worker/evict", "worker epoch random why"),
            LuaScript("dialect/track_callbacks", "what", "id"),
            LuaScript("run/get_metrics", "", "id"),
            LuaScript("token/create", "token name kind digest scopes queues units per_ms burst expires_at_ms"),
            LuaScript("attempt/park", "id fence alarm_at_ms alarm_ms reason signals children saved_state"),
            LuaScript("queue/pause", "queue why"),
            LuaScript("merge/pin_base", "id fence place base_commit"),
            LuaScript("plan/create", "plan name on_failed expected source budget secret"),
            LuaScript("plan/list", "before count", "plan"),
            LuaScript("namespace/use_idempotency_key", "digest body answer ttl_ms"),
            LuaScript("queue/purge", "queue state why"),
            LuaScript("queue/get_rates", "window_ms most"),
            LuaScript("duty/reap_workers", "server gap_ms lease_ms grace_ms random"),
            LuaScript("rq/return_jobs", "queue lane source before count delete why"),
            LuaScript("attempt/get_wait_result", "id fence after"),
            LuaScript("repair/queue", "queue random", "state"),
            LuaScript("schedule/resume", "name revision expected_ms next_ms wake_ms"),
            LuaScript("webhook/redeliver", "name message operation"),
            LuaScript("worker/register", "worker epoch operation lease_ms random identity"),
            LuaScript("attempt/release", "id fence reason"),
            LuaScript("attempt/report_progress", "id fence number progress"),
            LuaScript("run/requeue", "id operation"),
            LuaScript("queue/resume", "queue"),
            LuaScript("plan/retry", "plan scope operation"),
            LuaScript("token/revoke", "token"),
            LuaScript("schedule/put", "name revision_before revision overlap rule lane spec options next_ms wake_ms"),
            LuaScript("plan/seal", "plan"),
            LuaScript("session/list", "before count", "name"),
            LuaScript("duty/notify_dependents"),
            LuaScript("dialect/put_blueprints", "wipe expected", "name value"),
            LuaScript("run/signal", "id operation name data by"),
            LuaScript("conversation/record_spending", "id fence cost input cached output turns totals"),
            LuaScript("attempt/start", "", "id fence"),
            LuaScript("merge/leave_queue", "id fence line"),
            LuaScript("run/submit", "", "id lane spec options"),
            LuaScript("schedule/pause", "name why"),
            LuaScript("dialect/append_event", "session run operation event keep_ms"),
            LuaScript("repair/plan", "plan"),
            LuaScript("plan/list_tasks", "plan after count", "state"),
            LuaScript("duty/run_timers"),
            LuaScript("queue/move_runs", "queue state target"),
            LuaScript("schedule/trigger", "name id"),
            LuaScript("webhook/lease", "name owner lease_ms positions"),
            LuaScript("rq/list_unreported", "queue cursor count"),
            LuaScript("webhook/delete", "name"),
            LuaScript("schedule/delete", "name"),
            LuaScript("repair/state_indexes", "", "state"),
            LuaScript("run/wake", "id"),
            LuaScript("webhook/list", "", "name"),
            LuaScript("queue/set_weight", "queue fair weight"),
            LuaScript("run/locate", "", "id"),
            LuaScript("rq/remove_job", "queue source job"),
        )
    }
)


class ScriptSet:
    """All scripts, ready to be sent."""

    def __init__(self, patch: ScriptPatch | None = None, bounds: LimitOverrides = NO_LIMIT_OVERRIDES) -> None:
        self._patch = patch
        self._bounds = bounds
        self._sources: dict[str, ScriptSource] = {}

    def source(self, script: LuaScript) -> ScriptSource:
        """The assembled text of a script, made once."""
        found = self._sources.get(script.name)
        if found is None:
            found = self._sources[script.name] = script.assemble(self._patch, self._bounds)
        return found
