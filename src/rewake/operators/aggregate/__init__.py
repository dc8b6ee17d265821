"""Aggregates over windows: the operator, its functions, and the accumulators behind them."""
