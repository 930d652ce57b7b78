"""What outlives a request: the state actor that all Router replicas share. README.md has its files and its laws."""
