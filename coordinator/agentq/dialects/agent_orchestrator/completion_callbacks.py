"""Sends callbacks when runs end: to the parent session of a child run, and to finish hooks.

A pending callback is recorded before its run is submitted, and removed after it was sent; so it is sent even if all
servers were down when the run ended. Any server may send it, and two that try at once send it once: the callback's run
has an id derived from its first child. The server that finds the id taken reads from that run which children it covers.

While a parent is busy its callbacks wait; then one turn covers all children that have ended. No progress is stored:
whether a parent is busy is read from its queued turns, so a failed turn blocks nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import suppress

from pydantic import JsonValue

from agentq.coordinator.errors import AgentqError, Duplicate, Invalid, NotFound, TryLater, Unreachable, WrongState
from agentq.coordinator.model.ids import id_created_ms, make_tick_run_id, partition_of
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.coordinator.runs.run_record import RunRecord
from agentq.dialects.agent_orchestrator.blueprints.models import BlueprintHook
from agentq.dialects.agent_orchestrator.dialect_table import find_dialect
from agentq.dialects.agent_orchestrator.event_follower import EventFollower
from agentq.dialects.agent_orchestrator.run_translation import (
    STATUS_BY_STATE,
    DialectNotes,
    describe_error,
    get_session_id,
    translate_result,
)
from agentq.dialects.agent_orchestrator.sessions.store import DialectSessionStore
from agentq.dialects.agent_orchestrator.submission import DialectSubmitter
from agentq.server.events.hub import EventHub
from agentq.server.thread_pool import CallInThread

EVENT_CAPACITY = 2000
CALLBACKS_PER_ROUND = 500
"""Pending callbacks that one round checks."""
CHILDREN_PER_TURN = 100
"""The most children that one callback covers."""
RESULT_CHARACTERS_MAX = 64 << 10
"""The most characters of one child's result; the results of all children have RESULT_SHARES times as many together."""
RESULT_SHARES = 12
ORPHAN_TIMEOUT_MS = 60_000
"""A pending callback without a run is dropped after this time: its submit failed."""
CHECK_INTERVAL_S = 30.0
"""How often pending callbacks are checked without any event."""
BATCH_WINDOW_S = 0.02
"""Events within this time are handled together, so that children that end together share a callback."""
PART_SEPARATOR = "\n\n"
CLOSING_SENTENCE = "Please continue with the orchestration based on "

log = logging.getLogger("agentq.server")


