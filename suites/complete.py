"""Stand-in until the adapters' own module is merged."""

from __future__ import annotations


def missing(question, answer, promised):
    return []
