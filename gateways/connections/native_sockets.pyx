"""Sockets of the doors, natively: one epoll instance inside the event loop's, and transports over it. Linux alone.

    event loop ── readable ──► Sockets.run: one epoll_wait, then for each socket that is ready
                                 recv into one buffer ──► protocol.data_received
                                 accept all who wait; some of them ──► connection_made, the others in later turns
                               and at its end one send for each transport that was written to
    written in another call-back ──► the same send, with the loop's next turn

A transport does what the event loop's own does (`asyncio.Transport`), and the tests run over both: where this module is
not there, `accepting` takes the loop's. What is unsent lies here alone, and is counted by `get_write_buffer_size`; a
transport that is neither read nor has something to send is not watched, so the system's notes about it are met when it
is. Descriptors are closed in a later turn than the one in which they are found dead: none is another's within a turn.
"""
# decision 221: the doors' own epoll inside the event loop's
import asyncio
import resource
import socket as _socket
from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, errno
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset, strerror

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd
        uint64_t u64
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int)
    int epoll_ctl(int, int, int, epoll_event *)
    int epoll_wait(int, epoll_event *, int, int)
    int EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLL_CLOEXEC

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    cdef struct sockaddr:
        uint16_t sa_family
    cdef struct sockaddr_storage:
        uint16_t ss_family
    cdef struct msghdr:
        void *msg_name
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t recv(int, void *, size_t, int)
    ssize_t send(int, const void *, size_t, int)
    ssize_t sendmsg(int, const msghdr *, int)
    int accept4(int, sockaddr *, socklen_t *, int)
    int setsockopt(int, int, int, const void *, socklen_t)
    int c_shutdown "shutdown"(int, int)
    int SOCK_NONBLOCK, SOCK_CLOEXEC, MSG_NOSIGNAL, MSG_DONTWAIT, AF_INET, AF_INET6, SHUT_WR

cdef extern from "<netinet/in.h>" nogil:
    cdef struct in_addr:
        uint32_t s_addr
    cdef struct in6_addr:
        unsigned char s6_addr[16]
    cdef struct sockaddr_in:
        uint16_t sin_port
        in_addr sin_addr
    cdef struct sockaddr_in6:
        uint16_t sin6_port
        uint32_t sin6_flowinfo
        in6_addr sin6_addr
        uint32_t sin6_scope_id
    uint16_t ntohs(uint16_t)
    uint32_t ntohl(uint32_t)
    int IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_NODELAY

cdef extern from "<arpa/inet.h>" nogil:
    const char *inet_ntop(int, const void *, char *, socklen_t)

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int)

cdef enum:
    BUFFER_BYTES = 262144      # of one read; what is more comes with the next turn, after the others
    EVENTS = 256               # sockets of one turn; the others are ready in the next
    MADE = 128                 # connections that are given their protocol in one turn
    ARRIVED = 8192             # that may wait for it; more wait with the system
    SPARE = 128                # descriptors that are never a connection's; half of what `capacity` reserves
    PARTS = 256                # buffers that one call sends
    ADDRESS_BYTES = 64

ACCEPT_PAUSE_S = 1.0           # without a descriptor to spare none is accepted for so long
HIGH_WATER_BYTES = 65536       # unless the protocol says otherwise

cdef char buffer[BUFFER_BYTES]
cdef epoll_event events[EVENTS]
cdef iovec vector[PARTS]


cdef class Reader:
    """Takes reads that are plain, natively, before the protocol sees them."""

    cdef int take(self, const unsigned char *data, Py_ssize_t size) except -1:
        """Whether a read is taken, whole: else nothing has happened, and the protocol is given it."""
        return 0

    def offer(self, bytes data not None):
        """The same of a read that has come by something else than one of these sockets: by TLS."""
        cdef const unsigned char *start = data
        return self.take(start, len(data)) != 0


