"""`make demo`: this machine as a device, its telemetry through every part of Gatehouse, and a page that shows it.

    telemetry   what psutil knows about this machine, as readings
    device      publishes the readings over MQTT once a second
    events      what happens here: processes over Kafka, alarms over HTTP
    jobs        Spark: the archive and the statistics in one session
    table       how large the archive is, sent to the hub for the page
    page        serves `page.html`, the one page
    stage       starts and stops all of it in the right order
    replay      a day's worth of telemetry in seconds
"""
