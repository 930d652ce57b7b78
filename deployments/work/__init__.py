"""Work that is too large for the event loop: on a thread, or in processes with a bound."""
