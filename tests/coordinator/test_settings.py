"""Settings: which layer counts, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.config.settings import Settings, WorkerSettings, load_settings
from agentq.coordinator.errors import Invalid


@pytest.fixture
def near(tmp_path: Path) -> Path:
    """A folder within a project, in the home of a user."""
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    (tmp_path / ".config" / "agentq").mkdir(parents=True)
    return folder


def home(near: Path, **variables: str) -> dict[str, str]:
    return {"HOME": str(near.parent.parent), **variables}


def named(near: Path, path: Path, **variables: str) -> dict[str, str]:
    return home(near, AGENTQ_CONFIG=str(path), **variables)


def test_each_layer_stands_above_the_next(near: Path) -> None:
    project, user = near.parent / "agentq.toml", near.parent.parent / ".config/agentq/config.toml"
    user.write_text("namespace = 'user'\nurl = 'redis://user'\nlease_ms = 60000\ntick_ms = 1000\n")
    project.write_text("namespace = 'project'\nurl = 'redis://project'\nlease_ms = 50000\n")
    environment = named(near, project, AGENTQ_NAMESPACE="environment", AGENTQ_URL="redis://environment")

    found = load_settings({"url": "redis://flag", "namespace": None}, environment, near)

    assert found.settings == Settings(url="redis://flag", namespace="environment", lease_ms=50_000, tick_ms=1000)
    assert {name: source for name, source in found.sources.items() if source != "default"} == {
        "url": "--url",
        "namespace": "AGENTQ_NAMESPACE",
        "lease_ms": str(project),
        "tick_ms": str(user),
    }


def test_a_process_that_is_started_with_the_environment_of_settings_has_them_whatever_files_say(near: Path) -> None:
    (near / "agentq.toml").write_text("namespace = 'project'\nlease_ms = 50000\n")
    settings = Settings(url="redis://here", tick_ms=1000)

    found = load_settings({}, named(near, near / "agentq.toml", **settings.to_environment()), near)

    assert found.settings == settings == Settings.from_environment(settings.to_environment())


def test_what_workers_ask_for_has_a_table_and_variables_of_its_own(near: Path) -> None:
    project, user = near.parent / "agentq.toml", near.parent.parent / ".config/agentq/config.toml"
    user.write_text("[worker]\nslots = 2\nname = 'mine'\nlabels = {gpu = 'a100', disk = 'ssd'}\n")
    project.write_text("namespace = 'project'\n[worker]\nslots = 3\nqueues = ['a', 'b']\ndrain_grace_ms = 5\n")
    environment = home(near, AGENTQ_WORKER_QUEUES="c,d", AGENTQ_WORKER_LABELS="gpu=h100,os=linux")

    found = load_settings({}, environment, near)

    labels = {"gpu": "h100", "os": "linux"}
    assert found.worker == WorkerSettings(slots=3, queues=("c", "d"), labels=labels, name="mine", drain_grace_ms=5)
    assert {name: source for name, source in found.sources.items() if source != "default"} == {
        "namespace": str(project),
        "worker.slots": str(project),
        "worker.queues": "AGENTQ_WORKER_QUEUES",
        "worker.labels": "AGENTQ_WORKER_LABELS",
        "worker.name": str(user),
        "worker.drain_grace_ms": str(project),
    }


@pytest.mark.parametrize("labels", ["gpu", "gpu=", "=x", "a=b=c d"])
def test_labels_of_a_variable_are_pairs(near: Path, labels: str) -> None:
    with pytest.raises(Invalid, match="A setting in AGENTQ_WORKER_LABELS is wrong: labels"):
        load_settings({}, home(near, AGENTQ_WORKER_LABELS=labels), near)


@pytest.mark.parametrize("label", ["agent.claude=ready", "host=alpha", "worker=w", "version=1"])
def test_what_a_worker_finds_out_by_itself_cannot_be_set(near: Path, label: str) -> None:
    with pytest.raises(Invalid, match=r"by itself, (and it|so '[a-z.]+') cannot be set"):
        load_settings({}, home(near, AGENTQ_WORKER_LABELS=label), near)


def test_without_anything_every_setting_has_its_default(near: Path) -> None:
    found = load_settings({}, home(near), near)

    assert found.settings == Settings()
    assert found.worker == WorkerSettings()
    assert found.server == ServerSettings()
    of_worker = {f"worker.{name}" for name in WorkerSettings.model_fields}
    of_server = {f"server.{name}" for name in ServerSettings.model_fields}
    assert set(found.sources) == {*Settings.model_fields, *of_worker, *of_server}
    assert set(found.sources.values()) == {"default"}


def test_the_nearest_file_hides_those_further_up(near: Path) -> None:
    (near.parent / "agentq.toml").write_text("namespace = 'far'\n[worker]\nslots = 7\n")
    (near / "agentq.toml").write_text("namespace = 'near'\n")

    found = load_settings({}, home(near), near)

    assert (found.settings.namespace, found.worker.slots) == ("near", 1)


def test_the_users_file_may_be_elsewhere(near: Path, tmp_path: Path) -> None:
    (tmp_path / "etc" / "agentq").mkdir(parents=True)
    (tmp_path / "etc" / "agentq" / "config.toml").write_text("namespace = 'etc'\n")

    assert load_settings({}, home(near, XDG_CONFIG_HOME=str(tmp_path / "etc")), near).settings.namespace == "etc"
    assert load_settings({}, home(near, XDG_CONFIG_HOME="etc"), near).settings.namespace == "default"


def test_a_set_but_empty_variable_counts(near: Path) -> None:
    """So that `AGENTQ_URL= agentq ls` asks the server of one's own."""
    (near / "agentq.toml").write_text("url = 'redis://team'\n")

    found = load_settings({}, named(near, near / "agentq.toml", AGENTQ_URL=""), near)

    assert (found.settings.url, found.sources["url"]) == ("", "AGENTQ_URL")


