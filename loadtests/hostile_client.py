"""Sends the cases of the fuzz, one after the other: `python -m loadtests.hostile_client URL SEED KIND ...`.

It is a process of its own, so that building ten mebibytes doesn't stand in the way of the clock that measures. For each
case it prints one line of JSON: its kind, when it was sent and when it was over (of the machine's monotonic clock), and
the status, or what broke.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import time
from urllib.parse import urlsplit

from loadtests.hostile import BODIES, SCHEMAS, encode_body
from loadtests.hostile_answers import build_request_for

CASE_S = 30.0
REST_S = 0.3
ANSWER_BYTES_MAX = 64 * 1024 * 1024


def build_raw(kind: str, seed: str) -> bytes:
    """Encode the body of the case of this kind that belongs to this seed."""
    make = (BODIES | SCHEMAS).get(kind)
    return encode_body(make(random.Random(f"{seed}/{kind}")) if make else build_request_for(kind, seed))


def send(url: str, raw: bytes, session: str) -> int | str:
    """Send one request and read its answer to the end; return the status."""
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=CASE_S)
    headers = {"content-type": "application/json", "x-mlx-stack-session": session, "x-mlx-stack-deadline": str(CASE_S)}
    try:
        connection.request("POST", "/v1/chat/completions", raw, headers)
        response = connection.getresponse()
        response.read(ANSWER_BYTES_MAX)
        return response.status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def main() -> None:
    """Send them all."""
    url, seed, *kinds = sys.argv[1:]
    for number, kind in enumerate(kinds):
        raw = build_raw(kind, f"{seed}/{number}")
        begun_s = time.monotonic()
        status = send(url, raw, f"hostile-{seed}-{number}")
        case = {"kind": kind, "begun_s": begun_s, "ended_s": time.monotonic(), "status": status}
        print(json.dumps(case), flush=True)
        time.sleep(REST_S)


if __name__ == "__main__":
    main()
