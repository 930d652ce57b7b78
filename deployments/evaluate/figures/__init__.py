"""Figures: shares with intervals, tables, verdicts, the learned chain, and the comparison of two reports."""
