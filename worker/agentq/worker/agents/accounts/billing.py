"""The accounts of an agent: their order, and how the agent is made to use one."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from agentq.coordinator.errors import Invalid
from agentq.worker.agents.profiles import templates
from agentq.worker.agents.profiles.profile import Profile

DEFAULT_ACCOUNT = "default"
"""The account of an agent without named ones: the login on the worker's host."""


def order_accounts(profile: Profile, asked: str | None = None) -> list[str]:
    """Accounts in the order in which to try them; only the requested one, if any."""
    known = list(profile.accounts) or [DEFAULT_ACCOUNT]
    if asked is None:
        return known
    if asked not in known:
        near = get_close_matches(asked, known, 1)
        rest = f"did you mean {near[0]}?" if near else f"there {'are' if known[1:] else 'is'} {', '.join(known)}."
        raise Invalid(f"There is no account {asked!r} on this worker; {rest}")
    return [asked]


def build_gate_key(agent: str, account: str) -> str:
    """The key of the gate that is closed while the account is at its limit."""
    return f"account:{agent}:{account}"


def build_account_variables(profile: Profile, account: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """Variables that make the agent use an account, from the worker's environment."""
    found = profile.accounts.get(account)
    if found is None:
        order_accounts(profile, account)
        return {}
    return {name: _expand_variable(account, name, value, inherited) for name, value in found.env.items()}


def has_own_billing(profile: Profile, account: str, env: Mapping[str, str]) -> bool:
    """Whether a run with these variables brings its own credentials: then no account is to blame."""
    own, login = profile.accounts.get(account), profile.login.get("env")
    names = {*(own.env if own is not None else ()), *(login if isinstance(login, list) else ())}
    return not names.isdisjoint(env)


def _expand_variable(account: str, name: str, value: str, inherited: Mapping[str, str]) -> str:
    try:
        return templates.fill_text(value, inherited)
    except Invalid as invalid:
        raise Invalid(f"The account {account} cannot be used, for its {name}: {invalid}") from invalid
