"""Models on the text of two domains."""
