"""Webhooks: the messages of a leased group, posted to a URL as signed CloudEvents.

    definition.py   what a webhook is told, how it is kept
    guard.py        which hosts and addresses may be connected to
    signing.py      Standard Webhooks: ids, timestamps, signatures
    sender.py       one POST: no redirects, nothing unbounded
    asker.py        one webhook that is asked what became of transactions
    runner.py       one webhook at work: takes from its group, posts, settles
    webhooks.py     all of them: kept as definitions in the log, so a restart and a backup have them
"""
