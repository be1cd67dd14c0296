"""The environment of a run's process: an allowlist of the worker's variables, the run's own, and its identity."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.tracing import TRACEPARENT_VARIABLE as TRACEPARENT
from agentq.worker.output.secret_values import SecretValues
from agentq.worker.process.process_tree import COOKIE_VARIABLE, STARTER_VARIABLE, get_process_name

PASSED_VARIABLES = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR"),
        *("XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    )
)
PASSED_PREFIXES = ("LC_",)


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """Builds the environments of a worker's runs. They contain neither the server's address nor credentials."""

    namespace: str
    worker: str
    inherited: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    redacts: bool = True
    """Whether secrets are replaced in what runs write."""
    traced: Callable[[Claim, RunSpec], str | None] = lambda _, spec: spec.traceparent
    """The position of an attempt's processes in a trace."""

    def cookie(self, claim: Claim) -> str:
        """The mark of every process of an attempt."""
        return f"{self.namespace}/{claim.id}/{claim.fence}"

    def marks(self, claim: Claim) -> dict[str, str]:
        """The variables that mark processes which the worker starts for an attempt, beside its process."""
        return {COOKIE_VARIABLE: self.cookie(claim), STARTER_VARIABLE: get_process_name(os.getpid())}

    def secrets(self, env: Mapping[str, str]) -> SecretValues | None:
        """The secrets in an attempt's environment; None if nothing is redacted."""
        return SecretValues.of(env) if self.redacts else None

    def passed(self) -> dict[str, str]:
        """The worker's variables that every run gets."""
        inherited = self.inherited.items()
        return {
            name: value for name, value in inherited if name in PASSED_VARIABLES or name.startswith(PASSED_PREFIXES)
        }

    def build(
        self,
        claim: Claim,
        spec: RunSpec,
        overrides: Mapping[str, str],
        defaults: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, str]:
        """The whole environment of an attempt. The run's own variables win over all but its identity."""
        traceparent = self.traced(claim, spec)
        return {
            **self.passed(),
            **({TRACEPARENT: traceparent} if traceparent else {}),
            **({"AGENTQ_SESSION": spec.session} if spec.session else {}),
            **defaults,
            **spec.env,
            **overrides,
            "AGENTQ_RUN": self.cookie(claim),
            "AGENTQ_RUN_ID": claim.id,
            "AGENTQ_ATTEMPT": claim.fence.partition("-")[0],
            "AGENTQ_WORKER": self.worker,
        }
