"""Records and batches of them: Kafka's format v2, in which every message is stored."""