cdef class Transport:
    """One socket: an `asyncio.Transport`. Made by `Sockets` as a connection is accepted."""

    cdef int fd
    cdef Sockets sockets
    cdef object protocol, received, wire, failure
    cdef sockaddr_in6 peer             # as the system says it: a text is made of it when somebody asks
    cdef Reader reader                 # what is offered each read first; None: nobody
    cdef bytes first                   # what is sent next, from `offset` on
    cdef list more                     # and behind it, from `next` on; None: nothing
    cdef Py_ssize_t offset, next, unsent, high, low
    cdef uint32_t watched              # what epoll looks for; 0: it does not know the socket
    cdef bint dirty                    # its turn's send is due
    cdef bint reading, stuck, slow, closing, ending, gone

    def __cinit__(self):
        self.fd = -1
        self.high = HIGH_WATER_BYTES
        self.low = HIGH_WATER_BYTES // 4
        self.reading = True

    # --- what the protocol asks for

    def get_extra_info(self, name, default=None):
        if name == "peername":
            peer = peer_of(<sockaddr_storage *>&self.peer)
            return default if peer is None else peer
        if name == "socket":
            return self.socket()
        if name == "sockname" and self.fd >= 0:
            return self.socket().getsockname()
        return default

    cdef object socket(self):
        if self.wire is None and self.fd >= 0:
            self.wire = _socket.socket(fileno=self.fd)
        return self.wire

    def get_protocol(self):
        return self.protocol

    def set_protocol(self, protocol):
        self.protocol = protocol
        self.received = protocol.data_received

    def set_reader(self, Reader reader):
        """Offer each read to it first; None: to nobody. What it takes the protocol is told of by `data_taken`."""
        self.reader = reader

    def set_write_buffer_limits(self, high=None, low=None):
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self.high = high
        self.low = low
        self.look_at_size()

    def get_write_buffer_limits(self):
        return self.low, self.high

    def get_write_buffer_size(self):
        return self.unsent

    def write(self, data):
        self.put(data)

    def writelines(self, parts):
        for part in parts:
            self.put(part)

    cdef int put(self, object data) except -1:
        if self.gone or self.closing or self.ending:
            return 0
        cdef bytes part = data if type(data) is bytes else bytes(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(part)
        if size == 0:
            return 0
        self.add(part, size)
        if not self.dirty and not self.stuck:
            self.dirty = True
            self.sockets.mark(self)
        if self.unsent > self.high and not self.slow:
            self.overflow()
        return 0

    cdef void add(self, bytes part, Py_ssize_t size):
        self.unsent += size
        if self.first is None:
            self.first = part
            self.offset = 0
        elif self.more is None:
            self.more = [part]
            self.next = 0
        else:
            self.more.append(part)

    cdef int overflow(self) except -1:
        """More is unsent than the protocol wants: what the system takes is sent now."""
        if not self.stuck:
            self.send()
        self.look_at_size()
        return 0

    cdef int look_at_size(self) except -1:
        if self.slow or self.gone or self.protocol is None or self.unsent <= self.high:
            return 0
        self.slow = True
        self.protocol.pause_writing()
        return 0

    def can_write_eof(self):
        return True

    def write_eof(self):
        if self.gone or self.closing or self.ending:
            return
        self.ending = True
        if self.first is None:
            c_shutdown(self.fd, SHUT_WR)

    def pause_reading(self):  # decision 320
        """Epoll is told when it has something that is not wanted: a pause is often over before."""
        if self.closing or self.gone:
            return
        self.reading = False

    def resume_reading(self):
        if self.closing or self.gone:
            return
        self.reading = True
        self.watch()

    def is_reading(self):
        return self.reading and not self.closing and not self.gone

    def is_closing(self):
        return self.closing or self.gone

    def close(self):
        if self.closing or self.gone:
            return
        self.closing = True
        self.reading = False
        self.watch()
        if self.first is None:
            self.sockets.lose(self, None)

    def abort(self):
        if not self.gone:
            self.closing = True
            self.sockets.lose(self, None)

    # --- what the system says

    cdef void watch(self) noexcept:
        """Tell epoll what to look for."""
        cdef epoll_event wanted
        cdef uint32_t mask = 0
        if self.gone:
            return
        if self.reading:
            mask |= EPOLLIN
        if self.stuck:
            mask |= EPOLLOUT
        if mask == self.watched:
            return
        wanted.events = mask
        wanted.data.u64 = 0
        wanted.data.fd = self.fd
        epoll_ctl(self.sockets.epoll,
                  EPOLL_CTL_DEL if mask == 0 else EPOLL_CTL_ADD if self.watched == 0 else EPOLL_CTL_MOD,
                  self.fd, &wanted)
        self.watched = mask

    cdef int send(self) except -1:
        """Hand to the system what it takes, and be told when it takes more."""
        cdef ssize_t sent
        cdef Py_ssize_t asked
        cdef msghdr message
        if self.gone or self.first is None:
            return 0
        if self.more is None:
            asked = PyBytes_GET_SIZE(self.first) - self.offset
            sent = send(self.fd, PyBytes_AS_STRING(self.first) + self.offset, asked, MSG_NOSIGNAL | MSG_DONTWAIT)
        else:
            memset(&message, 0, sizeof(message))
            message.msg_iov = vector
            message.msg_iovlen = self.fill(&asked)
            sent = sendmsg(self.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent < 0:
            if errno != EAGAIN and errno != EINTR:
                self.sockets.lose(self, os_error(errno))
                return 0
            sent = 0
        self.unsent -= sent
        self.take_off(sent)
        if self.first is None:
            self.stuck = False
            if self.watched & EPOLLOUT:
                self.watch()
            if self.ending:
                c_shutdown(self.fd, SHUT_WR)
            if self.closing:
                self.sockets.lose(self, None)
        else:
            self.stuck = True
            self.watch()
        return 0

    cdef size_t fill(self, Py_ssize_t *asked) except 0:
        """The next buffers that are sent, by address: they stay where they are until they are taken off."""
        cdef size_t count = 1
        cdef Py_ssize_t at = self.next, end = len(self.more)
        cdef bytes part
        vector[0].iov_base = PyBytes_AS_STRING(self.first) + self.offset
        vector[0].iov_len = PyBytes_GET_SIZE(self.first) - self.offset
        asked[0] = vector[0].iov_len
        while at < end and count < PARTS:
            part = <bytes>self.more[at]
            vector[count].iov_base = PyBytes_AS_STRING(part)
            vector[count].iov_len = PyBytes_GET_SIZE(part)
            asked[0] += vector[count].iov_len
            count += 1
            at += 1
        return count

    cdef void take_off(self, Py_ssize_t sent):
        """So many bytes are the system's now."""
        cdef Py_ssize_t left
        while self.first is not None:
            left = PyBytes_GET_SIZE(self.first) - self.offset
            if sent < left:
                self.offset += sent
                return
            sent -= left
            self.offset = 0
            if self.more is None:
                self.first = None
            else:
                self.first = <bytes>self.more[self.next]
                self.more[self.next] = None
                self.next += 1
                if self.next == len(self.more):
                    self.more = None

    cdef int on_writable(self) except -1:
        self.send()
        if self.slow and not self.gone and self.unsent <= self.low:
            self.slow = False
            self.protocol.resume_writing()
        return 0

    cdef int on_readable(self) except -1:
        cdef Reader reader = self.reader
        cdef ssize_t got = recv(self.fd, buffer, BUFFER_BYTES, MSG_DONTWAIT)
        if got > 0:
            if reader is not None and reader.take(<const unsigned char *>buffer, got):
                self.protocol.data_taken()
            else:
                self.received(PyBytes_FromStringAndSize(buffer, got))
        elif got == 0:
            self.on_end()
        elif errno != EAGAIN and errno != EINTR:
            self.sockets.lose(self, os_error(errno))
        return 0

    cdef int on_end(self) except -1:
        self.reading = False
        self.watch()
        if not self.protocol.eof_received():
            self.close()
        return 0

    cdef void shut(self):
        """The descriptor is the system's again."""
        cdef int fd = self.fd
        self.fd = -1
        if self.wire is not None:
            self.wire.detach()
        c_close(fd)


cdef class Acceptor:
    """One socket that listens. `make` makes the protocol of whoever connects."""

    cdef int fd
    cdef object wire, make
    cdef bint open
    cdef bint resting                  # `Sockets.rest`: it is looked at again later


cdef class Sockets:
    """Every socket of the doors on one event loop."""

    cdef int epoll
    cdef object loop, flush_soon, on_idle
    cdef dict transports, acceptors    # by descriptor
    cdef object arrived                # connections without a protocol yet, each with its acceptor
    cdef list dirty                    # those that were written to
    cdef bint running, scheduled, going_on
    cdef Py_ssize_t places             # connections for which there are descriptors

    def __cinit__(self):
        self.epoll = -1

    def __init__(self, loop, on_idle):
        """`on_idle` is called when there is nothing left to serve: this is closed then."""
        self.loop = loop
        self.on_idle = on_idle
        self.transports = {}
        self.acceptors = {}
        self.arrived = deque()
        self.places = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE
        self.dirty = []
        self.flush_soon = self.flush
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise os_error(errno)
        loop.add_reader(self.epoll, self.run)

    def __dealloc__(self):
        if self.epoll >= 0:
            c_close(self.epoll)

    def __len__(self):
        """How many connections there are."""
        return len(self.transports)

    def listen(self, wire, make):
        """Accept whoever connects to a socket that listens, which is non-blocking, until `unlisten`."""
        cdef Acceptor acceptor = Acceptor()
        acceptor.fd = wire.fileno()
        acceptor.wire = wire
        acceptor.make = make
        acceptor.open = True
        self.acceptors[acceptor.fd] = acceptor
        self.watch_acceptor(acceptor)

    cdef int watch_acceptor(self, Acceptor acceptor) except -1:
        cdef epoll_event wanted
        wanted.events = EPOLLIN
        wanted.data.u64 = 0
        wanted.data.fd = acceptor.fd
        if epoll_ctl(self.epoll, EPOLL_CTL_ADD, acceptor.fd, &wanted) < 0:
            raise os_error(errno)
        return 0

    def unlisten(self, wire):
        """Accept nobody more there. The caller closes it."""
        cdef Acceptor acceptor = self.acceptors.pop(wire.fileno(), None)
        if acceptor is not None:
            acceptor.open = False
            epoll_ctl(self.epoll, EPOLL_CTL_DEL, acceptor.fd, NULL)
            self.close_if_idle()

    cdef int close_if_idle(self) except -1:
        if self.epoll >= 0 and not self.transports and not self.acceptors and not self.arrived:
            self.loop.remove_reader(self.epoll)
            c_close(self.epoll)
            self.epoll = -1
            self.on_idle()
        return 0

    def run(self):
        """One turn: whatever is ready."""
        cdef int count, at, fd
        cdef uint32_t what
        cdef object found
        count = epoll_wait(self.epoll, events, EVENTS, 0)
        self.running = True
        try:
            if count == EVENTS:        # a crowd: its acceptor may be far behind, and the system's queue overflow meanwhile
                for found in list(self.acceptors.values()):
                    if not (<Acceptor>found).resting:
                        self.accept(<Acceptor>found)
            for at in range(count):
                fd = events[at].data.fd
                what = events[at].events
                found = self.transports.get(fd)
                if found is not None:
                    self.serve(<Transport>found, what)
                    continue
                found = self.acceptors.get(fd)
                if found is not None:
                    self.accept(<Acceptor>found)
            if self.arrived:
                self.make_some()
        finally:
            self.running = False
        self.flush()

    cdef void serve(self, Transport transport, uint32_t what):
        try:
            if transport.stuck and what & (EPOLLOUT | EPOLLERR | EPOLLHUP):
                transport.on_writable()
            if transport.reading and not transport.gone and what & (EPOLLIN | EPOLLERR | EPOLLHUP):
                transport.on_readable()
            elif not transport.reading:
                transport.watch()
        except BaseException as fault:
            self.fail(transport, fault)

    cdef void fail(self, Transport transport, object fault):
        """The protocol has raised: our own mistake, which costs this connection alone."""
        self.loop.call_exception_handler({"message": "a protocol failed", "exception": fault,
                                          "transport": transport, "protocol": transport.protocol})
        self.lose(transport, fault)

    cdef void accept(self, Acceptor acceptor):
        """Everybody who waits there, so that the system refuses nobody while others are served."""  # decision 296
        cdef int fd, on = 1
        cdef sockaddr_storage address
        cdef socklen_t size
        cdef Transport transport
        while len(self.arrived) < ARRIVED:
            if len(self.transports) + len(self.arrived) >= self.places:
                self.rest(acceptor)
                return
            size = sizeof(address)
            fd = accept4(acceptor.fd, <sockaddr *>&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)
            if fd < 0:
                if errno == EINTR or errno == ECONNABORTED:
                    continue
                if errno == EMFILE or errno == ENFILE or errno == ENOBUFS or errno == ENOMEM:
                    self.rest(acceptor)
                return
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on))
            transport = Transport()
            transport.fd = fd
            transport.sockets = self
            memcpy(&transport.peer, &address, sizeof(transport.peer))
            self.arrived.append((transport, acceptor))

    cdef void make_some(self):
        """Give those who have arrived first their protocol. The others keep the loop awake."""
        cdef Transport transport
        cdef Acceptor acceptor
        for _ in range(min(MADE, len(self.arrived))):
            transport, acceptor = self.arrived.popleft()
            if not acceptor.open:
                transport.shut()
                continue
            self.transports[transport.fd] = transport
            try:
                transport.set_protocol(acceptor.make())
                transport.watch()
                transport.protocol.connection_made(transport)
            except BaseException as fault:
                self.fail(transport, fault)
        if not self.arrived:
            self.close_if_idle()
        elif not self.going_on:
            self.going_on = True
            self.loop.call_soon(self.go_on)

    def go_on(self):
        """Whoever has arrived waits for nothing else."""
        self.going_on = False
        self.run()

    cdef void rest(self, Acceptor acceptor):
        """There is no descriptor to spare: whoever waits is accepted later."""
        acceptor.resting = True
        epoll_ctl(self.epoll, EPOLL_CTL_DEL, acceptor.fd, NULL)
        self.loop.call_later(ACCEPT_PAUSE_S, self.accept_again, acceptor)

    def accept_again(self, Acceptor acceptor):
        acceptor.resting = False
        if acceptor.open:
            self.watch_acceptor(acceptor)

    cdef int mark(self, Transport transport) except -1:
        """It was written to."""
        self.dirty.append(transport)
        if not self.running and not self.scheduled:
            self.scheduled = True
            self.loop.call_soon(self.flush_soon)
        return 0

    def flush(self):
        """Send what was written, in one call for each transport."""
        cdef Transport transport
        self.scheduled = False
        dirty = self.dirty
        self.dirty = []
        for found in dirty:
            transport = <Transport>found
            transport.dirty = False
            if not transport.stuck:
                try:
                    transport.send()
                    transport.look_at_size()
                except BaseException as fault:
                    self.fail(transport, fault)

    cdef int lose(self, Transport transport, object failure) except -1:
        """The connection is over: its protocol is told, and the descriptor closed, in a later turn."""
        if transport.gone:
            return 0
        transport.closing = True
        transport.reading = transport.stuck = False
        transport.watch()
        transport.gone = True
        transport.reader = None
        transport.first = None
        transport.more = None
        transport.unsent = 0
        transport.failure = failure
        self.loop.call_soon(self.finish, transport)
        return 0

    def finish(self, Transport transport):
        """See `lose`."""
        self.transports.pop(transport.fd, None)
        protocol, transport.protocol, transport.received = transport.protocol, None, None
        failure, transport.failure = transport.failure, None
        try:
            if protocol is not None:
                protocol.connection_lost(failure if isinstance(failure, OSError) or failure is None else None)
        finally:
            transport.shut()
            self.close_if_idle()


cdef object os_error(int number):
    return OSError(number, strerror(number).decode())


cdef object peer_of(sockaddr_storage *address):
    """A socket address as Python shows it; None for a family that has no such text."""
    cdef char text[ADDRESS_BYTES]
    cdef sockaddr_in *four
    cdef sockaddr_in6 *six
    if address.ss_family == AF_INET:
        four = <sockaddr_in *>address
        inet_ntop(AF_INET, &four.sin_addr, text, ADDRESS_BYTES)
        return (<bytes>text).decode(), ntohs(four.sin_port)
    if address.ss_family == AF_INET6:
        six = <sockaddr_in6 *>address
        inet_ntop(AF_INET6, &six.sin6_addr, text, ADDRESS_BYTES)
        return ((<bytes>text).decode(), ntohs(six.sin6_port), ntohl(six.sin6_flowinfo), six.sin6_scope_id)
    return None
