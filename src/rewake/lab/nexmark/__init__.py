"""NEXMark: what its queries must answer.

prefix    the first so many events as tables
answers   the answers of q1 to q8 and q12 over a prefix, by DuckDB
"""
