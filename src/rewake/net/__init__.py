"""What runs a query for real: sockets, processes, files.

wire      messages between nodes, clients and the coordinator
nodes     the real host of a node
queries   a query that runs: its coordinator, its processes, its copies
clients   reading a stream and producing into an entry
shards    operators inside Spark's micro-batches
"""
