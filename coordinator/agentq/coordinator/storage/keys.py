"""Every key in Redis: its name, its type, what it holds and how long it lives. No other file builds one.

All keys of a partition begin with its base, `agentq:{namespace}:`, whose braces make them share a cluster slot. A
namespace of several partitions uses `agentq:{namespace.0}:`, `agentq:{namespace.1}:` and so on; its schema and number
of partitions stand under the plain base. Scripts get the base and build keys with functions that `lua_builders` makes
from the same table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, zip_longest

from agentq.coordinator.bounds import PARTITIONS
from agentq.coordinator.errors import Invalid

CONSUMER_GROUP = "workers"
"""The one consumer group of every lane and inbox; a consumer is named like its worker."""


@dataclass(frozen=True, slots=True)
class KeyKind:
    """One kind of key. `<parts>` in the pattern are filled in."""

    name: str
    pattern: str
    type: str
    holds: str
    lifetime: str

    @property
    def parts(self) -> list[str]:
        return re.findall(r"<(\w+)>", self.pattern)


KEY_KINDS = (
    KeyKind("schema", "schema", "string", "`agentq <major>.<minor>` of the layout", "for ever: it guards the rest"),
    KeyKind("partitions", "partitions", "string", "number of partitions", "for ever: it guards the rest"),
    KeyKind("run", "run:<run>", "hash", "a run: spec, state, attempts", "until its retention ends, days after its end"),
    KeyKind("dependencies", "run:<run>:dependencies", "set", "dependencies that have not ended",
        "while the run is blocked"),
    KeyKind("dependents", "run:<run>:dependents", "zset", "runs that depend on this one, by id",
        "until they are notified"),
    KeyKind("pending_signals", "run:<run>:pending_signals", "stream", "signals not received yet, oldest first",
        "until the run ends; capped"),
    KeyKind("signal_ids", "run:<run>:signal_ids", "zset", "operation ids of the signals sent to it, by time",
        "deleted with its run; capped"),
    KeyKind("children", "run:<run>:children", "zset", "runs it submitted that have not ended, by id",
        "a member is removed when it ends; the rest when the run ends, or once they are cancelled"),
    KeyKind("ended_children", "run:<run>:ended_children", "zset",
        "`child state` of ended children, in the order of their ends",
        "until an attempt has received them, or the run ends"),
    KeyKind("log", "run:<run>:log", "stream", "output of the run's processes, newest last",
        "deleted with its run; capped"),
    KeyKind("lane", "lane:<lane>", "stream", "entries `run <id>`, one for each run to claim or held",
        "until it has been empty for an hour"),
    KeyKind("lanes", "lanes", "zset", "lanes by the time they were opened", "a member is removed with its lane"),
    KeyKind("kept_entries", "kept_entries", "hash",
        "by lane, the last delivered entry if it is done while older ones live",
        "a field is removed when more entries are read"),
    KeyKind("fair_queue", "fair_queue:<lane>", "zset", "waiting runs of a fair lane, by virtual time",
        "a member is removed when it enters the lane's stream, or with its run"),
    KeyKind("fair_shares", "fair_shares:<lane>", "zset", "the virtual time of each fair key of that lane",
        "while runs wait in the fair queue"),
    KeyKind("fair_weights", "fair_weights", "hash", "weights of fair keys, by queue and key, where not 1",
        "until it is 1 again"),
    KeyKind("paused", "paused", "hash", "paused queues, or `*` for all, and why",
        "until resumed"),
    KeyKind("intake_closed", "intake_closed", "hash", "queues that refuse new runs, and why", "until resumed"),
    KeyKind("limits", "limits", "set", "names of all limits", "until it is removed"),
    KeyKind("limit", "limit:<limit>", "hash", "a limit: its capacity, its token bucket, until when it is shut",
        "until it is removed"),
    KeyKind("limit_holders", "limit_holders:<limit>", "zset", "runs that hold a limit, by since when",
        "a member is removed when it releases the limit, at the latest with its run"),
    KeyKind("limit_waiters", "limit_waiters:<limit>", "zset", "runs blocked by a limit, by priority and age",
        "a member is removed when it is admitted"),
    KeyKind("merge_queue", "merge_queue:<line>", "zset",
        "held runs that are to move a branch, in order of arrival",
        "a member is removed when its attempt ends; TTL after the last change"),
    KeyKind("queues", "queues", "set", "every queue that has a run",
        "a member is removed some time after its last run"),
    KeyKind("index", "index:<queue>:<state>", "zset", "runs of a queue in a state, by id",
        "a member is removed with its run"),
    KeyKind("states", "states:<state>", "zset", "runs of all queues in a state, by id",
        "a member is removed with its run"),
    KeyKind("plans", "plans", "zset", "plans by creation time", "a member is removed with its plan"),
    KeyKind("plan", "plan:<plan>", "hash", "a plan: its source, its bases and budget, how it ended",
        "deleted with the last of its tasks"),
    KeyKind("plan_tasks", "plan:<plan>:tasks", "hash", "tasks of a plan, each with its run",
        "a field is removed with its run"),
    KeyKind("plan_runs", "plan:<plan>:runs", "zset", "runs of a plan, by id",
        "a member is removed with its run"),
    KeyKind("plan_index", "plan:<plan>:index:<state>", "zset", "tasks of a plan in a state, by id",
        "a member is removed with its run"),
    KeyKind("sessions", "sessions", "zset", "sessions by their last use", "a member is removed with its session"),
    KeyKind("session", "session:<session>", "hash", "a session: its agent, its conversation, its spending",
        "until a week after it is closed: an open session can be resumed at any time"),
    KeyKind("session_runs", "session:<session>:runs", "zset", "runs of a session, by id",
        "a member is removed with its run"),
    KeyKind("session_turns", "session:<session>:turns", "zset",
        "live turns of a session, by turn number", "a member is removed when it ends"),
    KeyKind("session_transcript", "session:<session>:transcript", "string",
        "the transcript of its conversation, compressed", "deleted with its session"),
    KeyKind("transcript", "run:<run>:transcript", "string",
        "the transcript of its conversation, where it has no session",
        "deleted with its run"),
    KeyKind("dedupe", "dedupe:<key>", "string", "the live run that has the key, or the last one and until when",
        "until that run ends, or with a TTL after it"),
    KeyKind("timers", "timers", "zset", "runs, limits, plans and sessions by the time of their next timer",
        "a member is removed when it fires"),
    KeyKind("schedules", "schedules", "zset", "schedules by their next due time; paused ones last",
        "a member is removed with its schedule"),
    KeyKind("schedule", "schedule:<schedule>", "hash", "a schedule: its rule, the spec of its runs, its next tick",
        "until it is removed, or a week after its last tick"),
    KeyKind("schedule_history", "schedule:<schedule>:history", "list", "the outcomes of its ticks, newest first",
        "deleted with its schedule; capped"),
    KeyKind("schedule_runs", "schedule:<schedule>:runs", "zset", "live runs of a schedule",
        "a member is removed when its run ends"),
    KeyKind("dependents_to_notify", "dependents_to_notify", "zset",
        "ended runs with dependents left to notify, or children left to cancel", "until that is done"),
    KeyKind("workers", "workers", "zset", "registered workers by the end of their lease",
        "until the worker leaves or is lost"),
    KeyKind("departed_workers", "departed_workers", "zset", "workers that left or were lost, by when",
        "TTL: an hour after the last of them"),
    KeyKind("rq_jobs", "rq:<queue>:jobs", "hash", "runs that are jobs of RQ, each with its job's id",
        "a field is removed when RQ knows how the job ended"),
    KeyKind("rq_arrived", "rq:<queue>:arrived", "list", "jobs on their way from RQ's list into a lane",
        "until they are imported, seconds later"),
    KeyKind("rq_direct_queues", "rq:direct_queues", "set",
        "queues whose producers push RQ jobs straight into the lane",
        "for ever: one short name a queue"),
    KeyKind("rq_cron_lock", "rq:cron_lock:<what>", "string", "a lock against doing a step of `rq cron` twice",
        "TTL: a tick"),
    KeyKind("webhooks", "webhooks", "zset",
        "webhooks by creation time; in the first partition, as all keys of webhooks",
        "a member is removed with its webhook"),
    KeyKind("webhook", "webhook:<webhook>", "hash",
        "a webhook: its URL, its secret, its positions in the events, its lease", "until it is removed"),
    KeyKind("deliveries", "webhook:<webhook>:deliveries", "stream", "attempts to deliver, newest last",
        "deleted with its webhook; capped"),
    KeyKind("redeliveries", "webhook:<webhook>:redeliveries", "list",
        "messages to be delivered on request", "a member is removed when it was tried; capped"),
    KeyKind("worker", "worker:<worker>", "hash", "identity, epoch and state of a worker",
        "TTL once the worker has left or is lost"),
    KeyKind("worker_lease", "worker:<worker>:lease", "string", "the lease: when it ends", "TTL: the lease itself"),
    KeyKind("worker_runs", "worker:<worker>:runs", "hash", "runs a worker holds, with their fences",
        "until the worker leaves or is lost"),
    KeyKind("dialect_runner", "dialect_runner:<runner>", "hash",
        "fields of a foreign runner; or the presence of a server that holds polls",
        "TTL: a month after its last request; a server's: 4 s"),
    KeyKind("dialect_fields", "session:<session>:dialect_fields", "hash",
        "fields of a session from foreign executors and clients", "TTL: a month after the last change"),
    KeyKind("dialect_events", "session:<session>:dialect_events", "stream",
        "events of a session from foreign executors", "TTL: a month after the last; capped"),
    KeyKind("session_alias", "session_alias:<alias>", "string", "the session of an alias",
        "TTL: a month"),
    KeyKind("pending_callbacks", "pending_callbacks", "zset",
        "runs with a pending completion callback: to a parent session, a hook",
        "a member is removed when that is done"),
    KeyKind("blueprints", "blueprints", "hash",
        "blueprints, capabilities, scripts and tool servers, by kind and name",
        "until they are removed; capped"),
    KeyKind("worker_inbox", "worker:<worker>:inbox", "stream", "orders the worker has not applied",
        "until the worker leaves or is lost"),
    KeyKind("events", "events", "stream", "events, newest last", "for ever, capped in length"),
    KeyKind("reaper_watch", "reaper_watch", "hash",
        "the server process that the reapers watch, since when, and the standby of the duties",
        "for ever: a few fields"),
    KeyKind("cursors", "cursors", "hash", "cursors of duties, counters of queues and lanes",
        "for ever: a few fields a queue"),
    KeyKind("duty_owner", "duty_owner", "string", "the process that runs the duties", "TTL: two ticks"),
    KeyKind("duty_wakeup", "duty_wakeup", "stream", "wakes the owner of the duties if that is not a worker",
        "for ever: one entry"),
    KeyKind("tokens", "tokens", "zset", "tokens of the server by creation time, in the first partition",
        "a member is removed when it is revoked, or a while after it has expired"),
    KeyKind("token", "token:<token>", "hash", "a token: its scopes, its digest, its last use",
        "until it is revoked; TTL: a while after it has expired"),
    KeyKind("made_by_token", "token:<token>:<kind>", "zset",
        "queues, schedules or sessions that a token created, the last checked last",
        "TTL: a month after the last was created; a member is removed once it is gone"),
    KeyKind("idempotency_key", "idempotency_key:<digest>", "string", "the runs of an Idempotency-Key",
        "TTL: a day"),
)  # fmt: skip

_KINDS_BY_NAME = {key.name: key for key in KEY_KINDS}
_NAMESPACE_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Keyspace:
    """The keys of one namespace."""

    namespace: str = "default"
    partitions: int = 1

    def __post_init__(self) -> None:
        if not _NAMESPACE_PATTERN.fullmatch(self.namespace):
            raise Invalid(
                f"The namespace {self.namespace[:80]!r} is not valid: use up to 64 letters, digits, '_' and '-'."
            )
        if not 1 <= self.partitions <= PARTITIONS:
            raise Invalid(f"A namespace has 1 to {PARTITIONS} partitions, not {self.partitions}.")

    @property
    def root(self) -> str:
        """The prefix of the schema keys, for any number of partitions."""
        return _key_base(self.namespace)

    def base(self, partition: int) -> str:
        """The prefix of a partition's keys."""
        if not 0 <= partition < self.partitions:
            raise Invalid(
                f"The namespace {self.namespace!r} has {self.partitions} partitions, none numbered {partition}."
            )
        return self.root if self.partitions == 1 else _key_base(f"{self.namespace}.{partition}")

    def bases(self) -> list[str]:
        """The bases of all partitions."""
        return [self.base(partition) for partition in range(self.partitions)]


