"""The laboratory: what measures Rewake and repeats the papers' experiments.

    commands    `rewake bench` and `rewake reproduce`
    bench       figures, side by side in one run; `peers` are other engines
    reproduce   the papers' experiments
    nexmark     the benchmark of an auction house: events, queries, answers
    spark       what Spark itself offers for the same work

Rewake knows nothing of it: it is found through entry points (lab/pyproject.toml).
"""
