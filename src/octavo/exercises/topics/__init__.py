"""The exercises, one module a topic."""
