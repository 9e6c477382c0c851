"""The command line: one command a method, derived from the method itself, and a few commands around them."""
