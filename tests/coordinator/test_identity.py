"""What an id promises."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from support.world import World

from agentq.coordinator.bounds import PARTITIONS
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.ids import check_run_id, id_created_ms, new_nonce, new_run_id, partition_of, run_id_prefix
from agentq.coordinator.model.spec import RunSpec

LAST_MS = (1 << 45) - 1
SPEC = RunSpec(kind="command", argv=["true"])


def test_ids_sort_by_the_time_at_which_they_were_made() -> None:
    chance = random.Random(1)
    times = sorted({0, 1, 31, 32, LAST_MS, *(chance.randrange(LAST_MS) for _ in range(1000))})

    ids = [new_run_id(chance.randrange(PARTITIONS), at_ms) for at_ms in times]

    assert ids == sorted(ids)
    assert [id_created_ms(run) for run in ids] == times


def test_a_new_id_tells_the_present_time() -> None:
    before = wall_ms()
    assert before <= id_created_ms(new_run_id()) <= wall_ms()


def test_an_id_carries_its_partition() -> None:
    assert [partition_of(new_run_id(partition)) for partition in range(PARTITIONS)] == list(range(PARTITIONS))


def test_the_prefix_of_a_time_bounds_the_ids_of_that_time() -> None:
    for at_ms in (0, 1_900_000_000_000, LAST_MS - 1):
        run = new_run_id(PARTITIONS - 1, at_ms)
        assert run_id_prefix(at_ms) < run < run_id_prefix(at_ms + 1)


def test_ids_are_unique_though_they_are_made_in_one_millisecond_after_a_fork() -> None:
    """A generator that is copied by a fork would make the same ids in both processes."""
    program = "import os; from agentq.coordinator.model.ids import *; new_nonce(); os.fork() and os.wait(); "
    program += "print(*(new_run_id(0, 1) + new_nonce() for _ in range(500)), flush=True); os._exit(0)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert len({each[:27] for each in told}) == 1000
    assert len({each[27:] for each in told}) == 1000


def test_ids_are_safe_as_file_names_of_any_system(folder: Path) -> None:
    """Also of those that fold case, or know reserved names and characters."""
    runs = [new_run_id(0, 1) for _ in range(200)]
    for run in runs:
        assert run == run.lower()
        assert run.isascii()
        assert run.replace("_", "").isalnum()
        (folder / run.lower()).touch(exist_ok=False)

    assert sorted(path.name for path in folder.iterdir()) == sorted(runs)


def test_digits_that_look_alike_are_not_used() -> None:
    assert not set("".join(new_run_id() for _ in range(500))[3:]) & set("ilou") - set("run_")


NOT_IDS = {
    "nothing": "",
    "a word": "nonsense",
    "upper case": new_run_id().upper(),
    "too short": new_run_id()[:-1],
    "too long": new_run_id() + "0",
    "a newline": new_run_id() + "\n",
    "a letter that is no digit": new_run_id()[:-1] + "u",
    "a path": "run_../../../x00/../../../x",
    "a key": new_run_id()[:21] + ":needs",
    "other digits": new_run_id()[:-1] + "٣",
}


@pytest.mark.parametrize("text", NOT_IDS.values(), ids=NOT_IDS)
def test_what_is_not_an_id_is_refused_wherever_one_comes_in(world: World, text: str) -> None:
    with pytest.raises(Invalid, match="is not the id of a run; one looks like run_"):
        check_run_id(text)
    with world.unchanged():
        with pytest.raises(Invalid, match="is not the id of a run"):
            world.queue.submit(SPEC, run_id=text)
        with pytest.raises(Invalid, match="is not the id of a run"):
            world.submit(after=[text])


def test_the_complaint_about_an_id_is_short_whatever_came_in() -> None:
    with pytest.raises(Invalid) as refused:
        check_run_id("x" * 1_000_000)

    assert len(str(refused.value)) < 200


def test_nonces_are_never_the_same() -> None:
    assert len({new_nonce() for _ in range(10_000)}) == 10_000
