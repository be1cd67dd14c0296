"""Events and logs, sent to clients as they occur."""
