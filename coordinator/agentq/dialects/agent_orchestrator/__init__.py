"""The protocol that runners and clients of claude-agent-orchestrator speak, in its four variants; see README.md."""
