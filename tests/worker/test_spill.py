"""What waits on the disk comes back as it was, and whatever has to go is counted."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from agentq.coordinator.runs.logs import LogChunk
from agentq.worker.reporting.spill import SpilledPiece, SpillFile
from agentq.worker.reporting.upload_buffer import BUFFER_CHARACTERS, UploadBuffer, pack_chunks, unpack_chunks


def test_pieces_come_back_as_they_were_and_the_file_is_emptied_by_the_last(tmp_path: Path) -> None:
    spill = SpillFile(tmp_path / "spill")
    bodies = [os.urandom(size) for size in (0, 1, 4096, 1 << 20)]
    pieces = [spill.put(body) for body in bodies]

    assert [spill.get(piece) for piece in pieces if piece] == bodies
    for piece in pieces[1:]:
        assert piece is not None
        spill.drop(piece)
    assert pieces[0] is not None
    assert spill.put(b"more") == SpilledPiece(sum(map(len, bodies)), 4), "while one is left, nothing moves"
    spill.drop(pieces[0])
    spill.drop(SpilledPiece(sum(map(len, bodies)), 4))
    assert spill.put(b"again") == SpilledPiece(0, 5)
    spill.close()


def test_nothing_of_it_can_be_seen_in_the_folder(tmp_path: Path) -> None:
    """So nothing is left of a worker that was killed, and nobody else reads what its runs wrote."""
    spill = SpillFile(tmp_path / "spill")
    assert spill.put(b"secret")

    assert list((tmp_path / "spill").iterdir()) == []
    assert (tmp_path / "spill").stat().st_mode & 0o077 == 0
    spill.close()


def test_a_spill_that_is_full_says_so_and_keeps_what_it_has(tmp_path: Path) -> None:
    spill = SpillFile(tmp_path, 10)
    kept = spill.put(b"12345678")

    assert spill.put(b"123") is None
    assert spill.put(b"12") is not None
    assert kept is not None
    assert spill.get(kept) == b"12345678"
    spill.close()


def test_a_folder_that_cannot_be_written_to_is_full(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert SpillFile(tmp_path / "file" / "spill").put(b"x") is None


def test_a_disk_that_is_full_in_the_middle_of_a_piece_costs_only_that_piece(tmp_path: Path) -> None:
    """In a process of its own that may write no file of more than 100,000 bytes."""
    program = f"""
import resource
from pathlib import Path
from agentq.worker.reporting.spill import SpillFile
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, {resource.getrlimit(resource.RLIMIT_FSIZE)[1]}))
spill = SpillFile(Path({str(tmp_path)!r}))
first = spill.put(b"a" * 60_000)
assert spill.put(b"b" * 60_000) is None
second = spill.put(b"c" * 30_000)
assert spill.get(first) == b"a" * 60_000
assert spill.get(second) == b"c" * 30_000
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_chunks_are_read_back_with_every_character() -> None:
    chunks = [LogChunk("out", "käse\n\0�\U0001f9c0"), LogChunk("note", 'a "word"'), LogChunk("err", "\ud800")]

    assert unpack_chunks(pack_chunks(chunks)) == chunks


def said(tale: UploadBuffer, spill: SpillFile) -> list[LogChunk]:
    """All that it sends, as the narration does it."""
    chunks: list[LogChunk] = []
    while not tale.is_empty():
        if tale.parts:
            assert tale.parts[0].piece is not None
            tale.load_first(unpack_chunks(spill.get(tale.parts[0].piece)))
        chunks += tale.next_chunks()
        tale.sending = []
    return chunks


@pytest.mark.parametrize("seed", range(40))
def test_a_tale_is_told_in_order_and_what_is_missing_is_counted_where_it_is_missing(tmp_path: Path, seed: int) -> None:
    """Numbered lines go in, some to the disk, some to one that is full; what comes out has its gaps told exactly."""
    dice = random.Random(seed)
    tale, spill = UploadBuffer(), SpillFile(tmp_path)
    written = 0
    for _ in range(dice.randrange(1, 60)):
        lines = [f"{written + place:09}\n" for place in range(dice.randrange(1, 20_000))]
        written += len(lines)
        tale.add([LogChunk("out", "".join(lines[at : at + 800])) for at in range(0, len(lines), 800)])
        while tale.chunks and dice.random() < 0.6:
            part, chunks = tale.take_part()
            if dice.random() < 0.3:
                tale.add([LogChunk("out", "".join(f"{written + place:09}\n" for place in range(800)))])
                written += 800
            piece = spill.put(pack_chunks(chunks)) if dice.random() < 0.7 else None
            if piece is None:
                tale.spill_failed(part)
            else:
                tale.spilled(part, piece)
        assert tale.in_memory + tale.on_disk <= BUFFER_CHARACTERS

    expected = 0
    for chunk in said(tale, spill):
        if chunk.stream == "note":
            missing = int(chunk.text.split()[0])
            assert missing % 10 == 0
            expected += missing // 10
        for line in chunk.text.splitlines() if chunk.stream == "out" else ():
            assert int(line) == expected
            expected += 1
    assert expected == written
    for piece in tale.dropped:
        spill.drop(piece)
    assert spill.put(b"") == SpilledPiece(0, 0), "nothing is left on the disk"
    spill.close()
