"""One namespace on one server: calls scripts in it, and checks its schema first.

The first call finds out whether the namespace belongs to this version and has as many partitions as expected, and
refuses before anything is read or changed. A missing marker is written by those who may bootstrap, never by a reader.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from agentq.coordinator import errors
from agentq.coordinator.model.ids import new_nonce, partition_of
from agentq.coordinator.storage.connection import CommandArgument, Connection, ScriptCall
from agentq.coordinator.storage.keys import Keyspace, build_key
from agentq.coordinator.storage.scripts import SCRIPTS, ScriptSet
from agentq.coordinator.storage.server_version import refuse_old_server
from agentq.coordinator.storage.socket_link import pairs_to_dict
from agentq.coordinator.token_context import current_token

SCHEMA_VERSION = (2, 0)
SCHEMA_MARKER = f"agentq {SCHEMA_VERSION[0]}.{SCHEMA_VERSION[1]}"

DURABLE_TIMEOUT_MS = 10_000

StoreClock = Callable[[], int]


class NamespaceStore:
    """Scripts on the partitions of a namespace."""

    def __init__(
        self,
        connection: Connection,
        keyspace: Keyspace = Keyspace(),  # noqa: B008 - frozen
        *,
        scripts: ScriptSet | None = None,
        clock: StoreClock | None = None,
        dice: Callable[[], float] = random.random,
        nonce: Callable[[], str] = new_nonce,
        bootstrap: bool = True,
    ) -> None:
        self.connection = connection
        self.keyspace = keyspace
        self._scripts = scripts or ScriptSet()
        self._clock = clock
        self._dice = dice
        self.nonce = nonce
        self._bootstrap = bootstrap
        self._guarded = False
        self._synced: bool | None = None

    def call(self, script: str, partition: int, *arguments: CommandArgument) -> Any:
        """Run one script in a partition. The arguments are those of its header, without `now_ms`."""
        # Each worker registers again after a loss of all data, and so of the marker.
        self.guard(anew=script == "worker/register")
        return self.connection.script(*self.worded(script, partition, *arguments))

    def call_durably(self, script: str, partition: int, *arguments: CommandArgument) -> Any:
        """The same, and return only when the server's append-only file holds what the script wrote."""
        self.guard()
        source, base = self._scripts.source(SCRIPTS[script]), self.keyspace.base(partition)
        words = (self._heading(), *arguments)
        if not self._syncs_each_write():
            reply, synced = self.connection.script_then(source, base, words, "WAITAOF", 1, 0, DURABLE_TIMEOUT_MS)
            if synced[0] < 1:
                raise errors.Undurable(
                    f"It was done, but the server took more than {DURABLE_TIMEOUT_MS} ms to write it to disk."
                )
            return reply
        return self.connection.script(source, base, words)

    def _syncs_each_write(self) -> bool:
        """Whether each reply comes after its sync, so that there is nothing to wait for; refuse where neither holds."""
        if self._synced is None:
            try:
                flat = self.connection.command("CONFIG", "GET", "append*")
            except errors.NotAllowed:
                flat = ["appendonly", "yes"]
            found = pairs_to_dict(flat)
            always = found.get("appendfsync") == "always"
            waits = self.connection.command("COMMAND", "INFO", "WAITAOF")[0] is not None
            if found["appendonly"] != "yes" or not (always or waits):
                raise errors.NotAllowed(
                    "This server cannot promise durable=True, so nothing was changed: it needs `appendonly yes`, and "
                    "WAITAOF (Redis 7.2, Valkey) or `appendfsync always`."
                )
            self._synced = always
        return self._synced

    def call_after(
        self,
        reader: Connection,
        words: Sequence[CommandArgument],
        timeout_ms: int,
        script: str,
        partition: int,
        *arguments: CommandArgument,
    ) -> tuple[Any, Any]:
        """A blocking read, and a script that the server runs the moment it ends; both replies."""
        self.guard()
        call = self.worded(script, partition, *arguments)
        reply, then = reader.block_then(*call, *words, timeout_ms=timeout_ms)
        return reply, then

    def worded(self, script: str, partition: int, *arguments: CommandArgument) -> ScriptCall:
        """The command for a call of a script."""
        return self._scripts.source(SCRIPTS[script]), self.keyspace.base(partition), (self._heading(), *arguments)

    def call_many(self, script: str, calls: Iterable[tuple[int, Sequence[CommandArgument]]]) -> Iterator[Any]:
        """Run one script many times, the next call being made while the server works; replies come in order."""
        self.guard()
        source, base, now = self._scripts.source(SCRIPTS[script]), self.keyspace.base, self._heading
        return self.connection.scripts((source, base(partition), (now(), *words)) for partition, words in calls)

    def call_together(self, script: str, calls: Iterable[tuple[int, Sequence[CommandArgument]]]) -> list[Any]:
        """The same of a few, all of them sent at once."""
        self.guard()
        return list(self.connection.together([self.worded(script, partition, *words) for partition, words in calls]))

    def now(self) -> int | str:
        """The time that scripts are told: none, so that they ask the server, unless a test moves the clock."""
        return "" if self._clock is None else self._clock()

    def _heading(self) -> CommandArgument:
        """The first argument of each script: the time, and the calling token, if there is one, with its queues."""
        now, by = self.now(), current_token()
        return f"{now} {by}" if by else now

    def time_ms(self) -> int:
        """The time that scripts would be told, or find, now."""
        if self._clock is not None:
            return self._clock()
        seconds, micros = self.connection.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def dice(self) -> str:
        """A throw between 0 and 1; scripts have no chance of their own."""
        return f"{self._dice():.6f}"

    def partitions(self) -> range:
        return range(self.keyspace.partitions)

    def key(self, partition: int, name: str, *parts: str) -> str:
        return build_key(self.keyspace.base(partition), name, *parts)

    def base_of(self, run_id: str) -> str:
        """The base of the partition that a run lives in."""
        return self.keyspace.base(partition_of(run_id))

    def guard(self, *, anew: bool = False) -> None:
        """Refuse an old server, and a namespace of another version or shape; once in order, only if asked `anew`."""
        if self._guarded and not anew:
            return
        refuse_old_server(self.connection)
        root = self.keyspace.root
        schema, partitions = self._bootstrapped() if self._bootstrap else (
            self.connection.command("GET", build_key(root, "schema")),
            self.connection.command("GET", build_key(root, "partitions")),
        )  # fmt: skip
        if schema is None:
            return
        self._check(str(schema), str(partitions or 1))
        self._guarded = True

    def _bootstrapped(self) -> tuple[Any, Any]:
        source = self._scripts.source(SCRIPTS["namespace/bootstrap"])
        words = (self.now(), SCHEMA_MARKER, self.keyspace.partitions)
        reply = self.connection.script(source, self.keyspace.root, words)
        if isinstance(reply, str):
            raise errors.refusal_error(reply, "server") or errors.Incompatible()
        schema, partitions = reply
        return schema, partitions

    def _check(self, schema: str, partitions: str) -> None:
        namespace, expected = self.keyspace.namespace, self.keyspace.partitions
        if not re.fullmatch(rf"agentq {SCHEMA_VERSION[0]}\.[0-9]+", schema):
            raise errors.Incompatible(
                f"The namespace {namespace!r} holds data of {schema!r}, this program works with {SCHEMA_MARKER!r}. "
                "Use a program of that version, or another namespace."
            )
        if not re.fullmatch("[0-9]{1,9}", partitions):
            raise errors.Incompatible(
                f"{partitions[:80]!r} cannot be how many partitions the namespace {namespace!r} has; set the key "
                f"{build_key(self.keyspace.root, 'partitions')} to the number that it was made with."
            )
        if int(partitions) != expected:
            raise errors.Incompatible(
                f"The namespace {namespace!r} has {partitions} partitions, not {expected}; "
                f"set AGENTQ_PARTITIONS={partitions}."
            )
