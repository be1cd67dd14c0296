"""Fuzzed requests are answered with less than 500, and as the API document says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support.http_servers import COMMAND, Serving

from agentq.coordinator.sessions.verbs import Sessions

pytestmark = pytest.mark.full("fuzzes every route")

HERE = Path(__file__).parent
STREAMS = "/events|/sse|/follow|/runner/runs$"
"""Streams do not end; they have tests of their own."""


def test_no_request_makes_the_server_fail(serving: Serving, tmp_path: Path) -> None:
    Sessions(serving.store).new("default", "claude")
    argv = [sys.executable, "-m", "schemathesis.cli", "run", f"{serving.url}/openapi.json"]
    argv += ["--checks", "not_a_server_error,response_schema_conformance,content_type_conformance"]
    argv += ["--exclude-path-regex", STREAMS, "--phases", "coverage,fuzzing"]
    argv += ["--max-examples", "4", "--no-color", "--suppress-health-check", "all", "--warnings", "off"]
    argv += ["-H", f"Authorization: Bearer {serving.token('admin', rate='1000000/1s')}"]
    hooks = {
        "SCHEMATHESIS_HOOKS": "fuzzing",
        "PYTHONPATH": str(HERE),
        "AGENTQ_FUZZ": f"run_id={serving.submit()},name=default",
    }
    done = subprocess.run(
        argv, cwd=tmp_path, env={**os.environ, **hooks}, capture_output=True, text=True, timeout=100, check=False
    )

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    number = re.search(r"(\d+) generated", done.stdout)
    assert number is not None
    assert int(number[1]) > 1000


def runs(serving: Serving) -> set[str]:
    """All that there is of runs; a server's duties have keys of their own, which come and go."""
    return set(serving.store.connection.command("KEYS", f"{serving.store.keyspace.root}run_*"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"kind"',
        b"\xff\xfe",
        b'{"kind":"command","argv":["a\\u0000b"]}',
        b'{"kind":"command","argv":["\\ud800"]}',
        b'{"kind":"command","argv":[NaN]}',
        b'{"kind":"function","function":"a:b","args":[1e999]}',
        b'{"kind":"function","function":"a:b","args":[' + b"9" * 5000 + b"]}",
        b'{"kind":"command","argv":["true"],"priority":1e308}',
        b'{"kind":"command","argv":["true"],"queue":"' + b"q" * 100_000 + b'"}',
        b'{"kind":"command","argv":["true"],"unknown":1}',
        b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"runs":[]}',
        b'{"runs":[1]}',
        b'{"runs":[{"kind":"command"}]}',
        b'{"runs":{}}',
    ],
    ids=range(20),
)
def test_a_body_that_is_no_run_is_refused_in_one_sentence_and_changes_nothing(serving: Serving, body: bytes) -> None:
    before = runs(serving)
    with serving.client() as client:
        answer = client.post("/runs", content=body)

    told = answer.json()
    assert (answer.status_code, told["status"]) == (422, 422)
    assert told["detail"].endswith(".")
    assert len(answer.content) < 5000
    assert runs(serving) == before


def test_strange_heads_are_answered(serving: Serving) -> None:
    heads = {"if-none-match": '"' * 500, "idempotency-key": "é" * 300, "authorization": "Bearer " + "é" * 50}
    with serving.client() as client:
        for name, value in heads.items():
            answer = client.post("/runs", json=COMMAND, headers=httpx.Headers([(name.encode(), value.encode())]))
            assert answer.status_code < 500, (name, answer.text)
