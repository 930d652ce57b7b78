"""The report as a person reads it: one HTML page with its plots, and a Markdown summary."""
