"""What each family of models costs, part by part: parameters, operations, bytes of state."""
