"""The models of a plan file. The published schema and the tables of README.md are generated from them.

Tables are validated after variables, defaults and matrices were applied; see expander.py.
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
"""If a model has no more keys than this, an unknown key lists all of them."""


class PlanModel(BaseModel):
    """A mapping in a plan. Unknown keys are faults, with a suggestion."""

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
    """A command beside the task's own, with more settings than the command itself."""

    shell: bool = False
    """Whether a shell reads the command."""
    command: Command
    """The command."""
    timeout: Duration | None = None
    """The longest that it may take."""


def _parse_step(value: Any, info: ValidationInfo) -> Any:
    """Text or a list is a command; text is read by a shell if the task's own command is."""
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
    """Overrides for failures of one class."""

    retries: Annotated[int, Field(ge=0)] | None = None
    """How often it is tried again after this class, which is then counted separately."""
    delay: Duration | None = None
    factor: float | None = None
    delay_max: Duration | None = None
    delays: Annotated[tuple[Duration, ...], Field(strict=False)] | None = None
    jitter: bool | None = None


class TaskRetry(PlanModel):
    """How often a task is tried again, after what, and when."""

    failures: Annotated[int, Field(ge=0)] | None = None
    """As `retries` of the task; default 0."""
    crashes: Annotated[int, Field(ge=0)] | None = None
    """How often its worker may die while running it; default 3."""
    deferrals: Annotated[int, Field(ge=0)] | None = None
    """How often a usage limit may defer it; default 100."""
    delay: Duration | None = None
    """The first wait."""
    factor: Annotated[float, Field(strict=False)] | None = None
    """Each wait is the one before times this; 1 is a fixed wait."""
    delay_max: Duration | None = None
    """The longest wait."""
    delays: Annotated[tuple[Duration, ...], Field(strict=False)] | None = None
    """The waits themselves, in order."""
    jitter: bool | None = None
    """Whether an exponential wait is shortened at random."""
    max_elapsed: Duration | None = None
    """No attempt begins later than this after the submit."""
    only: FailureClasses | None = None
    """The classes of failure that are tried again; default all."""
    final: FailureClasses | None = None
    """Classes that are never tried again."""
    classes: dict[FailureClass, TaskClassRetry] | None = None
    """Overrides for failures of one class."""


class WorktreeOptions(PlanModel):
    """How a task works in its worktree, and how its work is merged. See the page on workspaces."""

    merge: Literal["squash", "rebase", "merge", "none"] | None = None
    """How the work is merged into the target: `squash` makes one commit per task; with `none` it stays on its own
    branch."""
    copy_files: TextOrList | None = None
    """Paths in the repository's own checkout that are copied into the worktree, such as .env."""
    link_files: TextOrList | None = None
    """Paths that are linked into it, such as node_modules."""
    sparse: TextOrList | None = None
    """Folders to check out; default all."""
    check_ignored: Literal["clean", "keep"] | None = None
    """Whether ignored files of one check, such as build results, are kept for the next; default `clean`."""
    ports: TextOrList | None = None
    """Variables that each get the number of a free port."""
    trust: Literal["none", "repo"] | None = None
    """Whether the hooks of the repository run."""
    sign: bool | None = None
    """Whether commits are signed, as git is configured to."""
    dirty: Literal["allow", "refuse"] | None = None
    """Whether the repository's own checkout may have uncommitted changes."""
    on_check: Literal["agent", "retry", "fail"] | None = None
    """What repairs a failed check: the agent in its conversation, another attempt, or nothing."""
    on_conflict: Literal["agent", "resolver", "retry", "fail"] | None = None
    """What resolves a conflict."""
    resolver: Text | None = None
    """The agent that resolves conflicts, with `on_conflict: resolver`."""
    rounds: Annotated[int, Field(ge=0, le=most.REPAIR_ROUNDS_MAX)] | None = None
    """How often a conflict or a failed check is sent back, in addition to `retries`; default 2 of each."""
    tree: Literal["auto", "clean", "same"] | None = None
    """What another attempt starts from: a clean worktree, or the same one."""
    keep: Literal["failed", "always", "never"] | None = None
    """Which worktrees are kept for inspection."""
    push: bool | None = None
    """Whether the target is pushed to the remote."""
    remote: Text | None = None
    """The remote; default origin."""
    after_merge: Command | None = None
    """A command that runs after the merge, such as one that opens a pull request."""
    update_checkout: bool | None = None
    """Whether the repository's own checkout follows the target, if it is clean and on it."""


