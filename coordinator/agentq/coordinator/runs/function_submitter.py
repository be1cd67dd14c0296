"""Submits calls of one function: runs that differ only in their arguments.

What they share is worked out once, from a spec without arguments. Each call is then its id and a wire form put together
from text, so that a producer costs little more than the words it sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from pydantic_core import to_json

from agentq.coordinator import bounds, tracing
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.ids import new_run_ids
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.verbs import RunVerbs, SubmitReceipt, parse_receipt
from agentq.coordinator.storage.connection import CommandArgument

CALLS_PER_BATCH = 250
"""Calls in one message: so many that the script's own cost is small, so few that the server soon has something to do
while the next are made."""


class FunctionSubmitter:
    """The calls of one function in one namespace."""

    def __init__(self, queue: RunVerbs, template: RunSpec) -> None:
        """The template has the function and the options of all calls, and no arguments."""
        if template.kind != "function" or template.args or template.kwargs:
            raise Invalid("A template is a run of kind 'function' without arguments.")
        if len(template.after) > bounds.DEPENDENCIES_PER_CALL:
            raise Invalid(f"A template waits for {bounds.DEPENDENCIES_PER_CALL} runs at the most.")
        self.queue = queue
        self.template = template
        self._lane = template.lane
        self._options = b"" if template.has_only_lane_options else to_json(template.to_submit_options())
        wire = template.to_wire().decode()
        self._is_plain = not wire.startswith("{")
        at = wire.index("[]") if self._is_plain else -1
        self._before, self._behind = (wire[:at], wire[at + 2 :]) if self._is_plain else (f"{wire[:-1]},", "}")

    def submit(self, arguments: str, *, run_id: str | None = None, durable: bool = False) -> SubmitReceipt:
        """Submit one call; its arguments are the text of a JSON array, or of an object for keywords."""
        if not tracing.is_enabled():
            return self._submit(arguments, run_id, durable=durable)
        with tracing.submit_span(self.template.queue) as (trace, tell):
            receipt = self._in(trace)._submit(arguments, run_id, durable=durable)
            tell(receipt.id, 1)
            return receipt

    def _submit(self, arguments: str, run_id: str | None, *, durable: bool) -> SubmitReceipt:
        run_id, partition = self.queue.address(self.template, run_id)
        store = self.queue.store
        call = store.call_durably if durable else store.call
        (word,) = call("run/submit", partition, run_id, self._lane, self._wire(arguments), self._options)
        receipt = parse_receipt(run_id, word)
        if receipt.refused is not None:
            raise receipt.refused
        return receipt

    def submit_many(self, arguments: Sequence[str]) -> list[SubmitReceipt]:
        """Submit many calls in a few messages; returns the receipts in order. A refusal concerns one call only."""
        if not tracing.is_enabled():
            return self._submit_many(arguments)
        with tracing.submit_span(self.template.queue) as (trace, tell):
            tell("", len(arguments))
            return self._in(trace)._submit_many(arguments)

    def _in(self, trace: str | None) -> FunctionSubmitter:
        """A submitter of the same calls, in a trace."""
        template = tracing.add_traceparent(self.template, trace)
        return self if template is self.template else FunctionSubmitter(self.queue, template)

    def _submit_many(self, arguments: Sequence[str]) -> list[SubmitReceipt]:
        ids: list[list[str]] = []

        def messages() -> Iterator[tuple[int, Sequence[CommandArgument]]]:
            for first in range(0, len(arguments), CALLS_PER_BATCH):
                texts = arguments[first : first + CALLS_PER_BATCH]
                _, partition = self.queue.address(self.template, None)
                ids.append(new_run_ids(len(texts), partition))
                yield partition, self._rows(ids[-1], texts)

        receipts: list[SubmitReceipt] = []
        for words in self.queue.store.call_many("run/submit", messages()):
            receipts += map(parse_receipt, ids.pop(0), words)
        return receipts

    def _rows(self, ids: Sequence[str], texts: Sequence[str]) -> list[CommandArgument]:
        lane, options, wire = self._lane, self._options, self._wire
        return list(
            chain.from_iterable((run_id, lane, wire(text), options) for run_id, text in zip(ids, texts, strict=True))
        )

    def _wire(self, arguments: str) -> str:
        if len(arguments) > bounds.ARGUMENTS_BYTES // 4 and len(arguments.encode()) > bounds.ARGUMENTS_BYTES:
            raise Invalid(
                f"The JSON of the arguments has {len(arguments.encode())} bytes; {bounds.ARGUMENTS_BYTES} is the most. "
                "Pass large input as a file."
            )
        if self._is_plain:
            return self._before + arguments + self._behind
        name = "kwargs" if arguments.startswith("{") else "args"
        return f'{self._before}"{name}":{arguments}{self._behind}'
