"""What the simulator does behind everyone's back, each in one round trip: read all, keep, restore, expire, erase."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

from support.snapshot import Snapshot

from agentq.coordinator import bounds
from agentq.coordinator.storage.connection import CommandArgument, Connection, ScriptSource
from agentq.coordinator.storage.keys import CONSUMER_GROUP, build_key, lua_builders
from agentq.coordinator.storage.lua_linker import expand_keys

_HEAD = "#!lua\nlocal base, call = KEYS[1], redis.call\n"

_READ = """
local read = {
  string = function(name) return call('GET', name) end,
  hash = function(name) return call('HGETALL', name) end,
  set = function(name) return call('SMEMBERS', name) end,
  zset = function(name) return call('ZRANGE', name, 0, -1, 'WITHSCORES') end,
  stream = function(name) return name == key_events() and {} or call('XRANGE', name, '-', '+') end,
}
local found = {}
for place, name in ipairs(call('KEYS', base .. '*')) do
  local kind = call('TYPE', name).ok
  local pending = string.find(name, key_lane(''), 1, true) and call('XPENDING', name, ARGV[1], '-', '+', 1000) or {}
  found[place] = { name, kind, call('PTTL', name), read[kind](name), pending }
end
return found
"""

_KEEP = """
call('DEL', ARGV[1])
for _, name in ipairs(call('KEYS', base .. '*')) do
  call('HSET', ARGV[1], name, math.max(0, call('PTTL', name)) .. ' ' .. call('DUMP', name))
end
"""

_RESTORE = """
for _, name in ipairs(call('KEYS', base .. '*')) do call('DEL', name) end
local kept = call('HGETALL', ARGV[1])
for at = 1, #kept, 2 do
  local ttl, blob = string.match(kept[at + 1], '^(%d+) (.*)$')
  call('RESTORE', kept[at], ttl, blob)
end
"""

_LAPSE = """
local now, gone = tonumber(ARGV[1]), {}
for _, name in ipairs(call('KEYS', key_worker_lease('*'))) do
  if tonumber(call('GET', name)) <= now then call('DEL', name) end
end
for _, name in ipairs(call('KEYS', key_dedupe('*'))) do
  if tonumber(string.match(call('GET', name), ' (%d+)$') or now + 1) <= now then call('DEL', name) end
end
for _, name in ipairs(call('KEYS', key_worker('*'))) do
  if call('TYPE', name).ok == 'hash' and call('PTTL', name) > 0 then
    if call('HGET', name, 'seen_at_ms') + ARGV[2] <= now then
      call('DEL', name)
      gone[#gone + 1] = string.sub(name, #key_worker('') + 1)
    end
  end
end
local newest = call('ZRANGE', key_departed_workers(), -1, -1, 'WITHSCORES')[2]
if newest and newest + ARGV[2] <= now then call('DEL', key_departed_workers()) end
return gone
"""

_ERASE = """
for _, name in ipairs(call('KEYS', base .. '*')) do call('DEL', name) end
call('DEL', ARGV[1])
"""


def _source(name: str, body: str) -> ScriptSource:
    text = _HEAD + expand_keys(body, lua_builders())
    return ScriptSource(name, text, sha1(text.encode()).hexdigest())


READ, KEEP = _source("read", _READ), _source("keep", _KEEP)
RESTORE, LAPSE, ERASE = _source("restore", _RESTORE), _source("lapse", _LAPSE), _source("erase", _ERASE)


class Probes:
    """A look behind the scenes of one partition, over a link that loses nothing."""

    def __init__(self, connection: Connection, base: str) -> None:
        self._connection = connection
        self._base = base
        self._backup = f"backup:{base}"

    def snapshot(self) -> Snapshot:
        """Everything, as the invariants want it."""
        snapshot = Snapshot(self._base)
        for name, kind, ttl, flat, pending in self._run(READ, CONSUMER_GROUP):
            snapshot.put(name, kind, ttl, flat, pending)
        return snapshot

    def keep(self) -> None:
        """Remember the present state."""
        self._run(KEEP, self._backup)

    def restore(self) -> None:
        """Go back to the state that was kept, as a server does that loses its last commands."""
        self._run(RESTORE, self._backup)

    def lapse(self, now_ms: int) -> list[str]:
        """Delete what the server's own clock would have by now; returns the workers that nobody remembers any more."""
        gone: list[str] = self._run(LAPSE, now_ms, bounds.WORKER_RECORD_MS)
        return gone

    def erase(self) -> None:
        """Leave nothing behind."""
        self._run(ERASE, self._backup)

    def key(self, name: str, *parts: str) -> str:
        return build_key(self._base, name, *parts)

    def _run(self, source: ScriptSource, *words: CommandArgument) -> Any:
        return self._connection.script(source, self._base, words)
