"""Tests of one module each: those of `a/b/c.py` stand in `a/b/test_c.py` here."""
