"""Maps errors of the server to exceptions, and tells which of them are transient."""

from __future__ import annotations

from redis import exceptions

from agentq.coordinator import errors


class NoGroup(errors.AgentqError):
    """The stream, or its consumer group, does not exist."""


class NoTls(exceptions.ConnectionError):
    """What listens at the address does not speak TLS, as far as can be seen. Asking again would only take longer."""


# These pass by themselves within moments, so the same words are sent again.
TRANSIENT_ERRORS = {
    "LOADING": "is still loading its data",
    "BUSY": "is busy with a long script",
    "TRYAGAIN": "is moving these keys to another node",
    "MOVED": "has moved these keys to another node",
    "ASK": "is moving these keys to another node",
    "CLUSTERDOWN": "belongs to a cluster that is not complete at the moment",
    "MASTERDOWN": "is a replica that has lost its primary",
    "READONLY": "is a replica and takes no writes; if no failover is going on, name the primary instead",
    "NOREPLICAS": "has fewer replicas than it demands before it takes a write",
}

# These do not pass within moments; nothing was changed.
FULL_ERRORS = {
    "OOM": "is at its memory limit (maxmemory) and takes no new work until some is done",
    "MISCONF": "cannot write its data to disk and refuses changes; see its log",
}

# After these, the known topology may be wrong, and every open link may lead to the wrong server.
REROUTE_ERRORS = {"READONLY", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "ASK", "UNBLOCKED"}

# redis-py takes the code off the errors that it has a class for. Subclasses stand before their bases.
EXCEPTION_CODES: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.NoScriptError, "NOSCRIPT"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.AuthenticationError, "NOAUTH"),
)

# What a script is told that runs a command which its user may not run, by Redis 7.0, and by its successors.
DENIED_IN_SCRIPT = ("The user executing the script can't", "ACL failure in script")


def error_code(fault: Exception) -> str:
    """The word by which the server names a refusal; empty when there was no answer at all."""
    for kind, word in EXCEPTION_CODES:
        if isinstance(fault, kind):
            return word
    if any(phrase in str(fault) for phrase in DENIED_IN_SCRIPT):
        return "NOPERM"
    return str(fault).partition(" ")[0] if isinstance(fault, exceptions.ResponseError) else ""


def is_transient(fault: Exception) -> bool:
    """Whether the same words, sent again in a moment, may succeed."""
    return error_code(fault) in TRANSIENT_ERRORS or (is_link_failure(fault) and not isinstance(fault, NoTls))


def is_link_failure(fault: Exception) -> bool:
    """Whether the link itself failed, so that it is unknown if the command arrived."""
    broken = isinstance(fault, exceptions.ConnectionError | exceptions.TimeoutError)
    return broken and not error_code(fault)


def needs_rediscovery(fault: Exception) -> bool:
    """Whether to refresh the topology before the next try."""
    return is_link_failure(fault) or error_code(fault) in REROUTE_ERRORS


def translate_error(fault: Exception, server: str) -> errors.AgentqError:
    """The error that a caller gets: an answer is never called Unreachable, and no answer never anything else."""
    word, text = error_code(fault), str(fault).rstrip(". ")
    if word in TRANSIENT_ERRORS or word in FULL_ERRORS:
        return errors.TryLater(f"The server {server} {(TRANSIENT_ERRORS | FULL_ERRORS)[word]}.")
    if word == "NOAUTH":
        return errors.LoginFailed(f"The server {server} does not accept the user and password in its address: {text}.")
    if word == "NOPERM":
        return errors.NotAllowed(f"The server {server} does not allow that to this user: {text}.")
    if word == "NOGROUP" or "the stream key no longer exists" in text:
        return NoGroup(text)
    if isinstance(fault, NoTls):
        return errors.Unreachable(
            f"The server {server} does not answer as TLS does ({text}): is TLS on there? If not, write redis://."
        )
    if isinstance(fault, exceptions.InvalidResponse):
        return errors.Unreachable(f"What answers at {server} is not a Redis or Valkey server; check the address.")
    if is_link_failure(fault) or word == "UNBLOCKED":
        return errors.Unreachable(
            f"The server {server} cannot be reached ({text}); check that it runs, and its address."
        )
    return errors.AgentqError(f"The server {server} answered: {text}.")
