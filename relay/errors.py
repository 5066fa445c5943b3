"""Everything that links refuse, each with a stable code."""
from __future__ import annotations


class RelayError(Exception):
    """Base of all refusals of links. `code` is stable and documented; the text is for people."""

    code = "relay_error"


class BadFrame(RelayError):
    """A frame that does not read as the protocol says: cut off, too long, or of a kind that is unknown."""

    code = "bad_frame"


class WrongKey(RelayError):
    """A signature or a seal that does not match the key which is pinned: somebody else speaks, or something was changed
    on the way."""

    code = "wrong_key"


class BadInvitation(RelayError):
    """An invitation that does not read, is over, was used, or is for another hub."""

    code = "bad_invitation"


class OutOfTurn(RelayError):
    """The other hub sent something that its state does not allow: more than it has credit for, or before it is
    ready."""

    code = "out_of_turn"


class PositionGap(RelayError):
    """A batch does not follow on what has arrived: something between is missing. The link stops; nothing is passed
    over."""

    code = "position_gap"


class PositionAhead(RelayError):
    """The other hub says that it has more of a partition than there is: one of the two was restored from an older
    copy, or lies. The link stops."""

    code = "position_ahead"


class HistoryParted(RelayError):
    """The other hub has another message where this one's newest should be: one of the two was restored from an older
    copy, and has grown since. The link stops, or goes on with what is there now (`on_lost`)."""

    code = "history_parted"


class HistoryLost(RelayError):
    """What the other hub still needs is no longer stored, and the link is told to stop there (`on_lost`)."""

    code = "history_lost"


class LinkRefused(RelayError):
    """A message that the receiving hub cannot take, and the link is told to stop there (`on_refused`)."""

    code = "link_refused"


class KeyNotPinned(RelayError):
    """A hub is not to be known by another key yet: there is none, or the other hub of a link has not pinned it."""

    code = "key_not_pinned"


class UnknownLink(RelayError):
    """There is no link of that name."""

    code = "unknown_link"


class UnsupportedVersion(RelayError):
    """The other side speaks another major version of the protocol."""

    code = "unsupported_version"
