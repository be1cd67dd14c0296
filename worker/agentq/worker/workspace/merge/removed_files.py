"""Files that a task removed although other tasks of its plan made them.

Few tasks are meant to do that. More often an agent worked on files without the others' work: so the run's log and the
plan's summary mention it.
"""

from __future__ import annotations

from agentq.worker.workspace.git.git_command import Git

EXAMINED_FILES_MAX = 100
"""For how many removed files to look up their authors."""
REPORTED_FILES_MAX = 20
SHOWN_CHARACTERS = 200


def find_removed_files(git: Git, since: str, landed: str, task: str) -> tuple[str, ...]:
    """Files removed by a commit that another task made after `since`, as `PATH (TASK)`."""
    over = ("--name-only", "-z", "--no-renames", "--no-ext-diff", "--no-textconv")
    removed = git("diff-tree", "-r", "--diff-filter=D", *over, f"{landed}^1", landed).split("\0")
    gone = [path for path in removed if path][:EXAMINED_FILES_MAX]
    if not gone:
        return ()
    form = "--format=%x01%(trailers:key=Agentq-Task,valueonly,separator=%x2C)%x01"
    paths = (f":(top,literal){path}" for path in gone)
    words = ("--reverse", "--first-parent", "-m", "--diff-filter=A", form, *over, f"{since}..{landed}^1")
    _, *records = git("log", *words, "--", *paths).split("\1")
    made_by: dict[str, str] = {}
    for maker, files in zip(records[::2], records[1::2], strict=True):
        made_by |= dict.fromkeys(files.strip("\0\n").split("\0"), maker)
    others = ((path, made_by.get(path, "")) for path in gone)
    return tuple(f"{_format_path(path)} ({maker})" for path, maker in others if maker not in ("", task))[
        :REPORTED_FILES_MAX
    ]


def _format_path(path: str) -> str:
    return (path if path.isprintable() else repr(path))[:SHOWN_CHARACTERS]
