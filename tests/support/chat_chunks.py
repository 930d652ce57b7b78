"""What the chunks of an upstream's answer say."""

import json
from collections.abc import Collection

from deployments.tiers.hosted.chat_reader import ChatReader
from deployments.tiers.stream_matchers import merge_events
from reliability.types import Counted, Event


def events(parts: list[bytes], names: Collection[str] = ()) -> list[Event]:
    """What an answer says, whatever its running count was on the way: that stands behind each read."""
    reader = ChatReader("t", str, names=names)
    found = [event for part in parts if not reader.over for event in reader.feed(part)]
    found = found if reader.over else found + reader.end()
    return merge_events([event for event in found if not isinstance(event, Counted)])


def one(*chunks: object, names: Collection[str] = ()) -> list[Event]:
    """The events of an answer of these chunks; `names`: those of the declared tools."""
    return events([b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks], names)


def delta(finish: str | None = None, **fields: object) -> dict[str, object]:
    return {"choices": [{"delta": fields, "finish_reason": finish}]}
