"""Checks what a remote worker may call, argument by argument. Its tasks:

1. Allow only the scripts of workers; refuse all others by name.
2. Check each argument by its name in the script's header: the worker is the connected one, a lane is one that it
   serves, numbers and outcomes are valid. An invalid argument is refused before the call, because a script that fails
   in the middle has done half of its work.
3. Check that a fence belongs to an attempt of this worker. The fence of another worker's attempt is replaced with an
   invalid one, so that the script answers as for a superseded attempt.
4. Set arguments that a worker must not choose: random numbers and lease times.

It stores only caches: the identity of the worker and its runs are in Redis.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, pairwise
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json

from agentq.coordinator import bounds
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import Fenced, Invalid, NotAllowed
from agentq.coordinator.model.agent_options import AGENT_LABEL
from agentq.coordinator.model.field_types import ENTRY_ID_PATTERN, Label, LimitName, check_json_members, describe_error
from agentq.coordinator.model.ids import check_run_id, partition_of
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome, parse_lane
from agentq.coordinator.runs.merge_progress import MergeProgress
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.scripts import SCRIPTS
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.identity import WorkerIdentity

AnyModel = TypeVar("AnyModel", bound=BaseModel)

WORKER_SCRIPTS = frozenset(
    (
        *("worker/register", "worker/heartbeat", "worker/drain", "worker/deregister", "worker/evict"),
        *(
            "queue/list_lanes",
            "worker/claim",
            "worker/claim_delivered",
            "worker/finish_and_claim",
            "attempt/start",
            "attempt/finish",
            "attempt/fail",
            "attempt/defer",
            "attempt/release",
            "attempt/park",
            "attempt/get_wait_result",
        ),
        *(
            "attempt/report_progress",
            "attempt/append_log",
            "conversation/get",
            "conversation/bind",
            "conversation/record_spending",
            "conversation/save_transcript",
            "conversation/get_transcript",
            "limit/block_until",
            "limit/list",
        ),
        *("merge/record_step", "merge/get_step", "merge/pin_base", "merge/enter_queue", "merge/leave_queue"),
    )
)
CLAIMING_SCRIPTS = frozenset(("worker/register", "worker/claim", "worker/claim_delivered", "worker/finish_and_claim"))
"""Scripts whose replies contain runs, each followed by its fence."""
INVALID_FENCE = "0-"
"""A fence that no attempt has."""
ROWS_MAX = 10 * bounds.CLAIM_PER_CALL
"""The most rows of one call: a script blocks the whole server while it runs."""
ATTEMPTS_CACHED = 20_000
"""Cached attempts of the worker; beyond them the store is read again."""
VIA_FIELD = "via"
"""The field of a worker's record that tells how it connected, and with which token."""


