"""Workers as the model sees them: leases, what they hold, who may claim, and whom the reaper may declare lost."""

from __future__ import annotations

from simulation.heard import Event, Heard
from simulation.life import Life, Seat

FOLLOWS = {
    "worker_registered": (None, "worker_left", "worker_lost"),
    "worker_draining": ("worker_registered",),
    "worker_left": ("worker_registered", "worker_draining"),
    "worker_lost": ("worker_registered", "worker_draining"),
}
"""What may have been told of a worker before an event; None is nothing yet."""


class Seats:
    """The part of the model that knows the workers."""

    def __init__(self, *, gap_ms: int, lease_ms: int, grace_ms: int, forget_ms: int) -> None:
        self.gap_ms, self.lease_ms, self.grace_ms, self.forget_ms = gap_ms, lease_ms, grace_ms, forget_ms
        self.runs: dict[str, Life] = {}
        self.workers: dict[str, Seat] = {}
        self.told_of: dict[str, str] = {}
        """The last event of each worker."""
        self.fences: dict[str, str] = {}
        """Every run and fence that was ever given, and to whom; a server that lost its memory gives none to another."""
        self.orders: dict[tuple[str, str], tuple[str, str]] = {}
        """Worker and id of each stop order that was told → its run and fence."""
        self.watched: tuple[str, int, int] | None = None
        """Server, since when it has been watched without a gap, last look."""

    def held_by(self, worker: str) -> list[Life]:
        return [life for life in self.runs.values() if life.held and life.worker == worker]

    # ---- claiming

    def may_claim(self, heard: Heard) -> None:
        """A claim was granted: its worker must have been entitled."""
        seat = self.workers.get(heard["worker"])
        assert seat is not None, f"{heard['worker']} is nobody, and claimed"
        assert (seat.epoch, seat.state) == (heard["epoch"], "ready"), f"{heard['worker']} claimed as {seat}"
        assert seat.lease_until > heard.now, f"{heard['worker']} claimed, its lease over: {seat}"

    def may_not_claim(self, heard: Heard) -> None:
        """A claim was refused: by the right word."""
        seat = self.workers.get(heard["worker"])
        if seat is None or seat.epoch != heard["epoch"] or not seat.present:
            expected = "evicted"
        else:
            expected = "draining" if seat.state == "draining" else "lease_expired"
            over = seat.lease_until <= heard.now or seat.lapsed == seat.lease_until
            assert seat.state == "draining" or over, f"{heard['worker']} may claim: {seat}"
        assert heard.refusal == expected, f"{heard['worker']} was refused as {heard.refusal}: {seat}"

    def taken_away(self, heard: Heard, life: Life) -> None:
        """A run is taken from its worker: because that was declared lost, left, or does not know of it."""
        seat = self.workers[life.worker]
        if heard.script == "duty/reap_workers":
            assert seat.state == "lost", f"{life.line} was lost, its worker was not"
            assert self.told_of.get(life.worker) == "worker_lost", f"{life.line} was lost, its worker is not told of"
        elif heard.script in ("worker/register", "worker/deregister", "worker/evict"):
            assert heard.script != "worker/evict" or seat.state == "lost", (
                f"{life.line}: {heard['epoch']} is not {seat}"
            )
            assert heard["worker"] == life.worker, f"{life.line} was taken by {heard['worker']}"
        else:
            assert heard.script == "worker/heartbeat", f"{heard.script} took {life.line}"
            assert heard["worker"] == life.worker
            unknown = life.unnamed_at is not None and heard.now - life.unnamed_at >= self.forget_ms
            assert unknown or life.late(heard.now), f"{life.line} is known to its worker, and not late: {life}"

    # ---- registering and leaving

    def hear_of_worker(self, heard: Heard, event: Event) -> None:
        """An event that is of a worker."""
        before = self.told_of.get(event.worker)
        assert before in FOLLOWS[event.event], f"{heard.script} told {event} after {before}"
        assert heard.script == "duty/reap_workers" or heard["worker"] == event.worker, f"{heard.script} told {event}"
        self.told_of[event.worker] = event.event

    def answer_worker_register(self, heard: Heard) -> None:
        worker, seat = heard["worker"], self.workers.get(heard["worker"])
        same = seat is not None and (seat.epoch == heard["epoch"] or seat.operation == heard["operation"])
        if heard.refusal == "duplicate":
            assert seat is not None
            assert not same
            assert seat.lease_until > heard.now, f"{worker} is not alive: {seat}"
        elif heard.refusal is None:
            _, epoch, resumed, _, *flat = heard.reply
            assert bool(resumed) == (same and seat is not None and seat.present), f"{worker}: {seat}, {heard.reply}"
            holds = {(life.id, life.fence) for life in self.held_by(worker)}
            assert holds == set(zip(flat[::2], flat[1::2], strict=True)), f"{worker} holds {holds}, was told {flat}"
            if seat is None or not resumed:
                assert not holds
                assert seat is None or int(epoch) > int(seat.epoch)
                seat = self.workers[worker] = Seat(epoch, heard["operation"])
                assert self.told_of.get(worker) == "worker_registered", f"{worker}: {self.told_of.get(worker)}"
            seat.lease_until, seat.missing_at = heard.now + self.lease_ms, None

    def answer_worker_drain(self, heard: Heard) -> None:
        seat = self.workers.get(heard["worker"])
        if heard.reply == "evicted":
            assert seat is None or seat.epoch != heard["epoch"], f"{heard['worker']} may drain: {seat}"
            return
        assert (heard.reply == "ok") == (seat is not None and seat.present), f"{heard.reply}: {seat}"
        if seat is not None and heard.reply == "ok":
            assert seat.state == "draining" or self.told_of.get(heard["worker"]) == "worker_draining"
            seat.state = "draining"

    def answer_worker_deregister(self, heard: Heard) -> None:
        worker, seat = heard["worker"], self.workers.get(heard["worker"])
        if heard.reply == "evicted":
            assert seat is None or seat.epoch != heard["epoch"] or seat.state == "lost"
            return
        assert seat is not None
        seat.state = "gone" if heard.reply == "ok" else "draining"
        if heard.reply == "ok":
            seat.lease_until = 0
            assert self.told_of.get(worker) == "worker_left", f"{worker} left: {self.told_of.get(worker)}"
            assert not self.held_by(worker), f"{worker} left and holds {self.held_by(worker)}"

    def hear_worker_evict(self, heard: Heard) -> None:
        """Its process is dead: its lease ends, if it is still the one of that process."""
        seat = self.workers.get(heard["worker"])
        if seat is not None and seat.epoch == heard["epoch"] and seat.present:
            seat.state, seat.lease_until = "lost", 0

    def answer_worker_evict(self, heard: Heard) -> None:
        worker, seat = heard["worker"], self.workers.get(heard["worker"])
        known = seat is not None and seat.epoch == heard["epoch"]
        assert known == (heard.reply != "evicted"), f"{worker} was ousted, and is {seat}: {heard.reply}"
        left = self.held_by(worker) if heard.reply == "ok" else []
        assert not left, f"{worker} was ousted and holds {left}"

    # ---- heartbeats

    def hear_worker_heartbeat(self, heard: Heard) -> None:
        worker, seat = heard["worker"], self.workers.get(heard["worker"])
        known = seat is not None and seat.epoch == heard["epoch"] and seat.present
        assert known == (heard.reply != "evicted"), f"the heartbeat of {worker} was answered {heard.reply}: {seat}"
        if seat is None or not known:
            return
        steady = abs(heard.now - (seat.lease_until - self.lease_ms)) <= self.lease_ms
        seat.lease_until, seat.missing_at = heard.now + self.lease_ms, None
        mine = {life.id: life for life in self.held_by(worker)}
        named: dict[str, str] = dict(heard.rows)
        for life in mine.values():
            if named.get(life.id) == life.fence and life.state == "claimed":
                anew = life.claimed_at > heard.now or (life.late(heard.now) and not steady)
                life.claimed_at = heard.now if anew else life.claimed_at
        kept = {(life.id, life.fence) for life in mine.values() if not life.late(heard.now)}
        fenced_claims = named.items() - kept
        _, state, _, number, *flat = heard.reply
        told, orders = set(zip(flat[: 2 * number : 2], flat[1 : 2 * number : 2], strict=True)), flat[2 * number :]
        assert (state, told) == (seat.state, fenced_claims), (
            f"{worker} is {seat.state}, must drop {fenced_claims}: {heard.reply}"
        )
        for run, life in mine.items():
            if named.get(run) == life.fence:
                life.unnamed_at = None
            elif life.unnamed_at is None or life.unnamed_at > heard.now:
                life.unnamed_at = heard.now
        self._orders(worker, heard["applied"].split(","), orders, mine)

    def _orders(self, worker: str, applied: list[str], flat: list[str], mine: dict[str, Life]) -> None:
        """A stop order is told until it has been applied."""
        for order in applied:
            run, fence = self.orders.get((worker, order), ("", ""))
            if run in mine and mine[run].fence == fence:
                mine[run].stop_told = True
        stops = [flat[at : at + 5] for at in range(0, len(flat), 5) if flat[at + 1] == "stop"]
        self.orders |= {(worker, order): (run, fence) for order, _, run, fence, _ in stops}
        told = {(run, fence) for _, _, run, fence, _ in stops}
        for life in mine.values():
            known = life.stop_at is None or life.stop_told or (life.id, life.fence) in told
            assert known, f"{life.worker} is not told to stop {life.line}"

    def answer_worker_heartbeat(self, heard: Heard) -> None:
        for life in self.held_by(heard["worker"]) if heard.refusal is None else ():
            forgotten = life.unnamed_at is not None and heard.now - life.unnamed_at >= self.forget_ms
            assert not forgotten, f"{life.line} stays with a worker that does not know of it"
            assert life.unnamed_at or not life.late(heard.now), (
                f"{life.line} stays with a worker that does not start it"
            )

    # ---- the reaper

    def hear_duty_lock(self, heard: Heard) -> None:
        """Who asks for the duties could reach the server: the watch goes on, but over no gap."""
        seat = self.workers.get(heard["owner"])
        assert not heard.reply or seat is None or seat.present, f"{heard['owner']} keeps the duties as {seat}"
        if self.watched is not None and abs(heard.now - self.watched[2]) <= self.gap_ms:
            self.watched = (*self.watched[:2], heard.now)

    def hear_duty_reap_workers(self, heard: Heard) -> None:
        """Mark, and later sweep: nobody is lost at first sight, nor before the server was watched for a lease."""
        marked, doubtful, _, left, _, *names = heard.reply
        server, since, last = self.watched or (heard["server"], heard.now, heard.now)
        if server != heard["server"] or abs(heard.now - last) > self.gap_ms:
            since = heard.now
        self.watched = (heard["server"], since, heard.now)
        for seat in self.workers.values():
            # No lease is longer; this one was given when the clock said more.
            seat.lease_until = min(seat.lease_until, heard.now + self.lease_ms)
        missing = {w: seat for w, seat in self.workers.items() if seat.present and seat.lease_until <= heard.now}
        fresh = [seat for seat in missing.values() if seat.missing_at is None or seat.missing_at > heard.now]
        for seat in fresh:
            seat.missing_at = heard.now
        assert marked == len(fresh), f"the reaper marked {marked} of {missing}"
        watched = heard.now >= since + self.lease_ms
        lost = {w for w, seat in missing.items() if watched and heard.now >= (seat.missing_at or 0) + self.grace_ms}
        swept = {w for w, seat in self.workers.items() if seat.state == "lost"}
        assert set(names) - swept <= lost, f"the reaper declared {names} lost; it may have: {lost}, {missing}, {since=}"
        assert left or lost <= set(names), f"the reaper left {lost - set(names)} alone"
        assert doubtful == len(missing) - len(lost), f"{doubtful} are in doubt: {missing}"
        for worker in names:
            self.workers[worker].state, self.workers[worker].lease_until = "lost", 0
