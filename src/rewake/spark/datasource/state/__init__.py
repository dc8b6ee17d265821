"""The state of operators as DataFrames."""
