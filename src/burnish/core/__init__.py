"""Errors, methods, runs, recipes, claims, extras and progress: everything that needs no torch."""
