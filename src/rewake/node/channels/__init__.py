"""What comes in and goes out: inputs merged into turns, outputs kept while they are needed."""
