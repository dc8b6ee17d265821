"""What logs and checkpoints hold, every checksum verified, for `rewake inspect`."""
