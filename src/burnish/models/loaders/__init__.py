"""Other tools that load a model, each in a process of its own."""
