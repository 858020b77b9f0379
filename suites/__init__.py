"""Verdicts: answers held against expectations and against one another."""
