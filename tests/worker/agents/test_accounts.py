"""Accounts of agents: their order, their gates, and what makes an agent use one."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.coordinator.errors import Invalid
from agentq.worker.agents.accounts import billing
from agentq.worker.agents.profiles.profile import Profile

WORKER = {"HOME": "/home/me", "WORK_KEY": "k-1", "EMPTY": "", "AGENTQ_TOKEN": "secret", "SLY": "$WORK_KEY"}


def profile(**of_accounts: dict[str, Any]) -> Profile:
    return Profile.model_validate(
        {
            "command": "x",
            "format": "text",
            "permissions": {},
            "accounts": {name: {"env": env} for name, env in of_accounts.items()},
        }
    )


def test_accounts_take_turns_in_the_order_in_which_they_stand() -> None:
    three = profile(work={}, home={}, beach={})

    assert billing.order_accounts(three) == ["work", "home", "beach"]
    assert billing.order_accounts(three, "home") == ["home"]
    assert billing.order_accounts(profile()) == billing.order_accounts(profile(), "default") == ["default"]


def test_an_unknown_account_is_answered_with_the_nearest() -> None:
    with pytest.raises(Invalid, match=r"There is no account 'wrok' on this worker; did you mean work\?"):
        billing.order_accounts(profile(work={}, home={}), "wrok")


def test_each_account_of_each_agent_has_a_gate_of_its_own() -> None:
    assert billing.build_gate_key("claude", "work") == "account:claude:work"


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ("plain", "plain"),
        ("~/.claude-work", "/home/me/.claude-work"),
        ("~", "/home/me"),
        ("$WORK_KEY", "k-1"),
        ("a${WORK_KEY}b", "ak-1b"),
        ("${MISSING:-~/x}", "/home/me/x"),
        ("${EMPTY:-other}", "other"),
        ("${MISSING:-}", ""),
        ("$$WORK_KEY", "$WORK_KEY"),
        ("$SLY", "$WORK_KEY"),
        ("a~b $(id) `id`", "a~b $(id) `id`"),
    ],
)
def test_an_accounts_variables_are_filled_in_once_from_the_workers(value: str, filled: str) -> None:
    assert billing.build_account_variables(profile(work={"K": value}), "work", WORKER) == {"K": filled}


@pytest.mark.parametrize("name", ["MISSING", "EMPTY", "AGENTQ_TOKEN"])
def test_an_account_whose_variable_is_not_there_cannot_be_used(name: str) -> None:
    with pytest.raises(Invalid, match=rf"The account work cannot be used, for its K: \${name} is not set"):
        billing.build_account_variables(profile(work={"K": f"${name}"}), "work", WORKER)
