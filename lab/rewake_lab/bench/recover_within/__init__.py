"""`rewake bench recover-within`: promised recovery times, kept and missed."""
