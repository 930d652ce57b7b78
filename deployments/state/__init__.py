"""What outlives a request: the state actor that all Router replicas share."""
