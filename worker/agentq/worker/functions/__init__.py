"""Function runs: executed in persistent child processes of the worker, many in a round trip."""
