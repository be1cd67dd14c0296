"""The objects that serve runners and clients of the dialect, built and wired once for each server."""

from __future__ import annotations

from collections.abc import Callable

from agentq.coordinator.errors import AgentqError
from agentq.dialects.agent_orchestrator.blueprints.store import BlueprintStore
from agentq.dialects.agent_orchestrator.completion_callbacks import CompletionCallbacks
from agentq.dialects.agent_orchestrator.runners.long_poll import LongPolls
from agentq.dialects.agent_orchestrator.runners.poll_answer import PollDecider
from agentq.dialects.agent_orchestrator.runners.registry import RunnerRegistry
from agentq.dialects.agent_orchestrator.runners.run_reports import REPORTS_PER_BATCH, RunReport, RunReports
from agentq.dialects.agent_orchestrator.runners.server_liveness import ServerLiveness
from agentq.dialects.agent_orchestrator.runners.wait_queue import PollWaitQueue
from agentq.dialects.agent_orchestrator.sessions.child_runs import ChildRuns
from agentq.dialects.agent_orchestrator.sessions.executor_reports import ExecutorReports
from agentq.dialects.agent_orchestrator.sessions.session_list import SessionLister
from agentq.dialects.agent_orchestrator.sessions.stop_requests import StopRequests
from agentq.dialects.agent_orchestrator.sessions.store import DialectSessionStore
from agentq.dialects.agent_orchestrator.submission import DialectSubmitter
from agentq.dialects.agent_orchestrator.timing import RunnerTiming
from agentq.server.batching import Batcher
from agentq.server.dialect import DialectServer
from agentq.server.thread_pool import CallInThread


class DialectServices:
    """May be built on any thread; start and stop it on the server's loop."""

    def __init__(self, server: DialectServer) -> None:
        store, event_hub, call_in_thread = server.store, server.event_hub, server.call_in_thread
        self.timing = RunnerTiming.from_settings(server.server_settings)
        self.blueprints = BlueprintStore(store)
        self.session_store = DialectSessionStore(store)
        self.server_liveness = ServerLiveness(store)
        self.runner_registry = RunnerRegistry(
            store, server.settings, self.timing, self.blueprints, self.server_liveness
        )
        self.child_runs = ChildRuns(self.session_store)
        self.session_lister = SessionLister(self.runner_registry, self.session_store)
        self.poll_decider = PollDecider(self.runner_registry, self.session_store, self.blueprints, self.child_runs)
        self.run_reports = RunReports(self.runner_registry, self.session_store)
        self.submitter = DialectSubmitter(store, self.timing, self.blueprints, self.session_store, self.child_runs)
        self.stop_requests = StopRequests(self.runner_registry, self.session_store)
        self.executor_reports = ExecutorReports(self.runner_registry, self.session_store, self.timing)
        self.waiting_polls = PollWaitQueue(store, event_hub, call_in_thread)
        self.report_started = _batch_reports(call_in_thread, self.run_reports.started)
        self.report_completed = _batch_reports(call_in_thread, self.run_reports.completed)
        self.long_polls = LongPolls(self.runner_registry, self.poll_decider, self.waiting_polls, call_in_thread)
        self.completion_callbacks = CompletionCallbacks(self.session_store, self.submitter, event_hub, call_in_thread)

    def start(self) -> None:
        """Start the tasks that follow events."""
        self.waiting_polls.start()
        self.completion_callbacks.start()

    async def stop(self) -> None:
        await self.waiting_polls.stop()
        await self.completion_callbacks.stop()


def _batch_reports(
    call_in_thread: CallInThread, take: Callable[[list[RunReport]], list[AgentqError | None]]
) -> Batcher[RunReport, None]:
    """Takes concurrent reports in shared calls."""

    async def send(reports: list[RunReport]) -> list[AgentqError | None]:
        return list(await call_in_thread(take, reports))

    return Batcher(send, items_max=REPORTS_PER_BATCH, shared_errors=(AgentqError,))
