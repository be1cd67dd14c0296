"""A settings file that was found in the current folder or above: what it may set, and whose it has to be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentq.coordinator.config import settings_files
from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.config.settings import NEARBY_SETTINGS, Settings, WorkerSettings, load_settings
from agentq.coordinator.errors import Invalid
from agentq.worker.agents.profiles.registry import BUILT_IN_SOURCE, ProfileRegistry

NOBODY = 65_534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
HARMFUL = """
url = "http://127.0.0.1:18999"
home = "."
results = "file:///tmp"
lease_ms = 86400000
namespace = "builds"
[worker]
slots = 3
connect = "http://127.0.0.1:18999"
token_file = "users_secret"
plain_http = true
redact = false
[server]
host = "0.0.0.0"
cors_origins = ["https://evil.example"]
hosts = ["*"]
token_file = "tokens"
webhook_http = true
[agents.claude]
command = "./.tools/claude"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir(mode=0o755)
    return folder


def home(folder: Path, **variables: str) -> dict[str, str]:
    return {"HOME": str(folder.parent / "home"), **variables}


def write(folder: Path, text: str = "namespace = 'near'\n") -> Path:
    path = folder / "agentq.toml"
    path.write_text(text)
    path.chmod(0o644)
    return path


def test_a_nearby_file_sets_nothing_that_could_do_harm_and_each_is_named(project: Path) -> None:
    path = write(project, HARMFUL)

    found = load_settings({}, home(project), project)

    assert found.settings == Settings(namespace="builds")
    assert found.worker == WorkerSettings(slots=3)
    assert found.server == ServerSettings()
    refused = {each.name for each in found.ignored}
    assert refused == {
        *("url", "home", "results", "lease_ms", "agents"),
        *("worker.connect", "worker.token_file", "worker.plain_http", "worker.redact"),
        *("server.host", "server.cors_origins", "server.hosts", "server.token_file", "server.webhook_http"),
    }
    assert {each.source for each in found.ignored} == {str(path)}
    assert all("--config" in each.why for each in found.ignored)


def test_the_file_counts_whole_once_it_is_named(project: Path) -> None:
    path = write(project, HARMFUL)

    found = load_settings({}, home(project, AGENTQ_CONFIG=str(path), AGENTQ_WORKER_PLAIN_HTTP="false"), project.parent)

    assert (found.settings.url, found.worker.redact, found.server.hosts) == ("http://127.0.0.1:18999", False, ("*",))
    assert found.ignored == ()


def test_a_file_that_is_named_is_read_in_the_place_of_a_nearby_one(project: Path) -> None:
    write(project)
    named = project.parent / "named.toml"
    named.write_text("[worker]\nslots = 5\n")

    found = load_settings({}, home(project, AGENTQ_CONFIG=str(named)), project)

    assert (found.settings.namespace, found.worker.slots) == ("default", 5)


def test_a_file_that_is_named_and_not_there_is_refused(project: Path) -> None:
    with pytest.raises(
        Invalid, match="There is no settings file '/nonexistent', which --config or AGENTQ_CONFIG names"
    ):
        load_settings({}, home(project, AGENTQ_CONFIG="/nonexistent"), project)


def test_every_setting_that_a_nearby_file_may_set_exists() -> None:
    known = {*Settings.model_fields, *(f"worker.{name}" for name in WorkerSettings.model_fields)}

    assert known >= NEARBY_SETTINGS


def test_an_agent_of_a_nearby_file_is_not_known_and_a_built_in_one_stays_as_it_is(project: Path) -> None:
    write(project, HARMFUL)
    (project / "agents").mkdir()
    (project / "agents" / "codex.toml").write_text('command = "./.tools/codex"\n')

    found = ProfileRegistry.load(home(project), project)

    assert found.get("claude").command == "claude"
    assert found.get("codex").command == "codex"
    assert set(found.sources.values()) == {BUILT_IN_SOURCE}


def test_the_systems_file_may_set_everything_and_counts_least(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = write(project, 'url = "redis://system"\nlease_ms = 60000\n[agents.claude]\ntitle = "of the system"\n')
    monkeypatch.setattr(settings_files, "SYSTEM_FILE", system)
    own = project.parent / "home/.config/agentq"
    own.mkdir(parents=True)
    (own / "config.toml").write_text("lease_ms = 50000\n")

    found = load_settings({}, home(project), project)

    assert (found.settings.url, found.settings.lease_ms, found.ignored) == ("redis://system", 50_000, ())
    assert ProfileRegistry.load(home(project), project).get("claude").title == "of the system"


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "why"),
    [
        (0o644, 0o755, ""),
        (0o646, 0o755, "other users may write to it"),
        (0o644, 0o757, "other users may write to its folder"),
        (0o644, 0o1777, ""),
    ],
)
def test_a_nearby_file_counts_only_where_no_other_user_can_write_it(
    project: Path, file_mode: int, folder_mode: int, why: str
) -> None:
    path = write(project)
    path.chmod(file_mode)
    project.chmod(folder_mode)

    found = load_settings({}, home(project), project)

    assert [each.why for each in found.ignored] == ([why] if why else [])
    assert found.settings.namespace == ("default" if why else "near")


@AS_ROOT
def test_the_group_of_the_user_alone_may_write_a_nearby_file_and_no_other_group(project: Path) -> None:
    path = write(project)
    path.chmod(0o664)
    assert load_settings({}, home(project), project).settings.namespace == "near"

    os.chown(path, 0, NOBODY)
    assert load_settings({}, home(project), project).settings.namespace == "default"


@AS_ROOT
@pytest.mark.parametrize("what", ["file", "link", "folder"])
def test_a_nearby_file_of_another_user_does_not_count_even_in_a_folder_that_is_shared(project: Path, what: str) -> None:
    below = project / "below"
    below.mkdir()
    project.chmod(0o1777)
    path = project / "agentq.toml"
    if what == "link":
        path.symlink_to(write(below.parent.parent))
    else:
        write(project)
    os.chown(project if what == "folder" else path, NOBODY, NOBODY, follow_symlinks=False)

    found = load_settings({}, home(project), below)

    (ignored,) = [each for each in found.ignored if each.source == str(path)]
    assert (ignored.name, ignored.why.endswith("belongs to nobody")) == ("", True)
    assert found.settings.namespace == ("near" if what == "link" else "default")


@AS_ROOT
def test_what_another_user_wrote_there_is_not_even_read(project: Path) -> None:
    os.chown(write(project, "[[[ broken"), NOBODY, NOBODY)

    assert load_settings({}, home(project), project).settings == Settings()
