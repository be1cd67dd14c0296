"""The JSON of runs and sessions in the server's answers: that of `--json`, plus the fields that dialects add."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agentq.coordinator.public_json.runs import outcome_json, run_entry_json, run_json
from agentq.coordinator.public_json.sessions import session_json
from agentq.coordinator.runs.run_record import RunListEntry, RunRecord
from agentq.coordinator.security.secret_fields import redact_spec, redact_value
from agentq.coordinator.sessions.verbs import SessionRecord

JsonObject = dict[str, Any]


class RecordFields:
    """The fields that a dialect adds to records. This base class adds none."""

    def run_fields(self, run: RunRecord) -> JsonObject:
        return {}

    def run_entry_fields(self, run: RunListEntry) -> JsonObject:
        return {}

    def result_fields(self, run: RunRecord) -> JsonObject:
        return {}

    def session_fields(self, session: SessionRecord) -> JsonObject:
        return {}

    def hide_secrets(self, record: JsonObject) -> JsonObject:
        """The record of a run without the fields that only the run itself may see."""
        return record


class RecordViews:
    """Builds records. Secrets are replaced; a field of agentq overrides one of a dialect with the same name."""

    def __init__(self, dialects: Sequence[RecordFields]) -> None:
        self._dialects = dialects

    def run(self, run: RunRecord) -> JsonObject:
        record = self.hide_secrets(run_json(run))
        added = (redact_value(dialect.run_fields(run)) for dialect in self._dialects)
        return _merge(added, record) | {"spec": redact_spec(record["spec"])}

    def run_entry(self, run: RunListEntry) -> JsonObject:
        """An entry in a list of runs."""
        return _merge((dialect.run_entry_fields(run) for dialect in self._dialects), run_entry_json(run))

    def result(self, run: RunRecord) -> JsonObject:
        tail = run.outcome.tail if run.outcome is not None else None
        record = {"id": run.id, "state": run.state.value, "outcome": outcome_json(run.outcome), "tail": tail}
        return _merge((dialect.result_fields(run) for dialect in self._dialects), record)

    def session(self, session: SessionRecord) -> JsonObject:
        return _merge((dialect.session_fields(session) for dialect in self._dialects), session_json(session))

    def hide_secrets(self, record: JsonObject) -> JsonObject:
        """The record of a run without the fields that dialects keep for the run itself."""
        for dialect in self._dialects:
            record = dialect.hide_secrets(record)
        return record


def _merge(added: Iterable[JsonObject], record: JsonObject) -> JsonObject:
    merged: JsonObject = {}
    for fields in added:
        merged |= fields
    return merged | record
