"""What the files of a log hold, byte by byte, and what they are called."""
