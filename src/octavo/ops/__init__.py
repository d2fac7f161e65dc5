"""Mathematics as functions: no weights, no state."""
