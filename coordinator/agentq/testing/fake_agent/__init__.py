"""A fake coding agent: it follows its prompt step by step without a model, and speaks the protocols of Claude Code,
Codex or ACP.

For tests and demos of limits, crashes, silence and resumed conversations. See README.md.
"""
