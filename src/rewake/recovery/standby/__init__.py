"""A second process that holds what a node was, so that it goes on there at once (Hwang 3.3).

words      what the two places say to each other, as bytes
holding    the place that stands by: what it holds, and how it answers
relaying   where the node runs: every record is relayed, and output waits until it has arrived
passive    the other place holds checkpoints and what was recorded since
active     the other place computes along
"""
