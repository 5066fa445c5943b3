"""Half messages: stored, with an id, and in no partition until somebody decides about them.

    half_records   pages of half messages, as bytes
    halves         taking them in, reading them back, and what becomes of them, each within one frame

Who decides, when and why is not the kernel's business: see `transactions/`.
"""
