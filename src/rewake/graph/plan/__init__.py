"""From the steps of a query to the nodes that run them."""
