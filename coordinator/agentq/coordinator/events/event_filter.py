"""Filters of events, and the lookup of the queue, plan and session of an event's run.

An event names its run and no more. Queue, plan and session are looked up, many at a time, and remembered for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from pydantic import BaseModel, ConfigDict, ValidationError

from agentq.coordinator.bounds import FILTER_VALUES
from agentq.coordinator.errors import Invalid
from agentq.coordinator.events.stream import EVENT_NAMES, Event
from agentq.coordinator.model.field_types import Name, RunId, describe_error
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import parse_lane
from agentq.coordinator.storage.store import NamespaceStore

LOCATIONS_CACHED = 20_000
"""Runs whose place is remembered."""
FIELDS_PER_RUN = 3
"""Of each run in the reply of the script."""


class LocatedEvent(Event):
    """An event, and where its run belongs; all of it is empty once the run is forgotten."""

    queue: str
    session: str


class EventFilter(BaseModel):
    """A filter of events. Each part that is given must fit; one of its names is enough."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    events: tuple[str, ...] = ()
    runs: tuple[RunId, ...] = ()
    queues: tuple[Name, ...] = ()
    plans: tuple[Name, ...] = ()
    sessions: tuple[Name, ...] = ()
    states: tuple[State, ...] = ()

    @classmethod
    def asked(cls, words: Mapping[str, Sequence[str]]) -> EventFilter:
        """What was asked for: by the singular of each part, lists of names, also with commas in them."""
        fields = {f"{word}s": _split_names(values) for word, values in words.items()}
        known = [name.removesuffix("s") for name in cls.model_fields]
        for word in words:
            if word not in known:
                raise Invalid(
                    f"Events have no {word[:40]!r}; filter them by {', '.join(known)}.{_suggest_name(word, known)}"
                )
        _check_names("event", fields.get("events", ()), EVENT_NAMES)
        _check_names("state", fields.get("states", ()), [state.value for state in State])
        for word, values in fields.items():
            if len(values) > FILTER_VALUES:
                raise Invalid(f"A filter lists {FILTER_VALUES} of one kind at the most, not {len(values)} {word}.")
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise Invalid(f"The filter is wrong: {describe_error(error)}") from error

    def within(self, queues: Sequence[str] | None) -> EventFilter:
        """The same, of these queues only; None for no bounds."""
        if queues is None:
            return self
        left = tuple(each for each in queues if not self.queues or each in self.queues)
        # A name that no queue has, where nothing is left: an empty part would mean that all fit.
        return self.model_copy(update={"queues": left or ("-",)})

    def takes(self, event: LocatedEvent) -> bool:
        """Whether it wants to hear of this."""
        return (
            (not self.events or event.event in self.events)
            and (not self.runs or event.run in self.runs)
            and (not self.states or event.state in self.states)
            and (not self.queues or event.queue in self.queues)
            and (not self.plans or event.plan in self.plans)
            and (not self.sessions or event.session in self.sessions)
        )

    def __str__(self) -> str:
        parts = [f"{name.removesuffix('s')} {','.join(values)}" for name, values in self if values]
        return "; ".join(parts) or "everything"


class RunLocator:
    """Where runs belong. One that is moved to another queue is looked up again."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self._known: OrderedDict[str, tuple[str, str, str]] = OrderedDict()

    def located(self, partition: int, events: Sequence[Event]) -> list[LocatedEvent]:
        """The events of one partition, with the places of their runs."""
        known = self._known
        for event in events:
            if event.event == "moved":
                known.pop(event.run, None)
        found = {event.run: known[event.run] for event in events if event.run in known}
        unknown = list(dict.fromkeys(event.run for event in events if event.run and event.run not in found))
        if unknown:
            flat = self.store.call("run/locate", partition, *unknown)
            for number, run in enumerate(unknown):
                lane, plan, session = flat[FIELDS_PER_RUN * number : FIELDS_PER_RUN * (number + 1)]
                found[run] = known[run] = (parse_lane(lane)["queue"] if lane else "", plan, session)
        while len(known) > LOCATIONS_CACHED:
            known.popitem(last=False)
        return [_locate_event(event, found.get(event.run, ("", "", ""))) for event in events]


def _locate_event(event: Event, place: tuple[str, str, str]) -> LocatedEvent:
    queue, plan, session = place
    # What happens to a plan names it by itself.
    told = dict(event) | {"queue": queue, "plan": event.plan or plan, "session": session}
    return LocatedEvent.model_construct(**told)


def _split_names(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for value in values for part in value.split(",") if part.strip()))


def _check_names(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise Invalid(
                f"There is no {what} {name[:40]!r}; there are {', '.join(known)}.{_suggest_name(name, known)}"
            )


def _suggest_name(word: str, known: Sequence[str]) -> str:
    near = get_close_matches(word, known, 1)
    return f" Did you mean {near[0]}?" if near else ""
