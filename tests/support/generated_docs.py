"""The generated parts of the READMEs. `python tests/support/generated_docs.py` writes them; test_docs.py compares.

A generated part stands between `<!-- generated: name -->` and `<!-- end -->`.
"""

# Over 400 lines: one function for each generated part of the documents.

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import typer
from fastapi.routing import APIRoute

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.syntax_trees import parse_python

from agentq.cli.main import COMMANDS, load_command
from agentq.cli.parse.option_groups import SHOW_ALL
from agentq.coordinator import bounds, errors
from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.config.settings import VARIABLE_PREFIX, Settings, WorkerSettings
from agentq.coordinator.events.stream import NOTICE_EVENTS
from agentq.coordinator.model.agent_events import AnyAgentEvent
from agentq.coordinator.model.lifecycle import CLASS_BUDGETS, STATE_MEANINGS, TERMINAL_STATES, TRANSITIONS, OutcomeClass
from agentq.coordinator.security.tokens import SCOPE_MEANINGS as MEANING_OF_SCOPES
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.keys import KEY_KINDS
from agentq.coordinator.storage.scripts import SCRIPTS
from agentq.coordinator.storage.store import NamespaceStore
from agentq.planning import model as plans
from agentq.planning.schema import plan_schema
from agentq.remote_worker.messages import CLOSE_REASONS, MESSAGE_TYPES
from agentq.server.app import find_required_scope, list_routes
from agentq.server.http.problems import STATUS_BY_ERROR
from agentq.server.observe.metrics import list_metrics as metric_names
from agentq.testing.fake_agent.script import STEP_WORDS as STANDIN_WORDS
from agentq.worker.agents.formats.agentq import ReportedFacts
from agentq.worker.agents.profiles.profile import Profile
from agentq.worker.agents.profiles.registry import ProfileRegistry
from agentq.worker.agents.verdicts import CONSEQUENCES, VerdictConsequence

ROOT = Path(__file__).parents[2]
PAGES = (
    *("coordinator/README.md", "cli/README.md", "coordinator/agentq/testing/fake_agent/README.md"),
    "worker/agentq/worker/agents/README.md",
    "coordinator/agentq/planning/README.md",
    "coordinator/agentq/server/README.md",
)
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def rooms() -> str:
    """Every folder of the product, as its own first sentence says what is in it."""
    folders = sorted(
        path.parent
        for root in ("coordinator", "worker", "cli")
        for path in (ROOT / root / "agentq").rglob("__init__.py")
    )
    return table(("folder", "what is in it"), map(_room, folders))


