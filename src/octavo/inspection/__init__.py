"""Looking inside models. It only reads."""
