"""Methods that make a model smaller: one file a paper."""