class WorkerPermissions:
    """The permissions of one worker on one connection."""

    def __init__(
        self,
        store: NamespaceStore,
        settings: Settings,
        worker: str,
        bound: str | None = None,
        queues: Sequence[str] = (),
    ) -> None:
        self.store = store
        self.settings = settings
        self.worker = worker
        self.bound = bound
        """The id of its token, if that is bound to the worker registered with it."""
        self.queues = queues
        """The only queues that its token is for; all if empty."""
        self._identity: WorkerIdentity | None = None
        self._queues_served: set[str] = set()
        """The queues that it has served since it connected."""
        self._own_attempts: set[tuple[str, str]] = set()

    def admit(self) -> None:
        """Refuse a worker whose name is registered with another token or directly in Redis."""
        for partition in self.store.partitions() if self._is_limited else ():
            self._read_identity(partition)

    def check_arguments(self, script: str, arguments: Iterable[CommandArgument]) -> list[CommandArgument]:
        """The arguments to call a script with; refuses a call that is not allowed. May read the store."""
        if script not in WORKER_SCRIPTS:
            raise NotAllowed(f"A worker may not call {script[:32]!r}.")
        header = SCRIPTS[script].header
        given = list(arguments)
        rest = len(given) - len(header.arguments)
        if rest < 0 or (rest % len(header.rows) if header.rows else rest):
            raise Invalid(
                f"The script {script!r} takes other arguments: {' '.join((*header.arguments, *header.rows))}."
            )
        number = rest // len(header.rows) if header.rows else 0
        if number > ROWS_MAX:
            raise Invalid(f"A call has {ROWS_MAX} rows at most, not {number}.")
        if script == "limit/list" and not number:
            raise NotAllowed("A worker must name the limits that it reads.")
        rows = chain.from_iterable([header.rows] * number)
        names = [*header.arguments, *rows]
        checked = [self._check_argument(script, name, word) for name, word in zip(names, given, strict=True)]
        return list(self._replace_other_fences(names, checked))

    def check_lanes(self, lanes: Iterable[str], *, former: bool = False) -> list[str]:
        """These lanes, if the worker serves them; with `former`, also if it did so earlier on this connection."""
        lane_names = list(lanes)
        queues = {_lane_queue(lane) for lane in lane_names}
        if not self._serves(queues) and not (former and self._queues_served.issuperset(queues)):
            self._identity = None
            if not self._serves(queues):
                raise NotAllowed(f"The worker {self.worker} serves other queues.")
        return lane_names

    def check_queue(self, queue: str) -> None:
        """Refuse a queue that the worker does not serve."""
        if not self._serves({queue}):
            raise NotAllowed(f"The worker {self.worker} serves other queues than {queue}.")

    def check_holds(self, run: str, fence: str) -> None:
        """Refuse a run that the worker does not hold with this fence."""
        key = self.store.key(partition_of(run), "run", run)
        if self.store.connection.command("HMGET", key, "worker", "fence") != [self.worker, fence]:
            raise Fenced(f"The run {run} is not in the hands of the worker {self.worker} with that fence.")

    def filter_reply(self, script: str, reply: Any) -> Any:
        """The reply for the worker: remembers the claimed runs, and hides lanes of other queues."""
        if not isinstance(reply, list):
            return reply
        if script == "queue/list_lanes":
            return self._filter_lanes(*reply)
        if script in CLAIMING_SCRIPTS:
            if len(self._own_attempts) > ATTEMPTS_CACHED:
                self._own_attempts.clear()
            pairs = pairwise(each for each in reply if isinstance(each, str))
            self._own_attempts.update(pair for pair in pairs if pair[0].startswith("run_"))
        return reply

    def _filter_lanes(self, revision: str, running: int, *lanes: str) -> list[str | int]:
        """The lanes of queues that the worker serves or has served; the identity is read again, since it may have
        changed."""
        self._identity = None
        self._serves(())
        is_own = [_lane_queue(lane) in self._queues_served for lane in lanes]
        return [revision, sum(is_own[:running]), *compress(lanes, is_own)]

    # ---- who it is

    @property
    def _registration_mark(self) -> str:
        return "coordinator" if self.bound is None else f"coordinator by token {self.bound}"

    @property
    def _is_limited(self) -> bool:
        """Whether its token is limited to a worker or to queues."""
        return self.bound is not None or bool(self.queues)

    def _read_identity(self, partition: int) -> WorkerIdentity | None:
        """The registered identity; None if there is none. Refuses one that the token is not for."""
        key = self.store.key(partition, "worker", self.worker)
        state, text = self.store.connection.command("HMGET", key, "state", "identity")
        if not text or state == "gone":
            return None
        identity = WorkerIdentity.model_validate_json(text)
        if self.bound is not None and identity.about.get(VIA_FIELD) != self._registration_mark:
            raise NotAllowed(f"The worker {self.worker} is registered by another client; start with another name.")
        self._check_queues(identity.queues)
        return identity

    def _check_queues(self, queues: Iterable[str]) -> None:
        if self.queues and not set(queues).issubset(self.queues):
            raise NotAllowed(f"This token is for the queues {', '.join(self.queues)}.")

    def _get_identity(self) -> WorkerIdentity | None:
        if self._identity is None:
            self._identity = self._read_identity(0)
            self._queues_served.update(self._identity.queues if self._identity is not None else ())
        return self._identity

    def _serves(self, queues: Iterable[str]) -> bool:
        identity = self._get_identity()
        return identity is not None and set(identity.queues).issuperset(queues)

    # ---- what it holds

    def _replace_other_fences(self, names: list[str], arguments: list[CommandArgument]) -> Iterator[CommandArgument]:
        run = ""
        for name, word in zip(names, arguments, strict=True):
            if name == "id":
                run = str(word)
            yield INVALID_FENCE if name == "fence" and run and not self._holds(run, str(word)) else word

    def _holds(self, run: str, fence: str) -> bool:
        """Whether no other worker holds the run. For a run that has ended or does not exist, the script checks the
        fence."""
        if (run, fence) in self._own_attempts:
            return True
        key = self.store.key(partition_of(run), "run", run)
        holder = self.store.connection.command("HGET", key, "worker")
        return not holder or holder == self.worker

    # ---- words

    def _check_argument(self, script: str, name: str, argument: CommandArgument) -> CommandArgument:
        text = str(argument)
        match name:
            case "worker":
                self._check_worker(text)
            case "identity":
                return self._check_identity(text)
            case "random":
                return self.store.dice()
            case "lease_ms":
                return self.settings.lease_ms
            case "grace_ms":
                return self.settings.forget_ms
            case "lane" | "lanes":
                self.check_lanes(text.splitlines(), former=script == "worker/claim_delivered")
            case "limit":
                self._check_gate(text, shuts=script == "limit/block_until")
            case "until_ms" if ARGUMENT_PATTERNS[name].fullmatch(text):
                return min(int(text), self.store.time_ms() + bounds.LIMIT_SHUT_MS_MAX)
            case "count" | "calls" if ARGUMENT_PATTERNS[name].fullmatch(text):
                return min(int(text), bounds.CLAIM_PER_CALL)
            case _ if name in ARGUMENT_PATTERNS:
                if not ARGUMENT_PATTERNS[name].fullmatch(text):
                    raise Invalid(f"The word {name!r} of {script!r} cannot be {text[:80]!r}.")
            case _:
                ARGUMENT_CHECKS[name](text)
        return argument

    def _check_worker(self, worker: str) -> None:
        if worker != self.worker:
            raise NotAllowed(f"This connection is of the worker {self.worker}, not of {worker[:80]!r}.")
        if self._is_limited:
            # Another client may have registered it since this connection was accepted.
            self._get_identity()

    def _check_identity(self, text: str) -> str:
        identity = _parse_model(WorkerIdentity, text, "description of a worker")
        self._check_worker(identity.id)
        self._check_queues(identity.queues)
        self.admit()
        self._identity = identity.model_copy(update={"about": {**identity.about, VIA_FIELD: self._registration_mark}})
        self._queues_served.update(identity.queues)
        self._identity.check_size()
        return self._identity.model_dump_json()

    def _check_gate(self, limit: str, *, shuts: bool) -> None:
        """Refuse a gate that is not an account of the worker's agents; it may be shut only while the worker holds a
        run of that agent."""
        _check_value(_limit_adapter, limit, "name of a limit")
        kind, _, rest = limit.partition(":")
        identity = self._get_identity()
        offers = identity is not None and f"{AGENT_LABEL}{rest.partition(':')[0]}" in identity.labels
        if kind != "account" or not offers:
            raise NotAllowed(f"The limit {limit!r} is none of an agent of the worker {self.worker}.")
        if shuts and not self._holds_run_of(rest.partition(":")[0]):
            raise Fenced(f"The worker {self.worker} holds no run of an agent whose account is {rest!r}.")

    def _holds_run_of(self, agent: str) -> bool:
        key, command = self.store.key, self.store.connection.command
        for partition in self.store.partitions():
            for run in command("HKEYS", key(partition, "worker_runs", self.worker)):
                lane = command("HGET", key(partition, "run", run), "lane")
                if lane and f"{AGENT_LABEL}{agent}" in parse_lane(lane)["demands"]:
                    return True
        return False


