"""The durable log of one partition: frames, segments, recovery, readers, and the writer's machine.

Pure: files, threads, clocks and random numbers are reached only through a `Store` and a host.

    frame, columns             the record of one turn, and its payloads
    store, memory              the interface to storage; a model of it that loses power
    layout, descriptor, mark,
    floor, segment, index      what the files hold, byte by byte
    claims                     one writer at a time
    chain, scan, recover       which bytes are the log, and where it ends
    view, seek, cursor, reader reading
    log                        create, open, claim
    commands, pipeline, host   the writer as a machine, and what a host owes to it
    retention, verify          what may go; what is there
"""
