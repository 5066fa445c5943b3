"""What is stored and in no partition until somebody decides: half messages, each with an id, and what Kafka's producers
send in transactions.

    half_records            pages of half messages, as bytes
    halves                  taking them in, reading them back, and what becomes of them, each within one frame
    producer_transactions   producers with a name: what they hold, and its end in one frame

Who decides about half messages, when and why is not the kernel's business: see `transactions/`.
"""
