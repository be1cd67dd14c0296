"""The script files and what is made of them."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from support.requirements import FLAVOURS
from support.servers import Server
from support.world import World

from agentq.coordinator import bounds, errors
from agentq.coordinator.model.lifecycle import VERBS
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.scripts import SCRIPTS, LuaScript, ScriptSet, parse_header, read_script

SHARED = {
    "prelude",
    "limits",
    "waits",
    "end_run",
    "claim_runs",
    "remove_worker",
    "delete_run",
    "create_run",
    "child_permissions",
    "schedules",
    "rq_jobs",
} | {
    "session_turns",
    "conversation",
    "merge_queue",
    "requeue_run",
    "plans",
    "pagination",
    "lanes",
}
REFUSED_WHEN_FULL = (
    {
        "run/submit",
        "token/create",
        "namespace/use_idempotency_key",
        "run/add_dependencies",
        "run/requeue",
        "run/wake",
        "run/signal",
        "attempt/report_progress",
        "attempt/append_log",
        "schedule/put",
        "schedule/fire",
        "schedule/trigger",
    }
    | {
        "rq/import_jobs",
        "rq/push_job",
        "session/create",
        "conversation/save_transcript",
        "plan/create",
        "plan/retry",
        "webhook/create",
        "webhook/redeliver",
    }
    | {
        "dialect/append_event",
        "session/set_alias",
        "dialect/put_blueprints",
    }
)
"""What lets work, or words, in."""


def code(name: str) -> str:
    """A script file without its comments."""
    return re.sub(r"--.*", "", read_script(name).partition("]]")[2])


def every_file() -> set[str]:
    folders = (files("agentq.coordinator") / "lua").iterdir()
    return {f"{folder.name}/{path.name.removesuffix('.lua')}" for folder in folders for path in folder.iterdir()}


def test_every_file_is_a_script_or_shared_by_some() -> None:
    used = {name for script in SCRIPTS.values() for name in script.header.uses}

    assert every_file() == set(SCRIPTS) | {f"shared/{name}" for name in SHARED}
    assert used | {"prelude", "lanes"} == SHARED


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_word_that_a_script_answers_is_in_its_header(name: str) -> None:
    """And what stands there is understood by whoever called."""
    script = SCRIPTS[name]
    told = set(re.findall(r"[a-z_]+", script.header.reply))
    replies = [line for line in code(name).splitlines() if re.search(r"\breturn\b|\bwords?\b", line)]
    answered = set(re.findall(r"(?:return|and|or|(?<![=~])=) '([a-z_]+) ?'", "\n".join(replies)))

    assert answered - {"unknown"} <= told, "an unknown server is no reply"


def test_every_word_of_refusal_is_answered_by_some_script() -> None:
    told = {word for script in SCRIPTS.values() for word in re.findall(r"[a-z_]+", script.header.reply)}

    assert set(errors.REFUSALS) <= told


def test_every_script_says_what_it_does_and_which_verbs_of_the_lifecycle_it_speaks() -> None:
    for script in SCRIPTS.values():
        assert len(script.header.purpose) > 20
        assert set(script.header.verbs) <= set(VERBS)
        assert script.header.flags in ("", "allow-oom", "no-writes")


def test_only_what_lets_work_in_is_refused_by_a_full_server() -> None:
    assert {name for name, script in SCRIPTS.items() if not script.header.flags} <= REFUSED_WHEN_FULL


def test_every_limit_that_lua_is_given_is_used_there() -> None:
    """Not only named in a comment, where it would promise what nobody does."""
    given = re.search(r"^local ([A-Z_, ]+) = [\d, .]+$", SCRIPTS["worker/claim"].assemble().text, re.MULTILINE)
    assert given is not None
    text = "".join(code(name) for name in every_file())

    for name in given[1].split(", "):
        assert hasattr(bounds, name)
        assert re.search(rf"\b{name}\b", text), f"{name} is named in a comment only"


def test_a_script_that_python_calls_with_other_arguments_is_refused_at_import() -> None:
    for arguments, rows in (("worker epoch nonce", "lane"), ("worker epoch nonce count calls fresh", ""), ("", "lane")):
        with pytest.raises(
            TypeError,
            match=r"claim.lua takes \('worker', 'epoch', 'nonce', 'count', 'calls', 'with_read'\) \('lane',\)",
        ):
            LuaScript("worker/claim", arguments, rows)


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("return 1", "does not begin with '--[[ worker/claim: what it does'"),
        ("--[[ run/cancel: end a run.\nKEYS   base ]]", "does not begin with"),
        ("--[[ worker/claim: x\nKEYS   base other\nARGV   now_ms\nREPLY  ok\nVERBS\nFLAGS ]]", "is not understood"),
        ("--[[ worker/claim: x\nKEYS   base\nARGV   worker\nREPLY  ok\nVERBS\nFLAGS ]]", "is not understood"),
        (
            "--[[ worker/claim: x\nKEYS   base\nARGV   now_ms\nREPLY  ok\nVERBS\nFLAGS\nCOLOUR red ]]",
            "is not understood",
        ),
    ],
)
def test_a_header_that_is_not_understood_is_refused(header: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        parse_header("worker/claim", header)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_script_compiles_and_is_known_by_the_digest_of_its_text(
    request: pytest.FixtureRequest, flavour: str
) -> None:
    server: Server = request.getfixturevalue({"valkey": "valkey", "redis": "redis7"}[flavour])
    connection, scripts = Connection(server.url), ScriptSet()
    for script in SCRIPTS.values():
        source = scripts.source(script)
        assert connection.command("SCRIPT", "LOAD", source.text) == source.sha
    connection.close()


@pytest.mark.full("takes 2 s")
def test_two_versions_share_a_server_and_a_namespace(world: World) -> None:
    """Each calls its own scripts by their digest; neither overwrites the other's."""

    def changed(name: str, text: str) -> str:
        newer_words = text.replace("'cancelled on request'", "'cancelled, said the newer one'")
        return f"{newer_words}\n-- newer" if name == "whole" else newer_words

    newer = ScriptSet(changed)
    sources = [ScriptSet().source(script) for script in SCRIPTS.values()]
    assert not {source.sha for source in sources} & {newer.source(script).sha for script in SCRIPTS.values()}

    for scripts in (newer, ScriptSet()):
        world.store._scripts = scripts
        claim = world.held(f"w{scripts is newer}")
        world.queue.cancel(claim.id)
        world.queue.release(claim)
        outcome = world.get(claim.id).outcome
        assert outcome is not None
        assert ("newer" in str(outcome.error)) == (scripts is newer)


def test_a_refusal_is_a_sentence_with_the_subject_and_what_is_the_case() -> None:
    for word, (kind, _) in errors.REFUSALS.items():
        refused = errors.refusal_error(f"{word} the detail", "run X")
        assert isinstance(refused, kind)
        assert "run X" in str(refused)
        assert str(refused).startswith(("The ", "There is no ", "This attempt of "))
        assert str(refused).endswith(".")


def test_what_is_no_refusal_is_none() -> None:
    for reply in ("ok", "ok pending", "exists run_x", "1"):
        assert errors.refusal_error(reply, "run X") is None
