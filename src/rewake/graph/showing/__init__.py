"""A plan for people: as text and as a picture."""
