"""Messages to be delivered later: kept as state, appended to where they go when they fall due.

    records    the state records of a schedule, as bytes
    timers     what falls due before a horizon, in memory; the rest is in the store
    plan       what one frame does to schedules
    scheduler  takes messages in, appends what is due, tries again what the disk refused
    queries    list, show, recall
    sweeper    forgets what became of schedules after a day
"""
