"""Records as the Python SDK reads them."""

from __future__ import annotations

import pytest
from support.http_servers import MakeServing, Serving
from support.servers import Server

from agentq.coordinator.errors import Duplicate, Invalid, NotAllowed, NotFound
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.queries import RunFilter
from agentq.sdk import connect


@pytest.mark.full("takes 1 s")
def test_a_record_tells_everything_but_secrets_and_fences(valkey: Server, make_serving: MakeServing) -> None:
    serving = make_serving(valkey, "--require-tokens")
    workspace = {"repository": "https://ann:s3cret@git.example/shop", "base": "main"}
    argv = ["true", "ghp_" + "a1B2" * 9]
    run = serving.submit(env={"API_KEY": "s3cret", "SHOWN": "yes"}, queue="mail", workspace=workspace, argv=argv)
    fenced = ("fence", "1-abc", "delivered_to", "1-abc - -", "attempt_spending", "1-abc 0 0 0 0 0 0")
    serving.store.connection.command("HSET", serving.store.key(0, "run", run), *fenced)
    with connect(serving.url, token=serving.token("read", queues=["mail"])) as client:
        record = client.run(run).record()
        assert record.spec.env == {"API_KEY": "…", "SHOWN": "yes"}
        assert record.spec.argv == ("true", "…")
        assert record.spec.workspace is not None
        assert record.spec.workspace.repository == "https://ann:…@git.example/shop"
        assert (record.fence, record.spec.queue) == ("", "mail")
        with serving.client(serving.token("read", queues=["mail"])) as reader:
            shown = reader.post("/records/runs", json={"ids": [run]})
        assert shown.status_code == 200
        assert "1-abc" not in shown.text
        with pytest.raises(NotAllowed, match="not for other"):
            client.run(serving.submit(queue="other")).record()
        with pytest.raises(NotFound, match="There is no run"):
            client.run(new_run_id()).record()
        with pytest.raises(NotAllowed, match="needs a token with the scope submit"):
            client.submit("shop:send", 1)
    with connect(serving.url, token="aq_client_nonsense") as client, pytest.raises(NotAllowed, match="not a token"):
        client.run(run).wait(5)


@pytest.mark.full("takes 1 s")
def test_a_submit_with_an_id_of_its_own_is_done_once(serving: Serving) -> None:
    spec, run_id = RunSpec(kind="command", argv=["true"], queue="once"), new_run_id()

    with connect(serving.url) as client:
        for _ in range(2):
            assert client.backend.submit(spec, run_id=run_id).id == run_id
        with pytest.raises(Duplicate, match="another spec"):
            client.backend.submit(RunSpec(kind="command", argv=["false"]), run_id=run_id)
        with pytest.raises(Invalid, match="cannot live"):
            client.backend.submit(spec, run_id=new_run_id(5))

    assert [run.id for run in serving.records.all(RunFilter(queue="once"))] == [run_id]


def test_what_is_no_coordinator_is_told_as_that(valkey: Server) -> None:
    for wrong, why in (("https://ann@example.com", "looks like https://"), ("http://h/?a=b", "looks like https://")):
        with pytest.raises(Invalid, match=why):
            connect(wrong).run(new_run_id()).record()
    with pytest.raises(Invalid, match="serves one namespace"):
        connect("http://127.0.0.1:1", namespace="x").run(new_run_id()).record()
    with pytest.raises(Invalid, match="only with a coordinator"):
        connect(valkey.url, token="aq").run(new_run_id()).record()
