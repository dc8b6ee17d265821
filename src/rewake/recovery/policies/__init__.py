"""When to leave CHECK footprints (CEC III.A, Thesis 4.2): one interface, one policy per file.

A policy chooses among the open windows after each turn.  Its choice changes how long a recovery
takes and what normal operation pays for that; it never changes results (CEC III: "the choice of
these parameters does not affect correctness").
"""
