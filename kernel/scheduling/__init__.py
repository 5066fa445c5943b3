"""Messages to be delivered later: kept as state, appended to where they go when they fall due.

    schedule_records   the state records of a schedule, as bytes
    schedule           when a repeated message falls due
    cron               cron expressions, one way to say that
    timers             what falls due before a horizon, in memory; the rest is in the store
    plan               what one frame does to schedules
    book               what all below share: timers, counts, what is settled and not yet durable
    accepting          messages come in
    at_hand            the messages of the next timers, read before they fall due
    destinations       where a message goes that was taken earlier
    lane               what falls due by one of the two clocks, and its alarm
    delivering         what falls due is appended; what the disk refused is tried again
    queries            list, show, recall
    sweeping           what became of schedules is forgotten after a day
    scheduling         all of it, as the kernel sees it
"""
