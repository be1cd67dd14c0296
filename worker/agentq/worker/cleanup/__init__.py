"""Cleanup after earlier workers: processes, files, leases."""
