"""What this server sends, held against the documents of the APIs that it speaks."""
