"""A run can be followed through a trace: from where it was submitted to where it was executed, and into its process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.crew import Crew
from support.http_servers import COMMAND, MakeServing, Serving
from support.servers import Server
from support.trace_collector import Collector

from agentq.coordinator import tracing
from agentq.coordinator.model.ids import new_nonce, new_run_id
from agentq.coordinator.model.spec import RunSpec, parse_spec
from agentq.sdk import connect

MakeCrew = Callable[..., Crew]
TRACE = "0af7651916cd43dd8448eb211c80319c"
HERE = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture
def crew(make_crew: MakeCrew, valkey: Server) -> Crew:
    return make_crew(valkey, namespace=new_nonce())


def typed(crew: Crew, environment: dict[str, str], *argv: str) -> str:
    """`agentq`, in a process of its own."""
    variables = {**crew.settings.to_environment(), "PATH": "/usr/bin:/bin", **environment}
    done = subprocess.run(
        [sys.executable, "-m", "agentq.cli.main", *argv], env=variables, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full("takes 2 s")
def test_a_trace_leads_from_the_submit_through_the_attempt_into_its_process(crew: Crew, collector: Collector) -> None:
    worker = crew.worker(environment=collector.environment)
    around = {**collector.environment, "TRACEPARENT": HERE}
    run = typed(crew, around, "submit", "--", "true").split()[0]
    crew.wait([run])
    worker.terminate()
    worker.wait(timeout=60)

    (sent,) = collector.named("send default")
    (process,) = collector.named("process default")
    claim, execute, finish = (collector.named(name)[0] for name in ("claim", "execute", "finish"))
    assert (sent.trace, sent.parent, sent.service, sent.kind) == (TRACE, "b7ad6b7169203331", "agentq", 4)
    assert (process.links, process.service, process.kind) == ([(sent.trace, sent.id)], "agentq-worker", 5)
    assert {each.parent for each in (claim, execute, finish)} == {process.id}
    assert claim.times[1] <= execute.times[0] <= execute.times[1] <= finish.times[0] <= process.times[1]
    assert sent.attributes["messaging.message.id"] == process.attributes["messaging.message.id"] == run
    assert process.attributes["messaging.operation.type"] == "process"
    assert execute.attributes["process.exit.code"] == 0
    assert crew.records.get(run).spec.traceparent == f"00-{TRACE}-{sent.id}-01", "sampled, as its parent says"


@pytest.mark.full("takes 2 s")
def test_the_process_of_a_run_and_its_children_are_told_where_they_are(crew: Crew, collector: Collector) -> None:
    """With a worker that sends traces, inside its span; without, where the run was submitted."""
    crew.worker(environment=collector.environment, queue="traced")
    crew.worker(queue="plain")
    argv = ["sh", "-c", f"echo $TRACEPARENT > {crew.folder}/$AGENTQ_RUN_ID"]
    runs = [
        crew.queue.submit(RunSpec.checked(kind="command", argv=argv, queue=queue, traceparent=HERE)).id
        for queue in ("traced", "plain")
    ]
    crew.wait(runs)

    traced, plain = ((crew.folder / run).read_text().strip() for run in runs)
    (process,) = collector.named("process traced")
    assert plain == HERE
    assert traced.startswith(f"00-{process.trace}-{process.id}-0")
    assert process.links == [(TRACE, "b7ad6b7169203331")]


@pytest.mark.full("takes 2 s")
def test_a_call_of_a_function_is_a_span_in_which_the_function_is(crew: Crew, collector: Collector) -> None:
    tests = str(Path(__file__).parent.parent)
    worker = crew.worker(environment={**collector.environment, "PYTHONPATH": tests, "PYTHONWARNINGS": "ignore"})
    runs = [
        crew.queue.submit(RunSpec.checked(kind="function", function=f"support.functions:{name}", traceparent=HERE)).id
        for name in ("spanned", "spanned_beside", "raised")
    ]
    crew.wait(runs)
    worker.terminate()
    worker.wait(timeout=60)

    calls = {span.attributes["messaging.message.id"]: span for span in collector.named("process default", 3)}
    assert [calls[run].links for run in runs] == [[(TRACE, "b7ad6b7169203331")]] * 3
    assert [calls[run].failed for run in runs] == [False, False, True]
    inside = collector.named("inside", 2)
    assert {span.parent for span in inside} == {calls[run].id for run in runs[:2]}


@pytest.mark.full("takes 2 s")
def test_the_attempt_of_an_agent_is_told_in_the_words_of_the_conventions(
    crew: Crew, collector: Collector, folder: Path
) -> None:
    own = {"CLAUDE_CONFIG_DIR": str(folder / "agents"), "XDG_CONFIG_HOME": str(folder / "config")}
    crew.worker(environment={**collector.environment, **own})
    spec = {"kind": "agent", "agent": "standin", "prompt": "SAY hello\nCOST 0.2", "cwd": str(folder)}
    run = crew.queue.submit(RunSpec.checked(**spec)).id
    crew.wait([run])

    (span,) = collector.named("invoke_agent standin")
    assert span.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert span.attributes["gen_ai.agent.name"] == "standin"
    assert span.attributes["agentq.cost_usd"] == 0.2
    assert "gen_ai.usage.output_tokens" in span.attributes
    assert span.attributes["gen_ai.conversation.id"] == crew.records.get(run).agent_session


@pytest.mark.full("takes 2 s")
def test_the_sdk_says_to_a_coordinator_where_it_is(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", HERE)
    with connect(serving.url) as client:
        many: list[Any] = client.submit_many("support.functions:nothing", [(), ()])
        runs = [client.submit("support.functions:nothing").id, *(each.id for each in many)]

    assert {serving.records.get(run).spec.traceparent for run in runs} == {HERE}


def test_a_request_says_in_which_trace_its_runs_are(serving: Serving) -> None:
    with serving.client(headers={"traceparent": HERE}) as client:
        made = client.post("/runs", json={"runs": [COMMAND, {**COMMAND, "traceparent": HERE.replace("b7", "c8")}]})
        broken = client.post("/runs", json=COMMAND, headers={"traceparent": "00-0-0-00"})
        wrong = client.post("/runs", json={**COMMAND, "traceparent": "here"})

    first, second = (serving.records.get(each["id"]).spec.traceparent for each in made.json()["runs"])
    assert (first, second) == (HERE, HERE.replace("b7", "c8"))
    assert serving.records.get(broken.json()["id"]).spec.traceparent is None
    assert wrong.status_code == 422


@pytest.mark.full("takes 2 s")
def test_a_request_is_a_span_between_its_client_and_what_it_submits(
    make_serving: MakeServing, valkey: Server, collector: Collector
) -> None:
    serving = make_serving(valkey, environment=collector.environment)
    with serving.client(headers={"traceparent": HERE}) as client:
        run = client.post("/runs", json=COMMAND).json()["id"]
        client.get(f"/runs/{run}")
        client.get("/health")
    serving.signal(signal.SIGTERM)

    (post,), (get,), (sent,) = (collector.named(name) for name in ("POST /runs", "GET /runs/{run_id}", "send"))
    assert (post.trace, post.parent, post.service, post.kind) == (TRACE, "b7ad6b7169203331", "agentq-server", 2)
    assert (get.trace, get.attributes["http.response.status_code"]) == (TRACE, 200)
    assert (sent.trace, sent.parent) == (TRACE, post.id)
    assert serving.records.get(run).spec.traceparent == f"00-{TRACE}-{post.id}-01"
    assert not [span for span in collector.spans if "health" in span.name]


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "function", "function": "m:f", "args": [1, "]} "]},
        {"kind": "function", "function": "m:f", "kwargs": {"a": 1}},
        {"kind": "function", "function": "m:f", "args": [1], "timeout_ms": 5},
        {"kind": "command", "argv": ["true"]},
    ],
)
def test_the_same_run_submitted_again_in_another_trace_is_the_same_run(crew: Crew, fields: dict[str, object]) -> None:
    run = new_run_id()
    specs = [RunSpec.checked(**fields, **({"traceparent": trace} if trace else {})) for trace in (None, HERE)]
    read = [parse_spec(spec.to_wire().decode(), spec.lane) for spec in specs]

    assert [spec.traceparent for spec in read] == [None, HERE]
    assert {crew.queue.submit(spec, run_id=run).id for spec in [*specs, *reversed(specs)]} == {run}
    crew.queue.cancel(run)


def test_without_a_trace_nothing_is_added_to_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)
    program = (
        "import sys; from agentq.coordinator.runs import verbs; from agentq.coordinator import tracing; import "
        "agentq.worker.worker\n"
        "assert not tracing.is_enabled(); assert not tracing.is_export_configured()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry.exporter')]"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert tracing.validate_traceparent(f"00-{'0' * 32}-b7ad6b7169203331-01") is None


def test_without_opentelemetry_the_command_that_adds_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    notes: list[str] = []

    tracing.start_export("worker", note=notes.append)

    (note,) = notes
    assert note.endswith("pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http")
