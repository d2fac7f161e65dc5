"""Tokens to batches."""
