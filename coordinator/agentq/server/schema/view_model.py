"""Base classes and field types of response models, with examples."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agentq.coordinator.model.lifecycle import State

RunIdField = Annotated[str, Field(examples=["run_01k9zq3c5007m2x4c8r1tnq"])]
TimeField = Annotated[str, Field(examples=["2030-01-31T14:30:00.000Z"], json_schema_extra={"format": "date-time"})]
StateField = Annotated[State, Field(examples=["running"])]
QueueField = Annotated[str, Field(examples=["default"])]
CursorField = Annotated[str | None, Field(description="The `cursor` of the page after; none of the last.")]


class ResponseModel(BaseModel):
    """A response with exactly these fields."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, defer_build=True)


class OpenResponseModel(ResponseModel):
    """A response to which dialects add fields."""

    model_config = ConfigDict(extra="allow")
