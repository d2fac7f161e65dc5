"""Files: atomic writes, run folders, compressed streams, GGUF; memory and progress."""
