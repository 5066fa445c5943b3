"""What native modules of the doors may use of `native_sockets.pyx`."""

cdef class Reader:
    cdef int take(self, const unsigned char *data, Py_ssize_t size) except -1
