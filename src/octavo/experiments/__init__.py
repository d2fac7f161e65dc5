"""Tables of runs: compare, scale, domains."""