class CompletionCallbacks(EventFollower):
    """Sends pending callbacks."""

    def __init__(
        self,
        session_store: DialectSessionStore,
        submitter: DialectSubmitter,
        event_hub: EventHub,
        call_in_thread: CallInThread,
    ) -> None:
        self.store = session_store.store
        self.run_queries = session_store.run_queries
        self.session_store = session_store
        self.submitter = submitter
        super().__init__(event_hub, call_in_thread)

    async def follow(self) -> None:
        with self.event_hub.watch_all(EVENT_CAPACITY) as watch:
            relevant = True
            while not self.event_hub.closing:
                if relevant:
                    await self._settle_in_thread()
                batch = await watch.next(CHECK_INTERVAL_S)
                relevant = not batch.events or any(event.state in TERMINAL_STATES for event in batch.events)
                if batch:
                    await asyncio.sleep(BATCH_WINDOW_S)

    async def _settle_in_thread(self) -> None:
        try:
            with suppress(Unreachable, TryLater):  # the next round retries
                await self._call_in_thread(self.settle)
        except AgentqError as fault:
            log.warning("completion callback failed; will retry", extra={"fields": {"error": str(fault)}})

    def settle(self) -> int:
        """Send all callbacks that are due; returns how many were removed."""
        return sum(self._settle_partition(partition) for partition in self.store.partitions())

    def _settle_partition(self, partition: int) -> int:
        key = self.store.key(partition, "pending_callbacks")
        flat = self.store.connection.command("ZRANGE", key, 0, CALLBACKS_PER_ROUND - 1, "WITHSCORES")
        if not flat:
            return 0
        ended, orphans, now_ms = [], [], self.store.time_ms()
        for run_id, since in zip(flat[::2], flat[1::2], strict=True):
            state = self.store.connection.command("HGET", self.store.key(partition, "run", run_id), "state")
            if state is None and now_ms - int(float(since)) > ORPHAN_TIMEOUT_MS:
                orphans.append(run_id)
            elif state is not None and State(state) in TERMINAL_STATES:
                ended.append(self.run_queries.get(run_id))
        settled = [*orphans, *self._settle_hooks(ended), *self._settle_parents(ended)]
        if settled:
            self.store.call("dialect/track_callbacks", partition, "done", *settled)
        return len(settled)

    # ---- hooks

    def _settle_hooks(self, ended: list[RunRecord]) -> Iterator[str]:
        """Submit runs of finish hooks. A run whose parent needs a callback as well stays recorded until that was
        sent."""
        for run in ended:
            notes = DialectNotes.from_spec(run.spec)
            if notes.finish is not None and run.state is State.COMPLETED:
                self._submit_hook_run(run, BlueprintHook.model_validate(notes.finish))
            if not _needs_parent_callback(notes):
                yield run.id

    def _submit_hook_run(self, run: RunRecord, hook: BlueprintHook) -> None:
        result = translate_result(run) or {}
        data = result.get("result_data")
        parameters: dict[str, JsonValue] = data if isinstance(data, dict) else {"prompt": result.get("result") or ""}
        run_id = make_tick_run_id(partition_of(run.id), id_created_ms(run.id), f"finish {run.id}")
        try:
            self.submitter.submit_hook_run(
                hook, parameters, session=get_session_id(run), queue=run.spec.queue, run_id=run_id
            )
        except Duplicate:
            return  # already submitted
        except Invalid as wrong:
            log.warning("a finish hook cannot run; dropped", extra={"fields": {"run": run.id, "error": str(wrong)}})

    # ---- parents

    def _settle_parents(self, ended: list[RunRecord]) -> Iterator[str]:
        """Submit a callback to each parent that is not busy."""
        by_parent: dict[str, list[RunRecord]] = {}
        for run in sorted(ended, key=lambda run: run.id):
            notes = DialectNotes.from_spec(run.spec)
            if _needs_parent_callback(notes) and notes.parent is not None:
                by_parent.setdefault(notes.parent, []).append(run)
        for parent, children in by_parent.items():
            yield from self._submit_callback(parent, children[:CHILDREN_PER_TURN])

    def _submit_callback(self, parent: str, children: list[RunRecord]) -> list[str]:
        """Submit a callback; returns the children whose callbacks are done."""
        ids = [run.id for run in children]
        try:
            stored = self.session_store.sessions.get(parent)
        except NotFound:
            return ids  # the parent no longer exists
        if stored.state != "open":
            return ids
        if stored.turns:
            return []
        partition = self.session_store.sessions.partition(parent)
        run_id = make_tick_run_id(partition, id_created_ms(ids[0]), f"callback {ids[0]}")
        try:
            self.submitter.submit_callback(parent, self._build_prompt(children), tuple(ids), run_id)
        except Duplicate:
            return [each for each in DialectNotes.from_spec(self.run_queries.get(run_id).spec).answers if each in ids]
        except WrongState:
            return ids  # closed a moment ago
        except Invalid as wrong:
            # A retry would fail again, and would block the other callbacks.
            log.warning(
                "a callback to a parent was refused; dropped",
                extra={"fields": {"session": parent, "error": str(wrong)}},
            )
        return ids

    def _build_prompt(self, children: list[RunRecord]) -> str:
        in_tags = find_dialect(DialectNotes.from_spec(children[0].spec).dialect).callback_in_tags
        if len(children) == 1:
            (run,) = children
            if not in_tags:
                return self._describe_child(run)
            opening = f'<agent-callback session="{get_session_id(run)}" status="{STATUS_BY_STATE[run.state]}">'
            return f"{opening}\n{self._format_result(run, '##')}\n</agent-callback>\n\n{_choose_closing(run)}"
        characters_max = min(RESULT_CHARACTERS_MAX, RESULT_SHARES * RESULT_CHARACTERS_MAX // len(children))
        parts = [
            f"### Child: {get_session_id(run)} (status: "
            f"{STATUS_BY_STATE[run.state]})\n\n{self._format_result(run, '####', characters_max)}"
            for run in children
        ]
        if not in_tags:
            return "Multiple child agent sessions have completed.\n\n" + PART_SEPARATOR.join(
                [*parts, f"{CLOSING_SENTENCE}these results."]
            )
        opening = f'<agent-callback type="aggregated" count="{len(children)}">'
        return "\n".join([opening, "\n\n".join(parts), "</agent-callback>"]) + f"\n\n{CLOSING_SENTENCE}these results."

    def _describe_child(self, run: RunRecord) -> str:
        """The end of one child in the sentences of the older dialects."""
        ended = "completed" if run.state is State.COMPLETED else "failed"
        opening = f'The child agent session "{get_session_id(run)}" has {ended}.'
        return f"{opening}\n\n{self._format_result(run, '##')}\n\n{_choose_closing(run)}"

    def _format_result(self, run: RunRecord, mark: str, characters_max: int = RESULT_CHARACTERS_MAX) -> str:
        if run.state is not State.COMPLETED:
            error = describe_error(run) or f"The run was {STATUS_BY_STATE[run.state]}."
            return f"{mark} Error\n\n{_quote_text(error, characters_max)}"
        found = translate_result(run) or {}
        data = found.get("result_data")
        text = json.dumps(data, ensure_ascii=False) if data is not None else str(found.get("result_text") or "")
        return f"{mark} Child Result\n\n{_quote_text(text, characters_max)}"


def _choose_closing(run: RunRecord) -> str:
    """The instruction to the parent at the end of a callback."""
    if run.state is State.COMPLETED:
        return f"{CLOSING_SENTENCE}this result."
    return "Please handle this failure and continue with the orchestration."


def _needs_parent_callback(notes: DialectNotes) -> bool:
    return notes.parent is not None and notes.mode == "async_callback"


def _quote_text(text: str, characters_max: int) -> str:
    """A text shortened and escaped so that it cannot end the tag around it."""
    shown = text if len(text) <= characters_max else f"{text[:characters_max]}\n… ({len(text)} characters in all)"
    return shown.replace("</agent-callback", "</ agent-callback")
