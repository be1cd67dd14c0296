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
    KeyKind("run", "run:<run>", "hash", "a run: spec, state, attempts", "until its timer rings, days after its end"),
    KeyKind("dependencies", "run:<run>:dependencies", "set", "dependencies that have not ended",
        "while the run is blocked"),
    KeyKind("dependents", "run:<run>:dependents", "zset", "runs that wait for this one, by id",
        "until they are settled"),
    KeyKind("pending_signals", "run:<run>:pending_signals", "stream", "signals that no attempt has taken, oldest first",
        "until the run ends; capped"),
    KeyKind("signal_ids", "run:<run>:signal_ids", "zset", "operation ids of the signals it was sent, by time",
        "goes with its run; capped"),
    KeyKind("children", "run:<run>:children", "zset", "runs it submitted that have not ended, by id",
        "a member leaves when it ends; the rest when the run has, or once they are cancelled"),
    KeyKind("ended_children", "run:<run>:ended_children", "zset",
        "`child state` of those that have ended, in that order",
        "until an attempt has taken them, or the run ends"),
    KeyKind("log", "run:<run>:log", "stream", "what the run's processes wrote, newest last",
        "goes with its run; capped"),
    KeyKind("lane", "lane:<lane>", "stream", "entries `run <id>`, one for each run to claim or held",
        "until it has been empty for an hour"),
    KeyKind("lanes", "lanes", "zset", "lanes by the time they were opened", "a member lives as long as its lane"),
    KeyKind("kept_entries", "kept_entries", "hash",
        "lanes' entries that are done with, but were read last while older ones live",
        "a field leaves when more is read"),
    KeyKind("fair_queue", "fair_queue:<lane>", "zset", "runs of a lane in which keys take turns, by virtual time",
        "a member leaves for the lane's stream, or with its run"),
    KeyKind("fair_shares", "fair_shares:<lane>", "zset", "up to where each key of that lane has had its turns",
        "while anybody stands in the line"),
    KeyKind("fair_weights", "fair_weights", "hash", "how many turns a key of a queue gets, if not one",
        "until it is one again"),
    KeyKind("paused", "paused", "hash", "queues that nothing is claimed from, or `*` for all, and why",
        "until resumed"),
    KeyKind("intake_closed", "intake_closed", "hash", "queues that take no new runs, and why", "until resumed"),
    KeyKind("limits", "limits", "set", "keys with a limit", "until it is removed"),
    KeyKind("limit", "limit:<limit>", "hash", "how much of a key there is, its bucket, its gate",
        "until it is removed"),
    KeyKind("limit_holders", "limit_holders:<limit>", "zset", "runs that have room under a key, by since when",
        "a member leaves its room, at the latest with its run"),
    KeyKind("limit_waiters", "limit_waiters:<limit>", "zset", "runs blocked by a key, by priority and age",
        "a member leaves when it is let in"),
    KeyKind("merge_queue", "merge_queue:<line>", "zset",
        "held runs that want to move a branch, in the order of their coming",
        "a member leaves when its attempt ends; TTL after the last word of any"),
    KeyKind("queues", "queues", "set", "every queue that has a run", "a member leaves some time after its last run"),
    KeyKind("index", "index:<queue>:<state>", "zset", "runs of a queue in a state, by id",
        "a member leaves with its run"),
    KeyKind("states", "states:<state>", "zset", "runs of all queues in a state, by id", "a member leaves with its run"),
    KeyKind("plans", "plans", "zset", "plans by when they were made", "a member leaves with its plan"),
    KeyKind("plan", "plan:<plan>", "hash", "a plan: what it was made from, its base and budget, what it has come to",
        "goes with the last of its tasks"),
    KeyKind("plan_tasks", "plan:<plan>:tasks", "hash", "tasks of a plan, each with its run",
        "a field leaves with its run"),
    KeyKind("plan_runs", "plan:<plan>:runs", "zset", "runs that bear the name of a plan, by id",
        "a member leaves with its run"),
    KeyKind("plan_index", "plan:<plan>:index:<state>", "zset", "tasks of a plan in a state, by id",
        "a member leaves with its run"),
    KeyKind("sessions", "sessions", "zset", "sessions by their last use", "a member leaves with its session"),
    KeyKind("session", "session:<session>", "hash", "a session: its agent, its conversation, what it has spent",
        "until it is closed, and a week longer: what an agent remembers is asked for however late"),
    KeyKind("session_runs", "session:<session>:runs", "zset", "runs of a session, by id",
        "a member leaves with its run"),
    KeyKind("session_turns", "session:<session>:turns", "zset",
        "turns of a session that have not ended, by their place in line", "a member leaves when it ends"),
    KeyKind("session_transcript", "session:<session>:transcript", "string",
        "the transcript of its conversation, compressed", "goes with its session"),
    KeyKind("transcript", "run:<run>:transcript", "string",
        "the transcript of its conversation, where it has no session",
        "goes with its run"),
    KeyKind("dedupe", "dedupe:<key>", "string", "the live run that has the key, or the last one and until when",
        "until that run ends, or with a TTL after it"),
    KeyKind("timers", "timers", "zset", "runs by when time does something to them", "a member leaves when it rings"),
    KeyKind("schedules", "schedules", "zset", "schedules by when something is due of them; the paused last",
        "a member leaves when it is removed, or a week after its last tick"),
    KeyKind("schedule", "schedule:<schedule>", "hash", "a schedule: its rule, what it runs, its next tick",
        "until it is removed, or a week after its last tick"),
    KeyKind("schedule_history", "schedule:<schedule>:history", "list", "what became of its ticks, the newest first",
        "goes with its schedule; capped"),
    KeyKind("schedule_runs", "schedule:<schedule>:runs", "zset", "runs that a schedule made and that have not ended",
        "a member leaves when its run ends"),
    KeyKind("dependents_to_notify", "dependents_to_notify", "zset",
        "ended runs with dependents left to tell, or children to cancel", "until that is done"),
    KeyKind("workers", "workers", "zset", "registered workers by the end of their lease", "until the worker is gone"),
    KeyKind("departed_workers", "departed_workers", "zset", "workers that left or were lost, by when",
        "TTL: an hour after the last of them"),
    KeyKind("rq_jobs", "rq:<queue>:jobs", "hash", "runs that are jobs of RQ, each with its job's id",
        "a field leaves when RQ was told how the job ended"),
    KeyKind("rq_arrived", "rq:<queue>:arrived", "list", "jobs on their way from RQ's list into a lane",
        "until somebody takes them in, seconds later"),
    KeyKind("rq_direct_queues", "rq:direct_queues", "set",
        "queues whose RQ jobs producers push into the lane themselves",
        "for ever: one short name a queue"),
    KeyKind("rq_cron_lock", "rq:cron_lock:<what>", "string", "that `rq cron` has had this done just now",
        "TTL: a tick"),
    KeyKind("webhooks", "webhooks", "zset",
        "webhooks by the time they were made; in the first partition, as the rest of them",
        "a member leaves when it is removed"),
    KeyKind("webhook", "webhook:<webhook>", "hash",
        "a webhook: its address, its secret, how far it has been told, who tells it", "until it is removed"),
    KeyKind("deliveries", "webhook:<webhook>:deliveries", "stream", "attempts to deliver, newest last",
        "goes with its webhook; capped"),
    KeyKind("redeliveries", "webhook:<webhook>:redeliveries", "list",
        "messages to be delivered because somebody asked for it", "a member leaves when that was tried; capped"),
    KeyKind("worker", "worker:<worker>", "hash", "identity, epoch and state of a worker",
        "TTL once the worker is gone"),
    KeyKind("worker_lease", "worker:<worker>:lease", "string", "the lease: when it ends", "TTL: the lease itself"),
    KeyKind("worker_runs", "worker:<worker>:runs", "hash", "runs a worker holds, with their fences",
        "until the worker is gone"),
    KeyKind("dialect_runner", "dialect_runner:<runner>", "hash",
        "what a foreign runner said of itself, and what it was given; or that a server is there that holds polls",
        "TTL: a month after it was last heard of; a server's: 4 s"),
    KeyKind("dialect_fields", "session:<session>:dialect_fields", "hash",
        "what foreign executors and clients say of a session", "TTL: a month after they last said something"),
    KeyKind("dialect_events", "session:<session>:dialect_events", "stream",
        "events that foreign executors tell of a session", "TTL: a month after the last; capped"),
    KeyKind("session_alias", "session_alias:<alias>", "string", "the session that has this other id, too",
        "TTL: a month"),
    KeyKind("pending_callbacks", "pending_callbacks", "zset",
        "runs whose end somebody is to be told of: a parent, a hook",
        "a member leaves when that is done"),
    KeyKind("blueprints", "blueprints", "hash",
        "blueprints, capabilities, scripts and servers of tools, by kind and name",
        "until they are removed; capped"),
    KeyKind("worker_inbox", "worker:<worker>:inbox", "stream", "orders the worker has not applied",
        "until the worker is gone"),
    KeyKind("events", "events", "stream", "what happened, newest last", "for ever, capped in length"),
    KeyKind("reaper_watch", "reaper_watch", "hash",
        "which server the reapers watch, since when, and who does the duties next", "for ever: a few fields"),
    KeyKind("cursors", "cursors", "hash", "where duties go on, whose turn it is", "for ever: a few fields a queue"),
    KeyKind("duty_owner", "duty_owner", "string", "who does the duties at the moment", "TTL: two ticks"),
    KeyKind("duty_wakeup", "duty_wakeup", "stream", "that something is due sooner, for a keeper that is no worker",
        "for ever: one entry"),
    KeyKind("tokens", "tokens", "zset", "tokens of the server by when they were made, in the first partition",
        "a member leaves when it is revoked, or a while after it has expired"),
    KeyKind("token", "token:<token>", "hash", "what a token may do, its digest, its last use",
        "until it is revoked; TTL: a while after it has expired"),
    KeyKind("made_by_token", "token:<token>:<kind>", "zset",
        "queues, schedules or sessions that a token made, what was looked for last at the end",
        "TTL: a month after the last was made; a member leaves once it is not there any more"),
    KeyKind("idempotency_key", "idempotency_key:<digest>", "string", "the runs that an Idempotency-Key stands for",
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
        """Where the schema stands, whatever the number of partitions."""
        return _key_base(self.namespace)

    def base(self, partition: int) -> str:
        """What the keys of a partition begin with."""
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
    """The same for scripts: by name, what makes the Lua expression for a key of those for its parts."""
    return {kind.name: partial(_lua_key_expression, kind) for kind in KEY_KINDS}


def _lua_key_expression(kind: KeyKind, parts: Sequence[str]) -> str:
    if len(parts) != len(kind.parts):
        raise ValueError(f"key_{kind.name} is made of {kind.parts}, not of {list(parts)}")
    pieces = [f"'{piece}'" if piece else "" for piece in _split_pattern(kind.name)]
    terms = [term for term in chain.from_iterable(zip_longest(pieces, parts, fillvalue="")) if term]
    return f"(base .. {' .. '.join(terms)})"
