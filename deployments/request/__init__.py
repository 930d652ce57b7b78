"""One request from start to end: the attempt loop, one attempt, what it costs, the auxiliary judge."""
