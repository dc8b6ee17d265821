"""The event stream of the NEXMark benchmark: persons who open auctions and bid in them.

    numbers   which event is where: kinds, ids, order, times; arithmetic alone
    draws     randomness as a function of seed, event and column
    texts     columns of random text
    columns   the columns of persons, auctions and bids
    stream    stretches of the stream, of one kind or of all
    source    the stream as sources

What always holds: an event is a function of the seed and its number alone, and its place a function
of its number.  So any stretch can be made again at any time, in any process, cut in any way.
"""

from rewake_lab.nexmark.events.source import NexmarkReader, NexmarkSource
from rewake_lab.nexmark.events.stream import SCHEMAS, NexmarkStream

__all__ = ["SCHEMAS", "NexmarkReader", "NexmarkSource", "NexmarkStream"]
