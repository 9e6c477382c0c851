"""Methods that measure: models, runs, and other tools' results."""
