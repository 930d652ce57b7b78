"""Who is asked: any URL over HTTP, its speed, and the machine that it runs on."""
