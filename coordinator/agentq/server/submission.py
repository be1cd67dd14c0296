"""Submits runs over HTTP: one or many, validated strictly, and once per Idempotency-Key.

With a key, the ids reserved for the first request are stored before anything is submitted. A repeated request finds
them: if the first request completed, its answer is returned again; otherwise the same ids are submitted again, which
does not change existing runs.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from hashlib import sha256
from math import isinf
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from agentq.coordinator import tracing
from agentq.coordinator.bounds import DEDUPE_KEY_LENGTH, DEPENDENCIES_PER_CALL, IDEMPOTENCY_KEY_MS, SUBMIT_PER_CALL
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import AgentqError, Invalid
from agentq.coordinator.model.field_types import FREE_JSON_FIELDS, RESULT_REFERENCE_KEY, check_members, describe_error
from agentq.coordinator.model.ids import check_run_id, id_created_ms, is_run_id, partition_of
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.queues.limits import warn_unset_limits
from agentq.coordinator.runs.verbs import SubmitReceipt
from agentq.coordinator.token_context import current_token
from agentq.server.auth.access_control import Principal
from agentq.server.http import problems
from agentq.server.http.problems import Denied
from agentq.server.service import RunSubmission, ServerService

KEY_LENGTH_MAX = 255
KEYS_PARTITION = 0
"""The partition of the idempotency keys."""
SHOWN_NUMBER_LENGTH = 40
INFINITY = b"Infinity"
CHOSEN_ID_AGE_MS = 600_000
"""The largest difference between now and the time in a run id that a client chose."""


class SubmitResponse(NamedTuple):
    """The status and body of the response to a submit."""

    status: int
    body: dict[str, Any]


class SubmitBody(NamedTuple):
    """The runs to submit, and whether they came as a list."""

    specs: Sequence[RunSpec]
    many: bool
    bytes: int
    trace: str | None = None
    """The trace of the request, for runs that name none."""


def parse_json(body: bytes) -> Any:
    """Parse the JSON of a request."""
    if not body:
        raise Invalid('The body is empty; send JSON, such as {"kind": "command", "argv": ["make", "test"]}.')
    try:
        value = from_json(body, allow_inf_nan=False, cache_strings="none")
        if INFINITY in to_json(value):
            json.loads(body, parse_float=_parse_finite_float)  # unless the word is inside a text
    except (ValueError, RecursionError) as error:
        raise Invalid(f"The body is not JSON: {error}.") from error
    return value


def _parse_finite_float(text: str) -> float:
    """Refuses a number that would become infinite, which JSON cannot represent in an answer."""
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text[:SHOWN_NUMBER_LENGTH]} is too large for a number")
    return number


def parse_submit_body(body: bytes, value: Any, *, one: bool = False) -> SubmitBody:
    """Parse one run, or, unless there must be `one`, `{"runs": […]}`."""
    if not one and isinstance(value, list):
        value = {"runs": None}
    if not one and isinstance(value, dict) and "runs" in value:
        runs = value["runs"]
        if not isinstance(runs, list) or not runs or value.keys() != {"runs"}:
            raise Invalid('Many runs are {"runs": […]}, with at least one, and no other keys.')
        if len(runs) > SUBMIT_PER_CALL:
            raise Invalid(f"A request has {SUBMIT_PER_CALL} runs at most, not {len(runs)}.")
        check_members({"runs": dict(enumerate(runs))}, FREE_JSON_FIELDS)
        return SubmitBody([parse_spec(to_json(each), f"runs.{at}.") for at, each in enumerate(runs)], True, len(body))
    check_members(value, FREE_JSON_FIELDS)
    return SubmitBody([parse_spec(body)], False, len(body))


def parse_spec(body: bytes, prefix: str = "") -> RunSpec:
    """Parse a run strictly; `prefix` is its path in the body."""
    try:
        return RunSpec.model_validate_json(body)
    except ValidationError as error:
        wrong = Invalid(f"{prefix}{describe_error(error)}")
        wrong.__cause__ = error
        raise wrong from error


async def submit(
    service: ServerService,
    caller: Principal,
    submitted: SubmitBody,
    *,
    key: str | None,
    durable: bool,
    run_id: str | None = None,
) -> SubmitResponse:
    """Submit runs; all of them are checked first."""
    for spec in submitted.specs:
        caller.check_queue(spec.queue)
    if caller.queues:
        await service.call_in_thread(_check_referenced_queues, service, caller, submitted.specs)
        submitted = submitted._replace(specs=[_prefix_dedupe_key(spec) for spec in submitted.specs])
    if run_id is not None:
        _check_chosen_id(service, caller, submitted, run_id)
        return await _submit_specs(service, submitted, [run_id], durable=durable)
    if key is None:
        ids = [service.run_verbs.address(spec, None)[0] for spec in submitted.specs]
        return await _submit_specs(service, submitted, ids, durable=durable)
    return await _submit_once(service, caller, submitted, key, durable=durable)


def _check_referenced_queues(service: ServerService, caller: Principal, specs: Sequence[RunSpec]) -> None:
    """Refuse runs that refer to runs in other queues, or to sessions and plans."""
    for spec in specs:
        if spec.session is not None or spec.plan is not None:
            queues = ", ".join(caller.queues)
            raise Denied(f"This token is only for the queues {queues}; sessions and plans are in no queue.")
        others = {*spec.after, *spec.inputs.values(), *filter(None, (spec.parent,))}
        results = set(_find_result_references([*spec.args, spec.kwargs]))
        if len(results) > DEPENDENCIES_PER_CALL:
            raise Invalid(f"The arguments name {len(results)} runs; {DEPENDENCIES_PER_CALL} is the most.")
        for other in sorted(others | results):
            caller.check_queue(service.run_queries.get(other).spec.queue)


def _find_result_references(value: Any) -> Iterator[str]:
    """The runs whose results are among the arguments of a function."""
    if isinstance(value, dict) and is_run_id(str(value.get(RESULT_REFERENCE_KEY))):
        yield value[RESULT_REFERENCE_KEY]
    elif isinstance(value, list | dict):
        for each in value if isinstance(value, list) else value.values():
            yield from _find_result_references(each)


def _prefix_dedupe_key(spec: RunSpec) -> RunSpec:
    """Make a dedupe key unique to its queue, so that it cannot delay or replace runs of other queues."""
    if spec.dedupe_key is None:
        return spec
    key = f"queue:{spec.queue}:{spec.dedupe_key}"
    if len(key) > DEDUPE_KEY_LENGTH:
        raise Invalid(
            f"dedupe_key: {spec.dedupe_key[:40]!r}… has {len(key)} characters as {key[:40]!r}…; "
            f"{DEDUPE_KEY_LENGTH} is the most."
        )
    return spec.model_copy(update={"dedupe_key": key})


def _check_chosen_id(service: ServerService, caller: Principal, what: SubmitBody, run_id: str) -> None:
    """Refuse an id that does not fit this run, or that another run may get."""
    check_run_id(run_id)
    if what.many:
        raise Invalid("id: many runs cannot have one id; give them an Idempotency-Key.")
    parent = what.specs[0].parent
    # The id of a function's child is derived from that of its parent.
    if parent is None or id_created_ms(parent) != id_created_ms(run_id):
        if caller.queues:
            raise Denied("id: a token of some queues cannot choose the id of a run; use an Idempotency-Key.")
        if abs(id_created_ms(run_id) - wall_ms()) > CHOSEN_ID_AGE_MS:
            raise Invalid(
                f"id: {run_id} was not made within {CHOSEN_ID_AGE_MS // 60_000} minutes from now; make a new one."
            )
    partition, home = partition_of(run_id), service.run_verbs.home(what.specs[0])
    if partition not in service.store.partitions() or home not in (None, partition):
        raise Invalid(f"id: the run {run_id} would be in partition {partition}, where this one cannot live.")


async def _submit_once(
    service: ServerService, caller: Principal, what: SubmitBody, key: str, *, durable: bool
) -> SubmitResponse:
    body = sha256(
        b"".join(spec.lane.encode() + spec.to_wire() + to_json(spec.to_submit_options()) for spec in what.specs)
    )
    proposal = {"ids": [service.run_verbs.address(spec, None)[0] for spec in what.specs]}

    async def submit_reserved(first: dict[str, Any]) -> SubmitResponse:
        return await _submit_specs(service, what, first["ids"], durable=durable)

    return await execute_once(service, caller, key, body.hexdigest(), proposal, submit_reserved)


async def execute_once(
    service: ServerService,
    caller: Principal,
    key: str,
    body: str,
    proposal: dict[str, Any],
    action: Callable[[dict[str, Any]], Awaitable[SubmitResponse]],
) -> SubmitResponse:
    """Execute a request with a key once. `proposal` holds the ids reserved for it; `action` gets those of the first
    request with this key, which must have the same digest of its body."""
    if not 1 <= len(key) <= KEY_LENGTH_MAX or not key.isprintable():
        raise Invalid(f"An Idempotency-Key has 1 to {KEY_LENGTH_MAX} characters, all of which can be printed.")
    digest = sha256(f"{caller.token or ''} {key}".encode()).hexdigest()
    proposed = to_json(proposal).decode()
    found, kept = await service.call_in_thread(
        service.store.call, "namespace/use_idempotency_key", KEYS_PARTITION, digest, body, proposed, IDEMPOTENCY_KEY_MS
    )
    if found != body:
        raise Invalid("This Idempotency-Key was used with another body; each request has a key of its own.")
    first = json.loads(kept)
    if "answer" in first:
        return SubmitResponse(first["status"], first["answer"])
    answer = await action(first)
    ended = to_json({"status": answer.status, "answer": answer.body}).decode()
    await service.call_in_thread(
        service.store.call, "namespace/use_idempotency_key", KEYS_PARTITION, digest, found, ended, ""
    )
    return answer


async def _submit_specs(
    service: ServerService, what: SubmitBody, ids: Sequence[str], *, durable: bool
) -> SubmitResponse:
    specs = [tracing.add_traceparent(spec, what.trace) for spec in what.specs]
    if not what.many:
        (spec,), (run_id,) = specs, ids
        if durable:
            receipt = await service.call_in_thread(service.run_verbs.submit, spec, run_id=run_id, durable=True)
        else:
            receipt = await service.submit_batched(RunSubmission(spec, run_id, what.bytes, current_token()))
        if receipt.refused is not None:
            raise await service.call_in_thread(service.run_verbs.advised, receipt.refused, spec)
        return SubmitResponse(
            201 if receipt.created else 200,
            _format_receipt(receipt) | {"notes": await _collect_limit_notes(service, specs)},
        )
    if durable:
        receipts = [await _submit_durably(service, spec, run_id) for spec, run_id in zip(specs, ids, strict=True)]
    else:
        submits = [RunSubmission(spec, run_id, 0, current_token()) for spec, run_id in zip(specs, ids, strict=True)]
        receipts = await service.call_in_thread(service.submit_batch, submits)
    status = 201 if any(receipt.created for receipt in receipts) else 200
    return SubmitResponse(
        status,
        {
            "runs": [_format_receipt(receipt) for receipt in receipts],
            "notes": await _collect_limit_notes(service, specs),
        },
    )


async def _collect_limit_notes(service: ServerService, specs: Sequence[RunSpec]) -> list[str]:
    """Warnings about limits of accepted runs that are not set."""
    keys = {key for spec in specs for key in spec.limits}
    if not keys:
        return []
    return list((await service.call_in_thread(warn_unset_limits, service.limits, sorted(keys))).values())


async def _submit_durably(service: ServerService, spec: RunSpec, run_id: str) -> SubmitReceipt:
    try:
        return await service.call_in_thread(service.run_verbs.submit, spec, run_id=run_id, durable=True)
    except AgentqError as refused:
        return SubmitReceipt(run_id, created=False, refused=refused)


def _format_receipt(receipt: SubmitReceipt) -> dict[str, Any]:
    """The result for one run."""
    refused = receipt.refused
    if refused is None:
        return {"id": receipt.id, "created": receipt.created}
    problem = problems.build_problem(
        problems.choose_status(refused), str(refused), kind=problems.derive_problem_kind(refused)
    )
    return {"id": receipt.id, "created": False, "refused": problem}
