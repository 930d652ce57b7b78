"""`POST /v1/responses`: OpenAI's Responses API as a dialect, translated into chat completions at the HTTP boundary."""
