"""The way of a run through the server, end to end."""

from __future__ import annotations

from serving import COMMAND, Serving


def test_a_run_is_submitted_found_and_listed(serving: Serving) -> None:
    with serving.client() as client:
        made = client.post("/runs", json=COMMAND)
        run = made.json()["id"]

        assert (made.status_code, made.json()["created"]) == (201, True)
        assert client.get(made.headers["location"]).json()["state"] == "pending"
        assert [each["id"] for each in client.get("/runs").json()["runs"]] == [run]
        assert client.get("/ready").json()["ready"]
