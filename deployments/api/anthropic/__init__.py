"""Anthropic's Messages: requests, answers, streams and errors in its shapes, over the one internal request."""
