"""Messages to be delivered later: kept as state, appended to where they go when they fall due.

    schedule_records   the state records of a schedule, as bytes
    schedule           when a repeated message falls due, by an interval or a cron expression
    timers             what falls due before a horizon, in memory; the rest is in the store
    plan               what one frame does to schedules
    book               what all below share: timers, counts, what is settled; what is forgotten after a day
    delivering         what falls due is appended: read before by two clocks, to where it goes now, again if refused
    queries            list, show, recall
    scheduling         all of it, as the kernel sees it, and how messages come in
"""
