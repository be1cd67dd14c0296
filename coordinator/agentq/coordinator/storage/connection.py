"""The only connection to the server: commands, scripts and blocking reads, with bounded retries.

Its tasks:

1. Send a command or a script and return the reply as the server shaped it: lists, strings, integers, None.
2. Send it again, a bounded number of times, when the link failed or the server asks for a moment. Words may so arrive
   twice, because a lost reply looks like a lost request. That is harmless: whatever changes state is a script, and
   every call of a script carries its own operation id. Nothing else may change state through here.
3. Find the primary, or the node, again when the known address has become wrong.
4. Overlap many scripts: the next call is written while the server works on the one before.
5. Turn every failure into an error of ours. One in which the server answered is never `Unreachable`.

A `Connection` may be used by many threads, and by the child after a fork.
"""

from __future__ import annotations

import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import redis
from redis.exceptions import AskError, MovedError, RedisError, ResponseError

from agentq.coordinator.errors import AgentqError, Invalid
from agentq.coordinator.storage import server_errors
from agentq.coordinator.storage.blocking_read import BlockingLink, read_replies
from agentq.coordinator.storage.pipeline import CallPipeline
from agentq.coordinator.storage.script_call import ScriptCall, ScriptSource, call_script, evalsha_command
from agentq.coordinator.storage.server_errors import NoGroup
from agentq.coordinator.storage.socket_link import (
    CommandArgument,
    CommandSender,
    Endpoint,
    SocketLink,
    open_link_like,
    send_all_and_read,
    send_and_read,
    send_asking,
    send_commands,
)
from agentq.coordinator.storage.topology import ClusterTopology, find_routing_key, make_topology, redirect_target
from agentq.coordinator.storage.url import parse_url

__all__ = ["CommandArgument", "Connection", "NoGroup", "ScriptCall", "ScriptSource"]

RETRY_DELAY_MS = 100
RETRY_DELAY_MS_MAX = 2000
REDIRECTS_MAX = 5
IDLE_LINKS_MAX = 32

LinkExchange = Callable[[SocketLink, Any], Any]
"""Sends a command, or several, and returns what came back."""


