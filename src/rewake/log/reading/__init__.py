"""Reading a log: which bytes are the log, where to begin, and its frames in order."""
