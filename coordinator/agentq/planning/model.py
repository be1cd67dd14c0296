"""What may be said in a plan. The published schema and the tables of README.md are made from these models.

They are checked when variables are filled in, defaults are given and matrices are spread out; see expander.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from agentq.coordinator import bounds as most
from agentq.coordinator.model.lifecycle import CLASS_BUDGETS, OutcomeClass
from agentq.planning.errors import PlanProblem, did_you_mean, quote_value
from agentq.planning.read.source_tree import SourceTable, strip_positions
from agentq.planning.value_types import (
    Command,
    Count,
    Dollars,
    Duration,
    EnvironmentVariables,
    FunctionPath,
    Id,
    LimitUnits,
    Size,
    Text,
    TextOrList,
)

_CLASSES = {"enum": [class_.value for class_ in OutcomeClass if class_ in CLASS_BUDGETS]}
FailureClass = Annotated[Text, WithJsonSchema({"type": "string", **_CLASSES})]
FailureClasses = Annotated[tuple[FailureClass, ...], Field(strict=False)]
TextList = Annotated[tuple[Text, ...], Field(strict=False)]
KEYS_LISTED = 12
"""Keys that are all named if none is near to what was written."""


class PlanModel(BaseModel):
    """A mapping of a plan. Keys that are not known are told with the one that was perhaps meant."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, SourceTable) or info.context is None:
            return value
        unknown = [key for key in value if key not in cls.model_fields]
        for key in unknown:
            hint = did_you_mean(key, cls.model_fields)
            if not hint and len(cls.model_fields) <= KEYS_LISTED:
                hint = f"There is {', '.join(cls.model_fields)}"
            info.context.append(
                PlanProblem(value.key_at(key), value.path_of(key), f"there is no key {quote_value(key)} here", hint)
            )
        return value.without(unknown) if unknown else value


class CommandStep(PlanModel):
    """A command beside the task's own, where more is to be said than the command."""

    shell: bool = False
    """Whether a shell reads the command."""
    command: Command
    """The command."""
    timeout: Duration | None = None
    """The longest that it may take."""


def _parse_step(value: Any, info: ValidationInfo) -> Any:
    """A line or a list is the command, read by a shell if the task's own is."""
    if value is None or isinstance(value, dict):
        return value
    return {"command": value, "shell": bool(info.data.get("shell")) and isinstance(value, str)}


def _parse_arguments(value: Any) -> Any:
    if value is not None and not isinstance(value, list | dict):
        raise ValueError("it should be a list, or a mapping of keywords")
    return strip_positions(value)


CHECK_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
CheckCommand = Annotated[CommandStep | None, BeforeValidator(_parse_step)]
FunctionArguments = Annotated[Any, BeforeValidator(_parse_arguments), WithJsonSchema({"type": ["array", "object"]})]


class TaskClassRetry(PlanModel):
    """What is different after failures of one class."""

    retries: Annotated[int, Field(ge=0)] | None = None
    """How often it is tried again after this class, which is then counted by itself."""
    delay: Duration | None = None
    factor: float | None = None
    delay_max: Duration | None = None
    delays: Annotated[tuple[Duration, ...], Field(strict=False)] | None = None
    jitter: bool | None = None


class TaskRetry(PlanModel):
    """How often a task is tried again, after what, and when."""

    failures: Annotated[int, Field(ge=0)] | None = None
    """As `retries` of the task; 0 if not said."""
    crashes: Annotated[int, Field(ge=0)] | None = None
    """How often its worker may die under it; 3 if not said."""
    deferrals: Annotated[int, Field(ge=0)] | None = None
    """How often a usage limit may put it off; 100 if not said."""
    delay: Duration | None = None
    """The first wait."""
    factor: Annotated[float, Field(strict=False)] | None = None
    """Each wait is so many times the one before; 1 is a fixed wait."""
    delay_max: Duration | None = None
    """The longest wait."""
    delays: Annotated[tuple[Duration, ...], Field(strict=False)] | None = None
    """The waits themselves, in order."""
    jitter: bool | None = None
    """Whether an exponential wait is a random part of itself."""
    max_elapsed: Duration | None = None
    """No try begins later than this after the submit."""
    only: FailureClasses | None = None
    """The classes of failure that are tried again; all if none is named."""
    final: FailureClasses | None = None
    """Classes that are never tried again."""
    classes: dict[FailureClass, TaskClassRetry] | None = None
    """What is different after failures of one class."""


