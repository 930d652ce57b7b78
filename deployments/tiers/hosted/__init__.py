"""The tier kind `hosted`: any server that speaks OpenAI chat completions."""
