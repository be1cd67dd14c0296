"""Runs: submit, records, logs, outcomes, and the verbs that change them."""
