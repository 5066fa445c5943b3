"""Reads that are nothing but a few plain PUBLISH packets, taken natively: what `session` does with them, at a tenth.

    socket ── read ──► PublishReader.take ──► Gathering.add        decoded and judged as `codec.decode_publishes` does
    socket ◄─ PUBACK ─ PublishReader.on_gathered ◄── once durable

Plain is: whole packets of QoS 0 or 1 without DUP, to topics that the guard has placed, with properties that are empty
or were seen before. Whatever else comes, and all that breaks the protocol, is left to the session untouched. The
session opens the reader when nothing is under way that would have to be answered before, and closes it whenever it is
given something itself: what is under way here becomes the inbox's then, and is answered by it. Every index into the
peer's bytes is checked before it is used.
"""
# decision 258: what is plain is taken before the session sees it
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t

from gatehouse.gateways.connections.native_sockets cimport Reader

cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    cdef struct timespec:
        time_t tv_sec
        long tv_nsec
    int clock_gettime(int, timespec *)
    int CLOCK_MONOTONIC

from gatehouse.gateways.door_side import PART_BYTES, PART_MESSAGES
from gatehouse.gateways.mqtt.codec import DOOR
from gatehouse.kernel.message import RETAIN, TRANSIENT
from gatehouse.kernel.records.batch import NO_HEADERS

cdef enum:
    MESSAGES = 16              # of one read: what the gathering takes in one part
    ACK_BYTES = 4
    SHIFT_MAX = 21             # of a number of up to four bytes, seven bits each

assert PART_MESSAGES == MESSAGES
cdef Py_ssize_t READ_BYTES = PART_BYTES
cdef object PLAIN_HEADERS = NO_HEADERS
cdef tuple ATTRIBUTES = (DOOR | TRANSIENT, DOOR | TRANSIENT | RETAIN, DOOR, DOOR | RETAIN)
"""By twice the QoS, and one more with RETAIN."""


cdef int64_t now_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000


cdef Py_ssize_t number_at(const unsigned char *data, Py_ssize_t end, Py_ssize_t *at) noexcept nogil:
    """The number of up to four bytes at `at[0]`, which moves behind it; -1 where it is not all there before `end`, or
    is none."""
    cdef Py_ssize_t value = 0
    cdef int shift = 0
    while at[0] < end and shift <= SHIFT_MAX:
        value |= <Py_ssize_t>(data[at[0]] & 127) << shift
        at[0] += 1
        if data[at[0] - 1] < 128:
            return value
        shift += 7
    return -1


