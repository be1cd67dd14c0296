"""A model service that stands in for Anthropic's, OpenAI's and Google's: real agents work against it, offline and free.

What it answers is said in the prompt; see `scenarios`, and the README beside this.
"""

from agentq.testing.models.serving import Asked, StubModels

__all__ = ["Asked", "StubModels"]
