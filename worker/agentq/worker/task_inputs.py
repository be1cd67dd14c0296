"""Fills the outcomes of earlier tasks into a run: `{{ tasks.NAME.result }}` in its prompt, arguments and environment,
and a list of finished tasks in an agent's prompt.

This happens right before the process starts. A value replaces its braces and nothing else: within an argument it is
never split, and no shell sees it. All values are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from pydantic import ValidationError
from pydantic_core import to_json

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.field_types import describe_error
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.planning.expand.templates import OUTPUT_PATTERN
from agentq.worker.output.sanitizer import sanitize_text

PROMPT_CHARACTERS = 64 << 10
"""Length limit of one value in a prompt."""
ARGUMENT_CHARACTERS = 32 << 10
"""Length limit of one value in an argument or a variable: a system accepts 128 KiB for each."""
TASKS_MAX = 20
"""How many finished tasks an agent's prompt lists: the newest."""
TASK_SUMMARY_CHARACTERS = 1_000
"""Length limit of the text of each."""
CUT_NOTICE = "\n[cut here]"
CONTEXT_HEADING = "\n\nThese tasks of the same plan were finished before yours:\n\n"
"""Precedes the list of finished tasks in a prompt."""


class TaskInputs:
    """Fills in the inputs of one run."""

    def __init__(self, queue: RunVerbs, claim: Claim) -> None:
        self._queue = queue
        self._claim = claim

    def fill(self, spec: RunSpec) -> RunSpec:
        """The spec with all values filled in. Raises `Invalid` where there is no value."""
        if not spec.inputs and spec.context == "none":
            return spec
        runs = self._read_inputs(spec)
        fields: dict[str, object] = {}
        if spec.prompt is not None:
            fields["prompt"] = _fill_template(spec.prompt, runs, PROMPT_CHARACTERS) + self._context(spec, runs)
        fields["argv"] = tuple(_fill_template(word, runs, ARGUMENT_CHARACTERS) for word in spec.argv)
        fields["env"] = {name: _fill_template(value, runs, ARGUMENT_CHARACTERS) for name, value in spec.env.items()}
        if spec.stdin is not None:
            fields["stdin"] = _fill_template(spec.stdin, runs, PROMPT_CHARACTERS)
        try:
            return RunSpec.model_validate({**dict(spec), **fields})
        except ValidationError as error:
            raise Invalid(f"With what the tasks before it gave, {describe_error(error)}") from error

    def _read_inputs(self, spec: RunSpec) -> dict[str, RunRecord]:
        found = {run.id: run for run in self._queue.given(self._claim, list(spec.inputs.values()))}
        for name, run in spec.inputs.items():
            if run not in found:
                raise Invalid(f"The task {name} was {run}, which is gone; it was kept for too short a time.")
        return {name: found[run] for name, run in spec.inputs.items()}

    def _context(self, spec: RunSpec, runs: Mapping[str, RunRecord]) -> str:
        """The text about finished tasks at the end of the prompt."""
        if spec.context == "none":
            return ""
        finished = [run for run in self._finished(spec, runs) if run.state == State.COMPLETED]
        finished.sort(key=lambda run: run.finished_at_ms or 0)
        if not finished:
            return ""
        summaries = "\n\n".join(_summarize_task(run) for run in finished[-TASKS_MAX:])
        return f"{CONTEXT_HEADING}{summaries}"

    def _finished(self, spec: RunSpec, runs: Mapping[str, RunRecord]) -> Sequence[RunRecord]:
        if spec.context == "dependencies" or spec.plan is None:
            others = [run for run in spec.after if run not in spec.inputs.values()]
            # Tasks whose record has expired are left out.
            return [*runs.values(), *self._queue.given(self._claim, others[:TASKS_MAX])]
        return self._queue.finished(self._claim, spec.plan, TASKS_MAX)


def _fill_template(text: str, runs: Mapping[str, RunRecord], characters_max: int) -> str:
    if "{{" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        name, _, field = found[2].rpartition(".")
        if name not in runs or field not in TEMPLATE_VALUES:
            raise Invalid(f"{{{{ tasks.{found[2]} }}}} stands for nothing that this run is given.")
        filled = TEMPLATE_VALUES[field](runs[name]).replace("\0", "")
        return filled if len(filled) <= characters_max else filled[: characters_max - len(CUT_NOTICE)] + CUT_NOTICE

    return OUTPUT_PATTERN.sub(value, text)


def _format_result(run: RunRecord) -> str:
    result = run.outcome.result if run.outcome else None
    return result if isinstance(result, str) else "" if result is None else to_json(result).decode()


TEMPLATE_VALUES: dict[str, Callable[[RunRecord], str]] = {
    "result": _format_result,
    "tail": lambda run: (run.outcome.tail if run.outcome else None) or "",
    "title": lambda run: run.spec.name or run.spec.task or run.id,
    "state": lambda run: run.state.value,
    "commit": lambda run: (run.outcome.work.commit if run.outcome and run.outcome.work else None) or "",
    "branch": lambda run: (run.outcome.work.branch if run.outcome and run.outcome.work else None) or "",
}


def _summarize_task(run: RunRecord) -> str:
    """A few lines about one finished task."""
    summary = sanitize_text(_format_result(run) or TEMPLATE_VALUES["tail"](run)).strip()
    lines = [f"- {run.spec.task or run.id}: {TEMPLATE_VALUES['title'](run)}"]
    if commit := TEMPLATE_VALUES["commit"](run):
        lines.append(f"  commit {commit[:12]}")
    if summary:
        short = summary if len(summary) <= TASK_SUMMARY_CHARACTERS else f"…{summary[-TASK_SUMMARY_CHARACTERS:]}"
        lines += [f"  {line}" for line in islice(short.splitlines(), 40)]
    return "\n".join(lines)
