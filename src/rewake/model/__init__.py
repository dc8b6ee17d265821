"""Values shared by every layer: stream events, errors, names, units.  No behaviour, no effects."""
