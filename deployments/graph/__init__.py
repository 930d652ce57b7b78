"""Ray Serve's side of a tier: its replica, the handle to it, routing, sleep, status, stop."""
