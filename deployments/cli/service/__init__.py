"""The server as a service of the user's: what is written for systemd or launchd, and how either is asked."""
