"""What a tier says, on its way out: held, judged, counted, and passed on when it may leave."""
