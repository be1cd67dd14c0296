"""The public surface, as it is: what people, programs and other machines of ours hold on to.

Each test makes the text of one part anew and compares it with its file in `golden`. What changes on purpose is written
anew by

    uv run pytest tests/surface --rewrite-surface

and is seen, line by line, in the difference of the commit that changes it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from cli.conftest import Cli
from support.generated_docs import every_command
from support.golden_files import compare
from support.http_servers import MakeServing
from support.repositories import ALONE
from support.servers import Server
from support.world import World
from surface import named, parts, scenario, signatures, streams

from agentq import sdk, testing

GOLDEN = Path(__file__).parent / "golden"
PATIENT = {"heartbeat_ms": 1000, "lease_ms": 600_000, "forget_ms": 600_000}
"""Times in which no worker is lost, however slow a machine is."""
Golden = Callable[[str, Iterable[str]], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares the text of a part with its file."""
    rewrite = bool(request.config.getoption("--rewrite-surface"))

    def check(name: str, lines: Iterable[str]) -> None:
        text = "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"
        compare(GOLDEN / f"{name}.txt", text, rewrite=rewrite)

    return check


def test_the_help_of_every_command(golden: Golden) -> None:
    golden("commands", parts.commands())


def test_the_document_of_the_http_api(golden: Golden) -> None:
    golden("openapi", parts.openapi())


def test_the_routes_of_the_server_and_their_scopes(golden: Golden) -> None:
    golden("routes", parts.routes())


def test_the_metrics_and_their_labels(golden: Golden) -> None:
    golden("metrics", parts.metrics())


def test_the_frames_of_the_workers_websocket(golden: Golden) -> None:
    golden("worker_frames", parts.worker_frames())


def test_the_requests_of_the_socket_within_a_run(golden: Golden) -> None:
    golden("run_requests", parts.run_requests())


def test_the_events_and_their_fields(golden: Golden) -> None:
    golden("events", parts.events())


def test_the_scripts_their_arguments_and_replies(golden: Golden) -> None:
    golden("scripts", parts.scripts())


def test_the_keys_their_types_and_lifetimes(golden: Golden) -> None:
    golden("keys", parts.keys())


def test_the_settings_and_their_defaults(golden: Golden) -> None:
    golden("settings", parts.settings())


def test_the_variables_of_the_environment(golden: Golden) -> None:
    golden("variables", named.variables())


@pytest.mark.slow("imports in a process of its own what is named by strings, which is most of the product")
def test_the_modules_that_are_named_by_strings(golden: Golden) -> None:
    golden("modules", named.modules())


def test_the_signatures_of_the_libraries(golden: Golden) -> None:
    golden("libraries", [*signatures.library(sdk), *signatures.library(testing)])


@pytest.fixture
def scene(cli: Cli, real: World, here: Path, valkey: Server, monkeypatch: pytest.MonkeyPatch) -> scenario.Scene:
    """A machine that has no agent, and nobody's settings."""
    programs = here.parent / "programs"
    programs.mkdir()
    (programs / "git").symlink_to(str(shutil.which("git")))
    own = {"USER": "ann", "AGENTQ_HOME": str(here.parent / "data"), "PATH": str(programs)}
    for name, value in {**ALONE, **own}.items():
        monkeypatch.setenv(name, value)
    return scenario.Scene(cli, real, here, valkey.url)


@pytest.mark.parametrize("act", scenario.ACTS)
def test_what_verbs_print_as_json(act: str, scene: scenario.Scene, golden: Golden) -> None:
    scenario.ACTS[act](scene)

    golden(f"json_{act}", scene.lines())


def test_what_is_sent_while_something_is_followed(make_serving: MakeServing, valkey: Server, golden: Golden) -> None:
    golden("streams", streams.streams(make_serving(valkey, **PATIENT)))


def test_every_verb_that_knows_json_is_said() -> None:
    """The first lines of each are those of the scenario."""
    texts = [(GOLDEN / f"json_{act}.txt").read_text(encoding="utf-8") for act in scenario.ACTS]
    said = [line.removeprefix("# agentq ") for text in texts for line in text.splitlines() if line.startswith("# ")]
    known = {name for name, command in every_command() if any("--json" in each.opts for each in command.params)}

    unsaid = {name for name in known if not any(f"{words} ".startswith(f"{name} ") for words in said)}

    assert unsaid == set(scenario.NOT_SAID)
