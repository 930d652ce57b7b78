"""Which session a request belongs to, where its client names none.

- `trail`: what a request shows of what came before, as a handful of digests: its last answers, each with what stands
  before it. Made by whoever has the messages.
- `conversations`: the conversations that are known, and the answer to "whose is this?". One owner, who hears of every
  request and of every answer.

What must never happen: a digest that depends on how a client spells what it was answered; a request that begins anew
and is given the session of another one, living or ended.
"""

from reliability.sessions.conversations import Conversations
from reliability.sessions.trail import Answered, Trail, describe_answer, name_request, read_trail

__all__ = ["Answered", "Conversations", "Trail", "describe_answer", "name_request", "read_trail"]
