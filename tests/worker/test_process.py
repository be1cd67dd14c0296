"""The first process of an attempt: how it starts, what it is given, how it ends."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from support.run_processes import COOKIE, PATH, descriptors, outcome, python, ready, run, shell, shut, start, when
from support.run_processes import nobody_left as nobody_left

from agentq.worker.process import process_tree
from agentq.worker.process.run_process import ProcessExit, SpawnFailed

pytestmark = pytest.mark.usefixtures("nobody_left")


@pytest.mark.parametrize(
    ("text", "code", "number"),
    [
        ("exit 0", 0, None),
        ("exit 3", 3, None),
        ("exit 255", 255, None),
        ("kill -TERM $$", None, signal.SIGTERM),
        ("kill -KILL $$", None, signal.SIGKILL),
    ],
)
def test_it_tells_the_exit_code_or_the_signal(text: str, code: int | None, number: int | None) -> None:
    async def test() -> ProcessExit:
        return (await outcome(await shell(text)))[1]

    ended = run(test())

    assert (ended.code, ended.signal, ended.oom) == (code, number, False)


def test_the_environment_is_what_was_given_and_the_marks_of_the_run() -> None:
    async def test() -> bytes:
        return (await outcome(await start("/usr/bin/env", "-0", env={"A": "1", "LONG": "x" * 100_000, "É": "ü\n"})))[0]

    said = os.fsdecode(run(test()))
    seen = dict(pair.split("=", 1) for pair in said.rstrip("\0").split("\0"))

    marks = {"AGENTQ_RUN": COOKIE, "AGENTQ_KEEPER": process_tree.get_process_name(os.getpid())}
    assert seen == {"A": "1", "LONG": "x" * 100_000, "É": "ü\n", **marks}


def test_the_marks_cannot_be_set_by_the_run() -> None:
    async def test() -> bytes:
        env = {**PATH, "AGENTQ_RUN": "another", "AGENTQ_KEEPER": "1-1"}
        return (await outcome(await shell("echo $AGENTQ_RUN $AGENTQ_KEEPER", env=env)))[0]

    assert run(test()).decode() == f"{COOKIE} {process_tree.get_process_name(os.getpid())}\n"


def test_it_has_a_session_of_its_own_and_no_descriptor_but_what_was_passed(tmp_path: Path) -> None:
    text = "import os; print(os.getpid() == os.getsid(0) == os.getpgrp(), os.getcwd(), sorted(os.listdir('/dev/fd')))"
    with open(tmp_path / "passed", "wb") as passed:
        number = passed.fileno()

        async def test() -> bytes:
            return (await outcome(await python(text, cwd=tmp_path, pass_fds=(number,))))[0]

        # The last one is the folder that it lists.
        said = run(test()).decode()
    names = sorted({"0", "1", "2", str(number), "3" if number != 3 else "4"})

    assert said == f"True {tmp_path} {names}\n"


def test_no_signal_is_ignored_or_blocked_in_it() -> None:
    async def test() -> bytes:
        return (await outcome(await start("grep", "^Sig[BI]", "/proc/self/status")))[0]

    assert {line.split()[1].strip(b"0") for line in run(test()).splitlines()} == {b""}


@pytest.mark.parametrize(
    ("argv", "given", "sentence"),
    [
        (("no-such-program",), {}, "There is no program no-such-program; look at the command line and at PATH."),
        (("/nowhere/program",), {}, "There is no program /nowhere/program; "),
        (("sleep", "1"), {"env": {"PATH": "/nowhere"}}, "There is no program sleep; "),
        (("/etc/passwd",), {}, "/etc/passwd is not executable; "),
        (("/etc",), {}, "/etc is not executable; "),
        (("true",), {"cwd": Path("/nowhere")}, "The folder /nowhere cannot be entered: No such file or directory."),
        (("true",), {"cwd": Path("/etc/passwd")}, "The folder /etc/passwd cannot be entered: Not a directory."),
        (("./garbage",), {}, "./garbage is not a program of this machine; "),
        (("./unread",), {}, "./unread cannot be started: the interpreter that its first line names does not exist."),
        ((), {}, "The process cannot be started: the command line is empty."),
        (("true", "a\0b"), {}, "The process cannot be started: embedded null byte."),
        (("true", "\ud800"), {}, "The process cannot be started: "),
        (("true",), {"env": {"A=B": "1"}}, "The process cannot be started: illegal environment variable name."),
        (("true", "x" * (1 << 20)), {}, "The arguments and environment of true are too large; "),
    ],
)
def test_a_process_that_cannot_start_is_refused_in_one_sentence(
    argv: tuple[str, ...], given: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    for name, text in (("garbage", "\1\2\3"), ("unread", "#!/nowhere/interpreter\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    async def test() -> str:
        with pytest.raises(SpawnFailed) as failed:
            await start(*argv, **{"cwd": tmp_path, "stdin": b"x" * 100_000, **given})
        return str(failed.value)

    said = run(test())

    assert said.startswith(sentence)
    assert said.endswith(".")


def test_without_free_descriptors_it_is_refused_and_none_is_lost() -> None:
    async def test() -> str:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, descriptors())) + 2, hard))
        try:
            with pytest.raises(SpawnFailed) as failed:
                await start("true", stdin=b"x")
            return str(failed.value)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert run(test()) == "The worker has too many files open to start a process; raise `ulimit -n`."


@pytest.mark.parametrize("size", [1, 4096, 65_536, 65_537, 10_000_000])
def test_stdin_is_given_whole_and_then_closed(size: int) -> None:
    async def test() -> bytes:
        return (await outcome(await start("sha1sum", stdin=bytes(range(256)) * (size // 256) + b"z" * (size % 256))))[0]

    import hashlib

    whole = hashlib.sha1(bytes(range(256)) * (size // 256) + b"z" * (size % 256))
    assert run(test()).split()[0].decode() == whole.hexdigest()


def test_without_stdin_it_reads_the_end_at_once() -> None:
    async def test() -> bytes:
        return (await outcome(await shell("cat; echo over")))[0]

    assert run(test()) == b"over\n"


def test_stdin_that_nobody_reads_holds_up_nothing() -> None:
    async def test() -> tuple[int, ProcessExit]:
        process = await shell("echo ready; exec sleep 1000", stdin=b"x" * 10_000_000)
        await ready(process)
        others = await asyncio.gather(*(start("true") for _ in range(3)))
        await asyncio.gather(*map(outcome, others))
        return await shut(process), await process.wait()

    leaked, ended = run(test())

    assert (leaked, ended.signal) == (0, signal.SIGKILL)


def test_stdin_that_is_closed_early_is_no_fault() -> None:
    async def test() -> tuple[bytes, ProcessExit]:
        return await outcome(await shell("head -c 3; exec <&-; echo; echo over", stdin=b"x" * 10_000_000))

    said, ended = run(test())

    assert (said, ended.code) == (b"xxx\nover\n", 0)


def test_wait_returns_at_once_when_a_grandchild_holds_the_pipes() -> None:
    async def test() -> tuple[ProcessExit, int]:
        process = await shell("sleep 1000 & exit 4")
        ended = await asyncio.wait_for(process.wait(), 20)
        return ended, await shut(process)

    ended, leaked = run(test())

    assert (ended.code, leaked) == (4, 0)


def test_many_may_wait_and_any_of_them_may_give_up() -> None:
    async def test() -> list[ProcessExit]:
        process = await shell("echo ready; read line; exit 5", pass_fds=())
        waits = [asyncio.ensure_future(process.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        waits[0].cancel()
        await shut(process)
        assert waits[0].cancelled()
        return [*await asyncio.gather(*waits[1:]), await process.wait()]

    first, *others = run(test())

    assert others == [first, first]


def test_a_status_that_somebody_else_took_is_said_to_be_unknown() -> None:
    async def test() -> ProcessExit:
        process = await start("true")
        os.waitpid(process.pid, 0)
        await shut(process)
        return await process.wait()

    ended = run(test())

    assert (ended.code, ended.signal) == (None, None)


def test_two_hundred_at_once_are_all_told_apart() -> None:
    async def one(number: int) -> tuple[bytes, ProcessExit]:
        return await outcome(await shell(f"echo {number}; exit {number % 100}"))

    async def test() -> list[tuple[bytes, ProcessExit]]:
        return await asyncio.gather(*map(one, range(200)))

    ends = [(said, ended.code) for said, ended in run(test())]

    assert ends == [(b"%d\n" % number, number % 100) for number in range(200)]


def test_time_and_memory_are_told() -> None:
    async def test() -> ProcessExit:
        busy = "import time; x = b'x' * (300 << 20)\nwhile time.process_time() < 0.5: pass"
        return (await outcome(await python(busy)))[1]

    ended = run(test())

    assert 450 <= ended.user_ms + ended.system_ms < 3_000
    assert 300 << 20 <= ended.peak_memory_bytes < 400 << 20


def test_a_small_process_is_not_said_to_have_had_the_workers_memory() -> None:
    ballast = b"x" * (100 << 20)

    async def test() -> list[ProcessExit]:
        return [(await outcome(await start("true")))[1] for _ in range(20)]

    assert {ended.peak_memory_bytes for ended in run(test())} == {0}, len(ballast)


def test_end_lets_it_go_in_its_own_way_first() -> None:
    async def test() -> tuple[int, ProcessExit]:
        process = await shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done")
        await ready(process)
        return await shut(process, 20_000), await process.wait()

    leaked, ended = run(test())

    assert (leaked, ended.code) == (0, 7)


def test_end_does_not_wait_longer_than_the_grace_for_one_that_ignores_it() -> None:
    async def test() -> ProcessExit:
        process = await shell("trap '' TERM; echo ready; while :; do sleep 0.01; done")
        await ready(process)
        await shut(process, 50)
        return await process.wait()

    assert run(test()).signal == signal.SIGKILL


def test_the_rest_of_the_group_has_the_grace_when_the_first_process_goes_at_once(tmp_path: Path) -> None:
    slow = f"trap 'sleep 0.2; echo saved > {tmp_path}/state; exit' TERM; echo ready; while :; do sleep 0.01; done"

    async def test() -> ProcessExit:
        process = await shell(f"sh -c '{slow.replace(chr(39), chr(34))}' & wait")
        await ready(process)
        await shut(process, 20_000)
        return await process.wait()

    assert run(test()).signal == signal.SIGTERM
    assert (tmp_path / "state").read_text() == "saved\n"


def test_what_is_left_of_the_group_after_a_normal_end_has_the_grace_too(tmp_path: Path) -> None:
    slow = f'trap "echo saved > {tmp_path}/state; exit" TERM; echo ready; while :; do sleep 0.01; done'

    async def test() -> int:
        process = await shell(f"sh -c '{slow}' &")
        await process.wait()
        await ready(process)
        return await shut(process, 20_000)

    assert run(test()) == 0
    assert (tmp_path / "state").read_text() == "saved\n"


def test_a_stopped_process_can_be_ended() -> None:
    async def test() -> ProcessExit:
        process = await shell("trap 'exit 8' TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done")
        await ready(process)
        await when(lambda: b") T" in Path(f"/proc/{process.pid}/stat").read_bytes(), "it to stop")
        await shut(process, 20_000)
        return await process.wait()

    assert run(test()).code == 8


def test_end_may_be_said_twice_and_at_once() -> None:
    async def test() -> list[int]:
        process = await shell("setsid sh -c 'echo ready; exec sleep 1000' & exec sleep 1000")
        await ready(process)
        both = await asyncio.gather(process.end(10), process.end(0))
        return [*both, await shut(process)]

    assert sorted(run(test()))[-1] == 1
