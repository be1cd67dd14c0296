"""Regular expressions in the schema of a blueprint: matched apart, so that none holds up the server."""

from __future__ import annotations

import pytest

from agentq.coordinator import schema_validation
from agentq.coordinator.errors import Invalid
from agentq.dialects.agent_orchestrator.blueprints.parameter_schema import InvalidWithDetail, check_parameters

DOUBLED: dict[str, object] = {
    **{str(level): {"allOf": [{"$ref": f"#/definitions/{level + 1}"}] * 2} for level in range(40)},
    "40": {"type": "object"},
}
"""Each level is looked at twice for each time that the one above is."""
NAMED = {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}}}


@pytest.mark.full("takes 2 s")
def test_a_pattern_is_held_against_parameters() -> None:
    check_parameters({"name": "abc"}, "a", NAMED)

    with pytest.raises(InvalidWithDetail) as refused:
        check_parameters({"name": "ABC"}, "a", NAMED)
    (fault,) = refused.value.detail["validation_errors"]
    assert fault == {
        "path": "$.name",
        "message": "'ABC' does not match '^[a-z]+$'",
        "schema_path": "properties/name/pattern",
    }


@pytest.mark.full("takes 3 s")
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"prompt": {"pattern": "^(a+)+$"}}},
        {"properties": {"prompt": {"anyOf": [{"pattern": "(a|a)*$"}]}}},
        {"allOf": [{"$ref": "#/definitions/0"}], "definitions": DOUBLED},
    ],
)
def test_a_pattern_that_takes_for_ever_is_ended_and_said(
    schema: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_validation, "WALL_LIMIT_S", 300)  # a busy machine gives it its second only in a while
    with pytest.raises(Invalid, match="takes too long"):
        check_parameters({"prompt": "a" * 60 + "!"}, "a", schema)


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"patternProperties": {"(": {}}}, "no regular expression"),
        ({"$ref": "#/nowhere", "pattern": "x"}, "refers to what it does not have"),
    ],
)
def test_a_schema_that_cannot_be_used_is_told_from_there_too(schema: dict[str, object], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        check_parameters({"prompt": "x"}, "a", schema)
