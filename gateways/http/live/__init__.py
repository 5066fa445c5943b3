"""Messages as they come, to any number of readers: what Server-Sent Events and the WebSocket have in common.

    scope.py          which partitions a stream reads and which of their messages it shows
    positions.py      where a reader is in them, and the opaque word that says so (an event's id)
    blocks.py         some messages of one stream, encoded once for all its readers
    feed.py           the live end of one stream: reads each flush once, hands it to every reader that keeps up
    replay.py         a reader's own way through the log until it has caught up with the feed
    event_reader.py   one reader of Server-Sent Events
    feeds.py          the feeds that have readers, their heartbeat, what several of them share within a turn

A reader is in one of two states. *Live*: the feed writes to it. *Behind*: it reads the log at its own pace. Whoever
does not take what is written falls behind at once and holds up nobody; its place is a few numbers.
"""