def _lane_queue(lane: str) -> str:
    try:
        return str(parse_lane(lane)["queue"])
    except (ValueError, IndexError) as error:
        raise Invalid(f"{lane[:80]!r} is not the name of a lane.") from error


_ENTRY_ID = ENTRY_ID_PATTERN.strip("^$")
_NUMBER_PATTERN = r"\d{1,16}"
ARGUMENT_PATTERNS = {
    name: re.compile(pattern, re.ASCII)
    for pattern, names in {
        _NUMBER_PATTERN: "epoch count calls number input cached output turns until_ms",
        f"({_NUMBER_PATTERN})?": "delay_ms due_at_ms alarm_at_ms alarm_ms cost after",
        r"[0-9A-Za-z]{1,64}": "operation nonce",
        r"(\d{1,10}-[0-9A-Za-z]{1,64})?": "fence",
        _ENTRY_ID: "entry",
        f"({_ENTRY_ID}(,{_ENTRY_ID})*)?": "applied",
        r"[01]": "caller",
        r"1?": "movable",
        r"(fresh)?": "with_read",
        r"drain|hurry": "order",
        r"out|err|note|event": "stream",
        r"(all|any)?": "children",
        r"( ([A-Za-z0-9_.@+-]{1,128} ){1,32})?": "signals",
        r"": "account_limit",
        r"[0-9a-f]{20}": "line place",
        r"[0-9a-f]{40}|[0-9a-f]{64}": "commit",
        r"([0-9a-f]{40}|[0-9a-f]{64})?": "base_commit",
        r"[ -~]{0,512}": "ref",
    }.items()
    for name in names.split()
}
"""Patterns of arguments, by name."""

