"""Links a script with the functions that it needs from the shared files, so that no more is sent.

Lua makes every function anew in each call of a script, and one that uses a local name of its surroundings is made the
slower the more such names there are; for a call about one run this was most of its time. So shared functions are no
locals but fields of one table, `shared`: those that nearly every call needs (HOT) are made at once, all others together
when the first of them is asked for. Functions that only put a key together are written out where they are called. A
script gets the pieces that its body leads to, by name, and no others. A piece is a statement that begins at the margin:
a function, a `local`, or something done at once, which is always taken along.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import lru_cache
from typing import NamedTuple

EAGER_FUNCTIONS = {
    *(
        "append_event",
        "write_run",
        "flush_writes",
        "flush_indexes",
        "flush_timers",
        "end_run",
        "trim_entries",
        "claim_from_lane",
        "each_chunk",
        "enqueue",
    ),
    *(
        "delete_entries",
        "event_of",
        "record_claims",
        "start_claim_reply",
        "index_name",
        "is_intake_closed",
        "is_end_state",
        "is_ended",
        "is_fair_lane",
        "is_held",
        "is_current_entry",
    ),
    *(
        "is_function_lane",
        "is_paused",
        "lanes_revision",
        "is_verb_allowed",
        "awaited_limit",
        "load",
        "load_held",
        "transition",
    ),
    *(
        "limits_of",
        "next_timer",
        "open_lane",
        "non_empty",
        "push",
        "create_run",
        "queue_of",
        "read_lane",
        "refuse_claim",
        "refuse_queue",
    ),
    *(
        "reindex",
        "claim_from_lanes",
        "set_timer",
        "leave_fair_queue",
        "claim_entry",
        "claim_last_delivered",
        "flush_events",
        "notify_duty_owner",
        "text_of",
        "release_limits",
        "detach_from_worker",
        "wake_duties",
    ),
}
"""What a submit, a claim, a start or an exchange of plain runs calls."""

_WORD = re.compile(r"\w+")
_KEY_CALL = re.compile(r"\bkey_(\w+)\(")
_COMMENT = re.compile(r"--.*")
_DEFINITION = re.compile(r"local function (\w+)|local ((?:\w+, )*\w+)")
_CONTINUATION_STARTS = ("end", "}", ")", "else")
_TOKEN = re.compile(r"'[^'\n]*'|(?<![.\w])(?<!local function )[A-Za-z_]\w*(?!\w)|(?<=\.\.)[A-Za-z_]\w*")
_LOCAL_BINDING = re.compile(r"\blocal (?!function)([\w, ]+)|\bfunction ?\w*\(([^)]*)\)|\bfor ([\w, ]+?) (?:in|=) ")

_LAZY_TEMPLATE = """local function others()
%s
end
setmetatable(shared, { __index = function(_, name)
  if others then
    local make = others
    others = nil
    make()
  end
  return rawget(shared, name)
end })"""


KeyBuilder = Callable[[Sequence[str]], str]
"""Makes the expression for a key of the expressions for its parts."""


class LuaStatement(NamedTuple):
    """A statement of a shared file."""

    text: str
    names: tuple[str, ...]
    """What it defines; nothing if it only does something."""
    words: frozenset[str]

    @property
    def is_function(self) -> bool:
        return self.text.startswith("local function ")


def link_script(files: Sequence[str], body: str, builders: Mapping[str, KeyBuilder]) -> tuple[str, str]:
    """What a body needs of these files, in their order, and the body that finds it there."""
    files, body = [expand_keys(file, builders) for file in files], expand_keys(body, builders)
    taken = _find_reachable(files, body)
    functions = [piece for piece in taken if piece.is_function]
    names = frozenset(piece.names[0] for piece in functions)
    made = {
        kind: [_rename_to_field(piece, names) for piece in functions if (piece.names[0] in EAGER_FUNCTIONS) is kind]
        for kind in (True, False)
    }
    parts = [_rename_shared(piece.text, names) for piece in taken if not piece.is_function]
    parts = ["local shared = {}", *parts, *made[True]]
    if made[False]:
        parts.append(_LAZY_TEMPLATE % "\n".join(made[False]))
    return "\n".join(parts), _rename_shared(body, names)


def expand_keys(text: str, builders: Mapping[str, KeyBuilder]) -> str:
    """The text with an expression in place of every call of a builder."""
    made, rest = "", text
    while (call := _KEY_CALL.search(rest)) is not None:
        inner, rest_after = _split_closing_parenthesis(rest[call.end() :])
        parts = [expand_keys(part.strip(), builders) for part in _split_arguments(inner)]
        made += rest[: call.start()] + builders[call[1]](parts)
        rest = rest_after
    return made + rest


def _split_closing_parenthesis(text: str) -> tuple[str, str]:
    """What stands up to the parenthesis that closes one opened before, and what stands after it."""
    depth = 1
    for at, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return text[:at], text[at + 1 :]
    raise ValueError(f"a parenthesis is not closed: {text[:40]!r}")


def _split_arguments(text: str) -> list[str]:
    """The arguments of a call. A comma within parentheses or brackets belongs to one of them."""
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts if text.strip() else []


def _find_reachable(files: Sequence[str], body: str) -> list[LuaStatement]:
    """The pieces that the body leads to."""
    pieces = [piece for file in files for piece in split_statements(file)]
    owners: dict[str, list[int]] = {}
    for place, piece in enumerate(pieces):
        for name in piece.names:
            owners.setdefault(name, []).append(place)
    taken: set[int] = set()
    wanted = [_split_words(body), *(piece.words for piece in pieces if not piece.names)]
    taken |= {place for place, piece in enumerate(pieces) if not piece.names}
    while wanted:
        for word in wanted.pop() & owners.keys():
            for place in owners.pop(word):
                if place not in taken:
                    taken.add(place)
                    wanted.append(pieces[place].words)
    return [pieces[place] for place in sorted(taken)]


def collect_words(texts: Iterable[str]) -> set[str]:
    """Every word of these texts that is not in a comment."""
    return {word for text in texts for word in _split_words(text)}


@lru_cache(64)
def split_statements(text: str) -> tuple[LuaStatement, ...]:
    """The statements of a file, without the comments between them."""
    gathered: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("--") or not line:
            continue
        if gathered and (line[0] == " " or line.startswith(_CONTINUATION_STARTS)):
            gathered[-1].append(line)
        else:
            gathered.append([line])
    return tuple(_parse_statement(lines) for lines in gathered)


def _parse_statement(lines: list[str]) -> LuaStatement:
    text = "\n".join(lines)
    found = _DEFINITION.match(text)
    names = (found[1] or found[2]).split(", ") if found else ()
    return LuaStatement(text, tuple(names), _split_words(text))


def _split_words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_COMMENT.sub("", text)))


def _rename_to_field(piece: LuaStatement, names: Set[str]) -> str:
    """The function as a field of `shared`."""
    return _rename_shared(piece.text, names).replace("local function ", "function shared.", 1)


def _rename_shared(text: str, names: Set[str]) -> str:
    """The text with every shared function called by its new name. None of them may be hidden by a local name."""
    text = "\n".join(_COMMENT.sub("", line).rstrip() for line in text.splitlines())
    for bound in _LOCAL_BINDING.finditer(text):
        hidden = names & {name.strip() for name in (bound[1] or bound[2] or bound[3] or "").split(",")}
        if hidden:
            raise ValueError(f"a shared function is hidden by a local name: {hidden} in {bound[0]!r}")
    return _TOKEN.sub(lambda token: f"shared.{token[0]}" if token[0] in names else token[0], text)
