"""Runs in a Pod: asks every Service all the time and counts. Standard library only.

    python3 asker.py SERVICE ... openai:SERVICE ...

A target's Service is asked over a new connection each time, an endpoint over one that is kept.

One line of JSON a second: {"service": {"answered": n, "failed": m, "lastFailure": "..."}, ...}.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time

BODY = json.dumps(
    {"text_input": "The capital of France is", "max_tokens": 3, "bad_words": "", "stop_words": "", "stream": True}
)


def ask(service: str) -> None:
    """One question on a connection of its own; raises if the answer is not whole."""
    connection = http.client.HTTPConnection(service, 8000, timeout=60)
    try:
        connection.request(
            "POST",
            "/v2/models/ensemble/generate_stream",
            BODY,
            {"Content-Type": "application/json", "Connection": "close"},
        )
        response = connection.getresponse()
        events = [json.loads(line[5:]) for line in response.read().splitlines() if line.startswith(b"data:")]
        errors = [event["error"] for event in events if "error" in event]
        if response.status != 200 or errors:
            raise RuntimeError(f"HTTP {response.status} {errors}")
        if not "".join(event["text_output"] for event in events).strip():
            raise RuntimeError(f"an empty answer of {len(events)} events")
    finally:
        connection.close()


class Endpoint:
    """Asks an OpenAI endpoint over one connection, as clients with a pool do."""

    def __init__(self, service: str) -> None:
        self._connection = http.client.HTTPConnection(service, 80, timeout=60)
        self._body = json.dumps(
            {"model": service, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3, "temperature": 0}
        )

    def __call__(self, _service: str) -> None:
        try:
            self._connection.request("POST", "/v1/chat/completions", self._body, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
            body = response.read()
        except Exception:
            self._connection.close()  # the next question opens it again
            raise
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status} {body.decode()}")
        if not json.loads(body)["choices"][0]["message"]["content"].strip():
            raise RuntimeError("an empty answer")


class Counter(threading.Thread):
    def __init__(self, service: str) -> None:
        super().__init__(daemon=True)
        kind, _, name = service.rpartition(":")
        self.ask = Endpoint(name) if kind else ask
        self.service, self.answered, self.failed, self.last_failure = service, 0, 0, ""

    def run(self) -> None:
        while True:
            try:
                self.ask(self.service)
            except Exception as error:
                self.failed += 1
                self.last_failure = f"{type(error).__name__}: {error}"
                time.sleep(0.2)
            else:
                self.answered += 1


def main() -> None:
    counters = [Counter(service) for service in sys.argv[1:]]
    for counter in counters:
        counter.start()
    while True:
        time.sleep(1)
        line = {
            c.service: {"answered": c.answered, "failed": c.failed, "lastFailure": c.last_failure} for c in counters
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
