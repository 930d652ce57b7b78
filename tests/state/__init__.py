"""The state actor, its journal and the way to it. No Ray here: the class itself runs, on real SQLite files."""