_limit_adapter: TypeAdapter[str] = TypeAdapter(LimitName)
_label_adapter: TypeAdapter[str] = TypeAdapter(Label)


def _check_value(adapter: TypeAdapter[str], text: str, what: str) -> None:
    try:
        adapter.validate_python(text)
    except ValidationError as error:
        raise Invalid(f"{text[:80]!r} is no {what}: {describe_error(error)}") from error


def _parse_model(model: type[AnyModel], text: str, what: str) -> AnyModel:
    check_json_members(text, ("result",))
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise Invalid(f"That is no {what}: {describe_error(error)}") from error


def _check_model(model: type[BaseModel], text: str, what: str) -> None:
    _parse_model(model, text, what)


def _check_outcome_class(text: str) -> None:
    if text not in set(OutcomeClass):
        raise Invalid(f"Unknown outcome class {text[:80]!r}.")


def _check_size(bytes_max: int, *, parsed: bool = False) -> Callable[[str], None]:
    def check(text: str) -> None:
        if len(text.encode()) > bytes_max:
            raise Invalid(f"A word has {len(text.encode())} bytes; {bytes_max} is the most.")
        if parsed and text:
            try:
                from_json(text)
            except ValueError as error:
                raise Invalid(f"A word is not JSON: {error}.") from error

    return check


ARGUMENT_CHECKS: dict[str, Callable[[str], None]] = {
    "id": check_run_id,
    "run": check_run_id,
    "outcome": lambda text: _check_model(Outcome, text, "outcome"),
    "class": _check_outcome_class,
    "merge_progress": lambda text: _check_model(MergeProgress, text, "note"),
    "progress": _check_size(bounds.PROGRESS_BYTES, parsed=True),
    "totals": _check_size(bounds.TOTALS_BYTES, parsed=True),
    "saved_state": _check_size(bounds.PARKED_STATE_BYTES, parsed=True),
    "text": _check_size(4 * bounds.LOG_CHUNK_CHARACTERS),
    "transcript": _check_size(bounds.TRANSCRIPT_BYTES),
    "agent_session": _check_size(4 * bounds.CONVERSATION_FIELD_CHARACTERS),
    "account": _check_size(4 * bounds.CONVERSATION_FIELD_CHARACTERS),
    "model": _check_size(4 * bounds.CONVERSATION_FIELD_CHARACTERS),
    "reason": _check_size(4 * bounds.ERROR_CHARACTERS),
    "detail": _check_size(4 * bounds.ERROR_CHARACTERS),
    "why": _check_size(4 * bounds.ERROR_CHARACTERS),
    "host": lambda text: _check_value(_label_adapter, text, "host"),
}
"""Checks of arguments without a pattern, by name."""
