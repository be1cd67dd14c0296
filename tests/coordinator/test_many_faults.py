"""Input with very many faults is refused at the first, or as a whole: to describe each would take minutes."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from agentq.coordinator.bounds import INPUT_ERRORS, OBJECT_MEMBERS
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.field_types import (
    FREE_JSON_FIELDS,
    check_json_members,
    check_members,
    describe_error,
    list_errors,
)
from agentq.coordinator.model.spec import RunSpec
from agentq.remote_worker.messages import parse_worker_message
from agentq.server.submission import parse_submit_body
from agentq.worker.run_api.agent_requests import parse_request

MANY = 5_000
STRANGE = {f"s{number}": 1 for number in range(OBJECT_MEMBERS + 1)}
COMMAND = {"kind": "command", "argv": ["true"]}


@pytest.mark.parametrize(
    "field",
    [{"argv": [1] * MANY}, {"after": ["x"] * MANY}, {"may_submit": ["x"] * MANY}],
    ids=lambda field: next(iter(field)),
)
def test_a_list_is_looked_at_up_to_its_first_fault(field: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate_json(json.dumps({**COMMAND, **field}))

    assert refused.value.error_count() == 1


def test_the_words_of_a_worker_are_looked_at_up_to_the_first_fault() -> None:
    call = {"type": "call", "id": 1, "script": "claim", "partition": 0, "words": [[]] * MANY}
    with pytest.raises(Invalid) as refused:
        parse_worker_message(json.dumps(call))

    assert isinstance(refused.value.__cause__, ValidationError)
    assert refused.value.__cause__.error_count() <= 2  # neither a text nor a number


def test_an_object_with_more_members_than_any_has_is_refused_before_a_model_looks_at_them() -> None:
    whole = f"An object has {OBJECT_MEMBERS + 1} members; {OBJECT_MEMBERS} is the most."
    for value in ({**COMMAND, "env": STRANGE}, {"runs": [COMMAND, {**COMMAND, "turn": {"budgets": STRANGE}}]}, STRANGE):
        with pytest.raises(Invalid) as refused:
            parse_submit_body(json.dumps(value).encode(), value)
        assert str(refused.value).endswith("is the most.")
    for read in (parse_worker_message, lambda text: parse_request(text.encode())):
        with pytest.raises(Invalid, match=whole):
            read(json.dumps(STRANGE))


def test_free_json_may_have_any_number_of_members() -> None:
    for name in FREE_JSON_FIELDS:
        check_members({"kind": "function", name: STRANGE}, FREE_JSON_FIELDS)
    check_json_members(json.dumps({"args": [STRANGE]}), FREE_JSON_FIELDS)
    value = {"kind": "function", "function": "a:b", "args": [dict.fromkeys(STRANGE)]}
    (spec,) = parse_submit_body(json.dumps(value).encode(), value).specs
    assert spec.args == tuple(value["args"])


def test_of_too_many_faults_none_is_described_but_all_are_counted() -> None:
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate({**COMMAND, **dict(list(STRANGE.items())[: INPUT_ERRORS + 1])})

    assert len(list_errors(refused.value)) == 1
    assert describe_error(refused.value) == f"it has too many faults to name one ({INPUT_ERRORS} more)."
