"""Response models of session lists in the dialect's format, for the API document."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agentq.server.schema.view_model import OpenResponseModel, ResponseModel


class DialectSessionView(OpenResponseModel):
    """A session in the dialect's format."""

    session_id: Annotated[str, Field(examples=["ses_0123456789ab"])]
    session_name: str
    status: Annotated[str, Field(examples=["finished"])]


class DialectSessionViewList(ResponseModel):
    """All sessions; the answer to a request without `limit` and `cursor`."""

    sessions: list[DialectSessionView]
