"""The progress of an attempt in its workspace, recorded before each irreversible step.

The next attempt reads it, checks whether the intended step has happened, and continues from there. The record belongs
to the run: it is kept across attempts and deleted with the run. When an operator retries an ended run, its step is
`requeued`:

- If the run had not completed, all other fields stay. Its work may be in the target nevertheless, if its worker died
  between the merge and the report; so the next attempt looks for its marker from `base` on, and if found, it is done.
- If the run had completed, `base` is the commit that it delivered: the work before it is known, and is done once more.
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
    """Why the work went back, for the agent or attempt that fixes it."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    what: Literal["conflict", "check"]
    target: str
    """The commit of the target that the work was rebased onto."""
    why: str = ""
    files: Annotated[tuple[str, ...], Field(fail_fast=True)] = ()
    """Files with conflicts."""
    unmarked: Annotated[tuple[str, ...], Field(fail_fast=True)] = ()
    """Conflicting files without markers: deleted by one side, or not text."""
    told: str = ""
    """The end of the check's output."""


class MergeProgress(BaseModel):
    """The last step that an attempt has done, or is about to do."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    step: MergeStep
    """After `committed` the process is not executed again. Only the server sets `requeued`."""
    host: str | None = None
    """The path of the worktree."""
    worktree: str | None = None
    branch: str | None = None
    base: str | None = None
    """The start commit of the work."""
    commit: str | None = None
    target: str | None = None
    target_before: str | None = None
    """The target's commit before the intended move."""
    repair: RepairReason | None = None
    """The conflict or failed check to fix, if the work has gone back."""
    rounds: int = 0
    """How often the work has gone back to be repaired."""
    outcome: Outcome | None = None
    """The outcome of the process, reported after its work is merged."""

    def to_wire(self) -> str:
        """The record as stored."""
        text = self.model_dump_json(by_alias=True, exclude_none=True)
        if len(text) > bounds.MERGE_PROGRESS_BYTES:
            raise Invalid(f"The note has {len(text)} characters; {bounds.MERGE_PROGRESS_BYTES} is the most.")
        return text

    @classmethod
    def from_wire(cls, text: str) -> MergeProgress:
        """Parse a stored record, ignoring fields of a newer version."""
        fields = json.loads(text)
        if fields.get("outcome"):
            fields["outcome"] = keep_known_fields(Outcome, fields["outcome"])
        return cls.model_validate(fields)


def read_merge_progress(store: NamespaceStore, run_id: str, fence: str) -> MergeProgress | None:
    """The recorded progress of a run, for the attempt that holds it."""
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
