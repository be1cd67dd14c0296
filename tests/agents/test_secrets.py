"""Nobody is shown the secrets of a run: not in its log, its file, its outcome, nor in what its agent does and says."""

from __future__ import annotations

import json

import pytest
from support.agent_workers import Agents

from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.logs import Logs

KEY = "s3cr3t-of-this-test"
SECRET = {"MY_API_KEY": KEY}


def everything(studio: Agents, run: str) -> str:
    """All that is kept of a run, but what it was submitted with."""
    outcome = studio.crew.records.get(run).outcome
    assert outcome is not None
    log = "".join(entry.text for entry in Logs(studio.crew.queue.store).read(run))
    files = "".join(path.read_text() for path in (studio.crew.folder / "home" / "logs" / run).iterdir())
    return log + outcome.model_dump_json() + files


def command(studio: Agents, script: str, **env: str) -> str:
    run = studio.crew.queue.submit(RunSpec.checked(kind="command", argv=["sh", "-c", script], env=env)).id
    studio.done(run)
    return run


def test_a_command_tells_no_secret_in_any_way(studio: Agents) -> None:
    studio.worker()
    ways = (
        "echo key $MY_API_KEY; printf %s $MY_API_KEY | base64 >&2; printf s3cr3t; sleep 0.3; printf %s -of-this-test; "
        'echo "{\\"note\\": \\"$MY_API_KEY\\"}" > $AGENTQ_PROGRESS; echo "[\\"$MY_API_KEY\\"]" > $AGENTQ_RESULT; '
        "echo redis://joe:hunter22@host"
    )

    run = command(studio, ways, **SECRET)

    kept = everything(studio, run)
    assert KEY not in kept
    assert "hunter22" not in kept
    assert studio.log(run, "out").splitlines() == ["key [redacted]", "[redacted]redis://joe:[redacted]@host"]
    assert studio.log(run, "err").startswith("[redacted]")
    assert studio.log(run, "note") == "4 secrets were replaced by [redacted] in this output\n"
    outcome = studio.crew.records.get(run).outcome
    assert outcome is not None
    assert outcome.result == ["[redacted]"]
    assert "[redacted]" in (outcome.tail or "")


def test_an_agent_tells_no_secret_and_is_understood_all_the_same(studio: Agents) -> None:
    line = {"type": "text", "text": f"it is {KEY}, not ghp_{'a1B2' * 9}"}
    facts = {"type": "facts", "ok": True, "concluded": True, "text": f"the key is {KEY}"}
    program = f"import json; print({json.dumps(json.dumps(line))}); print({json.dumps(json.dumps(facts))})"
    studio.configure(f"""
[agents.teller]
command = "{{python}}"
format = "agentq"
args = {json.dumps(["-c", program])}
permissions = {{ read = [], edit = [], full = [] }}
""")
    studio.worker()

    run = studio.run("tell me", agent="teller", env=SECRET)

    assert KEY not in everything(studio, run.id)
    assert studio.said(run.id) == ["it is [redacted], not [redacted]"]
    assert run.outcome is not None
    assert (run.outcome.class_, run.outcome.result) == ("ok", "the key is [redacted]")


@pytest.mark.parametrize("text", [KEY, "ghp_" + "a1B2" * 9])
def test_whoever_wants_to_see_them_turns_it_off(studio: Agents, text: str) -> None:
    studio.worker({"AGENTQ_WORKER_REDACT": "false"})

    run = command(studio, f"echo {text}", **SECRET)

    assert studio.log(run, "out") == f"{text}\n"
    assert studio.log(run, "note") == ""
