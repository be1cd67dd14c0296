"""Queues of RQ taken over by lanes of ours."""
