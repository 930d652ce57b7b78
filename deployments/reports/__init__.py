"""What is reported of a request when it is over: report, incidents, its line in the log."""