WorktreeSetting = Annotated[
    Annotated[WorktreeOptions, Tag("")] | Annotated[Literal[False], Tag("false")],
    Discriminator(lambda value: "false" if value is False else ""),
]


class TaskSettings(PlanModel):
    """Settings of a task, and of `defaults` for all tasks."""

    agent: Text | None = None
    """The agent that gets the prompt, such as claude; see `agentq agents`."""
    model: Text | None = None
    """The model that the agent uses."""
    permissions: Literal["read", "edit", "full"] | None = None
    """What the agent may do without asking; default edit."""
    trust: Literal["none", "repo"] | None = None
    """Whether hooks and servers of the repository may run in the agent."""
    account: Text | None = None
    """The account to bill; default the next in turn."""
    max_cost: Dollars | None = None
    """The most that the task may cost, in dollars, in all its attempts."""
    max_tokens: Count | None = None
    """The most tokens."""
    max_turns: Annotated[int, Field(gt=0)] | None = None
    """The most calls of the agent to its model."""
    expects: Literal["anything", "changes"] | None = None
    """With `changes`, an end without changes is a failure, unless the agent declares that none are needed."""
    on_limit: Literal["defer", "fail"] | None = None
    """What happens to the task when the account is at its limit."""
    startup_timeout: Duration | None = None
    """The longest time until the agent's first output."""
    linger_timeout: Duration | None = None
    """The longest time from its last output to its end."""
    context: Literal["none", "dependencies", "plan"] | None = None
    """Which completed tasks the agent is told about: none, those that it needs, or all of the plan."""

    shell: bool = False
    """Whether a shell reads the command, and a check and setup that are text."""
    env: EnvironmentVariables | None = None
    """Variables of the process."""
    cwd: Text | None = None
    """The folder that it works in: within the worktree, or, without one, from the plan's folder."""
    check: CheckCommand = None
    """A command that must succeed on the merged work before it reaches the target."""
    setup: CheckCommand = None
    """A command that prepares a new worktree, such as one that installs dependencies."""
    workspace: WorktreeSetting | None = None
    """Worktree options; `false`: it works in the plan's folder, without a worktree."""

    queue: Id | None = None
    """The queue of the task; default `default`."""
    priority: Annotated[int, Field(ge=0, le=most.PRIORITY_MAX)] | None = None
    """The priority, 9 the most urgent; default 5."""
    labels: dict[str, Text] | None = None
    """Labels to find it by."""
    demands: dict[str, Text] | None = None
    """Requirements for its worker, such as `gpu: a100` or `version: ">=0.2"`."""
    limits: LimitUnits | None = None
    """Limits that it counts against, and how many units of each if not 1."""
    retries: Annotated[int, Field(ge=0)] | None = None
    """How often it is tried again after a failure; default 0. For the death of its worker see `crashes`."""
    retry: TaskRetry | None = None
    """How often it is tried again, after what, and when."""
    on_failed: Literal["skip", "run", "fail"] | None = None
    """What happens to it if a task that it needs does not complete."""
    timeout: Duration | None = None
    """The longest that one attempt may run."""
    silence_timeout: Duration | None = None
    """The longest time without output."""
    stop_grace: Duration | None = None
    """The time from SIGTERM to SIGKILL when it is stopped."""
    delay: Duration | None = None
    """How long to wait after the submit of the plan."""
    expires: Duration | None = None
    """It fails if it has not begun after this time."""
    keep: Duration | None = None
    """How long its record is kept after its end; default 7d."""
    memory: Size | None = None
    """The most memory that it may use."""
    cpu_time: Duration | None = None
    """The most time on a processor."""
    nice: Annotated[int, Field(ge=0, le=19)] | None = None
    """The niceness of its process."""


