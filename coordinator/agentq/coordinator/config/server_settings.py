"""The settings of the HTTP server."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agentq.coordinator.model.field_types import Name

PositiveMilliseconds = Annotated[int, Field(gt=0, le=86_400_000)]
PositiveSeconds = Annotated[float, Field(gt=0, le=86_400)]
LogLevel = Literal["debug", "info", "warning", "error"]


class ServerSettings(BaseModel):
    """Each field can be set as AGENTQ_SERVER_<NAME> in capitals, and by its name in the table [server] of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: Annotated[str, Field(min_length=1, description="the address to listen at")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535, description="the port; 0 takes one that is free")] = 8765
    tls_cert: Annotated[str, Field(description="a file with the certificate, and those that vouch for it")] = ""
    tls_key: Annotated[str, Field(description="a file with its key")] = ""
    plain_http: Annotated[
        bool, Field(description="listen to others without TLS, on a private network or behind a proxy that has it")
    ] = False
    token_file: Annotated[
        str, Field(description="a file of tokens that may do everything, one on a line, beside those of `agentq token`")
    ] = ""
    require_tokens: Annotated[
        bool, Field(description="ask for a token on loopback too; the one of this machine is made by itself")
    ] = True
    open_runners: Annotated[
        bool,
        Field(description="let agent_orchestrator runners in without a token, on loopback"),
    ] = False
    hosts: Annotated[
        tuple[str, ...], Field(description="names that it may be called by, beside those of loopback; `*` is any")
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...], Field(description="origins whose pages may use it from a browser, as `https://ui.example`")
    ] = ()
    rate: Annotated[str, Field(description="requests that each token may make, as `1000/1s`; if empty, any number")] = (
        "1000/1s"
    )
    body_bytes: Annotated[int, Field(ge=1024, description="the largest body that it takes")] = 20 << 20
    bodies_bytes: Annotated[
        int, Field(ge=1024, description="bytes of all bodies that it has in hand at one time, small ones uncounted")
    ] = 128 << 20
    body_timeout_ms: Annotated[
        PositiveMilliseconds, Field(description="how long the body of a request may take to come")
    ] = 60_000
    head_timeout_ms: Annotated[
        PositiveMilliseconds,
        Field(description="how long the head of a request may take to come, and a client not to read"),
    ] = 20_000
    connections: Annotated[int, Field(ge=1, description="connections at the same time; more are refused")] = 10_000
    threads: Annotated[int, Field(ge=1, le=256, description="calls of the store at the same time")] = 16
    drain_ms: Annotated[PositiveMilliseconds, Field(description="how long answers may take to go out when it ends")] = (
        15_000
    )
    webhook_networks: Annotated[
        tuple[str, ...],
        Field(description="networks that webhooks may lead to though they are not public, as `10.0.0.0/8`"),
    ] = ()
    webhook_http: Annotated[bool, Field(description="let webhooks lead to http:// as well")] = False
    webhook_timeout_ms: Annotated[
        PositiveMilliseconds,
        Field(description="how long a receiver may take; another server goes on after three times that"),
    ] = 10_000
    duties: Annotated[bool, Field(description="do what time imposes, in turn with workers and other servers")] = True
    runner_poll_timeout: Annotated[
        float,
        Field(
            gt=0,
            le=30,
            description="seconds for which a poll of an agent_orchestrator runner waits; RUNNER_POLL_TIMEOUT",
        ),
    ] = 30
    runner_heartbeat_interval: Annotated[
        PositiveSeconds,
        Field(description="seconds between two heartbeats of an agent_orchestrator runner; RUNNER_HEARTBEAT_INTERVAL"),
    ] = 60
    runner_heartbeat_timeout: Annotated[
        PositiveSeconds,
        Field(
            description="seconds of silence after which an agent_orchestrator runner is stale; RUNNER_HEARTBEAT_TIMEOUT"
        ),
    ] = 120
    run_no_match_timeout: Annotated[
        float,
        Field(
            ge=0,
            le=31 * 86_400,
            description="seconds until an untaken agent_orchestrator run fails, 0 is never; RUN_NO_MATCH_TIMEOUT",
        ),
    ] = 0
    runner_agent: Annotated[
        Name,
        Field(description="the agent of an agent_orchestrator run that names none, or a blueprint; RUNNER_AGENT"),
    ] = "claude"
    log_level: Annotated[LogLevel, Field(description="what it writes down of itself, at the least")] = "info"

    @field_validator("hosts", "cors_origins", "webhook_networks", mode="before")
    @classmethod
    def _one_line(cls, value: object) -> object:
        return tuple(filter(None, value.split(","))) if isinstance(value, str) else value

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for each in origins:
            if not re.fullmatch(r"https?://[^/?#\s*@]+/?", each):
                raise ValueError(f"{each[:80]!r} is no origin; one looks like https://ui.example")
        return origins
