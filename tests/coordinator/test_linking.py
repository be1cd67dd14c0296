"""A script is sent what it needs of the shared files, and nothing else."""

from __future__ import annotations

import re

import pytest

from agentq.coordinator.linking import linked, pieces_of
from agentq.coordinator.scripts import SCRIPTS

LOCALS_MOST = 200
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
function four() return 0 end

at_once[#at_once + 1] = function()
  two()
end
"""


def test_a_piece_is_a_statement_at_the_margin() -> None:
    names = [piece.names for piece in pieces_of(SHARED)]

    assert names == [("one",), ("two",), ("three",), ("four", "five"), ("four",), ()]


def test_only_what_the_body_leads_to_is_taken_and_what_is_done_at_once() -> None:
    text = linked([SHARED], "return five")

    assert [piece.names for piece in pieces_of(text)] == [("one",), ("two",), ("four", "five"), ("four",), ()]


def test_what_a_comment_names_is_not_needed() -> None:
    assert "function three" not in linked([SHARED], "return two() -- three()")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_stays_well_below_the_local_names_that_lua_allows(name: str) -> None:
    text = SCRIPTS[name].assemble().text
    heads = re.findall(r"^local (function )?([\w, ]+)", text, re.MULTILINE)

    assert sum(1 if is_function else names.count(",") + 1 for is_function, names in heads) < LOCALS_MOST * 0.9
