"""The simulator: the same nodes and coordinator in virtual time, with faults grown from a seed.

    world      the clock, the scheduler, processes, the story of what happened
    network    connections between processes: ordered, delayed, broken, partitioned
    memory     a store in memory that knows what power loss may do to it
    disk       a log's writer on such a disk that is slow, full, broken or loses power
    server, node_host, coordinator_host
               the hosts of the pure machines
    clients    subscribers and producers
    lives      what runs note besides logs: promises, amnesia, loops
    launcher   Spark's part: starts what has died again, sometimes twice
    faults     what goes wrong, and when
    scenarios  small random queries
    check      what must hold while it runs
    run        one seed from beginning to end

What always holds: a run is a function of its seed.  Nothing here reads a clock, a file, or an order
that the interpreter is free to choose.
"""