class WorktreeOptions(PlanModel):
    """How a task works in its worktree, and what becomes of the work. See the page on workspaces."""

    merge: Literal["squash", "rebase", "merge", "none"] | None = None
    """How the work gets into the target: `squash` is one commit a task. `none`: it stays on its own branch."""
    copy_files: TextOrList | None = None
    """Paths in the repository's own checkout that are copied into the worktree, such as .env."""
    link_files: TextOrList | None = None
    """Paths that are linked into it, such as node_modules."""
    sparse: TextOrList | None = None
    """Folders that are checked out; all if none is named."""
    check_ignored: Literal["clean", "keep"] | None = None
    """Whether ignored files of one check, such as what it built, are there for the next; `clean` if not said."""
    ports: TextOrList | None = None
    """Variables that get the number of a free port each."""
    trust: Literal["none", "repo"] | None = None
    """Whether the hooks of the repository run."""
    sign: bool | None = None
    """Whether commits are signed, as git is configured to."""
    dirty: Literal["allow", "refuse"] | None = None
    """Whether the repository's own checkout may have changes that nobody has committed."""
    on_check: Literal["agent", "retry", "fail"] | None = None
    """Who mends a check that fails: the agent in its conversation, another attempt, or nobody."""
    on_conflict: Literal["agent", "resolver", "retry", "fail"] | None = None
    """Who resolves a conflict."""
    resolver: Text | None = None
    """The agent that resolves conflicts, with `on_conflict: resolver`."""
    rounds: Annotated[int, Field(ge=0, le=most.REPAIR_ROUNDS_MAX)] | None = None
    """How often a conflict or a failed check goes back, beside `retries`; 2 of each if not said."""
    tree: Literal["auto", "clean", "same"] | None = None
    """What another attempt starts from: a clean worktree, or the same."""
    keep: Literal["failed", "always", "never"] | None = None
    """Whose worktrees stay for somebody to look at."""
    push: bool | None = None
    """Whether the target is pushed to the remote."""
    remote: Text | None = None
    """Which remote; origin if not said."""
    after_merge: Command | None = None
    """A command that runs when the work is in the target, such as one that opens a pull request."""
    update_checkout: bool | None = None
    """Whether the repository's own checkout follows the target, if it is clean and on it."""


WorktreeSetting = Annotated[
    Annotated[WorktreeOptions, Tag("")] | Annotated[Literal[False], Tag("false")],
    Discriminator(lambda value: "false" if value is False else ""),
]


class TaskSettings(PlanModel):
    """What a task says of how it works, and `defaults` for all tasks."""

    agent: Text | None = None
    """The agent that is given the prompt, such as claude; see `agentq agents`."""
    model: Text | None = None
    """The model that the agent uses."""
    permissions: Literal["read", "edit", "full"] | None = None
    """What the agent may do without asking; edit if not said."""
    trust: Literal["none", "repo"] | None = None
    """Whether hooks and servers of the repository may run in the agent."""
    account: Text | None = None
    """Who is billed, if not whoever's turn it is."""
    max_cost: Dollars | None = None
    """The most that the task may cost, in dollars, in all its attempts."""
    max_tokens: Count | None = None
    """The most tokens."""
    max_turns: Annotated[int, Field(gt=0)] | None = None
    """The most times that the agent may ask its model."""
    expects: Literal["anything", "changes"] | None = None
    """With `changes`, an end without any is a failure, unless the agent declares that nothing has to be changed."""
    on_limit: Literal["defer", "fail"] | None = None
    """What becomes of the task when the account is at its limit."""
    startup_timeout: Duration | None = None
    """The longest until the agent says its first word."""
    linger_timeout: Duration | None = None
    """The longest from its last word to its end."""
    context: Literal["none", "dependencies", "plan"] | None = None
    """Which finished tasks the agent is told of: none, those that it needs, or all of the plan."""

    shell: bool = False
    """Whether a shell reads the command, and the check and setup where those are lines."""
    env: EnvironmentVariables | None = None
    """Variables of the process."""
    cwd: Text | None = None
    """The folder that it works in: within the worktree, or, without one, from the plan's folder."""
    check: CheckCommand = None
    """A command that must succeed on the merged work before it gets into the target."""
    setup: CheckCommand = None
    """A command that makes a new worktree ready, such as one that installs what it needs."""
    workspace: WorktreeSetting | None = None
    """How it works in its worktree; `false`: it works in the plan's folder, without one."""

    queue: Id | None = None
    """The queue that it waits in; default if not said."""
    priority: Annotated[int, Field(ge=0, le=most.PRIORITY_MAX)] | None = None
    """How urgent it is, 9 the most; 5 if not said."""
    labels: dict[str, Text] | None = None
    """Labels to find it by."""
    demands: dict[str, Text] | None = None
    """What its worker must be, such as `gpu: a100` or `version: ">=0.2"`."""
    limits: LimitUnits | None = None
    """Limits that it needs room under, and how much of each if not 1."""
    retries: Annotated[int, Field(ge=0)] | None = None
    """How often it is tried again if it fails: never (0) if not said. See `crashes` for its worker's death."""
    retry: TaskRetry | None = None
    """How often it is tried again, after what, and when."""
    on_failed: Literal["skip", "run", "fail"] | None = None
    """What becomes of it if a task that it needs does not complete."""
    timeout: Duration | None = None
    """The longest that one attempt may run."""
    silence_timeout: Duration | None = None
    """The longest that it may write nothing."""
    stop_grace: Duration | None = None
    """From the polite signal to the one that cannot be refused, when it is stopped."""
    delay: Duration | None = None
    """How long to wait after the plan was submitted."""
    expires: Duration | None = None
    """It fails if it has not begun after so long."""
    keep: Duration | None = None
    """How long it can be looked up after its end; 7d if not said."""
    memory: Size | None = None
    """The most memory that it may use."""
    cpu_time: Duration | None = None
    """The most time on a processor."""
    nice: Annotated[int, Field(ge=0, le=19)] | None = None
    """How much it gives way to others."""


