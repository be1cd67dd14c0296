"""A plan's graph, drawn: for a terminal, for Graphviz, for Mermaid, and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentq.cli.render import clean, paint

COLOURS = {
    "completed": "#b7e4c7",
    "failed": "#f8b4b4",
    "running": "#a5d8ff",
    "claimed": "#a5d8ff",
    "cancelled": "#ffe8a3",
    "skipped": "#e9ecef",
}


class GraphNode(NamedTuple):
    """A task: what it is called, how it stands, what it needs, which agent does it."""

    id: str
    state: str
    needs: tuple[str, ...]
    agent: str = ""


def draw_graph(nodes: Sequence[GraphNode], format_: str) -> str:
    """The graph, in one of `FORMATS`."""
    return FORMATS[format_](nodes)


def _draw_text(nodes: Sequence[GraphNode]) -> str:
    """Each task once, below the deepest of those that it needs; what else it needs stands beside it."""
    depth = _task_depths(nodes)
    below: dict[str, list[GraphNode]] = {}
    for node in nodes:
        above = max(node.needs, key=lambda need: depth.get(need, -1), default="")
        below.setdefault(above if above in depth else "", []).append(node)
    width = max((len(node.id) + 3 * depth[node.id] for node in nodes), default=0)
    agents = max((len(node.agent) for node in nodes), default=0)
    lines: list[str] = []
    stack: list[tuple[GraphNode, str, bool, str]] = [(node, "", True, "") for node in reversed(below.get("", []))]
    while stack:
        node, prefix, last, above = stack.pop()
        mark = "" if not above else "└─ " if last else "├─ "
        others = [need for need in node.needs if need != above]
        more = f"also needs {', '.join(others)}" if others else ""
        name = f"{prefix}{mark}{node.id}"
        state = paint(node.state) + " " * (10 - len(node.state)) if node.state else ""
        agent = f"{clean(node.agent):{agents}}"
        lines.append("  ".join(filter(None, [f"{clean(name):{width}}", state, agent, more])).rstrip())
        deeper = prefix + ("" if not above else "   " if last else "│  ")
        members = below.get(node.id, [])
        stack += [(each, deeper, place == 0, node.id) for place, each in enumerate(reversed(members))]
    return "".join(f"{line}\n" for line in lines)


def _task_depths(nodes: Sequence[GraphNode]) -> dict[str, int]:
    """How many tasks must come before each, at the longest; without recursion, as chains may be long."""
    needs = {node.id: list(node.needs) for node in nodes}
    depth: dict[str, int] = {}
    for start in needs:
        stack = [start]
        while stack:
            task = stack[-1]
            open_ = [need for need in needs[task] if need in needs and need not in depth]
            if open_ and task not in depth:
                stack += open_
                continue
            stack.pop()
            depth[task] = 1 + max((depth[need] for need in needs[task] if need in depth), default=-1)
    return depth


def _draw_dot(nodes: Sequence[GraphNode]) -> str:
    lines = ["digraph plan {", "  rankdir=LR;", '  node [shape=box, style="rounded,filled", fillcolor=white];']
    for node in nodes:
        colour = f', fillcolor="{COLOURS[node.state]}"' if node.state in COLOURS else ""
        label = "\\n".join(filter(None, (node.id, node.agent, node.state)))
        lines.append(f'  "{node.id}" [label="{label}"{colour}];')
    lines += [f'  "{need}" -> "{node.id}";' for node in nodes for need in node.needs]
    return "\n".join([*lines, "}", ""])


def _draw_mermaid(nodes: Sequence[GraphNode]) -> str:
    """Ids of Mermaid are plain, so tasks are numbered."""
    number = {node.id: f"t{place}" for place, node in enumerate(nodes)}
    lines = ["graph LR"]
    for node in nodes:
        label = "<br/>".join(filter(None, (node.id, node.agent, node.state)))
        lines.append(f'  {number[node.id]}["{label}"]' + (f":::{node.state}" if node.state in COLOURS else ""))
    lines += [f"  {number[need]} --> {number[node.id]}" for node in nodes for need in node.needs if need in number]
    used = sorted({node.state for node in nodes} & COLOURS.keys())
    return "\n".join([*lines, *(f"  classDef {state} fill:{COLOURS[state]}" for state in used), ""])


def _draw_json(nodes: Sequence[GraphNode]) -> str:
    told = [
        {"id": node.id, "state": node.state or None, "agent": node.agent or None, "needs": list(node.needs)}
        for node in nodes
    ]
    return json.dumps({"tasks": told}, ensure_ascii=False) + "\n"


FORMATS: dict[str, Callable[[Sequence[GraphNode]], str]] = {
    "text": _draw_text,
    "dot": _draw_dot,
    "mermaid": _draw_mermaid,
    "json": _draw_json,
}
