"""Everything that foreign runners and clients deal with, put together for one server."""

from __future__ import annotations

from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.storage.store import NamespaceStore
from agentq.dialects.agent_orchestrator.blueprints.store import BlueprintStore
from agentq.dialects.agent_orchestrator.completion_callbacks import CompletionCallbacks
from agentq.dialects.agent_orchestrator.runners.long_poll import LongPolls
from agentq.dialects.agent_orchestrator.runners.poll_answer import PollDecider
from agentq.dialects.agent_orchestrator.runners.registry import RunnerRegistry
from agentq.dialects.agent_orchestrator.runners.request_batching import RunnerBatcher
from agentq.dialects.agent_orchestrator.runners.run_reports import RunReports
from agentq.dialects.agent_orchestrator.runners.server_liveness import ServerLiveness
from agentq.dialects.agent_orchestrator.runners.wait_queue import PollWaitQueue
from agentq.dialects.agent_orchestrator.sessions.child_runs import ChildRuns
from agentq.dialects.agent_orchestrator.sessions.executor_reports import ExecutorReports
from agentq.dialects.agent_orchestrator.sessions.session_list import SessionLister
from agentq.dialects.agent_orchestrator.sessions.stop_requests import StopRequests
from agentq.dialects.agent_orchestrator.sessions.store import DialectSessionStore
from agentq.dialects.agent_orchestrator.submission import DialectSubmitter
from agentq.dialects.agent_orchestrator.timing import RunnerTiming
from agentq.server.events.hub import EventHub
from agentq.server.thread_pool import CallInThread


class DialectServices:
    """Made on any thread; started and stopped on the server's loop."""

    def __init__(
        self,
        store: NamespaceStore,
        settings: Settings,
        event_hub: EventHub,
        call_in_thread: CallInThread,
        server_settings: ServerSettings,
    ) -> None:
        self.timing = RunnerTiming.from_settings(server_settings)
        self.blueprints = BlueprintStore(store)
        self.session_store = DialectSessionStore(store)
        self.server_liveness = ServerLiveness(store)
        self.runner_registry = RunnerRegistry(store, settings, self.timing, self.blueprints, self.server_liveness)
        self.child_runs = ChildRuns(self.session_store)
        self.session_lister = SessionLister(self.runner_registry, self.session_store)
        self.poll_decider = PollDecider(self.runner_registry, self.session_store, self.blueprints, self.child_runs)
        self.run_reports = RunReports(self.runner_registry, self.session_store)
        self.submitter = DialectSubmitter(store, self.timing, self.blueprints, self.session_store, self.child_runs)
        self.stop_requests = StopRequests(self.runner_registry, self.session_store)
        self.executor_reports = ExecutorReports(self.runner_registry, self.session_store, self.timing)
        self.waiting_polls = PollWaitQueue(store, event_hub, call_in_thread)
        self.batching = RunnerBatcher(self.poll_decider, self.run_reports, call_in_thread)
        self.long_polls = LongPolls(
            self.runner_registry, self.poll_decider, self.waiting_polls, self.batching, call_in_thread
        )
        self.completion_callbacks = CompletionCallbacks(self.session_store, self.submitter, event_hub, call_in_thread)

    def start(self) -> None:
        """Follow what happens, on the loop."""
        self.waiting_polls.start()
        self.completion_callbacks.start()

    async def stop(self) -> None:
        await self.waiting_polls.stop()
        await self.completion_callbacks.stop()
