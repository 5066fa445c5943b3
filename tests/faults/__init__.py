"""Real hubs that are killed, starved and lied to, and a checker that knows what they promised.

    nursery    starts hubs quickly: a process that has everything loaded and forks
    sabotage   what is done to a hub from inside before it serves: kill points, a disk that fails or is slow
    oplog      what was sent, what was answered, what consumers saw
    writers    load through the doors, with stock clients or by hand
    readers    everything back, over HTTP and over Kafka
    checker    the promises, checked against the log
    campaign   rounds of load, kill, restart, check; `python -m tests.faults --rounds 1000 --seed 7`
"""
