"""What a plan is submitted with is kept by the server, and shown without what is secret of it."""

from __future__ import annotations

import pytest
from support.http_servers import Serving

from agentq.coordinator.errors import WrongState
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.coordinator.plans.source import PlanHeader
from agentq.coordinator.plans.verbs import Plans, TaskSubmission
from agentq.coordinator.queues.limits import Limits
from agentq.sdk.http_backend import HttpBackend

WORK = RunSpec(kind="command", argv=("make",), queue="far")
PLACE = WorkspaceSpec(repository="https://ada:secret-of-hers@example.com/a.git", base="main", target="agentq/shop")
HEADER = PlanHeader(name="shop", max_parallel=2, queues=("far",), repository=PLACE.repository, workspace=PLACE)


@pytest.fixture
def plans(serving: Serving) -> Plans:
    return Plans(serving.queue)


def test_a_plan_submitted_over_http_is_the_one_that_redis_would_have(serving: Serving, plans: Plans) -> None:
    backend = HttpBackend(serving.url)
    made = backend.plans.submit("shop-1", HEADER, [TaskSubmission("a", WORK), TaskSubmission("b", WORK, ("a",))])
    again = backend.plans.submit("shop-1", HEADER, [TaskSubmission("a", WORK), TaskSubmission("b", WORK, ("a",))])

    assert made == again == plans.get("shop-1")
    assert backend.plans.complete("shop-1") == made, "nothing is missing"
    assert plans.header("shop-1") == HEADER
    shown = backend.plans.header("shop-1")
    assert shown.workspace is not None
    assert "secret-of-hers" not in shown.model_dump_json()

    added = TaskSubmission("c", WORK.model_copy(update={"workspace": shown.workspace}), ("a",))
    run = backend.plans.add("shop-1", [added])["c"]
    assert serving.records.get(run).spec.workspace == PLACE, "what was left out is put back"
    with pytest.raises(WrongState, match="its limit goes when it has ended"):
        backend.plans.remove_limit("shop-1")
    assert backend.plans.cancel("shop-1", "enough").ended == "cancelled"
    backend.plans.remove_limit("shop-1")
    assert [each.key for each in Limits(serving.store).all() if each.key == "plan:shop-1"] == []
    backend.close()
