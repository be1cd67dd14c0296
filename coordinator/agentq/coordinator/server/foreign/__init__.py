"""The protocol that runners and clients of other programs already speak, in its three dialects; see README.md."""
