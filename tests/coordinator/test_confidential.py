"""What of a run is left out where it is shown."""

from __future__ import annotations

import pytest

from agentq.coordinator.security.secret_fields import REDACTED, is_secret_name, redact_spec

GITHUB = "ghp_" + "a1B2" * 9
STRIPE = "rk_live_" + "a1B2" * 6


@pytest.mark.parametrize(
    "name",
    [
        *("AZURE_STORAGE_CONNECTION_STRING", "OTEL_EXPORTER_OTLP_HEADERS", "JWT", "COOKIE", "DBPASS", "DB_PASS"),
        *("SLACK_WEBHOOK_URL", "STRIPE", "SENTRY_DSN", "SMTP_PWD", "SESSION_COOKIE", "PASSWORD_SALT", "REDIS_PASS"),
        *("API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "APIKEY", "BEARER", "WEBHOOK_SIGNATURE"),
    ],
)
def test_a_variable_that_is_called_like_a_secret_is_one(name: str) -> None:
    assert is_secret_name(name)
    assert redact_spec({"env": {name: "anything"}}) == {"env": {name: REDACTED}}


@pytest.mark.parametrize("name", ["PATH", "PWD", "MAX_TOKENS", "KEYBOARD", "COMPASS", "TOKEN_FILE", "USER", "BYPASS"])
def test_a_variable_that_is_called_otherwise_is_shown(name: str) -> None:
    assert redact_spec({"env": {name: "anything"}}) == {"env": {name: "anything"}}


def test_what_looks_like_a_secret_is_left_out_of_every_text_of_a_run() -> None:
    spec = {
        "argv": ["curl", "-H", f"Authorization: Bearer {GITHUB}", f"--key={STRIPE}"],
        "prompt": f"Push with {GITHUB} to https://me:{'pass'}word@git.example/a.git.",
        "env": {
            "DATABASE_URL": "postgres://u:hunter2@db/x",
            "STORAGE": f"AccountName=x;AccountKey={'a1B2' * 22}==;EndpointSuffix=core",
            "HOOK": "https://hooks.slack.com/services/T00000000/B00000000/abcdefghijklmnop",
        },
        "args": [{"nested": [GITHUB, 3, None]}],
        "workspace": {"repository": "https://u:pw@git.example/a.git"},
        "priority": 3,
    }

    shown = redact_spec(spec)

    assert list(shown) == list(spec)
    assert shown["argv"] == ["curl", "-H", "Authorization: Bearer …", "--key=rk_live_…".replace("k_live_", "")]
    assert shown["prompt"] == "Push with … to https://me:…@git.example/a.git."
    assert shown["env"] == {
        "DATABASE_URL": "postgres://u:…@db/x",
        "STORAGE": "AccountName=x;AccountKey=…;EndpointSuffix=core",
        "HOOK": "https://hooks.slack.com/services/…",
    }
    assert shown["args"] == [{"nested": ["…", 3, None]}]
    assert shown["workspace"] == {"repository": "https://u:…@git.example/a.git"}
    assert shown["priority"] == 3
