"""Sources and sinks: where streams begin and end outside of Rewake (CEC II: replayable input).

A source or sink is a small value: it is part of a query, has a JSON description for the query's
fingerprint, and travels to the node that opens it.  An edge package: these are the modules that
read and write files of the outside world.

What always holds: a source gives the same stream events, cut at the same positions, however often
and from wherever it is read; or it raises an error that says why it cannot.  What a sink has
committed is there exactly once, whatever died when.
"""
