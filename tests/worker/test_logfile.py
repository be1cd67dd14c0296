"""The file of an attempt: whole up to a bound, and of more the beginning and the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.servers import until

from agentq.worker.output.log_file import LogFile


def written(path: Path, size: int, step: int) -> bytes:
    """Write a sequence of bytes, and return it."""
    content = bytes(place % 251 for place in range(size))
    file = LogFile(path, head_bytes=100, tail_bytes=50)
    for at in range(0, size, step):
        file.write(content[at : at + step])
    file.close().result(20)
    assert file.error is None
    assert file.backlog == 0
    return content


@pytest.mark.parametrize("size", [1, 99, 100, 101, 149, 150, 151, 200])
def test_a_file_within_its_bound_is_whole(folder: Path, size: int) -> None:
    content = written(folder / "1.log", size, 7)

    assert (folder / "1.log").read_bytes() == content
    assert [path.name for path in folder.iterdir()] == ["1.log"]


@pytest.mark.parametrize("step", [1, 50, 1000])
@pytest.mark.parametrize("size", [201, 250, 251, 1000])
def test_of_more_the_beginning_and_the_end_are_kept(folder: Path, size: int, step: int) -> None:
    content = written(folder / "1.log", size, step)

    begin, note, end = (folder / "1.log").read_bytes().partition(b"\n[agentq: ")
    count, note, end = end.partition(b" bytes left out here]\n")
    assert note
    assert begin == content[:100]
    assert 50 <= len(end) <= 100
    assert end == content[-len(end) :]
    assert len(begin) + int(count) + len(end) == size
    assert [path.name for path in folder.iterdir()] == ["1.log"]


def test_a_worker_that_dies_leaves_all_parts(folder: Path) -> None:
    file = LogFile(folder / "1.log", head_bytes=4, tail_bytes=4)
    for piece in (b"head", b"gone", b"old.", b"new"):
        file.write(piece)
    until(lambda: not file.backlog, "all to be written")

    parts = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert parts == {"1.log": b"head", "1.log.older": b"old.", "1.log.newer": b"new"}
    file.close().result(20)
    assert (folder / "1.log").read_bytes() == b"head\n[agentq: 4 bytes left out here]\nold.new"


def test_what_comes_after_the_end_is_not_taken(folder: Path) -> None:
    file = LogFile(folder / "1.log")
    file.write(b"all")
    file.close().result(20)
    file.write(b"too late")
    file.close().result(20)

    assert (folder / "1.log").read_bytes() == b"all"
