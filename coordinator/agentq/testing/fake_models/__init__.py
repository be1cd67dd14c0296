"""A fake model service for Anthropic, OpenAI and Google: real agents work with it, offline and free of charge.

The prompt chooses its answers; see `scenarios.py` and README.md.
"""

from agentq.testing.fake_models.http_server import FakeModelServer, ModelRequest

__all__ = ["FakeModelServer", "ModelRequest"]
