"""Contamination of translation tests: `inject` makes it on purpose, `scan` looks for it in a training text."""
