"""The papers' experiments, run again: what is measured, how it is kept, how it is shown.

An experiment yields rows; rows are kept as Parquet beside a manifest; pages are made of what was
kept and never run anything.
"""
