"""Jobs that come with the hub: archive topics as a table, statistics over device readings as they arrive, and how fast
messages went their ways.

    settings     what can be set about a job; options and `gateways.toml` are made from it
    files        record batches to Parquet files, in the tasks
    delta        one commit per micro-batch on a Delta table, compaction
    parquet      the same for a plain folder of files
    writer       the two steps of a write as Spark knows them: tasks write, the driver commits
    archive      the streaming query that fills a table
    lateness     which readings came after their window was closed
    analytics    the streaming query that sends windowed statistics back to the hub
    journeys     rates and times of what the topic `journeys` tells of
    session      the Spark session that a job runs in
    arguments    the options of a job under spark-submit
    progress     what a running job tells its user
    failure      how a job fails: with one line
"""
