"""Bugs to plant: what is done to which script. Each is one that a careful person could make.

One that only luck finds within some hundred seeds has a test of its own among the conformance tests instead.
"""

from __future__ import annotations

from typing import NamedTuple

from simulation.tapped import once

from agentq.coordinator.scripts import Patch


class Mutation(NamedTuple):
    """In one file, one piece of text for another."""

    name: str
    file: str
    old: str
    new: str

    def __str__(self) -> str:
        return self.name.replace(" ", "_")

    def plant(self) -> Patch:
        return lambda name, text: once(text, self.old, self.new) if name == self.file else text


M = Mutation
MUTATIONS = (
    M("a limit is not looked at when a run is claimed", "claiming",
      "local obstructed, room_at = obstacle(needs, reserved)", "local obstructed, room_at = nil, nil"),
    M("room is never given back", "limiting",
      "if call('ZREM', key_holders(needs[at]), id) == 1 then freed[#freed + 1] = needs[at] end", ""),
    M("nobody is let in where there is room", "ending",
      "let_in(LET_IN_A_CALL)", ""),
    M("whoever was let in asks for room again", "claiming",
      "if needs and reserved then needs = still_needed(id, needs) end", ""),
    M("the line of a fair lane is not called up", "prelude",
      "for lane in pairs(uneven) do top_up(lane, 1) end", ""),
    M("the fence is not looked at", "prelude",
      "if run.fence ~= fence then return", "if false then return"),
    M("a run that is taken away keeps its fence", "ending",
      "'entry', entry, 'fence', '', 'worker', ''", "'entry', entry, 'worker', ''"),
    M("a run that was lost for good keeps its fence", "ending",
      "if taken then call('HSET', run.key, 'fence', '') end", ""),
    M("what is finished is not acknowledged", "ending",
      "push(acked, run.lane, run.entry)", ""),
    M("holds are not cleared", "ending",
      "push(unheld, run.worker, id)", ""),
    M("the first of several parents is enough", "ending",
      "if call('EXISTS', key_needs(id)) == 0 and not call('HGET', run.key, 'open') then", "if true then"),
    M("a parent that failed counts as completed", "ending",
      "if policy ~= 'run' and", "if false and"),
    M("dependents are not told", "ending",
      "if #unsettled > 0 then settle(SETTLE_A_CALL) end", ""),
    M("a claim forgets its nonce", "claiming",
      "call('HSET', key_worker(worker), way, nonce)", ""),
    M("a worker may claim when its lease is over", "claiming",
      "if not lease or tonumber(lease) <= now then return 'unrenewed' end", ""),
    M("an old entry is as good as the new one", "claiming",
      "if state ~= 'pending' or not home then", "if state ~= 'pending' then"),
    M("a claim does not look at patience", "claiming",
      "if patience and patience <= now and attempt == 0 then", "if false then"),
    M("the reaper sweeps without a second look", "reap",
      "elseif swept or (now >= missing + grace_ms and now >= judge_at) then", "elseif true then"),
    M("the reaper trusts a server that it does not know", "reap",
      "now >= missing + grace_ms and now >= judge_at", "now >= missing + grace_ms"),
    M("a lease from before the clock was set back lasts on", "reap",
      "if seen and seen > now then", "if false then"),
    M("a heartbeat after the verdict is as good as before", "heartbeat",
      "if record[1] ~= epoch or record[2] == 'lost' or record[2] == 'gone' then return 'evicted' end", ""),
    M("a cancel leaves what is pending", "cancel",
      "if not is_held(run) then", "if not is_held(run) and run.state ~= 'pending' then"),
    M("a run that is to stop starts", "start",
      "if run and run.stop_at_ms then", "if false then"),
    M("a retry is not counted", "ending",
      "outcome, 'fail ' .. fence, purse, spent + 1)", "outcome, 'fail ' .. fence, purse, spent)"),
    M("a crash is not counted", "ending",
      "outcome_json('lost', why), '', purse, spent + 1)", "outcome_json('lost', why), '', purse, spent)"),
    M("a retry comes however late", "ending",
      "if not policy.max_elapsed_ms then return false end", "if true then return false end"),
    M("a class with a number of its own is paid from the rest", "ending",
      "if own and own.retries then return 'spent:' .. class, own.retries end", ""),
    M("nothing expires", "tick",
      "elseif run.until_ms and run.until_ms <= now then", "elseif false then"),
    M("a stop that nobody confirms is forgotten", "tick",
      "elseif run.stop_at_ms then", "elseif false then"),
    M("a run sleeps though it is wanted", "park",
      "local wanted = call('HEXISTS', run.key, 'wanted') == 1 or", "local wanted ="),
    M("a dedupe key is never free again", "ending",
      "    call('DEL', key)\n", ""),
    M("a follower does not get the key", "ending",
      "if follower and not is_ended(follower) then", "if false then"),
    M("a key is free before its time", "ending",
      "elseif taken_until > now then", "elseif false then"),
    M("a run has two followers", "birth",
      "replaces = { next_one }, since", "since"),
    M("a follower goes the way of whom it follows", "ending",
      "and call('HGET', run.key, 'follows') ~= parent then", "then"),
    M("a submit that is sent again begins anew", "birth",
      "if before then return", "if false then return"),
    M("what was delivered to the dead stays with them", "retiring",
      "call('HSET', key_run(id), 'entry', enqueue(id, run))", ""),
    M("a lane is trimmed to what was delivered last", "groom",
      "oldest or group['last-delivered-id']", "group['last-delivered-id']"),
    M("an attempt has no number", "claiming",
      "run.attempt = attempt + 1", "run.attempt = math.max(attempt, 1)"),
    M("a forgotten run stays in its index", "forgetting",
      "reindex(id, run, run.state, nil)", ""),
    M("old reports overwrite new ones", "report",
      "if tonumber(number) <= tonumber(call('HGET', run.key, 'progress_number') or 0) then return 'ok' end", ""),
    M("a stop order is not written", "ending",
      "call('XADD', key_inbox(run.worker), '*', 'order', 'stop', 'run', id, 'fence', run.fence, 'detail', reason)", ""),
    M("a second cancel moves the deadline", "cancel",
      "if not run.stop_at_ms then", "if true then"),
    M("a worker that was started again is taken for the old one", "register",
      "local same = record[1] and (record[1] == epoch or record[3] == op)", "local same = record[1]"),
    M("what a worker has forgotten stays with it", "heartbeat",
      "elseif now - marked >= tonumber(grace_ms) then", "elseif false then"),
    M("a parent is forgotten before its dependents are told", "forgetting",
      "if call('ZSCORE', key_settling(), id) then return false end", ""),
    M("a parent begins again before its dependents are told", "renewal",
      "if call('ZSCORE', key_settling(), id) then return 'settling' end", ""),
    M("a lane is closed with runs in it", "groom",
      "call('XLEN', key) == 0 and", ""),
    M("a signal that is sent again comes twice", "signal",
      "if call('ZSCORE', key_signals(id), op) then return 'ok ' .. run.state end", ""),
    M("a run sleeps though what it waits for is in its mail", "park",
      "or #awaited_mail(id, signals) > 0", ""),
    M("a run sleeps though its children have ended", "park",
      "or has_children_home(id, children)", ""),
    M("the end of the last child wakes nobody", "waiting",
      "if has_children_home(run.parent, mode) then", "if false then"),
    M("any child is as good as all", "waiting",
      "return call('EXISTS', key_children(id)) == 0", "return true"),
    M("what an attempt has taken comes again", "park",
      "consume(id, run)", ""),
    M("children outlive a parent that was cancelled", "waiting",
      "return call('EXISTS', key_children(id)) == 1", "return false"),
    M("the next turn is not called", "ending",
      "if next(vacated) then call_turns() end", ""),
    M("a turn goes on when its dependencies end, whoever is before it", "ending",
      "if run.turn and first_turn(run.turn) ~= id then return call('HSET', run.key, 'reason', 'turn') end", ""),
    M("a turn begins though another is live", "birth",
      "elseif run.turn and first_turn(run.turn) ~= id then", "elseif false then"),
    M("a requeued turn does not wait", "renewal",
      "run.turn and first_turn(run.turn) ~= id and 'turn'", "false"),
    M("a turn that has ended stays in the line", "turns",
      "call('ZREM', key_turns(run.turn), id)\n  if", "if"),
    M("a closed session takes turns", "turns",
      "if f[2] ~= 'open' then return 'closed_session ' .. session end", ""),
    M("a conversation that cannot travel goes on anywhere", "turns",
      "run.tied, own = own, 'host=' .. host", "run.tied = own"),
    M("what is spent counts whenever it is told", "spend",
      "local more = plus(told, before, -1)", "local more = told"),
    M("a draining worker claims", "claiming",
      "if record[2] == 'draining' then return 'draining' end", ""),
)  # fmt: skip
