"""Text that an option names: a file, or stdin."""

from __future__ import annotations

import sys

from agentq.coordinator.errors import Invalid


def read_text(path: str, option: str, most: int) -> str:
    """A file, or with `-` what comes in on stdin."""
    try:
        if path == "-":
            body = sys.stdin.buffer.read(most + 1)
        else:
            with open(path, "rb") as file:
                body = file.read(most + 1)
        if len(body) > most:
            raise Invalid(f"{option} gives more than {most} bytes, which is the most; put the rest in files.")
        return body.decode()
    except OSError as error:
        raise Invalid(f"{option} cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise Invalid(f"{option} takes text in UTF-8, and {path} is something else.") from None
