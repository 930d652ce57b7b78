"""What the dialects say alike: parts of messages, blocks, tools, in their forms and in that of chat completions."""
