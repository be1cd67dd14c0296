"""Fills in expressions between `{{` and `}}`: variables, matrix values, and outputs of earlier tasks.

    {{ vars.NAME }}  {{ matrix.NAME }}  {{ item }}  {{ item.KEY }}  {{ plan.name }}    filled in when the plan is read
    {{ tasks.ID.result }}                                              by the worker, before the process begins

An expression that is the whole text keeps the type of its value, such as a number or a list; within other text it is
formatted. Other text between such braces is left unchanged, and so is `\\{{ vars.NAME }}`, without its backslash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from agentq.planning.errors import PlanProblem, SourcePosition, did_you_mean, quote_value
from agentq.planning.read.source_tree import SourceList, SourceTable, source_text, strip_positions

_WORDS_PATTERN = r"[^{}\s]*(?:\s+[^{}\s]+)*"
"""Without the blanks at the end, and so that a long text without an end takes no longer than its length."""
EXPRESSION_PATTERN = re.compile(rf"(\\?)\{{\{{\s*((?:vars|matrix|item|plan)\b{_WORDS_PATTERN})\s*\}}\}}")
OUTPUT_PATTERN = re.compile(rf"(\\?)\{{\{{\s*tasks\.({_WORDS_PATTERN})\s*\}}\}}")
OUTPUT_NAMES = ("result", "tail", "title", "state", "commit", "branch")
"""The outputs of a task."""

_MISSING = object()


class TemplateFiller:
    """Fills in the values known when the plan is read. Faults are recorded, and their text is left unchanged."""

    def __init__(self, scope: Mapping[str, Any], faults: list[PlanProblem]) -> None:
        self._scope = scope
        self._faults = faults

    def fill(self, node: Any, at: SourcePosition, path: str) -> Any:
        """A copy with all values filled in."""
        if isinstance(node, SourceTable):
            return self.table(node)
        if isinstance(node, SourceList):
            row = SourceList(node.at, node.path)
            for number, value in enumerate(node):
                row.put(self.fill(value, node.positions[number], f"{path}[{number}]"), node.positions[number])
            return row
        return self._text(node, at, path) if isinstance(node, str) and "{{" in node else node

    def table(self, node: SourceTable) -> SourceTable:
        filled = SourceTable(node.at, node.path)
        for key, value in node.items():
            filled.copy_key(key, node, self.fill(value, node.value_at(key), node.path_of(key)))
        return filled

    def _text(self, text: str, at: SourcePosition, path: str) -> Any:
        only_match = EXPRESSION_PATTERN.fullmatch(text.strip())
        if only_match and not only_match[1]:
            value = self._value(only_match[2], at, path)
            return text if value is _MISSING else value

        def replace(found: re.Match[str]) -> str:
            if found[1]:
                return found[0][1:]
            value = self._value(found[2], at, path)
            if value is _MISSING:
                return found[0]
            return (
                json.dumps(strip_positions(value), ensure_ascii=False)
                if isinstance(value, list | dict)
                else source_text(value)
            )

        return EXPRESSION_PATTERN.sub(replace, text)

    def _value(self, expression: str, at: SourcePosition, path: str) -> Any:
        """The value of an expression."""
        head, _, rest = expression.partition(".")
        if head not in self._scope:
            what = {"matrix": "this task has no matrix", "item": "this task has no foreach"}
            return self._refuse(at, path, expression, what.get(head, f"there are no {head} here"))
        value = self._scope[head]
        if head == "item" and not rest:
            return value
        if not isinstance(value, Mapping):
            return self._refuse(at, path, expression, "it has no keys")
        if rest not in value:
            known = f"There is {', '.join(value)}" if value else ""
            sentence = f"there is no {rest!r}" if rest else "it needs a name after a point"
            return self._refuse(at, path, expression, sentence, did_you_mean(rest, value) or known)
        return value[rest]

    def _refuse(self, at: SourcePosition, path: str, expression: str, sentence: str, suggestion: str = "") -> Any:
        self._faults.append(
            PlanProblem(at, path, f"in {quote_value('{{ ' + expression + ' }}')}, {sentence}", suggestion)
        )
        return _MISSING
