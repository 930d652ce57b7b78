"""The sensors on this machine, and the monitor, its leases and its views on a real Ray."""
