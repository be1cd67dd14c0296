"""What a run is given of those before it: their outcomes stand where its prompt, its arguments or its environment say
`{{ tasks.NAME.result }}`, and an agent is told of finished tasks in its prompt.

It is filled in when the process is about to begin. A value takes the place of its braces and nothing else: within an
argument it is never split, and no shell sees it. All of it is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from pydantic import ValidationError
from pydantic_core import to_json

from agentq.coordinator.errors import Invalid
from agentq.coordinator.fields import one_sentence
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import State
from agentq.coordinator.queue import Claim, Queue
from agentq.coordinator.run import RunSpec
from agentq.planning.filling import OUTPUT
from agentq.worker.cleaning import clean

PROMPT_CHARACTERS = 64 << 10
"""Of one value in a prompt."""
ARGUMENT_CHARACTERS = 32 << 10
"""Of one value in an argument or a variable: a system takes 128 KiB for each."""
TOLD = 20
"""Finished tasks that an agent is told of: the newest."""
TOLD_CHARACTERS = 1_000
"""Of what each of them says."""
CUT = "\n[cut here]"
CONTEXT = "\n\nThese tasks of the same plan were finished before yours:\n\n"
"""What stands in a prompt before what is told of finished tasks."""


class Inputs:
    """Fills them in, for one run."""

    def __init__(self, queue: Queue, claim: Claim) -> None:
        self._queue = queue
        self._claim = claim

    def filled(self, spec: RunSpec) -> RunSpec:
        """The spec as its process is to be started. Raises `Invalid` where there is nothing to fill in."""
        if not spec.inputs and spec.context == "none":
            return spec
        runs = self._given(spec)
        said: dict[str, object] = {}
        if spec.prompt is not None:
            said["prompt"] = _written(spec.prompt, runs, PROMPT_CHARACTERS) + self._context(spec, runs)
        said["argv"] = tuple(_written(word, runs, ARGUMENT_CHARACTERS) for word in spec.argv)
        said["env"] = {name: _written(value, runs, ARGUMENT_CHARACTERS) for name, value in spec.env.items()}
        if spec.stdin is not None:
            said["stdin"] = _written(spec.stdin, runs, PROMPT_CHARACTERS)
        try:
            return RunSpec.model_validate({**dict(spec), **said})
        except ValidationError as error:
            raise Invalid(f"With what the tasks before it gave, {one_sentence(error)}") from error

    def _given(self, spec: RunSpec) -> dict[str, Run]:
        found = {run.id: run for run in self._queue.given(self._claim, list(spec.inputs.values()))}
        for name, run in spec.inputs.items():
            if run not in found:
                raise Invalid(f"The task {name} was {run}, which is gone; it was kept for too short a time.")
        return {name: found[run] for name, run in spec.inputs.items()}

    def _context(self, spec: RunSpec, runs: Mapping[str, Run]) -> str:
        """What is told of finished tasks at the end of the prompt."""
        if spec.context == "none":
            return ""
        finished = [run for run in self._finished(spec, runs) if run.state == State.COMPLETED]
        finished.sort(key=lambda run: run.finished_at_ms or 0)
        if not finished:
            return ""
        told = "\n\n".join(_told(run) for run in finished[-TOLD:])
        return f"{CONTEXT}{told}"

    def _finished(self, spec: RunSpec, runs: Mapping[str, Run]) -> Sequence[Run]:
        if spec.context == "dependencies" or spec.plan is None:
            others = [run for run in spec.after if run not in spec.inputs.values()]
            # What was kept for too short a time is not told of.
            return [*runs.values(), *self._queue.given(self._claim, others[:TOLD])]
        return self._queue.finished(self._claim, spec.plan, TOLD)


def _written(text: str, runs: Mapping[str, Run], most: int) -> str:
    if "{{" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        name, _, what = found[2].rpartition(".")
        if name not in runs or what not in VALUES:
            raise Invalid(f"{{{{ tasks.{found[2]} }}}} stands for nothing that this run is given.")
        said = VALUES[what](runs[name]).replace("\0", "")
        return said if len(said) <= most else said[: most - len(CUT)] + CUT

    return OUTPUT.sub(value, text)


def _result(run: Run) -> str:
    result = run.outcome.result if run.outcome else None
    return result if isinstance(result, str) else "" if result is None else to_json(result).decode()


VALUES: dict[str, Callable[[Run], str]] = {
    "result": _result,
    "tail": lambda run: (run.outcome.tail if run.outcome else None) or "",
    "title": lambda run: run.spec.name or run.spec.task or run.id,
    "state": lambda run: run.state.value,
    "commit": lambda run: (run.outcome.work.commit if run.outcome and run.outcome.work else None) or "",
    "branch": lambda run: (run.outcome.work.branch if run.outcome and run.outcome.work else None) or "",
}


def _told(run: Run) -> str:
    """A few lines of one finished task."""
    said = clean(_result(run) or VALUES["tail"](run)).strip()
    lines = [f"- {run.spec.task or run.id}: {VALUES['title'](run)}"]
    if commit := VALUES["commit"](run):
        lines.append(f"  commit {commit[:12]}")
    if said:
        short = said if len(said) <= TOLD_CHARACTERS else f"…{said[-TOLD_CHARACTERS:]}"
        lines += [f"  {line}" for line in islice(short.splitlines(), 40)]
    return "\n".join(lines)
