"""The HTTP edge as data: requests into `ChatRequest`, events into OpenAI JSON and SSE, the error table."""
