"""Pages that open offline: one frame, one stylesheet, sections and figures over plain data."""
