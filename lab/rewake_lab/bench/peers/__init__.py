"""`rewake bench peers`: the same work on Rewake, Spark's own state, Apache Flink and Bytewax.

Every contender is a program of its own (`programs/`, `nodes_program`, `spark_program`) that reads
the same item stream, keeps the same state with fault tolerance switched on, and says on standard
output what it has taken in and which results came out (`lines`).  The harness starts it, paces it,
kills it and starts it again (`application`, `lives`), and judges its results by an oracle that has
never heard of any of them (`oracle`).

What always holds: what is compared was measured in one run, one contender at a time; a result
counts only if it is right; a contender that is not there, or fails, costs its own row and no other.
"""
