"""Ray Serve's side: a tier's replica, the handle to it, routing, sleep, status, and the file that says what runs."""