class TaskDefinition(TaskSettings):
    """One task: a prompt for an agent, a command, or a call of a function."""

    id: Id
    """What it is called; tasks that need it name it so."""
    title: Text | None = None
    """What people read; the id if not said."""
    prompt: Text | None = None
    """What the agent is to do."""
    prompt_file: Text | None = None
    """A file with the prompt, in the plan's folder."""
    command: Command | None = None
    """A command: a line that is split into words, or a list."""
    stdin: Text | None = None
    """What the command reads."""
    function: FunctionPath | None = None
    """A function, as `module:name`."""
    args: FunctionArguments = None
    """What the function is given: a list, or a mapping of keywords."""
    needs: TextOrList = ()
    """The tasks that must have completed before: their work is in what this one starts from."""
    matrix: dict[str, list[JsonValue] | str] | str | None = None
    """One task for each combination of these values, which stand for `{{ matrix.NAME }}`. `exclude` lists those that
    are left out."""
    foreach: list[JsonValue] | str | None = None
    """One task for each of these, which stands for `{{ item }}`, or `{{ item.KEY }}` of a mapping."""
    state: Text | None = None
    """Of an exported plan: a task that is `completed` is not done again, and nobody waits for it."""

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        given = [name for name in ("prompt", "command", "function") if getattr(self, name) is not None]
        if not given:
            raise ValueError("a task needs one of prompt, command or function")
        if len(given) > 1:
            raise ValueError(f"a task has either {given[0]} or {given[1]}, not both")
        if given == ["prompt"] and not (self.prompt or "").strip():
            raise ValueError("the prompt is empty; write what the agent is to do")
        if given == ["prompt"] and self.agent is None:
            raise ValueError("a task with a prompt needs an agent; say it here, or in `defaults` for all tasks")
        misplaced = [name for name in AGENT_KEYS if name in self.model_fields_set and given != ["prompt"]]
        if misplaced:
            raise ValueError(f"{misplaced[0]} is for an agent, and this is a {given[0]}")
        if self.args is not None and self.function is None:
            raise ValueError("args are for a function")
        if self.stdin is not None and self.command is None:
            raise ValueError("stdin is for a command")
        if self.retries is not None and self.retry is not None and self.retry.failures is not None:
            raise ValueError("retries and retry.failures are the same; say one of them")
        return self


class PlanDefinition(PlanModel):
    """A plan: tasks, and what holds for all of them."""

    name: Id | None = None
    """What the plan is called; the name of its file if not said."""
    repository: Text | None = None
    """Where the tasks get their worktrees: a folder, from the plan's, or an address that git can fetch from. Without it
    the repository that the plan lies in, if any task is an agent's or merging is spoken of; `none`: no worktrees."""
    base: Text | None = None
    """The branch or commit that the work starts from; the branch that is checked out if not said."""
    target: Text | None = None
    """The branch that the work goes to; `agentq/NAME` if not said."""
    merge: Literal["squash", "rebase", "merge", "none"] | None = None
    """How the work gets there; squash if not said."""
    check: Any = None
    """A command that must succeed on the merged work of each task before it gets into the target."""
    setup: Any = None
    """A command that makes each new worktree ready."""
    workspace: WorktreeSetting | None = None
    """How tasks work in their worktrees."""
    on_failed: Literal["skip", "run", "fail-plan", "keep-going", "fail-fast"] | None = None
    """If a task fails: those that need it are skipped (the default, also `keep-going`), run all the same, or the rest
    of the plan is cancelled (also `fail-fast`)."""
    max_parallel: Annotated[int, Field(gt=0)] | None = None
    """The most tasks at the same time, on all workers together."""
    budget: Dollars | None = None
    """The most that all tasks together may cost, in dollars; then what waits is cancelled, what runs is finished."""
    vars: dict[str, JsonValue] | None = None
    """Values that stand for `{{ vars.NAME }}`. One without a value must be given with `--var NAME=VALUE`."""
    defaults: TaskSettings | None = None
    """What holds for each task that does not say otherwise."""
    include: TextOrList | None = None
    """Files with more tasks, in the plan's folder or below it."""
    tasks: list[TaskDefinition]
    """The tasks. They run as soon as what they need has completed, whatever their order here."""


class PlanFragment(PlanModel):
    """A file that a plan includes: tasks, and what holds for these."""

    vars: dict[str, JsonValue] | None = None
    """Values for its tasks, where the plan has none of that name."""
    defaults: TaskSettings | None = None
    """What holds for each of its tasks that does not say otherwise."""
    include: TextOrList | None = None
    """Files with more tasks."""
    tasks: list[Any]
    """The tasks."""


AGENT_KEYS = (
    *("agent", "model", "permissions", "trust", "account", "max_cost", "max_tokens", "max_turns", "expects"),
    *("on_limit", "startup_timeout", "linger_timeout", "context"),
)
"""What is said of an agent alone."""
