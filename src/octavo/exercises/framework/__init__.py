"""How exercises are stated, checked, graded and printed."""
