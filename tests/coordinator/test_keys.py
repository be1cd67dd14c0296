"""How keys are built, in Python and in Lua."""

from __future__ import annotations

import re

import pytest
from redis.crc import key_slot

from agentq.coordinator.bounds import PARTITIONS
from agentq.coordinator.errors import Invalid
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.keys import KEY_KINDS, Keyspace, build_key, lua_builders

# Anything that a part could be, and then some.
PARTS = ["a", "run_01k9zq3c5007m2x4c8r1tnq", "default:5:gpu=h100", "any {thing} goes <run> % \\1", "äöü"]


@pytest.mark.parametrize("kind", KEY_KINDS, ids=[kind.name for kind in KEY_KINDS])
def test_python_and_lua_build_the_same_key(connection: Connection, kind: object) -> None:
    (found,) = [each for each in KEY_KINDS if each is kind]
    arguments = [f"ARGV[{place}]" for place in range(1, len(found.parts) + 1)]
    script = f"local base = 'agentq:{{x}}:' return {lua_builders()[found.name](arguments)}"
    for shift in range(len(PARTS)):
        parts = (PARTS[shift:] + PARTS[:shift])[: len(found.parts)]

        assert connection.command("EVAL", script, 0, *parts) == build_key("agentq:{x}:", found.name, *parts)


def test_no_two_kinds_of_key_can_be_mistaken_for_each_other() -> None:
    """With the names that there can be: letters, digits and some signs, but no colon; only a lane ends with its own."""
    sample = {"run": "run_01k9zq3c5007m2x4c8r1tnq", "lane": "q:5:a=b", "key": "any:key:runs"}
    built = [build_key("", kind.name, *(sample.get(part, "inbox") for part in kind.parts)) for kind in KEY_KINDS]

    assert len(set(built)) == len(KEY_KINDS)


def test_every_kind_says_its_type_what_it_holds_and_how_long_it_lives() -> None:
    for kind in KEY_KINDS:
        assert kind.type in ("string", "hash", "set", "zset", "stream", "list")
        assert kind.holds
        assert re.match(r"for ever|until|while|TTL|a (member|field) |deleted with", kind.lifetime), kind


def test_a_key_with_too_few_or_too_many_parts_is_not_built() -> None:
    for parts in ((), ("a", "b", "c")):
        with pytest.raises(AssertionError, match="made of"):
            build_key("", "index", *parts)


def test_the_keys_of_a_partition_share_a_slot_and_those_of_others_have_their_own() -> None:
    space = Keyspace("ns", 3)
    names = [[build_key(base, kind.name, *PARTS[: len(kind.parts)]) for kind in KEY_KINDS] for base in space.bases()]
    slots = [{key_slot(name.encode()) for name in each} for each in names]

    assert [len(each) for each in slots] == [1, 1, 1]
    assert len(set.union(*slots)) == 3


def test_the_braces_are_where_a_cluster_looks_for_them() -> None:
    assert Keyspace("ns").bases() == ["agentq:{ns}:"]
    assert Keyspace("ns", 2).bases() == ["agentq:{ns.0}:", "agentq:{ns.1}:"]
    assert Keyspace("ns", 2).root == "agentq:{ns}:"


def test_namespaces_of_one_and_of_several_partitions_never_share_a_key() -> None:
    """A name has no dot, so that no partition of one is the base of another."""
    with pytest.raises(Invalid, match="not valid"):
        Keyspace("ns.0")


@pytest.mark.parametrize("name", ["", "a b", "a:b", "{a}", "ä", "a\n", "-a", "_a", "a" * 65, "a/b", "*"])
def test_a_bad_namespace_is_refused_with_one_sentence(name: str) -> None:
    with pytest.raises(Invalid, match=r"^The namespace .* is not valid: use up to 64 letters, digits, '_' and '-'.$"):
        Keyspace(name)


@pytest.mark.parametrize("name", ["a", "A-b_9", "0", "a" * 64])
def test_a_good_namespace_is_taken(name: str) -> None:
    assert Keyspace(name).root == f"agentq:{{{name}}}:"


@pytest.mark.parametrize("number", [0, -1, PARTITIONS + 1])
def test_an_impossible_number_of_partitions_is_refused(number: int) -> None:
    with pytest.raises(Invalid, match=f"1 to 1024 partitions, not {number}"):
        Keyspace("a", number)


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_partition_that_there_is_not_is_refused(partition: int) -> None:
    with pytest.raises(Invalid, match=f"has 2 partitions, none numbered {partition}"):
        Keyspace("a", 2).base(partition)
