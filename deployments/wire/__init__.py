"""The HTTP edge as data: requests parsed into `ChatRequest`, events rendered into OpenAI JSON and SSE, the error table."""
