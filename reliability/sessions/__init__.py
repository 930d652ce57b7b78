"""Which session a request belongs to, where its client names none.

`trail` digests what a request shows of what came before; `conversations` follows the conversations that are known.

Invariants: no digest depends on how a client spells what it was answered; a request that begins anew is never given the
session of another one.
"""

from reliability.sessions.conversations import Conversations
from reliability.sessions.trail import Answered, Trail, describe_answer, name_request, read_trail

__all__ = ["Answered", "Conversations", "Trail", "describe_answer", "name_request", "read_trail"]