class Connection:
    """Commands, scripts and blocking reads on one server, whatever its topology."""

    def __init__(
        self,
        url: str,
        *,
        client_name: str = "agentq",
        timeout_ms: int = 5000,
        attempts: int = 4,
        client: redis.Redis | None = None,
    ) -> None:
        assert attempts > 0
        self._url = url
        self._address = parse_url(url)
        self._client_name = client_name
        self._timeout_ms = timeout_ms
        self._attempts = attempts
        self._client = client
        self._topology = make_topology(self._address, client_name)
        self._closed = False
        self._start_afresh()

    @property
    def is_spread(self) -> bool:
        """Whether keys may live on several servers, so that a command can name only some of them."""
        return self._address.shape == "cluster"

    def another(self) -> Connection:
        """A connection like this one, for a thread that blocks."""
        return Connection(
            self._url,
            client_name=self._client_name,
            timeout_ms=self._timeout_ms,
            attempts=self._attempts,
            client=self._client,
        )

    def command(self, *words: CommandArgument) -> Any:
        """One command that is harmless to send twice."""
        return self._send(find_routing_key(words), lambda ask: ask(words))

    def commands(self, many: Sequence[tuple[CommandArgument, ...]]) -> list[Any]:
        """Several commands that are harmless to send twice, written at once; their replies."""
        if isinstance(self._topology, ClusterTopology) or len(many) < 2:
            return [self.command(*words) for words in many]
        replies: list[Any] = self._send(None, lambda ask: ask(many), send_all_and_read)  # type: ignore[arg-type]
        return replies

    def script(self, source: ScriptSource, key: str, args: Sequence[CommandArgument]) -> Any:
        """One script, by its digest; the server that does not know it gets it along with the call."""
        return self._send(key, lambda ask: call_script(ask, (source, key, args)))

    def scripts(self, calls: Iterable[ScriptCall], *, window: int = 2) -> Iterator[Any]:
        """Many scripts, of which up to `window` are on their way at once; the replies come in order.

        The calls are taken one by one, so the caller makes the next one while the server runs the last. They take
        effect in order. The first that the server refuses is raised in its turn; up to `window` - 1 of those after it
        have been sent by then and may have run, as after a lost reply.
        """
        if isinstance(self._topology, ClusterTopology):
            # Each key may live on a node of its own, so that there is no one link to write to.
            yield from (self.script(*call) for call in calls)
            return
        with self._overlap(window) as overlap:
            for call in calls:
                overlap.send(call)
                while overlap.due:
                    yield overlap.receive()
            while overlap:
                yield overlap.receive()

    def together(self, calls: Sequence[ScriptCall]) -> Iterator[Any]:
        """The same of a few that are at hand, all of them written at once."""
        if isinstance(self._topology, ClusterTopology) or len(calls) < 2:
            yield from (self.script(*call) for call in calls)
            return
        with self._overlap(len(calls)) as overlap:
            overlap.send(*calls)
            while overlap:
                yield overlap.receive()

    @contextmanager
    def _overlap(self, window: int) -> Iterator[CallPipeline]:
        place: Endpoint = ("", 0)

        def take() -> SocketLink:
            nonlocal place
            self._check_process()
            place = self._topology.place(None)
            return self._idle_link(place) or self.link(place)

        overlap = CallPipeline(take, lambda call: self.script(*call), window)
        try:
            yield overlap
        except RedisError as fault:
            raise server_errors.translate_error(fault, str(self._address)) from fault
        finally:
            link = overlap.release()
            if link is not None:
                self._put_back(link, place)

    def script_then(
        self, source: ScriptSource, key: str, args: Sequence[CommandArgument], *words: CommandArgument
    ) -> tuple[Any, Any]:
        """A script, and after it a command on the same link: WAITAOF and WAIT speak of what their own link wrote."""
        call = (source, key, args)
        both: tuple[Any, Any] = self._send(key, lambda ask: (call_script(ask, call), ask(words)))
        return both

    def block(self, *words: CommandArgument, timeout_ms: int) -> Any:
        """One blocking read, on a link of its own; `timeout_ms` is the time for which the words say to block.

        None when the time is over, or `unblock` was called. It is sent once only: after `Unreachable`, an entry may
        have been delivered whose reply was lost, so read the consumer's pending list before blocking again.
        """
        return self._block(words, timeout_ms, None)[0]

    def block_then(
        self, source: ScriptSource, key: str, args: Sequence[CommandArgument], *words: CommandArgument, timeout_ms: int
    ) -> Any:
        """The same, and a script that the server runs the moment the block ends; returns both replies.

        Both are None where `unblock` was called before anything was sent.
        """
        return self._block(words, timeout_ms, (source, key, args))

    def _block(self, words: tuple[CommandArgument, ...], timeout_ms: int, then: ScriptCall | None) -> tuple[Any, Any]:
        try:
            place = self.place(words)
            if self._client is not None:
                link = self.link(place)
                send_commands(link, words, *([evalsha_command(then)] if then is not None else []))
                return read_replies(link, then)
            return self._blocking.read(place, words, timeout_ms, then)
        except RedisError as fault:
            raise self.misled(fault) from fault

    def place(self, words: tuple[CommandArgument, ...]) -> Endpoint:
        """Where the server is that these words are for."""
        self._check_process()
        return self._topology.place(find_routing_key(words))

    def misled(self, fault: RedisError) -> AgentqError:
        """Map a fault to an error, for a caller with a link of its own; refreshes the topology if that was wrong."""
        if server_errors.needs_rediscovery(fault):
            self._topology.forget()
        return server_errors.translate_error(fault, str(self._address))

    def unblock(self) -> None:
        """End the block that another thread waits in, or else the next one; return at once."""
        self._check_process()
        self._blocking.wake()

    def close(self) -> None:
        """Close every link, and end a block that goes on."""
        self._check_process()
        self._closed = True
        self._drop_idle()
        self._blocking.close()

    def _send(self, key: str | None, act: Callable[[CommandSender], Any], ask: LinkExchange = send_and_read) -> Any:
        """Try until it works, is refused, or has been tried often enough."""
        for attempt in range(1, self._attempts + 1):
            try:
                return self._follow(key, act, ask)
            except RedisError as fault:
                if server_errors.needs_rediscovery(fault):
                    self._drop_idle()
                    self._topology.forget()
                if attempt == self._attempts or not server_errors.is_transient(fault):
                    raise server_errors.translate_error(fault, str(self._address)) from fault
            # Full jitter: a thousand workers that lost the server at the same moment do not all come back at once.
            time.sleep(random.uniform(0, min(RETRY_DELAY_MS * 3 ** (attempt - 1), RETRY_DELAY_MS_MAX)) / 1000)
        raise AssertionError("the last attempt returns or raises")

    def _follow(self, key: str | None, act: Callable[[CommandSender], Any], ask: LinkExchange) -> Any:
        """Go where a cluster says that the key is."""
        place = self._topology.place(key)
        for _ in range(REDIRECTS_MAX):
            try:
                return self._once(place, act, ask)
            except MovedError as redirect:
                if not isinstance(self._topology, ClusterTopology):
                    raise Invalid(
                        f"The server {self._address} is a node of a cluster: write redis+cluster://."
                    ) from None
                place = self._topology.moved(redirect, place)
            except AskError as redirect:
                return self._once(redirect_target(redirect, place), act, send_asking)
        raise redis.ConnectionError("the nodes of the cluster send each other's clients around")

    def _once(self, place: Endpoint, act: Callable[[CommandSender], Any], ask: LinkExchange) -> Any:
        self._check_process()
        link = self._idle_link(place)
        if link is not None:
            try:
                return self._on(link, place, act, ask)
            except redis.ConnectionError as fault:
                if not server_errors.is_link_failure(fault):
                    raise
                # It may have been closed while it lay idle, which says nothing about the server: try a new link.
                self._drop_idle()
        return self._on(self.link(place), place, act, ask)

    def _on(self, link: SocketLink, place: Endpoint, act: Callable[[CommandSender], Any], ask: LinkExchange) -> Any:
        try:
            reply = act(partial(ask, link))
        except ResponseError:
            self._put_back(link, place)
            raise
        except BaseException:
            # The reply may still be on its way, and must not become the answer to something else.
            link.disconnect()
            raise
        self._put_back(link, place)
        return reply

    def _idle_link(self, place: Endpoint) -> SocketLink | None:
        try:
            return self._idle[place].pop()
        except (KeyError, IndexError):
            return None

    def _put_back(self, link: SocketLink, place: Endpoint) -> None:
        idle = self._idle.setdefault(place, deque())
        if self._closed or len(idle) >= IDLE_LINKS_MAX or link.pid != os.getpid():
            link.disconnect()
        else:
            idle.append(link)

    def _drop_idle(self) -> None:
        for place in list(self._idle):
            while (link := self._idle_link(place)) is not None:
                link.disconnect()

    def link(self, place: Endpoint, timeout_ms: int = 0) -> SocketLink:
        """A new link, which connects when it is used."""
        if self._client is not None:
            return open_link_like(self._client)
        return self._address.link(place, client_name=self._client_name, timeout_ms=timeout_ms or self._timeout_ms)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self._start_afresh()

    def _start_afresh(self) -> None:
        """Own no socket: at the beginning, and in the child of a fork, where the parent goes on using the old ones."""
        self._idle: dict[Endpoint, deque[SocketLink]] = {}
        self._blocking = BlockingLink(self.link, self._timeout_ms)
        self._pid = os.getpid()
