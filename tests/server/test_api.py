"""All resources of the API, used by one client."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter
from support.http_servers import COMMAND, MakeServing, Serving, asked_of
from support.servers import Server, until

from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.wait import RunWait
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease
from agentq.server.dialect import load_dialects
from agentq.server.openapi.document import list_response_models
from agentq.server.routes.runs import WAIT_S_MAX
from agentq.server.schema.examples import RUN_EXAMPLES

RESPONSE_MODELS = list_response_models(load_dialects())
COMMAND_TEXT = '{"kind":"command","argv":["true"]}'


def api(serving: Serving) -> httpx.Client:
    """A client that compares each answer with the API document, name by name."""
    return serving.client(event_hooks={"response": [_documented]})


def _documented(answer: httpx.Response) -> None:
    model = RESPONSE_MODELS.get(asked_of(answer))
    if model is not None and answer.is_success and answer.status_code != 204:
        answer.read()
        read = TypeAdapter(model).validate_json(answer.content)
        assert read.model_dump(by_alias=True).keys() == answer.json().keys()


def post(client: httpx.Client, path: str, body: object = None, status: int = 200, **headers: str) -> Any:
    answer = client.post(path, json=body, headers=headers) if body is not None else client.post(path, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_many_runs_come_in_at_once_and_each_is_told_of(serving: Serving) -> None:
    with api(serving) as client:
        runs = [
            {**COMMAND, "dedupe_key": "k", "if_live": "reject"},
            {**COMMAND, "dedupe_key": "k", "if_live": "reject"},
        ]
        told = post(client, "/runs", {"runs": [*runs, COMMAND]}, 201)["runs"]
        refused = client.post("/runs", json={"runs": [COMMAND, {"kind": "command"}]})
        before = len(client.get("/runs", params={"limit": 1000}).json()["runs"])

    assert [each["created"] for each in told] == [True, False, True]
    assert (told[1]["refused"]["status"], "duplicate" in told[1]["refused"]["type"]) == (409, True)
    assert refused.json()["detail"].startswith("runs.1.")
    assert before >= 2


def test_a_page_of_runs_is_in_the_words_of_another_protocol_only_if_they_were_asked_for_in_them(
    serving: Serving,
) -> None:
    with serving.client() as client:
        ours = post(client, "/runs", COMMAND, 201)["id"]
        theirs = post(client, "/runs", {"type": "start_session", "session_name": "theirs", "prompt": "p"})["run_id"]
        listed = {run["id"]: run for run in client.get("/runs?limit=100").json()["runs"]}

    assert {"run_id", "status", "runner_id"}.isdisjoint(listed[ours])
    assert (listed[theirs]["run_id"], listed[theirs]["status"]) == (theirs, "pending")


def test_a_submit_that_is_sent_again_is_done_once(serving: Serving) -> None:
    with api(serving) as client:
        key = {"idempotency-key": f"key-{time.monotonic_ns()}"}
        first = client.post("/runs", json=COMMAND, headers=key)
        again = client.post("/runs", json=COMMAND, headers=key)
        other = client.post("/runs", json={**COMMAND, "priority": 9}, headers=key)

    assert (first.status_code, first.json()) == (again.status_code, again.json())
    assert (other.status_code, "another body" in other.json()["detail"]) == (422, True)


def test_a_submit_that_broke_off_after_its_ids_were_noted_is_completed(serving: Serving) -> None:
    """As if the first server had been killed between the two."""
    with api(serving) as client:
        first = post(client, "/runs", COMMAND, 201, **{"idempotency-key": "broken-off"})["id"]
        kept = serving.store.connection.command("KEYS", serving.store.key(0, "idempotency_key", "*"))
        for key in kept:
            told = serving.store.connection.command("GET", key)
            body, _, _ = told.partition(" ")
            if first in told:
                serving.store.connection.command("SET", key, f'{body} {{"ids":["{first}"]}}', "PX", 60_000)
        again = client.post("/runs", json=COMMAND, headers={"idempotency-key": "broken-off"})

    assert again.json()["id"] == first


def test_pages_lead_to_every_run_once(serving: Serving) -> None:
    made = {serving.submit(queue="paged") for _ in range(7)}
    found, cursor = list[str](), ""
    with api(serving) as client:
        while True:
            page = client.get("/runs", params={"queue": "paged", "limit": 3, **({"cursor": cursor} if cursor else {})})
            found += [each["id"] for each in page.json()["runs"]]
            cursor = page.json()["next"]
            if not cursor:
                break

    assert (sorted(found), set(found)) == (sorted(made), made)


def test_a_filter_of_several_states_takes_them_one_by_one_or_with_commas(serving: Serving) -> None:
    runs = [serving.submit(queue="filtered") for _ in range(2)]
    serving.queue.cancel(runs[0])
    with api(serving) as client:
        for states in ({"state": "pending,cancelled"}, {"state": ["pending", "cancelled"]}):
            found = client.get("/runs", params={"queue": "filtered", **states}).json()["runs"]
            assert {each["id"] for each in found} == set(runs)
        assert len(client.get("/runs", params={"queue": "filtered", "state": "pending"}).json()["runs"]) == 1
        assert client.get("/runs", params={"state": "pending,done"}).status_code == 422


def test_a_run_is_cancelled_retried_signalled_and_explained(serving: Serving) -> None:
    with api(serving) as client:
        run = post(client, "/runs", {**COMMAND, "queue": "verbs"}, 201)["id"]
        assert client.get(f"/runs/{run}/why").json()["because"]
        assert post(client, f"/runs/{run}/cancel", {"reason": "enough"})["state"] == "cancelled"
        assert client.get(f"/runs/{run}/result").json()["outcome"]["class"] == "cancelled"
        assert client.post(f"/runs/{run}/signal", json={"name": "x"}).status_code == 409
        assert post(client, f"/runs/{run}/retry")["state"] == "pending"
        assert client.get(f"/runs/{run}/result").status_code == 409
        worker = WorkerLease(serving.store, WorkerIdentity(id="verbs", queues=("verbs",)), serving.settings)
        worker.register()
        (claim,) = worker.claim(1)
        serving.queue.start([claim])
        serving.queue.park(claim, "an approval", RunWait(approval=True))
        assert client.get(f"/runs/{run}").json()["waits_for"]["approval"]
        assert post(client, f"/runs/{run}/approve", {"comment": "go"})["state"] == "pending"
        assert len(client.get(f"/runs/{run}/attempts").json()["attempts"]) == 1
        worker.deregister()


def test_a_plan_goes_its_way(serving: Serving) -> None:
    tasks = [
        {"id": "a", "run": {**COMMAND, "queue": "plans"}},
        {"id": "b", "run": {**COMMAND, "queue": "plans"}, "needs": ["a"]},
    ]
    with api(serving) as client:
        key = {"idempotency-key": "the-plan"}
        made = post(client, "/plans", {"name": "release", "tasks": tasks}, 201, **key)
        assert post(client, "/plans", {"name": "release", "tasks": tasks}, 201, **key)["id"] == made["id"]
        path = f"/plans/{made['id']}"
        assert [each["id"] for each in client.get(f"{path}/tasks").json()["tasks"]] == ["a", "b"]
        worker = WorkerLease(serving.store, WorkerIdentity(id="plans", queues=("plans",)), serving.settings)
        worker.register()
        for _ in ("a", "b"):
            (claim,) = worker.claim(1)
            serving.queue.start([claim])
            assert serving.queue.finish([(claim, Outcome())]) == [None]
        assert client.get(path, params={"wait": 20}).json()["state"] == "completed"
        added = post(client, f"{path}/tasks", {"tasks": [{"id": "c", "run": COMMAND}]}, 201)
        assert client.get(f"/runs/{added['runs']['c']}").json()["state"] == "pending"
        assert post(client, f"{path}/cancel")["counts"] == {"completed": 2, "cancelled": 1}
        assert post(client, f"{path}/retry")["counts"] == {"completed": 2, "pending": 1}
        cycle = [{"id": "a", "run": COMMAND, "needs": ["b"]}, {"id": "b", "run": COMMAND, "needs": ["a"]}]
        assert client.post("/plans", json={"name": "round", "tasks": cycle}).status_code == 422
        worker.deregister()


def test_a_session_takes_turns_in_order(serving: Serving) -> None:
    with api(serving) as client:
        name = post(client, "/sessions", {"agent": "standin"}, 201)["name"]
        first = post(client, f"/sessions/{name}/turns", {"prompt": "one"}, 201)["id"]
        second = post(client, f"/sessions/{name}/turns", {"prompt": "two"}, 201)["id"]
        assert client.get(f"/sessions/{name}/turns").json()["line"] == [first, second]
        assert client.get(f"/runs/{second}").json()["reason"] == "turn"
        assert client.post(f"/sessions/{name}/turns", json={"agent": "claude", "prompt": "x"}).status_code == 422
        assert post(client, f"/sessions/{name}/close", {"cancel": True})["state"] == "closed"
        assert client.post(f"/sessions/{name}/turns", json={"prompt": "three"}).status_code == 409
        assert client.get("/sessions/nobody").status_code == 404


def test_a_schedule_is_made_looked_at_and_removed(serving: Serving) -> None:
    with api(serving) as client:
        body = {"cron": "30 2 * * *", "run": COMMAND}
        assert client.put("/schedules/nightly", json=body).json()["state"] == "active"
        assert client.put("/schedules/nightly", json=body, headers={"if-none-match": "*"}).status_code == 409
        assert len(client.get("/schedules/nightly").json()["next"]) == 5
        assert post(client, "/schedules/nightly/pause", {"why": "disk"})["why"] == "disk"
        assert post(client, "/schedules/nightly/resume")["state"] == "active"
        assert (
            client.get(f"/runs/{post(client, '/schedules/nightly/run', None, 201)['id']}").json()["schedule"]
            == "nightly"
        )
        assert client.get("/schedules/nightly/history").json()["history"]
        assert client.post("/schedules/nightly:history/pause").status_code == 422, "which is another key"
        assert client.put("/schedules/bad", json={**body, "cron": "61 * * * *"}).status_code == 422
        assert client.delete("/schedules/nightly").status_code == 204
        assert client.get("/schedules/nightly").status_code == 404


@pytest.mark.full("takes 1 s")
def test_limits_and_queues_are_looked_after(serving: Serving) -> None:
    with api(serving) as client:
        assert client.put("/limits/repo:acme/api", json={"max": 3}).json()["max"] == 3
        rate = client.put("/limits/repo:acme/api", json={"rate": "100/1m"}).json()["rate"]
        assert rate == {"units": 100, "per_ms": 60_000, "burst": 100}
        assert post(client, "/limits/repo:acme/api/shut", {"until_ms": 1 << 42, "why": "limit"})["shut_why"] == "limit"
        assert post(client, "/limits/repo:acme/api/open")["shut_until"] is None
        assert client.delete("/limits/repo:acme/api").status_code == 204
        assert client.get("/limits/repo:acme/api").status_code == 404
        for _ in range(3):
            serving.submit(queue="tended")
        assert post(client, "/queues/tended/pause", {"why": "hot"})["paused"]
        assert client.get("/queues/tended").json()["paused"]["why"] == "hot"
        assert not post(client, "/queues/tended/resume")["paused"]
        assert post(client, "/queues/tended/drain")["drained"]
        full = client.post("/runs", json={**COMMAND, "queue": "tended"})
        assert (full.status_code, "retry-after" in full.headers) == (409, True)
        assert post(client, "/queues/tended/resume")
        assert post(client, "/queues/tended/move", {"to": "elsewhere"})["moved"] == 3
        assert post(client, "/queues/elsewhere/purge")["cancelled"] == 3


def test_workers_are_seen_and_sent_away_and_offer_agents(serving: Serving) -> None:
    labels = {"agent.claude": "ready", "agent.codex": "shut", "gpu": "a100"}
    worker = WorkerLease(
        serving.store, WorkerIdentity(id="w-9", queues=("default",), labels=labels, slots=2), serving.settings
    )
    worker.register()
    with api(serving) as client:
        assert client.get("/workers/w-9").json()["slots"] == 2
        offers = {each["name"]: each for each in client.get("/agents").json()}
        assert offers["claude"]["workers"] == {"w-9": "ready"}
        assert (offers["claude"]["ready"], offers["codex"]["ready"]) == (True, False)
        assert post(client, "/workers/w-9/drain", None, 202)["state"] == "draining"
        assert worker.heartbeat([]).draining
        assert client.post("/workers/nobody/stop").status_code == 404
    worker.deregister()


def test_tokens_are_made_and_revoked_over_http(serving: Serving) -> None:
    with api(serving) as client:
        made = post(client, "/tokens", {"name": "ci", "scopes": ["read"], "queues": ["default"]}, 201)
        with serving.client(made["token"]) as other:
            assert other.get("/runs").status_code == 200
            assert other.get("/tokens").status_code == 403
        assert "token" not in client.get("/tokens").json()["tokens"][0]
        assert client.delete(f"/tokens/{made['id']}").status_code == 204
        assert client.delete(f"/tokens/{made['id']}").status_code == 404
        other = post(client, "/tokens", {"name": "cd", "scopes": ["read"]}, 201)["id"]
        ended = client.delete(f"/tokens/{other}", params={"with_what_it_made": "true"})
        assert (ended.status_code, ended.json()["tokens"]) == (200, [other])


def test_a_delayed_run_begins_in_time_though_no_worker_keeps_the_duties(
    valkey: Server, make_serving: MakeServing
) -> None:
    """The server is the keeper, and asleep until its next tick: it is told of what is due sooner."""
    serving = make_serving(valkey, tick_ms=600_000, lease_ms=3_600_000)
    until(lambda: serving.store.connection.command("GET", serving.store.key(0, "duty_owner")), "the server to keep")
    run = serving.submit(delay_ms=50, queue="late")

    until(lambda: serving.records.get(run).state == "pending", "the run to be due")


def test_what_is_secret_of_a_run_is_not_told_to_who_reads_it(serving: Serving) -> None:
    env = {"API_KEY": "k-12345678", "MINE": "m-12345678", "AGENTQ_SECRETS": "MINE", "LANG": "C"}
    env |= {"DB": "postgres://me:p-12345678@db/x"}
    run = serving.submit(env=env)
    with api(serving) as client:
        client.put("/schedules/secretive", json={"cron": "@daily", "run": {**COMMAND, "env": env}})
        for path in (f"/runs/{run}", "/schedules/secretive", "/schedules"):
            text = client.get(path).text
            assert not [word for word in ("k-12345678", "m-12345678", "p-12345678") if word in text], path
        assert client.get(f"/runs/{run}").json()["spec"]["env"]["LANG"] == "C"
        assert client.delete("/schedules/secretive").status_code == 204


def test_large_answers_are_packed_for_those_who_can_unpack(serving: Serving) -> None:
    for _ in range(20):
        serving.submit(queue="packed")
    with api(serving) as client:
        packed = client.get("/runs", params={"queue": "packed"})
        plain = client.get("/runs", params={"queue": "packed"}, headers={"accept-encoding": "identity"})

    assert (packed.headers.get("content-encoding"), plain.headers.get("content-encoding")) == ("gzip", None)
    assert packed.json() == plain.json()


WRONG: list[tuple[str, str, str | None, str]] = [
    ("POST", "/runs", "", "422 The body is empty; send JSON, such as"),
    ("POST", "/runs", '[{"kind":"command"}]', '422 Many runs are {"runs": […]}'),
    (
        "POST",
        "/runs",
        '{"kind":"command","timeout":1}',
        "422 timeout: there is no such field; did you mean timeout_ms?",
    ),
    (
        "POST",
        "/runs",
        '{"kind":"agent","retry":{"failure":1}}',
        "422 retry.failure: there is no such field; did you mean",
    ),
    ("POST", "/runs", '{"kind":"command","argv":"make"}', "422 argv: it has to be a list."),
    ("POST", "/runs/{run}/cancel", '{"reson":"x"}', "422 reson: there is no such field; did you mean reason?"),
    ("POST", "/runs/{run}/cancel", "xx", "422 body: it is not JSON: Expecting value."),
    ("POST", "/plans", '{"name":"p","tasks":[]}', "422 tasks: it needs 1 at the least, and has 0."),
    ("PUT", "/limits/x", '{"rate":"often"}', "422 'often' is not a rate; write it like 100/1s or 5000/1h."),
    ("POST", "/limits/x/shut", '{"until_ms":60000}', "422 until_ms: it is a time to come, in milliseconds since 1970."),
    ("GET", "/runs?cursor=abc", None, "422 cursor: it is not a cursor of a list of runs."),
    ("GET", "/limits?sate=pending", None, "422 There is no parameter 'sate' here; there are none."),
    ("GET", "/queues?sate=pending", None, "422 There is no parameter 'sate' here; there are limit, cursor."),
    ("GET", "/runs/{run}/logs?tial=1", None, "422 There is no parameter 'tial' here; there are after, before,"),
    ("GET", "/runs/{run}/logs?after=x", None, "422 after: the id of an entry looks like 1700000000000-0."),
    ("GET", "/plans/nobody/tasks", None, "404 There is no plan nobody;"),
    ("POST", "/runs/", COMMAND_TEXT, "404 There is nothing at /runs/; it is /runs, without a slash at its end."),
    ("PUT", "/runs", COMMAND_TEXT, "405 /runs does not take PUT; it takes GET and POST."),
]


@pytest.mark.parametrize(("method", "path", "body", "told"), WRONG)
def test_what_is_wrong_is_told_with_what_was_perhaps_meant(
    serving: Serving, method: str, path: str, body: str | None, told: str
) -> None:
    run = serving.submit(queue="wrong")
    with api(serving) as client:
        answer = client.request(method, path.replace("{run}", run), content=body)
        after = client.get(f"/runs/{run}").json()["state"]

    assert f"{answer.status_code} {answer.json()['detail']}".startswith(told)
    assert (after, answer.headers["content-type"]) == ("pending", "application/problem+json")


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain;charset=UTF-8", ""])
def test_a_body_is_json_whatever_a_client_calls_it_that_does_not_care(serving: Serving, kind: str) -> None:
    """`curl -d` labels it a form, and browsers label it text."""
    run = serving.submit(queue="called")
    with api(serving) as client:
        content = b'{"reason": "as curl sends it"}'
        answer = client.post(f"/runs/{run}/cancel", content=content, headers={"content-type": kind})
        told = client.get(f"/runs/{run}/result").json()["outcome"]["error"]

    assert (answer.status_code, told) == (200, "as curl sends it")


@pytest.mark.parametrize("path", ["/runs/nonsense", f"/runs/run_0?wait={WAIT_S_MAX}", "/runs/run_zzz/logs?wait=60"])
def test_what_is_no_id_is_refused_at_once(serving: Serving, path: str) -> None:
    with serving.client(timeout=5) as client:
        assert client.get(path).status_code == 422


def test_everything_is_answered_as_the_documents_say(serving: Serving) -> None:
    name = "documented"
    worker = WorkerLease(
        serving.store, WorkerIdentity(id=name, queues=("nobody",), labels={"gpu": "a100"}), serving.settings
    )
    worker.register()
    run = serving.submit(queue=name)
    seen = set[tuple[str, str]]()
    with api(serving) as client:
        plan = post(client, "/plans", {"name": name, "tasks": [{"id": "a", "run": COMMAND}]}, 201)["id"]
        post(client, "/sessions", {"agent": "standin", "name": name, "budgets": {"cost_usd": 1.5}}, 201)
        post(client, f"/sessions/{name}/fork", None, 201)
        client.put(f"/schedules/{name}", json={"every_ms": 60_000, "run": COMMAND})
        client.put(f"/limits/{name}", json={"max": 1, "rate": "5/1m"})
        post(client, f"/queues/{name}/weigh", {"fair_key": "acme", "weight": 3})
        for verb, body in {"signal": {"name": "go"}, "deny": {}, "wake": None, "cancel": {}}.items():
            post(client, f"/runs/{run}/{verb}", body)
        for method, path in RESPONSE_MODELS:
            filled = path.replace("{run_id}", run).replace("{plan}", plan).replace("{key:path}", name)
            if method == "GET":
                answer = client.get(filled.replace("{name}", name).replace("{worker}", name))
                assert answer.status_code == 200, answer.text
                seen.add((method, path))
        client.delete(f"/schedules/{name}")
    worker.deregister()

    assert len(seen) > 20


def test_the_examples_of_the_documents_fit_what_they_are_of(serving: Serving) -> None:
    for example in RUN_EXAMPLES.values():
        for run in example["value"].get("runs", [example["value"]]):
            RunSpec.model_validate_json(httpx.Request("POST", "http://x", json=run).content)
    with api(serving) as client:
        document = client.get("/openapi.json").json()
    for (method, path), model in RESPONSE_MODELS.items():
        told = document["paths"][path.replace(":path", "")][method.lower()]["responses"]
        good = told[min(told)]
        TypeAdapter(model).validate_python(good["content"]["application/json"]["example"])


def test_logs_are_documented_as_json_and_as_a_stream(serving: Serving) -> None:
    with api(serving) as client:
        described = client.get("/openapi.json").json()["paths"]["/runs/{run_id}/logs"]["get"]

    assert described["responses"]["200"]["content"].keys() == {"application/json", "text/event-stream"}
