"""The only door to the server: commands, scripts and blocking reads, with retries that have an end.

Its tasks:

1. Send a command or a script and return the reply as the server shaped it: lists, strings, integers, None.
2. Send it again, a bounded number of times, when the link failed or the server asks for a moment. Words may so arrive
   twice, because a lost reply looks like a lost request. That is harmless: whatever changes state is a script, and
   every call of a script carries its own operation id. Nothing else may change state through here.
3. Find the primary, or the node, anew when what was known of it has become wrong.
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

from agentq.coordinator import faults
from agentq.coordinator.blocking import Blocking, answers
from agentq.coordinator.call import Call, Source, by_digest, evaluate
from agentq.coordinator.errors import AgentqError, Invalid
from agentq.coordinator.faults import NoGroup
from agentq.coordinator.link import Ask, Link, Place, Word, exchange, exchange_all, exchange_asking, link_like, send
from agentq.coordinator.overlap import Overlap
from agentq.coordinator.topology import Cluster, key_of, redirected, topology
from agentq.coordinator.url import parse

__all__ = ["Call", "Connection", "NoGroup", "Source", "Word"]

RETRY_DELAY_MS = 100
RETRY_DELAY_MS_MAX = 2000
REDIRECTS_MAX = 5
IDLE_LINKS_MAX = 32

Exchange = Callable[[Link, Any], Any]
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
        self._address = parse(url)
        self._client_name = client_name
        self._timeout_ms = timeout_ms
        self._attempts = attempts
        self._client = client
        self._topology = topology(self._address, client_name)
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

    def command(self, *words: Word) -> Any:
        """One command that is harmless to send twice."""
        return self._send(key_of(words), lambda ask: ask(words))

    def commands(self, many: Sequence[tuple[Word, ...]]) -> list[Any]:
        """Several commands that are harmless to send twice, written at once; their replies."""
        if isinstance(self._topology, Cluster) or len(many) < 2:
            return [self.command(*words) for words in many]
        replies: list[Any] = self._send(None, lambda ask: ask(many), exchange_all)  # type: ignore[arg-type]
        return replies

    def script(self, source: Source, key: str, args: Sequence[Word]) -> Any:
        """One script, by its digest; the server that does not know it gets it along with the call."""
        return self._send(key, lambda ask: evaluate(ask, (source, key, args)))

    def scripts(self, calls: Iterable[Call], *, window: int = 2) -> Iterator[Any]:
        """Many scripts, of which up to `window` are on their way at once; the replies come in order.

        The calls are taken one by one, so the caller makes the next one while the server runs the last. They take
        effect in order. The first that the server refuses is raised in its turn; up to `window` - 1 of those after it
        have been sent by then and may have run, as after a lost reply.
        """
        if isinstance(self._topology, Cluster):
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

    def together(self, calls: Sequence[Call]) -> Iterator[Any]:
        """The same of a few that are at hand, all of them written at once."""
        if isinstance(self._topology, Cluster) or len(calls) < 2:
            yield from (self.script(*call) for call in calls)
            return
        with self._overlap(len(calls)) as overlap:
            overlap.send(*calls)
            while overlap:
                yield overlap.receive()

    @contextmanager
    def _overlap(self, window: int) -> Iterator[Overlap]:
        place: Place = ("", 0)

        def take() -> Link:
            nonlocal place
            self._check_process()
            place = self._topology.place(None)
            return self._idle_link(place) or self.link(place)

        overlap = Overlap(take, lambda call: self.script(*call), window)
        try:
            yield overlap
        except RedisError as fault:
            raise faults.translated(fault, str(self._address)) from fault
        finally:
            link = overlap.release()
            if link is not None:
                self._put_back(link, place)

    def script_then(self, source: Source, key: str, args: Sequence[Word], *words: Word) -> tuple[Any, Any]:
        """A script, and after it a command on the same link: WAITAOF and WAIT speak of what their own link wrote."""
        call = (source, key, args)
        both: tuple[Any, Any] = self._send(key, lambda ask: (evaluate(ask, call), ask(words)))
        return both

    def block(self, *words: Word, timeout_ms: int) -> Any:
        """One blocking read, on a link of its own; `timeout_ms` is the time for which the words say to block.

        None when the time is over, or `unblock` was called. It is sent once only: after `Unreachable`, an entry may
        have been delivered whose reply was lost, so read the consumer's pending list before blocking again.
        """
        return self._block(words, timeout_ms, None)[0]

    def block_then(self, source: Source, key: str, args: Sequence[Word], *words: Word, timeout_ms: int) -> Any:
        """The same, and a script that the server runs the moment the block ends; returns both replies.

        Both are None where `unblock` was called before anything was sent.
        """
        return self._block(words, timeout_ms, (source, key, args))

    def _block(self, words: tuple[Word, ...], timeout_ms: int, then: Call | None) -> tuple[Any, Any]:
        try:
            place = self.place(words)
            if self._client is not None:
                link = self.link(place)
                send(link, words, *([by_digest(then)] if then is not None else []))
                return answers(link, then)
            return self._blocking.read(place, words, timeout_ms, then)
        except RedisError as fault:
            raise self.misled(fault) from fault

    def place(self, words: tuple[Word, ...]) -> Place:
        """Where the server is that these words are for."""
        self._check_process()
        return self._topology.place(key_of(words))

    def misled(self, fault: RedisError) -> AgentqError:
        """The error that a fault becomes, for one who has a link of its own; what was wrong is found out anew."""
        if faults.misleads(fault):
            self._topology.forget()
        return faults.translated(fault, str(self._address))

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

    def _send(self, key: str | None, act: Callable[[Ask], Any], ask: Exchange = exchange) -> Any:
        """Try until it works, is refused, or has been tried often enough."""
        for attempt in range(1, self._attempts + 1):
            try:
                return self._follow(key, act, ask)
            except RedisError as fault:
                if faults.misleads(fault):
                    self._drop_idle()
                    self._topology.forget()
                if attempt == self._attempts or not faults.passes(fault):
                    raise faults.translated(fault, str(self._address)) from fault
            # Full jitter: a thousand workers that lost the server at the same moment do not all come back at once.
            time.sleep(random.uniform(0, min(RETRY_DELAY_MS * 3 ** (attempt - 1), RETRY_DELAY_MS_MAX)) / 1000)
        raise AssertionError("the last attempt returns or raises")

    def _follow(self, key: str | None, act: Callable[[Ask], Any], ask: Exchange) -> Any:
        """Go where a cluster says that the key is."""
        place = self._topology.place(key)
        for _ in range(REDIRECTS_MAX):
            try:
                return self._once(place, act, ask)
            except MovedError as redirect:
                if not isinstance(self._topology, Cluster):
                    raise Invalid(
                        f"The server {self._address} is a node of a cluster: write redis+cluster://."
                    ) from None
                place = self._topology.moved(redirect, place)
            except AskError as redirect:
                return self._once(redirected(redirect, place), act, exchange_asking)
        raise redis.ConnectionError("the nodes of the cluster send each other's clients around")

    def _once(self, place: Place, act: Callable[[Ask], Any], ask: Exchange) -> Any:
        self._check_process()
        link = self._idle_link(place)
        if link is not None:
            try:
                return self._on(link, place, act, ask)
            except redis.ConnectionError as fault:
                if not faults.is_broken(fault):
                    raise
                # It may have been closed while it lay idle, which says nothing about the server: try a new link.
                self._drop_idle()
        return self._on(self.link(place), place, act, ask)

    def _on(self, link: Link, place: Place, act: Callable[[Ask], Any], ask: Exchange) -> Any:
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

    def _idle_link(self, place: Place) -> Link | None:
        try:
            return self._idle[place].pop()
        except (KeyError, IndexError):
            return None

    def _put_back(self, link: Link, place: Place) -> None:
        idle = self._idle.setdefault(place, deque())
        if self._closed or len(idle) >= IDLE_LINKS_MAX or link.pid != os.getpid():
            link.disconnect()
        else:
            idle.append(link)

    def _drop_idle(self) -> None:
        for place in list(self._idle):
            while (link := self._idle_link(place)) is not None:
                link.disconnect()

    def link(self, place: Place, timeout_ms: int = 0) -> Link:
        """A new link, which connects when it is used."""
        if self._client is not None:
            return link_like(self._client)
        return self._address.link(place, client_name=self._client_name, timeout_ms=timeout_ms or self._timeout_ms)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self._start_afresh()

    def _start_afresh(self) -> None:
        """Own no socket: at the beginning, and in the child of a fork, where the parent goes on using the old ones."""
        self._idle: dict[Place, deque[Link]] = {}
        self._blocking = Blocking(self.link, self._timeout_ms)
        self._pid = os.getpid()
