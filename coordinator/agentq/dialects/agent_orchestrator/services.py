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
        tides: EventHub,
        elsewhere: CallInThread,
        server: ServerSettings,
    ) -> None:
        self.timing = RunnerTiming.of(server)
        self.shelf = BlueprintStore(store)
        self.conversing = DialectSessionStore(store)
        self.presence = ServerLiveness(store)
        self.roster = RunnerRegistry(store, settings, self.timing, self.shelf, self.presence)
        self.children = ChildRuns(self.conversing)
        self.session_list = SessionLister(self.roster, self.conversing)
        self.orders = PollDecider(self.roster, self.conversing, self.shelf, self.children)
        self.reports = RunReports(self.roster, self.conversing)
        self.asking = DialectSubmitter(store, self.timing, self.shelf, self.conversing, self.children)
        self.stopping = StopRequests(self.roster, self.conversing)
        self.attending = ExecutorReports(self.roster, self.conversing, self.timing)
        self.lobby = PollWaitQueue(store, tides, elsewhere)
        self.rush = RunnerBatcher(self.orders, self.reports, elsewhere)
        self.polling = LongPolls(self.roster, self.orders, self.lobby, self.rush, elsewhere)
        self.owing = CompletionCallbacks(self.conversing, self.asking, tides, elsewhere)

    def start(self) -> None:
        """Follow what happens, on the loop."""
        self.lobby.start()
        self.owing.start()

    async def stop(self) -> None:
        await self.lobby.stop()
        await self.owing.stop()
