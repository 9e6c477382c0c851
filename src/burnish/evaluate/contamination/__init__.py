"""Contamination of translation tests: `inject` makes it on purpose, `scan` and `probe` look for it."""
