"""Selectors: which messages a consumer wants, by tags, headers, address, or a condition in SQL-92's words. Pure.

    tokens       text to words of the language
    nodes        what the parser makes of them
    parser       the grammar, and the types that it holds operands to
    conditions   nodes to closures, with three truth values
    like         patterns of LIKE, matched in one pass
    selector     `Selector`, and the four forms in which one is written

A selector is parsed once, when its consumer comes, and refused there with a position (`InvalidSelector`). Its length,
depth and number of terms are bounded, so what it costs a message is too.
"""
