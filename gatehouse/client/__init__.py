"""The Python client of a hub: `gatehouse.Client` (asynchronous) and `gatehouse.SyncClient` (for threads).

    errors.py      what a call can end in
    message.py     messages as sent and as received
    retry.py       how often a call is repeated, and after how long
    door.py        one request to the HTTP door, repeated where that is safe
    batching.py    gathers messages that are published without waiting
    client.py      the calls
    groups.py      the calls about groups and leases
    consumer.py    runs a handler for every message of a group
    settling.py    tells the hub what became of them, and renews leases
    transaction.py half messages around the caller's own work
    check_back.py  answers the hub's questions what became of them
    handled.py     remembers handled messages in the consumer's own database
    sync.py        the same for threads

A client of the HTTP door and nothing else: it imports nothing of the server. docs/client.md shows how it is used.
"""
