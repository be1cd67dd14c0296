"""The real agents, as `npm install` has put them here, and what each needs to work against the stub models.

`package.json` says which, and at which versions. They are looked for in `AGENTQ_TEST_AGENTS`, a folder like
`node_modules`, and else in the `node_modules` beside this.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from agents.sealed import URL

AGENTS = ("claude", "codex", "gemini", "opencode")
HERE = Path(__file__).parent


def programs() -> Path | None:
    """The folder in which all of them are, to be put on a PATH; None where one is missing."""
    folder = Path(os.environ.get("AGENTQ_TEST_AGENTS") or HERE / "node_modules") / ".bin"
    return folder.resolve() if all((folder / name).exists() for name in AGENTS) else None


def settle(home: Path, *, subscription: bool = False) -> dict[str, str]:
    """Configure all of them in a home folder, and return the variables that they need.

    With a subscription, Claude is logged in as somebody who pays by the month, and meets other limits.
    """
    for name, text in _files().items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    login = "CLAUDE_CODE_OAUTH_TOKEN" if subscription else "ANTHROPIC_API_KEY"
    return {
        "HOME": str(home),
        "PATH": f"{programs()}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        login: "stub",
        "ANTHROPIC_BASE_URL": URL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CODEX_HOME": str(home / "codex"),
        "STUB_KEY": "stub",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "GEMINI_API_KEY": "stub",
        "GOOGLE_GEMINI_BASE_URL": URL,
    }


def _files() -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "stub",
        "options": {"baseURL": f"{URL}/v1", "apiKey": "stub"},
        "models": {"stub-model": {"name": "stub", "cost": {"input": 1, "output": 2}}},
    }
    return {
        "codex/config.toml": CODEX,
        ".config/opencode/opencode.json": json.dumps({"provider": {"stub": provider}, "model": "stub/stub-model"}),
        ".gemini/settings.json": json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}),
    }


CODEX = f"""\
model = "stub-model"
model_provider = "stub"

[model_providers.stub]
name = "stub"
base_url = "{URL}/v1"
env_key = "STUB_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
"""
