"""A model service that stands in for Anthropic's, OpenAI's and Google's: real agents work against it, offline and free.

What it answers is said in the prompt; see `scenarios`, and the README beside this.
"""

from agentq.testing.fake_models.http_server import FakeModelServer, ModelRequest

__all__ = ["FakeModelServer", "ModelRequest"]
