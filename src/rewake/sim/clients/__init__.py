"""Who is outside of a simulated query: subscribers to its streams, producers for its entries."""
