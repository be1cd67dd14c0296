"""The two lanes of the suite: `pytest` runs what every change must pass, `pytest --full` runs everything.

The default lane needs nothing but PyPI and skips nothing. A test leaves it by a mark that says why:

- `full("why")`: too slow for every change.
- `needs("redis-server", …)`: needs a program or a right that a fresh machine may lack, by its name in REQUIREMENTS.
  Without it the full lane leaves the test out and names what is missing at its end; in CI it refuses to begin.

A test of the default lane that takes over three seconds says why by `slow("why")`; the others are listed at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

import pytest
from support.requirements import REQUIREMENTS

SLOW_S, SHOWN = 3.0, 10
FULL_LANE = (
    "The full lane adds every server flavour, 2,000 simulation seeds, chaos, kills of RQ workers, real agents, fuzzing "
    "and the wheel: uv run pytest --full"
)
NEEDS_OF_FIXTURES = {"redis7": {"redis-server"}, "full_disk": {"root"}, "tls": {"redis-server", "openssl"}}


@cache
def missing(name: str) -> bool:
    return not REQUIREMENTS[name].is_met()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("lanes").addoption("--full", action="store_true", help="run everything, not only the default lane")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full(why): runs in the full lane only")
    config.addinivalue_line("markers", "needs(*names): runs in the full lane only, and only with these requirements")
    config.addinivalue_line("markers", "promise(*names): tries to break these promises of the README")
    config.addinivalue_line("markers", "slow(why): may take over three seconds in the default lane")
    if is_full(config) and os.environ.get("CI"):
        lacking = [name for name, requirement in REQUIREMENTS.items() if requirement.in_ci and missing(name)]
        if lacking:
            raise pytest.UsageError(f"The full lane lacks {shown(lacking)}.")


def is_full(config: pytest.Config) -> bool:
    return bool(config.getoption("--full"))


def shown(names: list[str]) -> str:
    return ", ".join(f"{name} ({REQUIREMENTS[name].remedy})" for name in names)


def needed(item: pytest.Item) -> set[str]:
    """The requirements of a test, by its marks and its fixtures."""
    marked = {name for mark in item.iter_markers("needs") for name in mark.args}
    fixtures = getattr(item, "fixturenames", ())
    return marked.union(*(NEEDS_OF_FIXTURES[name] for name in NEEDS_OF_FIXTURES if name in fixtures))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to the other lane, and what this machine cannot run."""

    def runs(item: pytest.Item) -> bool:
        if is_full(config):
            return not any(missing(name) for name in needed(item))
        return not needed(item) and item.get_closest_marker("full") is None

    left_out = [item for item in items if not runs(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if runs(item)]


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Iterator[None]:
    yield
    if not is_full(config):
        unexplained = sorted(slow_reports(terminalreporter), reverse=True)
        if unexplained:
            terminalreporter.write_line(f"{len(unexplained)} took over {SLOW_S:.0f} s without a mark that says why:")
        for seconds, nodeid in unexplained[:SHOWN]:
            terminalreporter.write_line(f"  {seconds:.1f} s {nodeid}")
        terminalreporter.write_line(FULL_LANE)
    elif lacking := [name for name in REQUIREMENTS if missing(name)]:
        terminalreporter.write_line(f"Left out for want of {shown(lacking)}.", yellow=True)


def slow_reports(terminalreporter: pytest.TerminalReporter) -> list[tuple[float, str]]:
    """The tests that took too long and do not say why."""
    took: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and "slow" not in report.keywords:
                took[report.nodeid] = took.get(report.nodeid, 0.0) + report.duration
    return [(seconds, nodeid) for nodeid, seconds in took.items() if seconds > SLOW_S]
