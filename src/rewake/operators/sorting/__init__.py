"""BSort: tuples nearly in order, by a buffer (Hwang 2.2)."""
