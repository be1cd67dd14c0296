"""A turn of an agent that speaks the Agent Client Protocol, as the reference library of the protocol speaks it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.acp_bridge import Scene, nobody_is_left, scene, told

pytestmark = pytest.mark.full("forty bridges and agents are started")


@pytest.fixture
def stage() -> Iterator[Scene]:
    with scene() as made:
        yield made
        nobody_is_left(made.cwd)


def test_a_turn_is_told_in_our_words(stage: Scene) -> None:
    turn = stage.turn("THINK hm\nPLAN sow\nTOOL edit src/a.py\nTOOL read b.py\nSAY all done")

    assert turn.code == 0
    assert [doing["type"] for doing in turn.agent_events] == [
        *("began", "thought", "plan", "tool", "tool_end", "file", "tool", "tool_end", "text", "result")
    ]
    assert turn.of("plan")[0]["items"] == [["sow", "doing"], ["then rest", "todo"]]
    assert turn.of("tool")[0] == {
        "type": "tool",
        "id": "t1",
        "tool": "edit",
        "about": "Use src/a.py",
        "input": {"path": "src/a.py"},
    }
    assert turn.of("tool_end")[0]["text"] == "all is well"
    assert turn.of("file") == [{"type": "file", "path": "src/a.py", "how": "added"}]
    assert turn.facts["text"] == "all done"
    assert (turn.facts["concluded"], turn.facts["ok"], turn.facts["session"]) == (True, True, "talk-0")


def test_the_pieces_of_a_text_become_one(stage: Scene) -> None:
    turn = stage.turn("SAY one \nSAY two \nTHINK between\nSAY three")

    assert [doing["text"] for doing in turn.of("text")] == ["one two ", "three"]


def test_the_agent_is_offered_no_files_no_terminal_and_no_servers(stage: Scene) -> None:
    turn = stage.turn("FS secret.txt")

    assert stage.asked("initialize") == [{"method": "initialize", "version": 1, "fs": False}]
    assert stage.asked("terminal")[0]["terminal"] is False
    assert stage.asked("new")[0]["mcp"] == []
    assert turn.facts["text"] == "refused -32601"


def test_costs_are_running_totals_of_the_conversation(stage: Scene) -> None:
    turn = stage.turn("COST 0.25\nCOST 0.5\nSAY done")

    assert turn.facts["totals"] == {"cost_usd": 0.75}


@pytest.mark.parametrize(
    ("permissions", "allowed"), [("read", ["read"]), ("edit", ["read", "edit"]), ("full", ["read", "edit", "execute"])]
)
def test_what_it_asks_is_answered_by_the_permissions_of_the_run(
    stage: Scene, permissions: str, allowed: list[str]
) -> None:
    turn = stage.turn("ASK read a.py\nASK edit a.py\nASK execute make", "--permissions", permissions)

    assert [about["kind"] for about in stage.asked("permission") if about["chosen"] == "once"] == allowed
    assert len(turn.of("denied")) == len(turn.facts["denials"]) == 3 - len(allowed)
    assert turn.code == 0, "what is not allowed does not end the turn"


def test_only_a_run_that_may_do_all_allows_anything_for_ever(stage: Scene) -> None:
    stage.turn("ASK edit a.py", able="only-always")
    stage.turn("ASK edit a.py", "--permissions", "full", able="only-always")

    assert [about["chosen"] for about in stage.asked("permission")] == ["no", "always"]


@pytest.mark.parametrize(("permissions", "mode"), [("read", "default"), ("edit", "default"), ("full", "full-access")])
def test_an_agent_is_put_in_a_mode_in_which_it_asks(stage: Scene, permissions: str, mode: str) -> None:
    stage.turn("SAY hello", "--permissions", permissions, able="modes")

    assert [about["id"] for about in stage.asked("mode")] == [mode]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("max_tokens", "budget"),
        ("max_turn_requests", "max_turns"),
        ("refusal", "refused"),
        ("cancelled", "interrupted"),
    ],
)
def test_the_reason_of_an_end_is_the_word_of_the_verdict(stage: Scene, reason: str, kind: str) -> None:
    turn = stage.turn(f"SAY well\nSTOP {reason}")

    assert (turn.code, turn.facts["ok"], turn.facts["kind"]) == (1, False, kind)
    assert turn.facts["text"] == "well"


def test_a_turn_in_which_nothing_was_done_or_said_is_no_result(stage: Scene) -> None:
    turn = stage.turn("THINK and nothing else")

    assert turn.facts["kind"] == "no_result"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("-32000 Authentication required", "auth"),
        ("401 bad key", "auth"),
        ("402 no money", "credit"),
        ("429 slow down", "throttled"),
        ("529 overloaded", "throttled"),
        ("-32603 Internal error", "agent_error"),
    ],
)
def test_an_error_of_the_agent_is_named(stage: Scene, error: str, kind: str) -> None:
    turn = stage.turn(f"ERROR {error}")

    assert turn.facts["kind"] == kind
    assert turn.facts["error"].endswith(": more of it.")


# ---- conversations


@pytest.mark.parametrize("able", ["load", "resume"])
def test_a_conversation_goes_on_and_what_was_said_before_is_not_told_again(stage: Scene, able: str) -> None:
    first = stage.turn("SAY hello", able=able)
    turn = stage.turn("SAY again", "--resume", first.facts["session"], able=able)

    assert [doing["text"] for doing in turn.of("text")] == ["again"]
    assert turn.facts["session"] == "talk-0"
    assert stage.asked(able)[0]["id"] == "talk-0"


def test_an_agent_that_only_says_that_it_can_resume_loads_instead(stage: Scene) -> None:
    (stage.kept / "talk-0").touch()

    assert stage.turn("SAY again", "--resume", "talk-0", able="load,says-resume").facts["text"] == "again"


def test_totals_that_are_told_when_a_conversation_is_loaded_count(stage: Scene) -> None:
    (stage.kept / "talk-0").write_text("5.0")
    turn = stage.turn("SAY again", "--resume", "talk-0", able="load")

    assert turn.facts["totals"] == {"cost_usd": 5.0}


def test_tokens_are_counted_from_the_cache_as_well(stage: Scene) -> None:
    turn = stage.turn("TOKENS 100 1000 20\nSAY done")

    assert turn.facts["totals"] == {"input_tokens": 1100, "cached_tokens": 1000, "output_tokens": 20}


@pytest.mark.parametrize("able", ["load", ""])
def test_a_conversation_that_it_does_not_know_is_no_session(stage: Scene, able: str) -> None:
    turn = stage.turn("SAY again", "--resume", "talk-77", able=able)

    assert (turn.code, turn.facts["kind"], turn.of("began")) == (1, "no_session", [])


def test_a_conversation_goes_on_as_another(stage: Scene) -> None:
    turn = stage.turn("SAY hello", "--fork", "talk-3", able="fork")

    assert turn.facts["session"] == "talk-3-fork"


def test_an_agent_that_cannot_fork_is_told_so_at_the_start(stage: Scene) -> None:
    assert stage.turn("SAY hello", "--fork", "talk-3").facts["kind"] == "no_session"


def test_a_model_is_chosen_among_those_that_it_has(stage: Scene) -> None:
    turn = stage.turn("SAY hello", "--model", "large", able="models")
    wrong = stage.turn("SAY hello", "--model", "huge", able="models")
    none = stage.turn("SAY hello", "--model", "huge")

    assert turn.facts["model"] == "large"
    assert [(about["id"], about["value"]) for about in stage.asked("option")] == [("m", "large")]
    assert wrong.facts["kind"] == none.facts["kind"] == "input"
    assert "it has: small, large" in wrong.facts["error"]


def test_it_logs_in_with_a_key_of_the_environment(stage: Scene) -> None:
    turn = stage.turn("SAY hello", able="auth", env={"STAND_IN_KEY": "k"})

    assert (turn.code, [about["id"] for about in stage.asked("authenticate")]) == (0, ["stand-in-key"])


def test_a_login_that_takes_a_person_is_not_begun(stage: Scene) -> None:
    turn = stage.turn("SAY hello", able="auth")

    assert (turn.facts["kind"], stage.asked("authenticate")) == ("auth", [])
    assert "a key, web" in turn.facts["error"]


def test_another_version_of_the_protocol_is_refused_by_name(stage: Scene) -> None:
    turn = stage.turn("SAY hello", able="version2")

    assert turn.facts["kind"] == "startup"
    assert "version 2" in turn.facts["error"]


def test_ten_megabytes_of_prompt_arrive(stage: Scene) -> None:
    turn = stage.turn("SAY " + "é" * (5 << 20))

    assert turn.code == 0
    assert turn.of("text")[0]["text"].startswith("éé")


@pytest.mark.parametrize("prompt", ["-rf hello", "--help", "halves \ud83d\ude00"])
def test_a_prompt_is_never_an_option(stage: Scene, prompt: str) -> None:
    turn = stage.turn(prompt.encode("utf-16", "surrogatepass").decode("utf-16"))

    assert json.dumps(turn.facts["text"]) == json.dumps(prompt.encode("utf-16", "surrogatepass").decode("utf-16"))


def test_no_prompt_and_no_agent_are_wrong_input(stage: Scene) -> None:
    assert stage.turn("  \n").code == 2
    assert "empty" in stage.turn("").err
    assert told(stage.start([]), "hello").code == 2
