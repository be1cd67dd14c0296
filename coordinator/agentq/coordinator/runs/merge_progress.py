"""The progress of an attempt in its workspace, recorded before each irreversible step.

The next attempt reads it, looks whether what was intended has happened, and goes on from there. The note is the run's:
it is kept across attempts and goes with the run. When an operator lets an ended run begin again, its step is
`requeued`:

- of a run that had not completed, all else stays. Its work may be in the target all the same, if its worker died
  between the merge and the word of it; so its marker is looked for from `base` on, and if it is there, all is done;
- of one that had, `base` is the commit that it delivered: what it did is known, and it is to be done once more.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentq.coordinator import bounds
from agentq.coordinator.errors import Invalid, refusal_error
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.spec import Outcome, keep_known_fields

if TYPE_CHECKING:
    from agentq.coordinator.storage.store import NamespaceStore

MergeStep = Literal["prepared", "executed", "committed", "merging", "merged", "requeued"]


class RepairReason(BaseModel):
    """Why the work went back to be repaired."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    what: Literal["conflict", "check"]
    target: str
    """The commit of the target that the work was put onto."""
    why: str = ""
    files: Annotated[tuple[str, ...], Field(fail_fast=True)] = ()
    """In which there are conflicts."""
    unmarked: Annotated[tuple[str, ...], Field(fail_fast=True)] = ()
    """Those of them that have no markers: one side has deleted them, or they are no text."""
    told: str = ""
    """What a check said, at its end."""


class MergeProgress(BaseModel):
    """What an attempt has done, or is about to do."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    step: MergeStep
    """After `committed` the process is not executed again. `requeued` is the server's own word."""
    host: str | None = None
    """Where the worktree is."""
    worktree: str | None = None
    branch: str | None = None
    base: str | None = None
    """The commit that the work starts from."""
    commit: str | None = None
    target: str | None = None
    target_before: str | None = None
    """Where the target stood when it was to be moved."""
    repair: RepairReason | None = None
    """Why the work went back, if it did."""
    rounds: int = 0
    """How often the work has gone back to be repaired."""
    outcome: Outcome | None = None
    """How the process ended, to be told once its work is in."""

    def to_wire(self) -> str:
        """The note as it is kept."""
        text = self.model_dump_json(by_alias=True, exclude_none=True)
        if len(text) > bounds.MERGE_PROGRESS_BYTES:
            raise Invalid(f"The note has {len(text)} characters; {bounds.MERGE_PROGRESS_BYTES} is the most.")
        return text

    @classmethod
    def from_wire(cls, text: str) -> MergeProgress:
        """Read a note back, passing over what a newer version put there."""
        fields = json.loads(text)
        if fields.get("outcome"):
            fields["outcome"] = keep_known_fields(Outcome, fields["outcome"])
        return cls.model_validate(fields)


def read_merge_progress(store: NamespaceStore, run_id: str, fence: str) -> MergeProgress | None:
    """What has been noted of a run, for the attempt that holds it."""
    reply = store.call("merge/get_step", partition_of(run_id), run_id, fence)
    if isinstance(reply, str):
        raise refusal_error(reply, f"run {run_id}") or AssertionError(reply)
    return MergeProgress.from_wire(reply[1]) if reply[1] else None


def base_key(repository: str, base: str) -> str:
    """A base of a repository as one word."""
    return blake2b(f"{repository}\n{base}".encode(), digest_size=10).hexdigest()


def pin_base(store: NamespaceStore, run_id: str, fence: str, place: str, commit: str) -> str | None:
    """The commit that a base stands for in the plan of a run; pins `commit` if no attempt has pinned another before."""
    reply = store.call("merge/pin_base", partition_of(run_id), run_id, fence, place, commit)
    if isinstance(reply, str):
        raise refusal_error(reply, f"run {run_id}") or AssertionError(reply)
    return reply[1] or None
