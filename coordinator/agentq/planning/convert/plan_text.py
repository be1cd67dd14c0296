"""Writes a plan as YAML, JSON or JSON lines that can be read again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentq.planning.read.yaml_reader import parse_scalar

LINE_WIDTH = 110


def format_plan(plan: Mapping[str, Any], format_: str) -> str:
    """The text of a plan file."""
    if format_ == "json":
        return json.dumps(plan, ensure_ascii=False, indent=2) + "\n"
    if format_ == "jsonl":
        header = {key: value for key, value in plan.items() if key != "tasks"}
        lines = [*([{"plan": header}] if header else []), *plan["tasks"]]
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return _format_yaml(plan)


def _format_yaml(plan: Mapping[str, Any]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Long texts as they are, nothing that would be read as something else."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
            super().increase_indent(flow, False)

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - as it is called
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        style = "|" if "\n" in value else '"' if not isinstance(parse_scalar(value), str) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    text_written: str = yaml.dump(dict(plan), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=LINE_WIDTH)
    return text_written
