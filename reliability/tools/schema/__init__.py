"""The tools of a request and their schemas: read, bounded, and ready to judge with."""
