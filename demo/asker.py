"""Runs in a Pod: asks every target's Service all the time and counts. Standard library only.

    python3 asker.py SERVICE ...

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


class Counter(threading.Thread):
    def __init__(self, service: str) -> None:
        super().__init__(daemon=True)
        self.service, self.answered, self.failed, self.last_failure = service, 0, 0, ""

    def run(self) -> None:
        while True:
            try:
                ask(self.service)
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
