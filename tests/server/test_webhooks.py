"""Webhooks, from real server processes to a real receiver."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import httpx
import pytest
from support.http_servers import COMMAND, MakeServing, Serving
from support.servers import Server, until
from support.webhook_receiver import AT_HOME, Receiver, receiving

from agentq.coordinator.webhooks.verbs import Webhooks
from agentq.sdk.webhooks import BadSignature, verify


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def hooked(client: httpx.Client, receiver: Receiver, **more: object) -> str:
    """A webhook named `hook`; its secret."""
    made = client.post("/webhooks", json={"name": "hook", "url": f"{receiver.url}/in", **more})
    assert made.status_code == 201, made.text
    return str(made.json()["secret"])


@pytest.mark.full("takes 4 s")
def test_a_receiver_is_told_in_order_signed_again_after_a_no_and_once_more_on_request(
    valkey: Server, make_serving: MakeServing, receiver: Receiver
) -> None:
    serving = make_serving(valkey, environment=AT_HOME)
    receiver.answers, receiver.retry_after = [204, 500, "hang"], "120"
    with serving.client() as client:
        secret = hooked(client, receiver, filter={"event": ["submitted,cancelled"], "queue": ["mail"]})
        serving.submit(queue="other")
        runs = [serving.submit(queue="mail") for _ in range(3)]
        serving.queue.cancel(runs[0])
        until(lambda: len(receiver.got) == 2, "the first no")
        until(lambda: client.get("/webhooks/hook").json()["failures"] == 1, "the no to be noted")
        assert client.get("/webhooks/hook").json()["retry_at_ms"] - serving.store.time_ms() > 100_000
        client.post("/webhooks/hook/resume")  # which does not wait for the time of the next try
        until(lambda: len(receiver.got) == 3, "the try that hangs")
        until(lambda: client.get("/webhooks/hook").json()["failures"] == 1, "the end of its patience")
        client.post("/webhooks/hook/resume")
        until(lambda: len(receiver.got) == 6, "the rest")

        told = [(each.type, each.facts["run"], each.facts["queue"]) for each in receiver.messages(secret)]
        first, *rest = [("run.submitted", run, "mail") for run in runs]
        assert told == [first, rest[0], rest[0], *rest, ("run.cancelled", runs[0], "mail")]
        assert receiver.told()[1] == receiver.told()[2] == receiver.told()[3]
        assert len(set(receiver.told())) == 4

        until(lambda: client.get("/webhooks/hook").json()["failures"] == 0, "the last yes to be noted")
        log = client.get("/webhooks/hook/deliveries").json()["deliveries"]
        assert [each["status"] for each in reversed(log)] == [204, 500, None, 204, 204, 204]
        assert [each["attempt"] for each in reversed(log)] == [1, 1, 1, 1, 1, 1]
        assert "did not answer within 700 ms" in log[3]["error"]
        assert secret not in client.get("/webhooks").text

        client.post(f"/webhooks/hook/deliveries/{receiver.told()[0]}/redeliver")
        test = client.post("/webhooks/hook/test").json()["message"]
        until(lambda: len(receiver.got) == 8, "what was asked for")
        assert receiver.told()[6:] == [receiver.told()[0], test]
        assert receiver.got[6][1] == receiver.got[0][1]
    assert secret not in serving.said()


@pytest.mark.full("takes 4 s")
def test_a_server_that_is_killed_in_the_middle_loses_no_message(
    valkey: Server, make_serving: MakeServing, receiver: Receiver
) -> None:
    first = make_serving(valkey, environment=AT_HOME)
    second = make_serving(valkey, environment=AT_HOME, namespace=first.settings.namespace)
    with first.client() as client:
        hooked(client, receiver, filter={"event": ["submitted"]})
    until(lambda: Webhooks(first.store).get("hook").holder, "somebody to take it in hand")
    runs = [first.submit() for _ in range(60)]
    until(lambda: len(receiver.got) > 5, "the first messages")
    # Whoever has it in hand; the other goes on when the time of that is over.
    owner, other = (first, second) if held_by(first) else (second, first)
    owner.signal(signal.SIGKILL)
    runs += [other.submit() for _ in range(20)]

    until(lambda: len(set(receiver.told())) == len(runs), "every message")
    check_order(receiver, runs)


def held_by(serving: Serving) -> bool:
    """Whether this server tells the webhook."""
    assert serving.process is not None
    return f"-{serving.process.pid}-" in Webhooks(serving.store).get("hook").holder


def check_order(receiver: Receiver, runs: list[str]) -> None:
    """Every run was told of, in order; one that was told again has the same id and body."""
    once: dict[str, bytes] = {}
    for headers, body in receiver.got:
        assert once.setdefault(headers["webhook-id"], body) == body
    positions = {run: place for place, run in enumerate(runs)}
    told = [positions[verify_run(body)] for body in once.values()]
    assert told == list(range(len(runs)))


def verify_run(body: bytes) -> str:
    import json

    return str(json.loads(body)["data"]["run"])


@pytest.mark.full("takes 2 s")
def test_a_store_that_is_restarted_in_the_middle_loses_no_message(
    durable: Server, make_serving: MakeServing, receiver: Receiver
) -> None:
    serving = make_serving(durable, environment=AT_HOME)
    with serving.client() as client:
        hooked(client, receiver, filter={"event": ["submitted"]})
    runs = [serving.submit() for _ in range(40)]
    until(lambda: len(receiver.got) > 5, "the first messages")
    durable.signal(signal.SIGKILL)
    durable.start()
    runs += [serving.submit() for _ in range(10)]

    until(lambda: len(set(receiver.told())) == len(runs), "every message")
    check_order(receiver, runs)
    assert len(receiver.got) <= len(runs) + 2


@pytest.mark.full("takes 1 s")
def test_no_webhook_leads_where_only_the_server_can_reach(serving: Serving) -> None:
    with serving.client() as client:
        answers = {
            url: client.post("/webhooks", json={"url": url})
            for url in (
                "https://127.0.0.1/",
                "https://[::1]/",
                "https://169.254.169.254/latest/meta-data",
                "https://localhost:8765/runs",
                "https://[::ffff:10.0.0.1]/",
                "http://example.com/",
            )
        }
        wrong = client.post("/webhooks", json={"url": "https://ann:pw@example.com/"})

        assert {answer.status_code for answer in answers.values()} == {403}
        assert all("not a public address" in answers[url].json()["detail"] for url in list(answers)[:-1])
        assert "needs an https address" in answers["http://example.com/"].json()["detail"]
        assert (wrong.status_code, "pw" in wrong.text) == (422, False)
        assert client.get("/webhooks").json() == {"webhooks": []}
        assert client.delete("/webhooks/nobody").status_code == 404


@pytest.mark.full("takes 2 s")
def test_webhooks_are_for_those_who_may_do_everything(valkey: Server, make_serving: MakeServing) -> None:
    serving = make_serving(valkey, "--require-tokens")
    with serving.client(serving.token("read", "submit")) as client:
        assert client.get("/webhooks").status_code == 403
        assert client.post("/webhooks", json={"url": "https://example.com/"}).status_code == 403
        assert client.post("/runs", json=COMMAND).status_code == 201


def test_what_was_changed_sent_again_late_or_signed_by_another_is_refused() -> None:
    from agentq.coordinator.webhooks.signature import sign_with_all
    from agentq.sdk.webhooks import make_secret

    old, new, other = make_secret(), make_secret(), make_secret()
    body, at_s = b'{"type":"run.failed","data":{"run":"r"}}', 1_700_000_000
    headers = {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(at_s),
        "Webhook-Signature": sign_with_all([old, new], "msg_1", at_s, body),
    }

    for secret in (old, new, [other, new]):
        assert verify(body, headers, secret, now_s=lambda: at_s + 299).facts == {"run": "r"}
    for changed in ({"Webhook-Id": "msg_2"}, {"Webhook-Timestamp": str(at_s + 1)}, {"Webhook-Signature": "v1,"}):
        with pytest.raises(BadSignature, match="fits"):
            verify(body, headers | changed, old, now_s=lambda: at_s)
    with pytest.raises(BadSignature, match="fits"):
        verify(body + b" ", headers, old, now_s=lambda: at_s)
    with pytest.raises(BadSignature, match="fits"):
        verify(body, headers, other, now_s=lambda: at_s)
    for now in (at_s + 301, at_s - 301):
        with pytest.raises(BadSignature, match="300 s"):
            verify(body, headers, old, now_s=lambda now=now: now)  # type: ignore[misc]
    with pytest.raises(BadSignature, match="no header"):
        verify(body, {}, old)
