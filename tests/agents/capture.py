"""What the real agents print, written down in `lines/` for the tests of those who read it.

`python tests/agents/capture.py [AGENT…]` writes all of it anew. Each file holds one process' stdout; `lines/ends.json`
tells how each of them ended, and what it said on stderr. Folders of this machine become /home/user and /home/user/repo.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from agents.real import settle
from agents.sealed import Sealed
from support.requirements import AGENTS

LINES = Path(__file__).parent / "lines"
LIST_ITEMS, ERROR_CHARACTERS = 4, 1500
SESSION = "0c1f7e5a-8a52-4b5e-9c1e-2f6d3b7a9e10"
TAKES_LONG_S = 20.0

CLAUDE = ["claude", "-p", "--output-format", "stream-json", "--verbose"]
CODEX = ["codex", "exec", "--json", "--skip-git-repo-check"]
GEMINI = ["gemini", "--skip-trust", "--yolo", "-m", "gemini-2.5-pro", "-o", "stream-json"]
OPENCODE = ["opencode", "run", "--format", "json"]


@dataclass(frozen=True, slots=True)
class Take:
    """One process, and what is asked of it. Takes of a group share a home and a folder, one after the other."""

    name: str
    argv: list[str]
    prompt: str
    group: str = ""
    signal: signal.Signals | None = None
    """It is sent once the stub was asked."""
    subscription: bool = False
    stays: bool = False
    """It does not end by itself: it is killed after a while."""


def claude() -> Iterable[Take]:
    edits = [*CLAUDE, "--permission-mode", "acceptEdits"]
    yield Take("claude-text", CLAUDE, "SCN:text Hello.")
    yield Take("claude-tool", [*edits, "--session-id", SESSION], "SCN:tool", "claude")
    yield Take("claude-resumed", [*edits, "--resume", SESSION], "What was the first prompt?", "claude")
    yield Take("claude-session-in-use", [*edits, "--session-id", SESSION], "SCN:text", "claude")
    yield Take("claude-forked", [*edits, "--resume", SESSION, "--fork-session"], "Another way", "claude")
    yield Take("claude-no-session", [*CLAUDE, "--resume", SESSION], "SCN:text")
    yield Take("claude-denied", CLAUDE, "SCN:tool")
    yield Take("claude-shell", [*CLAUDE, "--allowedTools", "Bash"], "SCN:shell echo hello; exit 3")
    yield Take("claude-max-turns", [*edits, "--max-turns", "2"], "SCN:toolloop")
    yield Take("claude-budget", [*edits, "--max-budget-usd", "0.01"], "SCN:toolloop")
    yield Take("claude-plan", [*CLAUDE, "--permission-mode", "plan"], "SCN:tool")
    for scenario in ("429", "529", "401", "credit", "context", "400", "refusal", "length", "cut"):
        yield Take(f"claude-{scenario}", CLAUDE, f"SCN:{scenario}")
    yield Take("claude-quota", CLAUDE, "SCN:quota 3600", subscription=True)
    yield Take("claude-quota-key", CLAUDE, "SCN:quota 3600")
    yield Take("claude-wakeup", CLAUDE, "SCN:wakeup 60", stays=True)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        yield Take(f"claude-{number.name.lower()}", CLAUDE, "SCN:hang", signal=number)
    yield Take("claude-bad-flag", [*CLAUDE, "--no-such-flag"], "SCN:text")
    yield Take("claude-empty", CLAUDE, "")


def codex() -> Iterable[Take]:
    edits = [*CODEX, "-s", "workspace-write"]
    yield Take("codex-text", [*CODEX, "-"], "SCN:text Hello.")
    yield Take("codex-tool", [*edits, "-"], "SCN:tool", "codex")
    resumed = ["codex", "exec", "resume", "--json", "--skip-git-repo-check", "--last", "-"]
    yield Take("codex-resumed", resumed, "What was the first prompt?", "codex")
    unknown = ["codex", "exec", "resume", "--json", "--skip-git-repo-check", SESSION, "-"]
    yield Take("codex-no-session", unknown, "SCN:text")
    yield Take("codex-denied", [*CODEX, "-"], "SCN:tool")
    yield Take("codex-shell", [*edits, "-"], "SCN:shell echo hello; exit 3")
    for scenario in ("429", "529", "401", "credit", "context", "400", "length", "cut", "quota 3600"):
        yield Take(f"codex-{scenario.split()[0]}", [*CODEX, "-"], f"SCN:{scenario}")
    for number in (signal.SIGTERM, signal.SIGINT):
        yield Take(f"codex-{number.name.lower()}", [*CODEX, "-"], "SCN:hang", signal=number)
    yield Take("codex-bad-flag", [*CODEX, "--no-such-flag", "-"], "SCN:text")
    yield Take("codex-untrusted", ["codex", "exec", "--json", "-"], "SCN:text")
    yield Take("codex-empty", [*CODEX, "-"], "")


def gemini() -> Iterable[Take]:
    yield Take("gemini-tool", [*GEMINI, "--session-id", SESSION], "SCN:tool", "gemini")
    yield Take("gemini-resumed", [*GEMINI, "--resume", SESSION], "What was the first prompt?", "gemini")
    yield Take("gemini-session-in-use", [*GEMINI, "--session-id", SESSION], "SCN:text", "gemini")
    yield Take("gemini-no-session", [*GEMINI, "--resume", SESSION], "SCN:text")
    yield Take("gemini-shell", GEMINI, "SCN:shell echo hello; exit 3")
    for scenario in ("401", "credit", "context", "400", "length", "refusal"):
        yield Take(f"gemini-{scenario}", GEMINI, f"SCN:{scenario}")
    yield Take("gemini-429", GEMINI, "SCN:429", stays=True)
    yield Take("gemini-quota", GEMINI, "SCN:quota 3600", stays=True)
    yield Take("gemini-sigterm", GEMINI, "SCN:hang", signal=signal.SIGTERM, stays=True)
    yield Take("gemini-sigint", GEMINI, "SCN:hang", signal=signal.SIGINT, stays=True)


def opencode() -> Iterable[Take]:
    yield Take("opencode-tool", OPENCODE, "SCN:tool", "opencode")
    yield Take("opencode-resumed", [*OPENCODE, "-c"], "What was the first prompt?", "opencode")
    yield Take("opencode-no-session", [*OPENCODE, "-s", "ses_0000000000000000000000000a"], "SCN:text")
    yield Take("opencode-shell", OPENCODE, "SCN:shell echo hello; exit 3")
    for scenario in ("401", "credit", "context", "400", "length"):
        yield Take(f"opencode-{scenario}", OPENCODE, f"SCN:{scenario}")
    yield Take("opencode-429", OPENCODE, "SCN:429", stays=True)
    yield Take("opencode-sigterm", OPENCODE, "SCN:hang", signal=signal.SIGTERM)


TAKES = {"claude": claude, "codex": codex, "gemini": gemini, "opencode": opencode}


def capture(take: Take, home: Path) -> dict[str, object]:
    """Run it; its stdout goes to `lines/`, and its end is returned."""
    variables = settle(home, subscription=take.subscription)
    work = home / "repo"
    work.mkdir(exist_ok=True)
    sealed = Sealed(Path(tempfile.mkdtemp(dir=home))).start()
    try:
        with subprocess.Popen(
            sealed.joined(*take.argv, folder=work), env=variables, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            out, err = _ended(process, take, sealed)
    finally:
        sealed.stop()
    lines = [_trimmed(line, home) for line in out.splitlines()]
    (LINES / f"{take.name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return {"code": process.returncode, "stderr": _plain(err, home)[-ERROR_CHARACTERS:]}


def _ended(process: subprocess.Popen[str], take: Take, sealed: Sealed) -> tuple[str, str]:
    assert process.stdin is not None
    process.stdin.write(take.prompt)
    process.stdin.close()
    process.stdin = None
    if take.signal:
        while not sealed.asked():
            assert process.poll() is None
            signal.sigtimedwait([], 0.05)
        signal.sigtimedwait([], 1)
        process.send_signal(take.signal)
    try:
        return process.communicate(timeout=TAKES_LONG_S if take.stays else 120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()


def _plain(text: str, home: Path) -> str:
    """Without the folders of this machine, nor the colours of a terminal."""
    text = re.sub(r"\x1b\[[\d;]*m", "", text)
    text = re.sub(r"(file://)?/[^\s\"'():]*/node_modules/", "/usr/lib/node_modules/", text)
    return text.replace(str(home), "/home/user").replace(str(home).lstrip("/"), "home/user")


def _trimmed(line: str, home: Path) -> str:
    """What is no JSON is a line of prose, and stays one."""
    line = _plain(line, home)
    with suppress(ValueError):
        line = json.dumps(_short(json.loads(line)), ensure_ascii=False)
    return line


def _short(value: object) -> object:
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    if isinstance(value, list):
        names = all(isinstance(each, str) for each in value)
        return [_short(each) for each in (value[:LIST_ITEMS] if names else value)]
    return value


def main() -> None:
    """Write all lines anew, or those of some agents."""
    LINES.mkdir(exist_ok=True)
    file = LINES / "ends.json"
    ends = json.loads(file.read_text()) if file.exists() else {}
    homes: dict[str, Path] = {}
    for agent in sys.argv[1:] or AGENTS:
        for take in TAKES[agent]():
            home = homes.get(take.group) or Path(tempfile.mkdtemp(prefix="agent"))
            homes[take.group or take.name] = home
            ends[take.name] = capture(take, home)
            print(take.name, ends[take.name]["code"], flush=True)
            file.write_text(json.dumps(dict(sorted(ends.items())), indent=1, ensure_ascii=False) + "\n")
    for home in homes.values():
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
