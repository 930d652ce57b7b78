"""From the text of an answer to the calls in it: a scanner, and a reader for each notation."""
