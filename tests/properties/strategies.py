"""What the property tests draw from: addresses and levels, rich in the characters that doors treat specially."""
from __future__ import annotations

from hypothesis import strategies as st

SPECIAL = ["%", "25", "2E", "2F", "2B", "23", "00", "2e", "41", ".", "*", "$", " ", "ü", "a", "b", "x-1", "%2F", "%2E",
           "%25"]

pieces = st.sampled_from(SPECIAL)
level_texts = st.one_of(
    st.lists(pieces, max_size=6).map("".join),
    st.text(st.characters(exclude_characters="/+#\0", exclude_categories=["Cs"]), max_size=8),
)
"""One level of an address."""

raw_texts = st.one_of(
    st.lists(st.sampled_from([*SPECIAL, "/", "+", "#", "\0"]), max_size=8).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
"""Any text, with what an address cannot hold."""

any_addresses = st.lists(level_texts, min_size=1, max_size=5).map("/".join).filter(bool)
"""Every valid address, those of the hub included."""

addresses = any_addresses.filter(lambda address: not address.startswith("$"))
"""Every address that use may create."""

topic_names = st.text("abcXYZ019._-", min_size=1, max_size=6).filter(
    lambda name: name not in (".", "..") and not name.startswith("__"))
