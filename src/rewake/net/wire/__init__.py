"""The wire between nodes, clients and the coordinator: sockets, and the clocks of their deadlines.

    fields, codec    messages as bytes and back (pure)
    decoder          bytes as they arrive, cut into frames (pure)
    authentication   both ends prove that they know the query's token (pure)
    addresses        who can be reached where, and what a socket owes to that
    connection       one non-blocking socket
    listener         accepts connections, keeps strangers few
    loop             one thread that serves them all

What always holds: no message of an unauthenticated peer reaches anybody; nothing is allocated for
a length before the length has been checked; a peer can cause no error but `BadPeer`, which ends
its own connection and no other.
"""