@cache
def _key_base(tag: str) -> str:
    return f"agentq:{{{tag}}}:"


def build_key(base: str, name: str, *parts: str) -> str:
    """Build one key, as `key(base, "run", run_id)`."""
    pieces = _split_pattern(name)
    assert len(pieces) == len(parts) + 1, f"{name} is made of {len(pieces) - 1} parts"
    return base + "".join(chain.from_iterable(zip_longest(pieces, parts, fillvalue="")))


@cache
def _split_pattern(name: str) -> list[str]:
    return re.split(r"<\w+>", _KINDS_BY_NAME[name].pattern)


def lua_builders() -> dict[str, Callable[[Sequence[str]], str]]:
    """By key kind, the function that makes the Lua expression for a key from those of its parts."""
    return {kind.name: partial(_lua_key_expression, kind) for kind in KEY_KINDS}


def _lua_key_expression(kind: KeyKind, parts: Sequence[str]) -> str:
    if len(parts) != len(kind.parts):
        raise ValueError(f"key_{kind.name} is made of {kind.parts}, not of {list(parts)}")
    pieces = [f"'{piece}'" if piece else "" for piece in _split_pattern(kind.name)]
    terms = [term for term in chain.from_iterable(zip_longest(pieces, parts, fillvalue="")) if term]
    return f"(base .. {' .. '.join(terms)})"
