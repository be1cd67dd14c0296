"""How runs come in over HTTP: one or many, read strictly, and once only for each Idempotency-Key.

With a key, the ids that were made for the first request that used it are noted before anything is submitted. A request
that is sent again finds them: if the first came to its end, its answer is told again; if not, the same ids are
submitted again, which changes nothing that is there already.
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
"""The partition that the answers of keys live in."""
SHOWN_NUMBER_LENGTH = 40
INFINITY = b"Infinity"
CHOSEN_ID_AGE_MS = 600_000
"""How far from the present the time in an id may be that a client has made."""


class SubmitResponse(NamedTuple):
    """What a submit is answered: the status, and the body."""

    status: int
    body: dict[str, Any]


class SubmitBody(NamedTuple):
    """What is to be submitted: the runs, and whether they came as a list."""

    specs: Sequence[RunSpec]
    many: bool
    bytes: int
    trace: str | None = None
    """The trace of the request, for runs that say nothing of one themselves."""


def parse_json(body: bytes) -> Any:
    """The JSON of a request."""
    if not body:
        raise Invalid('There is no body; it is to be JSON, such as {"kind": "command", "argv": ["make", "test"]}.')
    try:
        value = from_json(body, allow_inf_nan=False, cache_strings="none")
        if INFINITY in to_json(value):
            json.loads(body, parse_float=_parse_finite_float)  # unless it is a text that says so
    except (ValueError, RecursionError) as error:
        raise Invalid(f"The body is not JSON: {error}.") from error
    return value


def _parse_finite_float(text: str) -> float:
    """What is too large to be a number becomes infinite, which JSON has no word for when it is told again."""
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text[:SHOWN_NUMBER_LENGTH]} is too large for a number")
    return number


def parse_submit_body(body: bytes, value: Any, *, one: bool = False) -> SubmitBody:
    """The runs in a body that is one run, or, unless there has to be `one`, `{"runs": […]}`."""
    if not one and isinstance(value, list):
        value = {"runs": None}
    if not one and isinstance(value, dict) and "runs" in value:
        runs = value["runs"]
        if not isinstance(runs, list) or not runs or value.keys() != {"runs"}:
            raise Invalid('Many runs are {"runs": […]}, with one at the least, and nothing beside them.')
        if len(runs) > SUBMIT_PER_CALL:
            raise Invalid(f"A request has {SUBMIT_PER_CALL} runs at the most, not {len(runs)}.")
        check_members({"runs": dict(enumerate(runs))}, FREE_JSON_FIELDS)
        return SubmitBody([parse_spec(to_json(each), f"runs.{at}.") for at, each in enumerate(runs)], True, len(body))
    check_members(value, FREE_JSON_FIELDS)
    return SubmitBody([parse_spec(body)], False, len(body))


def parse_spec(body: bytes, place: str = "") -> RunSpec:
    """A run, read strictly; `place` is where it stands in what came."""
    try:
        return RunSpec.model_validate_json(body)
    except ValidationError as error:
        wrong = Invalid(f"{place}{describe_error(error)}")
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
    """Submit what was asked for; all of it is checked first."""
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
    """Refuse runs that would reach, through what they name, what is in other queues or in none."""
    for spec in specs:
        if spec.session is not None or spec.plan is not None:
            queues = ", ".join(caller.queues)
            raise Denied(f"This token is good only for what is in the queues {queues}; a session or a plan is in none.")
        others = {*spec.after, *spec.inputs.values(), *filter(None, (spec.parent,))}
        results = set(_find_result_references([*spec.args, spec.kwargs]))
        if len(results) > DEPENDENCIES_PER_CALL:
            raise Invalid(f"The arguments name {len(results)} runs; {DEPENDENCIES_PER_CALL} is the most.")
        for other in sorted(others | results):
            caller.check_queue(service.run_queries.get(other).spec.queue)


def _find_result_references(value: Any) -> Iterator[str]:
    """The runs whose results stand among the arguments of a function."""
    if isinstance(value, dict) and is_run_id(str(value.get(RESULT_REFERENCE_KEY))):
        yield value[RESULT_REFERENCE_KEY]
    elif isinstance(value, list | dict):
        for each in value if isinstance(value, list) else value.values():
            yield from _find_result_references(each)


def _prefix_dedupe_key(spec: RunSpec) -> RunSpec:
    """With a dedupe key that no run of another queue has: else it could hold up others' runs, or replace them."""
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
    """Refuse an id that could not be that of this run, or that another may be about to get."""
    check_run_id(run_id)
    if what.many:
        raise Invalid("id: many runs cannot have one id; give them an Idempotency-Key.")
    parent = what.specs[0].parent
    # The id of a child of a function follows from that of its parent.
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
    made = {"ids": [service.run_verbs.address(spec, None)[0] for spec in what.specs]}

    async def act(first: dict[str, Any]) -> SubmitResponse:
        return await _submit_specs(service, what, first["ids"], durable=durable)

    return await execute_once(service, caller, key, body.hexdigest(), made, act)


async def execute_once(
    service: ServerService,
    caller: Principal,
    key: str,
    body: str,
    made: dict[str, Any],
    act: Callable[[dict[str, Any]], Awaitable[SubmitResponse]],
) -> SubmitResponse:
    """Do what a request with a key asks for, once: `made` is what it has made up for that, and acts with only if no
    other that came before with this key, and this digest of its body, has made up something else."""
    if not 1 <= len(key) <= KEY_LENGTH_MAX or not key.isprintable():
        raise Invalid(f"An Idempotency-Key has 1 to {KEY_LENGTH_MAX} characters, all of which can be printed.")
    digest = sha256(f"{caller.token or ''} {key}".encode()).hexdigest()
    proposed = to_json(made).decode()
    found, kept = await service.call_in_thread(
        service.store.call, "namespace/use_idempotency_key", KEYS_PARTITION, digest, body, proposed, IDEMPOTENCY_KEY_MS
    )
    if found != body:
        raise Invalid("This Idempotency-Key was used with another body; each request has a key of its own.")
    first = json.loads(kept)
    if "answer" in first:
        return SubmitResponse(first["status"], first["answer"])
    answer = await act(first)
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
    """What is strange about runs that were taken: limits that nobody has set."""
    keys = {key for spec in specs for key in spec.limits}
    return await service.call_in_thread(warn_unset_limits, service.limits, sorted(keys)) if keys else []


async def _submit_durably(service: ServerService, spec: RunSpec, run_id: str) -> SubmitReceipt:
    try:
        return await service.call_in_thread(service.run_verbs.submit, spec, run_id=run_id, durable=True)
    except AgentqError as refused:
        return SubmitReceipt(run_id, created=False, refused=refused)


def _format_receipt(receipt: SubmitReceipt) -> dict[str, Any]:
    """What became of one run."""
    refused = receipt.refused
    if refused is None:
        return {"id": receipt.id, "created": receipt.created}
    problem = problems.build_problem(
        problems.choose_status(refused), str(refused), kind=problems.derive_problem_kind(refused)
    )
    return {"id": receipt.id, "created": False, "refused": problem}