cdef class PublishReader(Reader):
    """One client's; see above. The inbox's, which is answered through it. `door_side.Gatherer`."""

    cdef object inbox, link, guard, gathering, admission, shedding, places, version
    cdef dict by_raw, meanings
    cdef list under_way                # acknowledgements of parts that are not durable yet, oldest first
    cdef Py_ssize_t room, count, handed_back, packet_bytes_max
    cdef int refused
    cdef int64_t heard_ms
    cdef bint is_open

    def __init__(self, inbox, link, gathering, admission, meanings, Py_ssize_t packet_bytes_max, int refused):
        """`meanings` and `refused`: see `codec.decode_publishes`. `gathering` is the door's."""
        self.inbox = inbox
        self.link = link
        self.guard = inbox.guard
        self.gathering = gathering
        self.admission = admission
        self.shedding = inbox.guard.shedding
        self.meanings = meanings
        self.packet_bytes_max = packet_bytes_max
        self.refused = refused
        self.under_way = []
        self.heard_ms = now_ms()

    def open(self, Py_ssize_t room):
        """Take what is plain from now on; so many messages of QoS 1 may be under way here."""
        guard = self.guard
        self.places = guard.given_places
        self.by_raw = self.places.by_raw
        self.version = guard.version
        self.room = room
        self.is_open = True

    def close(self):
        """Take nothing; what is under way is the inbox's from now on."""
        if self.is_open:
            self.is_open = False
            if self.under_way:
                self.handed_back += len(self.under_way)
                self.inbox.take_over(self.under_way)
                self.under_way = []
                self.count = 0

    def idle_ms(self):
        """For how long nothing was taken here."""
        return now_ms() - self.heard_ms

    cdef int take(self, const unsigned char *data, Py_ssize_t size) except -1:
        cdef list messages
        cdef bytes acks = None
        cdef unsigned char ids[MESSAGES * ACK_BYTES]
        cdef int count = 0
        cdef bint is_limited
        if not self.is_open or size > READ_BYTES or self.admission.version is not self.version or self.shedding.level:
            return 0
        messages = self.decode(data, size, ids, &count)
        if messages is None or self.count + count > self.room:
            return 0
        is_limited = self.admission.limits.limits_in
        if is_limited and not self.guard.charging.spends(messages, size):        # decision 294
            return 0
        if count:
            acks = PyBytes_FromStringAndSize(<const char *>ids, count * ACK_BYTES)
            self.under_way.append(acks)
            self.count += count
        if not self.gathering.add(self.guard, self.places, messages, self, acks, size, False):
            if count:
                self.under_way.pop()
                self.count -= count
            if is_limited:
                self.guard.charging.give_back()
            return 0
        self.heard_ms = now_ms()
        return 1

    cdef list decode(self, const unsigned char *data, Py_ssize_t size, unsigned char *ids, int *count):
        """The messages of a read, and PUBACK packets into `ids`; None where it is not plain."""
        cdef Py_ssize_t pos = 0, at, end, remaining, topic_end
        cdef unsigned char first
        cdef int total = 0
        cdef list messages = []
        cdef PyObject *place
        cdef PyObject *meaning
        cdef bytes raw, known
        cdef object headers, timestamp_ms
        while pos < size:
            first = data[pos]
            if total == MESSAGES or first >> 4 != 3 or first & 12 or first & self.refused:
                return None
            at = pos + 1
            remaining = number_at(data, size, &at)
            if remaining < 2 or remaining > size - at or at - pos + remaining > self.packet_bytes_max:
                return None
            end = at + remaining
            topic_end = at + 2 + (data[at] << 8 | data[at + 1])
            if topic_end + (first & 2) > end:
                return None
            raw = PyBytes_FromStringAndSize(<const char *>data + at + 2, topic_end - at - 2)
            place = PyDict_GetItem(self.by_raw, raw)
            if place is NULL:
                return None
            at = topic_end
            if first & 2:
                if not data[at] and not data[at + 1]:
                    return None
                ids[ACK_BYTES * count[0]] = 0x40
                ids[ACK_BYTES * count[0] + 1] = 2
                ids[ACK_BYTES * count[0] + 2] = data[at]
                ids[ACK_BYTES * count[0] + 3] = data[at + 1]
                count[0] += 1
                at += 2
            headers = PLAIN_HEADERS
            timestamp_ms = 0
            if self.meanings is not None:
                if at >= end:
                    return None
                if data[at] == 0:
                    at += 1
                else:
                    topic_end = at                         # where the properties begin
                    remaining = number_at(data, end, &at)
                    if remaining < 0 or remaining > end - at:
                        return None
                    at += remaining
                    known = PyBytes_FromStringAndSize(<const char *>data + topic_end, at - topic_end)
                    meaning = PyDict_GetItem(self.meanings, known)
                    if meaning is NULL:
                        return None
                    headers, timestamp_ms = <tuple>meaning
            messages.append((<object>place, PyBytes_FromStringAndSize(<const char *>data + at, end - at), headers,
                             ATTRIBUTES[(first & 2) | (first & 1)], timestamp_ms))
            total += 1
            pos = end
        return messages if total else None

    # --- what became of it: `door_side.Gatherer`

    def on_gathered(self, token, error):
        if self.handed_back:
            self.handed_back -= 1
            self.inbox.on_gathered(token, error)
        elif error is not None:
            self.close()
            self.on_gathered(token, error)
        else:
            del self.under_way[0]
            self.count -= len(<bytes>token) // ACK_BYTES
            self.link.write(token)
        return False

    def on_all_gathered(self):
        pass

    def on_stored(self, stored):
        self.inbox.on_stored(stored)

    def enter_alone(self, guard, messages, token, size_bytes):
        self.close()
        if token is not None:                              # the inbox itself is answered
            self.handed_back -= 1
        return self.inbox.enter_alone(guard, messages, token, size_bytes)


def decode_read(bytes data not None, dict by_raw not None, dict meanings, Py_ssize_t packet_bytes_max, int refused):
    """For tests: the messages of a read and their PUBACK packets, or None where it is not plain."""
    cdef PublishReader reader = PublishReader.__new__(PublishReader)
    cdef const unsigned char *start = data
    cdef unsigned char ids[MESSAGES * ACK_BYTES]
    cdef int count = 0
    reader.by_raw = by_raw
    reader.meanings = meanings
    reader.packet_bytes_max = packet_bytes_max
    reader.refused = refused
    messages = reader.decode(start, len(data), ids, &count)
    return None if messages is None else (messages, PyBytes_FromStringAndSize(<const char *>ids, count * ACK_BYTES))