class TaskDefinition(TaskSettings):
    """One task: a prompt for an agent, a command, or a call of a function."""

    id: Id
    """The id, by which other tasks need it."""
    title: Text | None = None
    """The title for people; default the id."""
    prompt: Text | None = None
    """The prompt for the agent."""
    prompt_file: Text | None = None
    """A file with the prompt, in the plan's folder."""
    command: Command | None = None
    """A command: text that is split into words, or a list."""
    stdin: Text | None = None
    """The standard input of the command."""
    function: FunctionPath | None = None
    """A function, as `module:name`."""
    args: FunctionArguments = None
    """The arguments of the function: a list, or a mapping of keywords."""
    needs: TextOrList = ()
    """The tasks that must complete first; this one starts from their work."""
    matrix: dict[str, list[JsonValue] | str] | str | None = None
    """One task for each combination of these values, used as `{{ matrix.NAME }}`. `exclude` lists combinations to leave
    out."""
    foreach: list[JsonValue] | str | None = None
    """One task for each of these values, used as `{{ item }}`, or as `{{ item.KEY }}` for a mapping."""
    state: Text | None = None
    """In an exported plan: a task that is `completed` is not run again, and no task waits for it."""

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
    """A plan: tasks, and settings for all of them."""

    name: Id | None = None
    """The name of the plan; default the name of its file."""
    repository: Text | None = None
    """The repository of the worktrees: a folder relative to the plan's, or an address that git can fetch from.
    Default is the repository that contains the plan, if a task has an agent or any merge setting is used; `none`: no
    worktrees."""
    base: Text | None = None
    """The branch or commit that the work starts from; default the branch that is checked out."""
    target: Text | None = None
    """The branch that the work is merged into; default `agentq/NAME`."""
    merge: Literal["squash", "rebase", "merge", "none"] | None = None
    """How the work is merged; default squash."""
    check: Any = None
    """A command that must succeed on the merged work of each task before it reaches the target."""
    setup: Any = None
    """A command that prepares each new worktree."""
    workspace: WorktreeSetting | None = None
    """Worktree options for all tasks."""
    on_failed: Literal["skip", "run", "fail-plan", "keep-going", "fail-fast"] | None = None
    """If a task fails: tasks that need it are skipped (the default, also `keep-going`), run all the same, or the
    rest of the plan is cancelled (also `fail-fast`)."""
    max_parallel: Annotated[int, Field(gt=0)] | None = None
    """The most tasks at the same time, over all workers."""
    budget: Dollars | None = None
    """The most that all tasks together may cost, in dollars; beyond it, waiting tasks are cancelled and running ones
    completed."""
    vars: dict[str, JsonValue] | None = None
    """Values for `{{ vars.NAME }}`. A variable without a value must be given with `--var NAME=VALUE`."""
    defaults: TaskSettings | None = None
    """Settings for each task that does not set them itself."""
    include: TextOrList | None = None
    """Files with more tasks, in the plan's folder or below it."""
    tasks: list[TaskDefinition]
    """The tasks. Each runs as soon as the tasks that it needs have completed, whatever their order here."""


class PlanFragment(PlanModel):
    """A file that a plan includes: tasks, and settings for these."""

    vars: dict[str, JsonValue] | None = None
    """Values for its tasks, where the plan has none of that name."""
    defaults: TaskSettings | None = None
    """Settings for each of its tasks that does not set them itself."""
    include: TextOrList | None = None
    """Files with more tasks."""
    tasks: list[Any]
    """The tasks."""


AGENT_KEYS = (
    *("agent", "model", "permissions", "trust", "account", "max_cost", "max_tokens", "max_turns", "expects"),
    *("on_limit", "startup_timeout", "linger_timeout", "context"),
)
"""Keys for tasks with an agent only."""
