"""Everything that foreign runners and clients deal with, put together for one server."""

from __future__ import annotations

from agentq.coordinator.server.foreign.asking import Asking
from agentq.coordinator.server.foreign.attending import Attending
from agentq.coordinator.server.foreign.children import Children
from agentq.coordinator.server.foreign.conversing import Conversing
from agentq.coordinator.server.foreign.follower import Elsewhere
from agentq.coordinator.server.foreign.lobby import Lobby
from agentq.coordinator.server.foreign.orders import Orders
from agentq.coordinator.server.foreign.owing import Owing
from agentq.coordinator.server.foreign.polling import Polling
from agentq.coordinator.server.foreign.presence import Presence
from agentq.coordinator.server.foreign.reports import Reports
from agentq.coordinator.server.foreign.roster import Roster
from agentq.coordinator.server.foreign.rush import Rush
from agentq.coordinator.server.foreign.session_list import SessionList
from agentq.coordinator.server.foreign.shelf import Shelf
from agentq.coordinator.server.foreign.stopping import Stopping
from agentq.coordinator.server.foreign.timing import Timing
from agentq.coordinator.server.tides import Tides
from agentq.coordinator.server_settings import ServerSettings
from agentq.coordinator.settings import Settings
from agentq.coordinator.store import Store


class Embassy:
    """Made on any thread; started and stopped on the server's loop."""

    def __init__(
        self, store: Store, settings: Settings, tides: Tides, elsewhere: Elsewhere, server: ServerSettings
    ) -> None:
        self.timing = Timing.of(server)
        self.shelf = Shelf(store)
        self.conversing = Conversing(store)
        self.presence = Presence(store)
        self.roster = Roster(store, settings, self.timing, self.shelf, self.presence)
        self.children = Children(self.conversing)
        self.session_list = SessionList(self.roster, self.conversing)
        self.orders = Orders(self.roster, self.conversing, self.shelf, self.children)
        self.reports = Reports(self.roster, self.conversing)
        self.asking = Asking(store, self.timing, self.shelf, self.conversing, self.children)
        self.stopping = Stopping(self.roster, self.conversing)
        self.attending = Attending(self.roster, self.conversing, self.timing)
        self.lobby = Lobby(store, tides, elsewhere)
        self.rush = Rush(self.orders, self.reports, elsewhere)
        self.polling = Polling(self.roster, self.orders, self.lobby, self.rush, elsewhere)
        self.owing = Owing(self.conversing, self.asking, tides, elsewhere)

    def start(self) -> None:
        """Follow what happens, on the loop."""
        self.lobby.start()
        self.owing.start()

    async def stop(self) -> None:
        await self.lobby.stop()
        await self.owing.stop()
