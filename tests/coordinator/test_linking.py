"""A script is sent what it needs of the shared files, and nothing else."""

from __future__ import annotations

import re

import pytest

from agentq.coordinator.storage.lua_linker import EAGER_FUNCTIONS, link_script, split_statements
from agentq.coordinator.storage.scripts import SCRIPTS, read_shared

LOCALS_MOST = 200
SHARED_FILES = {"prelude", "lanes", *(name for script in SCRIPTS.values() for name in script.header.uses)}
SHARED = """-- About one.
local one = 1

local function two()
  return one -- not three
end

local function three()
  if one then
    return two()
  end
end

local four, five = 4,
  5
local function unused() return four end

at_once[#at_once + 1] = function()
  two()
end
"""


def test_a_piece_is_a_statement_at_the_margin() -> None:
    names = [piece.names for piece in split_statements(SHARED)]

    assert names == [("one",), ("two",), ("three",), ("four", "five"), ("unused",), ()]


def test_only_what_the_body_leads_to_is_taken_and_what_is_done_at_once() -> None:
    text, body = link_script([SHARED], "return three() + five", {})

    assert body == "return shared.three() + five"
    assert "local one = 1" in text
    assert "local four, five" in text
    assert "at_once[#at_once + 1]" in text
    assert "function shared.two" in text
    assert "unused" not in text


def test_a_shared_function_is_called_by_its_new_name_and_words_in_strings_are_left_alone() -> None:
    text, body = link_script([SHARED], "return two() .. 'two()' .. x.two", {})

    assert body == "return shared.two() .. 'two()' .. x.two"
    assert "  shared.two()" in text, "in the shared text, too"


def test_a_shared_function_that_a_local_name_would_hide_is_refused() -> None:
    for hiding in (
        "local two = 1 return two",
        "for two in next_row do two() end",
        "local function f(two) two() end f()",
    ):
        with pytest.raises(ValueError, match="hidden by a local name"):
            link_script([SHARED], hiding, {})


def test_a_key_is_put_together_where_it_is_asked_for() -> None:
    builders = {"run": lambda parts: f"<{'+'.join(parts)}>"}

    assert link_script([], "call(key_run(f(a, b), key_run()), c)", builders)[1] == "call(<f(a, b)+<>>, c)"


def test_what_a_comment_names_is_not_needed() -> None:
    assert "three" not in link_script([SHARED], "return two() -- three()", {})[0]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_stays_well_below_the_local_names_that_lua_allows(name: str) -> None:
    text = SCRIPTS[name].assemble().text
    heads = re.findall(r"^local (function )?([\w, ]+)", text, re.MULTILINE)

    assert sum(1 if is_function else names.count(",") + 1 for is_function, names in heads) < LOCALS_MOST * 0.9


def test_what_is_made_at_once_exists() -> None:
    assert {
        name for file in SHARED_FILES for piece in split_statements(read_shared(file)) for name in piece.names
    } >= EAGER_FUNCTIONS