def test_a_home_in_a_file_is_relative_to_the_file(near: Path) -> None:
    (near.parent / "agentq.toml").write_text("home = '.agentq'\n")

    assert load_settings({}, named(near, near.parent / "agentq.toml"), near).settings.home == str(
        near.parent / ".agentq"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nmespace = 'x'", "There is no setting 'nmespace', which stands in {path}; there are url, namespace"),
        ("[runs]\nqueue = 'x'", "There is no setting 'runs', which stands in {path}"),
        ("namespace = ", "The settings in {path} cannot be read: Invalid value (at"),
        pytest.param("a = " + 100_000 * "[", "The settings in {path} cannot be read: they are nested too", id="deep"),
        pytest.param("#" * (1 << 20) + "\n", "in {path} cannot be read: it has more than 1048576 bytes.", id="large"),
        ("tick_ms = 'often'", "A setting in {path} is wrong: tick_ms: it should be a whole number"),
        ("namespace = 3", "A setting in {path} is wrong: namespace"),
        ("partitions = 0", "A setting in {path} is wrong: partitions"),
        ("[server]\ncors_origins = ['ui']", "A setting in {path} is wrong: cors_origins: 'ui' is no origin; one looks"),
        ("lease_ms = 1000", "A setting is wrong: lease_ms must be at least three times heartbeat_ms"),
    ],
)
def test_a_wrong_file_is_refused_by_name(near: Path, text: str, words: str) -> None:
    path = near / "agentq.toml"
    path.write_text(text)

    with pytest.raises(Invalid) as refused:
        load_settings({}, named(near, path), near)

    assert words.format(path=path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_text_is_refused(near: Path) -> None:
    (near / "agentq.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(Invalid, match="cannot be read"):
        load_settings({}, home(near), near)


def test_a_wrong_variable_is_named(near: Path) -> None:
    with pytest.raises(Invalid, match="A setting in AGENTQ_TICK_MS is wrong: tick_ms"):
        load_settings({}, home(near, AGENTQ_TICK_MS="soon"), near)


def test_the_address_can_be_in_a_file_that_a_variable_names(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("redis://:pw@queue.example\n")

    found = load_settings({}, {"AGENTQ_URL_FILE": str(secret)}, tmp_path)

    assert (found.settings.url, found.sources["url"]) == ("redis://:pw@queue.example", str(secret))
    both = {"AGENTQ_URL_FILE": str(secret), "AGENTQ_URL": "redis://own"}
    assert load_settings({}, both, tmp_path).settings.url == "redis://own"
    assert (
        load_settings({"url": "redis://flag"}, {"AGENTQ_URL_FILE": str(secret)}, tmp_path).settings.url
        == "redis://flag"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "AGENTQ_URL_FILE: the address in .* cannot be read: .*No such file"),
        ("\n", "is empty; write the server's address into it"),
    ],
)
def test_a_file_without_an_address_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    secret = tmp_path / "url"
    if text is not None:
        secret.write_text(text)

    with pytest.raises(Invalid, match=message):
        load_settings({}, {"AGENTQ_URL_FILE": str(secret)}, tmp_path)
