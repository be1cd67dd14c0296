"""What answers share: each has all its names, and examples of what stands under them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agentq.coordinator.lifecycle import State

Id = Annotated[str, Field(examples=["run_01k9zq3c5007m2x4c8r1tnq"])]
At = Annotated[str, Field(examples=["2030-01-31T14:30:00.000Z"], json_schema_extra={"format": "date-time"})]
Stands = Annotated[State, Field(examples=["running"])]
Queued = Annotated[str, Field(examples=["default"])]
Next = Annotated[str | None, Field(description="The `cursor` of the page after; none of the last.")]


class Answer(BaseModel):
    """What is answered, with all its names."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, defer_build=True)


class Both(Answer):
    """Beside these names, the same stands in the words of other systems."""

    model_config = ConfigDict(extra="allow")
