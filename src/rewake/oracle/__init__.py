"""What queries must yield, worked out in other ways than the engine does.

    aggregates   windows of every kind, one tuple at a time
    joins, operators   joins; sessions, sorts and resamples
    items        count windows over the item stream, for streams too long for those above
    verdict      what a comparison found

What always holds: nothing here shares code with the engine that it judges.
"""
