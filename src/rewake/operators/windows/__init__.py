"""Windows: what a user may ask for, and the routers that find the parts a tuple belongs to."""
