"""The durable log of one partition: frames, segments, recovery, readers, and the writer's machine.

Pure: files, threads, clocks and random numbers are reached only through a `Store` and a host.

    frame, columns      the record of one turn, and its payloads
    store, memory       the interface to storage; a model of it that loses power
    files/              what the files hold, byte by byte
    reading/            which bytes are the log, and its frames in order
    writing/            the writer as a machine, and what a host owes to it
    log, contents       create, open, claim; what a log of an operator says of itself
    recover             where a log ends after a crash
    retention, verify   what may go; what is there
"""
