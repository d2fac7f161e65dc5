"""What a model is trained for: one module a task."""
