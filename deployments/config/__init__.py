"""The configuration: what it may say, where its files are, and the errors of a wrong one."""
