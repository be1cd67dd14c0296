"""Decides which addresses webhooks may use: public ones, and networks that a setting allows (SSRF protection).

A name is resolved once. All its addresses must be allowed, and the connection goes to one of them, so a name that later
resolves differently leads nowhere.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from agentq.coordinator.errors import Invalid, NotAllowed

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Awaitable[list[str]]]

NON_PUBLIC_NETWORKS = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
            *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
            "168.63.129.16/32",  # the metadata service of Azure
            *(
                "::/8",
                "100::/8",
                "2001::/23",
                "2001:db8::/32",
                "2620:4f:8000::/48",
                "3fff::/20",
                "4000::/2",
                "8000::/1",
            ),
        ),
    )
)
"""The registries of special addresses (IANA, November 2026) and unassigned ranges; Python's own list depends on its
version."""
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))


async def resolve_host(host: str, port: int) -> list[str]:
    """The addresses of a host, from the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class AllowedAddresses:
    """All public addresses, and the networks that a setting names."""

    def __init__(self, networks: Iterable[str] = (), *, resolver: Resolver = resolve_host) -> None:
        self._networks = [_parse_network(text) for text in networks]
        self._resolve = resolver

    async def resolve_allowed(self, host: str, port: int) -> str:
        """The address to connect to; refuses a host with an address that is not allowed."""
        try:
            addresses = [ip_address(host)]
        except ValueError:
            try:
                addresses = [ip_address(each.partition("%")[0]) for each in await self._resolve(host, port)]
            except (OSError, UnicodeError) as error:
                raise Invalid(f"The host {host} cannot be found.") from error
        if not addresses:
            raise Invalid(f"The host {host} has no address.")
        for address in addresses:
            if not self.allows(address):
                raise NotAllowed(
                    f"{host} is {address}, which is not a public address; AGENTQ_SERVER_WEBHOOK_NETWORKS can allow it."
                )
        return str(addresses[0])

    def allows(self, address: Address) -> bool:
        """Whether this address may be used."""
        return all(_is_public(each) or self._is_named(each) for each in (address, *_list_embedded_ipv4(address)))

    def _is_named(self, address: Address) -> bool:
        return any(address.version == network.version and address in network for network in self._networks)


def _parse_network(text: str):  # type: ignore[no-untyped-def]
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError as error:
        raise Invalid(f"{text[:80]!r} is not a network; write it like 10.0.0.0/8 or 127.0.0.1.") from error


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and (address.ipv4_mapped is not None or address in _NAT64[0]):
        # It embeds an IPv4 address, which is checked separately.
        return True
    listed = any(address.version == network.version and address in network for network in NON_PUBLIC_NETWORKS)
    return not listed and address.is_global and not (address.is_multicast or address.is_reserved)


def _list_embedded_ipv4(address: Address) -> list[Address]:
    """The IPv4 addresses embedded in an IPv6 address."""
    if isinstance(address, IPv4Address):
        return []
    teredo = address.teredo[1] if address.teredo is not None else None
    found = [each for each in (address.ipv4_mapped, address.sixtofour, teredo) if each is not None]
    if any(address in network for network in _NAT64):
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return list(found)
