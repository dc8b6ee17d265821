"""NEXMark: its queries, what they must answer, and drills that compare the two.

prefix      the first so many events as tables
answers     the answers of q1 to q8 and q12 over a prefix, by DuckDB
inputs      the streams that the queries read
queries     the queries on Rewake's operators
functions   what they compute over keys
drill       a query, broken on purpose, against its answer
"""
