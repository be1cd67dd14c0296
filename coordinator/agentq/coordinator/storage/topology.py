"""Finds the server of a key: the single server, the primary named by sentinels, or the node of its slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from redis import exceptions
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from agentq.coordinator.storage.socket_link import CommandArgument, Endpoint, SocketLink, send_and_read
from agentq.coordinator.storage.url import ServerAddress

DISCOVERY_TIMEOUT_MS = 1000
"""How long to wait for the topology from one sentinel or node, before the next one is asked."""


class Topology(Protocol):
    """Knows the server of a key, and can refresh that knowledge."""

    def place(self, key: str | None) -> Endpoint: ...
    def forget(self) -> None: ...


def make_topology(address: ServerAddress, client_name: str) -> Topology:
    """The topology that an address describes."""

    def sentinel(place: Endpoint) -> SocketLink:
        return address.sentinel_link(place, client_name=client_name, timeout_ms=DISCOVERY_TIMEOUT_MS)

    def node(place: Endpoint) -> SocketLink:
        return address.link(place, client_name=client_name, timeout_ms=DISCOVERY_TIMEOUT_MS)

    if address.shape == "sentinel":
        return SentinelTopology(address.places, address.service, sentinel)
    return ClusterTopology(address.places, node) if address.shape == "cluster" else SingleTopology(address.places[0])


class SingleTopology:
    """One server, which serves everything."""

    def __init__(self, place: Endpoint) -> None:
        self._place = place

    def place(self, key: str | None) -> Endpoint:
        del key
        return self._place

    def forget(self) -> None:
        """There is nothing that could have changed."""


class SentinelTopology:
    """The primary of one service, as the sentinels name it."""

    def __init__(self, places: Sequence[Endpoint], service: str, link: Callable[[Endpoint], SocketLink]) -> None:
        self._places = list(places)
        self._service = service
        self._link = link
        self._primary: Endpoint | None = None

    def place(self, key: str | None) -> Endpoint:
        del key
        primary = self._primary
        if primary is None:
            question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
            (host, port), answered_by = _ask_first(self._places, self._link, question)
            # The others may be gone, which costs time to find out: ask this one first from now on.
            self._places.sort(key=lambda place: place != answered_by)
            primary = self._primary = host, int(port)
        return primary

    def forget(self) -> None:
        self._primary = None


class ClusterTopology:
    """The nodes of a cluster, each with its hash slots."""

    def __init__(self, seeds: Sequence[Endpoint], link: Callable[[Endpoint], SocketLink]) -> None:
        self._seeds = list(seeds)
        self._link = link
        self._slots: dict[int, Endpoint] = {}

    def place(self, key: str | None) -> Endpoint:
        slots = self._slots or self._query_slots()
        if key is None:
            return next(iter(slots.values()))
        try:
            return slots[key_slot(key.encode())]
        except KeyError:
            self.forget()
            raise exceptions.ConnectionError("no node of the cluster serves this key") from None

    def forget(self) -> None:
        self._slots = {}

    def moved(self, redirect: exceptions.AskError, answered_by: Endpoint) -> Endpoint:
        """Learn the new node of a slot from the node that no longer has it."""
        place = redirect_target(redirect, answered_by)
        self._slots = {**self._slots, redirect.slot_id: place}
        return place

    def _query_slots(self) -> dict[int, Endpoint]:
        ranges, answered_by = _ask_first(self._seeds, self._link, ("CLUSTER", "SLOTS"))
        slots = {
            slot: (primary[0] or answered_by[0], int(primary[1]))
            for first, last, primary, *_ in ranges
            for slot in range(int(first), min(int(last) + 1, REDIS_CLUSTER_HASH_SLOTS))
        }
        # Any node that is known can be asked the next time, so that the cluster may lose all of those in the address.
        self._seeds = list(dict.fromkeys([answered_by, *slots.values(), *self._seeds]))
        self._slots = slots
        return slots


def redirect_target(redirect: exceptions.AskError, answered_by: Endpoint) -> Endpoint:
    """The place that a redirection names; a node that does not know its own name leaves it empty."""
    return redirect.host or answered_by[0], redirect.port


def _ask_first(
    places: Sequence[Endpoint], link: Callable[[Endpoint], SocketLink], words: tuple[CommandArgument, ...]
) -> tuple[Any, Endpoint]:
    """Ask one after another until one knows."""
    problem: Exception | None = None
    for place in list(places):
        answered_by = link(place)
        try:
            answer = send_and_read(answered_by, words)
        except exceptions.RedisError as fault:
            problem = problem or fault
        else:
            if answer:
                return answer, place
            problem = exceptions.ConnectionError(f"{place[0]}:{place[1]} does not know {words[-1]!r}")
        finally:
            answered_by.disconnect()
    assert problem is not None
    raise problem


def find_routing_key(words: Sequence[CommandArgument]) -> str | None:
    """The key by which to route a command: the first word with a hash tag, since every key of agentq has one.

    A wrong guess costs one redirection and no more, so this need not know the grammar of every command.
    """
    return next((word for word in words if isinstance(word, str) and "{" in word and "}" in word), None)
