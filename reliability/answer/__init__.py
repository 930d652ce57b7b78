"""The answer of a tier, on its way out: held, judged, counted, and passed on when it may leave."""