def _room(folder: Path) -> tuple[str, str]:
    described = ast.get_docstring(parse_python((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    name, link = str(folder.relative_to(ROOT)).partition("agentq/")[2], os.path.relpath(folder, ROOT / "coordinator")
    return f"[`{name}`]({link})", " ".join(described.split("\n\n")[0].split())


def states() -> str:
    return table(("state", "means"), ((f"`{state}`", meaning) for state, meaning in STATE_MEANINGS.items()))


def transitions() -> str:
    return table(
        ("verb", "from", "to", "event", "who", "note"),
        (
            (
                f"`{row.verb}`",
                ", ".join(f"`{source}`" for source in row.sources) or "nothing",
                f"`{row.target}`" if row.target else "stays",
                f"`{row.event}`",
                row.who.value,
                row.note,
            )
            for row in TRANSITIONS
        ),
    )


def notices() -> str:
    return table(("event", "means"), ((f"`{name}`", meaning) for name, meaning in NOTICE_EVENTS.items()))


def diagram() -> str:
    arrows: dict[tuple[str, str], list[str]] = {}
    for row in TRANSITIONS:
        for source, target in row.arrows():
            if source != target:
                verbs = arrows.setdefault((source or "[*]", "ended" if target in TERMINAL_STATES else target), [])
                verbs += [row.verb] if row.verb not in verbs else []
    lines = [
        f"    {'ended' if source in TERMINAL_STATES else source} --> {target}: {', '.join(verbs)}"
        for (source, target), verbs in arrows.items()
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *dict.fromkeys(lines), "```"])


def budgets() -> str:
    return table(
        ("class", "is paid from"),
        (
            (f"`{kind}`", f"`{CLASS_BUDGETS[kind]}`" if kind in CLASS_BUDGETS else _unpaid(kind))
            for kind in OutcomeClass
        ),
    )


def _unpaid(kind: OutcomeClass) -> str:
    return {OutcomeClass.OK: "– (`completed`)", OutcomeClass.CANCELLED: "– (`cancelled`)"}.get(kind, "nothing: final")


def keys() -> str:
    return table(
        ("key", "type", "holds", "lives"),
        (
            (f"`{key.pattern.replace('<', '‹').replace('>', '›')}`", key.type, key.holds, key.lifetime)
            for key in KEY_KINDS
        ),
    )


def scripts() -> str:
    return table(
        ("script", "does", "takes", "answers", "at maxmemory"),
        (
            (
                f"`{name}`",
                script.header.purpose,
                " ".join(script.header.arguments)
                + (f" · rows of {' '.join(script.header.rows)}" if script.header.rows else ""),
                script.header.reply,
                {"allow-oom": "runs", "no-writes": "runs, reads only"}.get(script.header.flags, "refused"),
            )
            for name, script in SCRIPTS.items()
        ),
    )


def words() -> str:
    return table(
        ("word", "exception", "exit code", "means"),
        (
            (f"`{word}`", f"`{kind.__name__}`", kind.exit_code, sentence.format(subject="run", detail="…"))
            for word, (kind, sentence) in errors.REFUSALS.items()
        ),
    )


def settings() -> str:
    return table(
        ("variable", "default", "is"),
        (
            (
                f"`{VARIABLE_PREFIX}{name.upper()}`",
                f"`{field.default}`" if field.default != "" else "",
                field.description,
            )
            for name, field in Settings.model_fields.items()
        ),
    )


def worker_settings() -> str:
    return table(
        ("in `[worker]`", "variable", "default", "is"),
        (
            (f"`{name}`", f"`{VARIABLE_PREFIX}WORKER_{name.upper()}`", _default(field.default), field.description)
            for name, field in WorkerSettings.model_fields.items()
        ),
    )


def server_settings() -> str:
    return table(
        ("in `[server]`", "variable", "default", "is"),
        (
            (f"`{name}`", f"`{VARIABLE_PREFIX}SERVER_{name.upper()}`", _default(field.default), field.description)
            for name, field in ServerSettings.model_fields.items()
        ),
    )


def routes() -> str:
    """Every route of the API, in the order of its documents."""
    rows = []
    for route in list_routes():
        if isinstance(route, APIRoute) and not route.include_in_schema:
            continue
        takes = find_required_scope(route)
        verbs = sorted(route.methods or ()) if isinstance(route, APIRoute) else ["WebSocket"]
        text = (route.summary if isinstance(route, APIRoute) else None) or _first_line(route.endpoint)
        rows.append((f"`{' '.join(verbs)} {route.path}`", f"`{takes.scope}`" if takes else "", text))
    return table(("route", "scope", "does"), rows)


def _first_line(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0].rstrip(".")


def worker_messages() -> str:
    """What workers and a coordinator say to each other."""
    rows = []
    for message in MESSAGE_TYPES:
        fields = [name for name in message.model_fields if name not in ("type", "id")]
        said = f"`{message.model_fields['type'].default}`", ", ".join(f"`{name}`" for name in fields)
        rows.append((*said, _first_line(message).removesuffix(".")))
    return table(("message", "with", "says"), rows)


def worker_closings() -> str:
    return table(("code", "why"), ((str(code), why) for code, why in CLOSE_REASONS.items()))


def scopes() -> str:
    return table(("scope", "may"), ((f"`{scope}`", meaning) for scope, meaning in MEANING_OF_SCOPES.items()))


def statuses() -> str:
    return table(
        ("error", "status", "when"),
        ((f"`{kind.__name__}`", status, _first_line(kind).rstrip(".")) for kind, status in STATUS_BY_ERROR.items()),
    )


def metrics() -> str:
    found = metric_names(NamespaceStore(Connection("redis://localhost")))
    return table(
        ("metric", "labels", "tells"),
        ((f"`{name}`", ", ".join(f"`{each}`" for each in labels), text) for name, (text, labels) in found.items()),
    )


def _default(value: object) -> str:
    return f"`{','.join(value) if isinstance(value, tuple) else value}`" if value else ""


def limits() -> str:
    names = [name for name in vars(bounds) if name.isupper()]
    return table(("limit", "value"), ((f"`{name}`", f"{getattr(bounds, name):,}") for name in names))


def every_command() -> Iterator[tuple[str, Any]]:
    """Commands and those below them, by what one types, as in `worker ls`."""
    for section in COMMANDS.values():
        for name in section:
            command = load_command(name)
            yield name, command
            yield from ((f"{name} {below}", each) for below, each in getattr(command, "commands", {}).items())


def help_of(name: str, command: Any) -> str:
    """What `--help` shows on a terminal of 100 columns; what `--help-all` shows, where there is one."""
    context = typer.Context(command, info_name=f"agentq {name}", terminal_width=100, **command.context_settings)
    context.meta[SHOW_ALL] = True
    return "\n".join(line.rstrip() for line in command.get_help(context).rstrip().splitlines())


def commands() -> str:
    return "\n\n".join(f"### `agentq {name}`\n\n```\n{help_of(name, each)}\n```" for name, each in every_command())


def standin() -> str:
    return table(("word", "makes it"), ((f"`{word}`", meaning) for word, meaning in STANDIN_WORDS.items()))


def verdicts() -> str:
    return table(
        ("outcome", "class", "the run", "the next attempt's conversation", "the account is shut", "means"),
        (
            (f"`{kind}`", f"`{does.class_}`", _does(does), does.conversation, does.gate or "no", does.means)
            for kind, does in CONSEQUENCES.items()
        ),
    )


def _does(does: VerdictConsequence) -> str:
    """What becomes of the run: a failure of some classes is final."""
    if does.run != "fail":
        return {"finish": "finishes", "park": "parks", "back off": "backs off", "defer": "is deferred"}[does.run]
    return "fails, and may be tried again" if does.class_ in CLASS_BUDGETS else "fails for good"


def agent_events() -> str:
    kinds = get_args(get_args(AnyAgentEvent)[0])
    return table(
        ("`type`", "fields", "tells"),
        (
            (
                f"`{kind.model_fields['type'].default}`",
                ", ".join(
                    f"`{name}`" + ("" if field.is_required() else "?")
                    for name, field in kind.model_fields.items()
                    if name != "type"
                ),
                " ".join((kind.__doc__ or "").split()),
            )
            for kind in kinds
        ),
    )


def agents() -> str:
    """The profiles that come with agentq."""
    profiles = ProfileRegistry.load({}, ROOT / "worker").by_name.items()
    return table(
        ("agent", "is", "program", "permissions", "goes on", "forks", "travels", "not started beside, untrusted"),
        (
            (
                f"`{name}`",
                profile.title,
                f"`{profile.needs[0] if profile.needs else profile.command}`" if profile.command else "yours",
                ", ".join(sorted(profile.permissions, key=("read", "edit", "full").index)),
                *("yes" if can else "" for can in (profile.resumes, profile.forks, profile.transcript)),
                ", ".join(f"`{file}`" for file in profile.unsafe_files),
            )
            for name, profile in sorted(profiles)
        ),
    )


def profile() -> str:
    """The fields of a profile, each with the text that stands below it."""
    body = next(
        node
        for node in parse_python(Path(inspect.getfile(Profile)).read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == "Profile"
    ).body
    told = {
        before.target.id: " ".join(str(node.value.value).split())
        for before, node in pairwise(body)
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
    }
    return table(("field", "is"), ((f"`{name}`", told[name]) for name in Profile.model_fields))


def facts() -> str:
    return table(
        ("field", "says"), ((f"`{name}`", field.description) for name, field in ReportedFacts.model_fields.items())
    )


def plan_keys(model: type[plans.PlanModel], *without: type[plans.PlanModel]) -> str:
    """The keys of a part of a plan, as its model tells them."""
    apart = {name for other in without for name in other.model_fields}
    return table(
        ("key", "is"),
        (
            (f"`{name}`", " ".join((field.description or "").split()))
            for name, field in model.model_fields.items()
            if name not in apart
        ),
    )


def plan_table() -> str:
    return plan_keys(plans.PlanDefinition)


def task_table() -> str:
    return plan_keys(plans.TaskDefinition, plans.TaskSettings)


def working_table() -> str:
    return plan_keys(plans.TaskSettings)


def worktree_table() -> str:
    return plan_keys(plans.WorktreeOptions)


def retry_table() -> str:
    return plan_keys(plans.TaskRetry)


PARTS: dict[str, Callable[[], str]] = {
    part.__name__: part
    for part in (
        *(states, transitions, notices, diagram, budgets, keys, scripts, words),
        *(rooms, settings, worker_settings, server_settings, limits, commands, standin),
        *(routes, scopes, statuses, metrics, worker_messages, worker_closings),
        *(verdicts, agent_events, facts, agents, profile),
        *(plan_table, task_table, working_table, worktree_table, retry_table),
    )
}


def generated(text: str) -> str:
    """A page with its generated parts made anew."""
    return _PART.sub(lambda part: f"{part[1]}{PARTS[part[2]]()}\n{part[3]}", text)


def plan_schema_file() -> str:
    """The schema of plans, for editors."""
    return json.dumps(plan_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    (ROOT / "examples/plan.schema.json").write_text(plan_schema_file(), encoding="utf-8")
    for page in PAGES:
        path = ROOT / page
        path.write_text(generated(path.read_text(encoding="utf-8")), encoding="utf-8")
