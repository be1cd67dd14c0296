"""An agent that asks no model: it does what its prompt says, word by word, and speaks as Claude Code, Codex or ACP do.

For tests and demos of everything around an agent: limits, crashes, silence, conversations that go on. See the README.
"""
