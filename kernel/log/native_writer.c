/* The jobs of the log's thread, with frames among them, which are written without the interpreter's lock.

   Jobs                 one line of jobs, in the order in which they were handed in
   write(...)           hand in a frame: CRCs, pwritev, fdatasync
   submit(job, done)    hand in a job of Python
   take()               on the log's thread: write frames until a job of Python comes, and return that; None at the end
   finish(done, result, error)   on the log's thread: a job of Python has ended
   ended()              on the loop's thread: what has ended since, in order, as (done, result, error)
   busy()               whether a job of Python waits, runs, or has not been asked for
   fileno()             readable while something has ended that nobody has asked for; one write for a burst of it

   encode_body(...)     a frame's body out of messages as they came: see kernel/write/body.py
   authors_of(...)      who published them: see there

   A frame's result is 0, or the errno of what failed: above zero for the write, below zero for the sync. What follows
   from it is Python's to say (kernel/log/frame_writer.py), and so is where a frame goes. The layout of an envelope is
   that of kernel/log/segments.py. Linux only: eventfd. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#define ENVELOPE_BYTES 32
#define CRC_AT 28

/* ---- CRC-32C */

static uint32_t crc_table[8][256];

static void fill_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
        crc_table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int slice = 1; slice < 8; slice++)
            crc_table[slice][i] = (crc_table[slice - 1][i] >> 8) ^ crc_table[0][crc_table[slice - 1][i] & 0xFF];
}

/* Eight bytes a step, by tables. `crc` and what is returned are inverted, as the checksum goes on. */
static uint32_t crc_by_table(uint32_t crc, const unsigned char *at, size_t size)
{
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        word = le64toh(word) ^ crc;
        crc = crc_table[7][word & 0xFF] ^ crc_table[6][(word >> 8) & 0xFF] ^ crc_table[5][(word >> 16) & 0xFF]
            ^ crc_table[4][(word >> 24) & 0xFF] ^ crc_table[3][(word >> 32) & 0xFF]
            ^ crc_table[2][(word >> 40) & 0xFF] ^ crc_table[1][(word >> 48) & 0xFF] ^ crc_table[0][word >> 56];
    }
    while (size--)
        crc = (crc >> 8) ^ crc_table[0][(crc ^ *at++) & 0xFF];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#define HAS_CRC_INSTRUCTION __builtin_cpu_supports("sse4.2")

__attribute__((target("sse4.2")))
static uint32_t crc_by_instruction(uint32_t crc, const unsigned char *at, size_t size)
{
    uint64_t wide = crc;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    while (size--)
        crc = _mm_crc32_u8(crc, *at++);
    return crc;
}
#else
#define HAS_CRC_INSTRUCTION 0
#define crc_by_instruction crc_by_table
#endif

static uint32_t (*crc_on)(uint32_t, const unsigned char *, size_t) = crc_by_table;

static uint32_t crc32c(uint32_t crc, const void *data, size_t size)
{
    return ~crc_on(~crc, data, size);
}

/* ---- jobs */

typedef struct Job {
    struct Job *next;
    PyObject *done;
    PyObject *job;                   /* of Python; NULL: a frame */
    PyObject *result, *error;        /* of a job of Python */
    PyObject *head, *body;           /* of a frame */
    unsigned char envelope[ENVELOPE_BYTES];
    long long offset;
    int fd;
    int sync;
    int failed;                      /* errno, below zero where the sync failed */
} Job;

typedef struct {
    Job *first, *last;
} Line;

static void line_add(Line *line, Job *job)
{
    job->next = NULL;
    if (line->last)
        line->last->next = job;
    else
        line->first = job;
    line->last = job;
}

static Job *line_take(Line *line)
{
    Job *job = line->first;
    if (job && !(line->first = job->next))
        line->last = NULL;
    return job;
}

/* With the interpreter's lock. */
static void job_free(Job *job)
{
    Py_XDECREF(job->done);
    Py_XDECREF(job->job);
    Py_XDECREF(job->result);
    Py_XDECREF(job->error);
    Py_XDECREF(job->head);
    Py_XDECREF(job->body);
    free(job);
}

typedef struct {
    PyObject_HEAD
    pthread_mutex_t lock;            /* of everything below; held for some instructions, never over a system call
                                        other than a wake-up, and never while the interpreter's lock is waited for */
    pthread_cond_t handed_in;
    Line waiting, over;
    int idle;                        /* the log's thread waits for `handed_in` */
    int told;                        /* `event` is readable, or about to be */
    int closed;
    int event;
    Py_ssize_t python_jobs;          /* under the interpreter's lock: handed in and not asked for since */
} Jobs;

static void hand_in(Jobs *self, Job *job)
{
    pthread_mutex_lock(&self->lock);
    line_add(&self->waiting, job);
    int wake = self->idle;
    self->idle = 0;
    pthread_mutex_unlock(&self->lock);
    if (wake)
        pthread_cond_signal(&self->handed_in);
}

static void end(Jobs *self, Job *job)
{
    pthread_mutex_lock(&self->lock);
    line_add(&self->over, job);
    int tell = !self->told;
    self->told = 1;
    pthread_mutex_unlock(&self->lock);
    if (tell) {
        uint64_t one = 1;
        while (write(self->event, &one, sizeof one) < 0 && errno == EINTR)
            ;
    }
}

/* ---- a frame, without the interpreter's lock */

static void put_u32(unsigned char *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, 4);
}

static int write_whole(int fd, struct iovec *parts, int count, long long offset)
{
    while (count) {
        ssize_t written = pwritev(fd, parts, count, offset);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return errno;
        }
        if (written == 0)
            return EIO;              /* no disk does that; nobody is to wait for it for ever */
        offset += written;
        while (count && (size_t)written >= parts->iov_len) {
            written -= parts->iov_len;
            parts++, count--;
        }
        if (count) {
            parts->iov_base = (char *)parts->iov_base + written;
            parts->iov_len -= written;
        }
    }
    return 0;
}

static void write_frame(Job *job)
{
    unsigned char *envelope = job->envelope;
    struct iovec parts[3] = {{envelope, ENVELOPE_BYTES},
                             {PyBytes_AS_STRING(job->head), PyBytes_GET_SIZE(job->head)},
                             {PyBytes_AS_STRING(job->body), PyBytes_GET_SIZE(job->body)}};
    put_u32(envelope + 12, crc32c(0, parts[2].iov_base, parts[2].iov_len));
    put_u32(envelope + CRC_AT, crc32c(crc32c(0, envelope, CRC_AT), parts[1].iov_base, parts[1].iov_len));
    job->failed = write_whole(job->fd, parts, parts[2].iov_len ? 3 : 2, job->offset);
    if (job->failed || !job->sync)
        return;
    while (fdatasync(job->fd) < 0)
        if (errno != EINTR) {
            job->failed = -errno;
            return;
        }
}

/* ---- the type */

static PyObject *jobs_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "", names))
        return NULL;
    Jobs *self = (Jobs *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->handed_in, NULL);
    self->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (self->event < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void jobs_dealloc(Jobs *self)
{
    Job *job;
    while ((job = line_take(&self->waiting)) || (job = line_take(&self->over)))
        job_free(job);
    if (self->event >= 0)
        close(self->event);
    pthread_cond_destroy(&self->handed_in);
    pthread_mutex_destroy(&self->lock);
    Py_TYPE(self)->tp_free(self);
}

static Job *job_new(PyObject *done)
{
    Job *job = calloc(1, sizeof *job);
    if (!job) {
        PyErr_NoMemory();
        return NULL;
    }
    job->done = Py_NewRef(done);
    return job;
}

static PyObject *jobs_write(Jobs *self, PyObject *args)
{
    int fd, sync;
    long long offset;
    unsigned long long place;
    const char *magic;
    Py_ssize_t magic_bytes;
    PyObject *head, *body, *done;
    if (!PyArg_ParseTuple(args, "iLKy#SSpO", &fd, &offset, &place, &magic, &magic_bytes, &head, &body, &sync, &done))
        return NULL;
    if (magic_bytes != 4 || PyBytes_GET_SIZE(head) > UINT32_MAX || PyBytes_GET_SIZE(body) > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "what no envelope can say");
        return NULL;
    }
    Job *job = job_new(done);
    if (!job)
        return NULL;
    job->head = Py_NewRef(head);
    job->body = Py_NewRef(body);
    job->fd = fd;
    job->offset = offset;
    job->sync = sync;
    memcpy(job->envelope, magic, 4);
    put_u32(job->envelope + 4, (uint32_t)PyBytes_GET_SIZE(head));
    put_u32(job->envelope + 8, (uint32_t)PyBytes_GET_SIZE(body));
    uint64_t where = htole64(place);
    memcpy(job->envelope + 16, &where, 8);
    hand_in(self, job);
    Py_RETURN_NONE;
}

static PyObject *jobs_submit(Jobs *self, PyObject *args)
{
    PyObject *callable, *done;
    if (!PyArg_ParseTuple(args, "OO", &callable, &done))
        return NULL;
    Job *job = job_new(done);
    if (!job)
        return NULL;
    job->job = Py_NewRef(callable);
    self->python_jobs++;
    hand_in(self, job);
    Py_RETURN_NONE;
}

static PyObject *jobs_take(Jobs *self, PyObject *Py_UNUSED(none))
{
    Job *job;
    Py_BEGIN_ALLOW_THREADS
    for (;;) {
        pthread_mutex_lock(&self->lock);
        while (!(job = line_take(&self->waiting)) && !self->closed) {
            self->idle = 1;
            pthread_cond_wait(&self->handed_in, &self->lock);
        }
        self->idle = 0;
        pthread_mutex_unlock(&self->lock);
        if (!job || job->job)
            break;
        write_frame(job);
        end(self, job);
    }
    Py_END_ALLOW_THREADS
    if (!job)
        Py_RETURN_NONE;
    PyObject *taken = PyTuple_Pack(2, job->job, job->done);
    job_free(job);
    return taken;
}

static PyObject *jobs_finish(Jobs *self, PyObject *args)
{
    PyObject *done, *result, *error;
    if (!PyArg_ParseTuple(args, "OOO", &done, &result, &error))
        return NULL;
    Job *job = job_new(done);
    if (!job)
        return NULL;
    job->result = Py_NewRef(result);
    job->error = Py_NewRef(error);
    end(self, job);
    Py_RETURN_NONE;
}

static PyObject *jobs_ended(Jobs *self, PyObject *Py_UNUSED(none))
{
    PyObject *list = PyList_New(0);
    if (!list)
        return NULL;
    uint64_t count;
    while (read(self->event, &count, sizeof count) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&self->lock);
    Line over = self->over;
    self->over = (Line){NULL, NULL};
    self->told = 0;
    pthread_mutex_unlock(&self->lock);
    Job *job;
    int fault = 0;
    while ((job = line_take(&over))) {
        self->python_jobs -= job->result != NULL;
        PyObject *result = job->result ? Py_NewRef(job->result) : PyLong_FromLong(job->failed);
        PyObject *row = result ? PyTuple_Pack(3, job->done, result, job->error ? job->error : Py_None) : NULL;
        Py_XDECREF(result);
        if (!row || PyList_Append(list, row) < 0)
            fault = 1;
        Py_XDECREF(row);
        job_free(job);
    }
    if (fault) {
        Py_DECREF(list);
        return NULL;
    }
    return list;
}

static PyObject *jobs_abandon(Jobs *self, PyObject *Py_UNUSED(none))
{
    pthread_mutex_lock(&self->lock);
    Line dropped = self->waiting;
    self->waiting = (Line){NULL, NULL};
    pthread_mutex_unlock(&self->lock);
    Job *job;
    while ((job = line_take(&dropped))) {
        self->python_jobs -= job->job != NULL;
        job_free(job);
    }
    Py_RETURN_NONE;
}

static PyObject *jobs_close(Jobs *self, PyObject *Py_UNUSED(none))
{
    pthread_mutex_lock(&self->lock);
    self->closed = 1;
    pthread_mutex_unlock(&self->lock);
    pthread_cond_broadcast(&self->handed_in);
    Py_RETURN_NONE;
}

static PyObject *jobs_busy(Jobs *self, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(self->python_jobs != 0);
}

static PyObject *jobs_fileno(Jobs *self, PyObject *Py_UNUSED(none))
{
    return PyLong_FromLong(self->event);
}

static PyMethodDef jobs_methods[] = {
    {"write", (PyCFunction)jobs_write, METH_VARARGS,
     "write(fd, offset, place, magic, head, body, sync, done): a frame; done is told 0 or what failed."},
    {"submit", (PyCFunction)jobs_submit, METH_VARARGS, "submit(job, done): a job of Python."},
    {"take", (PyCFunction)jobs_take, METH_NOARGS, "Write frames until a job of Python comes: (job, done). None: closed."},
    {"finish", (PyCFunction)jobs_finish, METH_VARARGS, "finish(done, result, error): a job of Python has ended."},
    {"ended", (PyCFunction)jobs_ended, METH_NOARGS, "What has ended: a list of (done, result, error), in order."},
    {"abandon", (PyCFunction)jobs_abandon, METH_NOARGS, "Forget what has not begun."},
    {"close", (PyCFunction)jobs_close, METH_NOARGS, "Once nothing waits any more, take returns None."},
    {"busy", (PyCFunction)jobs_busy, METH_NOARGS, "Whether a job of Python waits, runs, or has not been asked for."},
    {"fileno", (PyCFunction)jobs_fileno, METH_NOARGS, "Readable while something has ended."},
    {NULL, NULL, 0, NULL}};

static PyTypeObject jobs_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "gatehouse.kernel.log.native_writer.Jobs",
    .tp_doc = "The jobs of the log's thread.",
    .tp_basicsize = sizeof(Jobs),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = jobs_new,
    .tp_dealloc = (destructor)jobs_dealloc,
    .tp_methods = jobs_methods,
};

static PyObject *module_crc32c(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data;
    unsigned int crc = 0;
    int by_table = 0;
    if (!PyArg_ParseTuple(args, "y*|Ip", &data, &crc, &by_table))
        return NULL;
    uint32_t found = by_table ? ~crc_by_table(~crc, data.buf, data.len) : crc32c(crc, data.buf, data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(found);
}

/* ---- the body of a frame */

#define RECORD_FIELDS 5              /* of a message: where, value, headers, attributes, timestamp */

typedef struct {
    uint64_t size, at;
    uint32_t count;                  /* records */
    uint32_t next;                   /* the number of the record that is written next */
    uint64_t first;                  /* of all records, its first one */
} Run;

static uint64_t zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}

static int varint_size(uint64_t rest)
{
    int size = 1;
    for (; rest > 0x7F; rest >>= 7)
        size++;
    return size;
}

static unsigned char *put_varint(unsigned char *at, uint64_t rest)
{
    for (; rest > 0x7F; rest >>= 7)
        *at++ = (rest & 0x7F) | 0x80;
    *at++ = (unsigned char)rest;
    return at;
}

static unsigned char *put_bytes(unsigned char *at, PyObject *bytes)
{
    Py_ssize_t size = PyBytes_GET_SIZE(bytes);
    memcpy(at, PyBytes_AS_STRING(bytes), size);
    return at + size;
}

/* A message as a record: what of it stands in which field. */
typedef struct {
    PyObject *value, *headers;       /* value: NULL where there is none */
    uint64_t delta, size;            /* size: of what the record's length counts */
    unsigned char attributes;
} Message;

/* 0, or -1 with an exception. Only looks: no code of Python is run. */
static int read_message(PyObject *item, PyObject *key_part, uint32_t number, long long now_ms, Message *message)
{
    if (!PyTuple_CheckExact(item) || PyTuple_GET_SIZE(item) != RECORD_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "a message is a tuple of five");
        return -1;
    }
    PyObject *value = PyTuple_GET_ITEM(item, 1), *headers = PyTuple_GET_ITEM(item, 2);
    PyObject *attributes = PyTuple_GET_ITEM(item, 3), *timestamp = PyTuple_GET_ITEM(item, 4);
    if ((value != Py_None && !PyBytes_Check(value)) || !PyBytes_Check(headers) || !PyLong_Check(attributes)
        || !PyLong_Check(timestamp)) {
        PyErr_SetString(PyExc_TypeError, "value and headers are bytes, attributes and timestamp numbers");
        return -1;
    }
    long of_record = PyLong_AsLong(attributes);
    long long timestamp_ms = PyLong_AsLongLong(timestamp);
    if (PyErr_Occurred())
        return -1;
    if (of_record < 0 || of_record > 255) {
        PyErr_SetString(PyExc_ValueError, "a record has one byte of attributes");
        return -1;
    }
    message->attributes = (unsigned char)of_record;
    message->value = value == Py_None ? NULL : value;
    message->headers = headers;
    message->delta = timestamp_ms ? zigzag((int64_t)((uint64_t)timestamp_ms - (uint64_t)now_ms)) : 0;
    uint64_t value_size = message->value ? (uint64_t)PyBytes_GET_SIZE(value) : 0;
    message->size = 1 + varint_size(message->delta) + varint_size(zigzag(number)) + PyBytes_GET_SIZE(key_part)
        + (message->value ? varint_size(zigzag((int64_t)value_size)) : 1) + value_size + PyBytes_GET_SIZE(headers);
    return 0;
}

/* Where a run begins in what is laid: its number, and the key of its messages, or NULL before a producer's batch. */
static Run *begin_run(PyObject *laid, Py_ssize_t at, Run *runs, Py_ssize_t run_count, PyObject **key_part)
{
    Py_ssize_t number = PyLong_AsSsize_t(PyList_GET_ITEM(laid, at));
    if (number < 0 || number >= run_count || at + 1 >= PyList_GET_SIZE(laid)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "there is no such run");
        return NULL;
    }
    PyObject *key = PyList_GET_ITEM(laid, at + 1);
    if (key == Py_None) {
        *key_part = NULL;
        if (at + 3 >= PyList_GET_SIZE(laid)) {
            PyErr_SetString(PyExc_ValueError, "a batch has a place, and what follows it");
            return NULL;
        }
    } else if (PyBytes_Check(key)) {
        *key_part = key;
    } else {
        PyErr_SetString(PyExc_TypeError, "a key is bytes as it stands in a record");
        return NULL;
    }
    return runs + number;
}

/* How long each run will be. */
static int measure_runs(PyObject *laid, Run *runs, Py_ssize_t run_count, long long now_ms)
{
    Run *run = NULL;
    PyObject *key_part = NULL;
    Message message;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(laid); at++) {
        PyObject *item = PyList_GET_ITEM(laid, at);
        if (PyLong_CheckExact(item)) {
            run = begin_run(laid, at++, runs, run_count, &key_part);
            if (!run)
                return -1;
            if (!key_part) {
                for (int piece = 0; piece < 2; piece++) {
                    Py_buffer data;
                    if (PyObject_GetBuffer(PyList_GET_ITEM(laid, ++at), &data, PyBUF_SIMPLE) < 0)
                        return -1;
                    run->size += data.len;
                    PyBuffer_Release(&data);
                }
                run = NULL;
            }
        } else if (!run || read_message(item, key_part, run->count, now_ms, &message) < 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a message stands behind the number of its run");
            return -1;
        } else {
            run->count++;
            run->size += varint_size(zigzag((int64_t)message.size)) + message.size;
        }
    }
    return 0;
}

/* The same once more, now written: `body` has room for all of it. `ends` may be NULL. */
static int write_runs(PyObject *laid, Run *runs, Py_ssize_t run_count, long long now_ms, unsigned char *body,
                      const uint64_t *starts, uint32_t *ends)
{
    Run *run = NULL;
    PyObject *key_part = NULL;
    Message message;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(laid); at++) {
        PyObject *item = PyList_GET_ITEM(laid, at);
        if (PyLong_CheckExact(item)) {
            run = begin_run(laid, at++, runs, run_count, &key_part);
            if (!run)
                return -1;
            for (int piece = 0; !key_part && piece < 2; piece++) {
                Py_buffer data;
                if (PyObject_GetBuffer(PyList_GET_ITEM(laid, ++at), &data, PyBUF_SIMPLE) < 0)
                    return -1;
                if ((uint64_t)data.len > starts[run - runs + 1] - run->at) {
                    PyBuffer_Release(&data);
                    PyErr_SetString(PyExc_SystemError, "what is laid has changed");
                    return -1;
                }
                memcpy(body + run->at, data.buf, data.len);
                run->at += data.len;
                PyBuffer_Release(&data);
            }
            continue;
        }
        if (read_message(item, key_part, run->next, now_ms, &message) < 0)
            return -1;
        uint64_t length = zigzag((int64_t)message.size);
        if (varint_size(length) + message.size > starts[run - runs + 1] - run->at) {
            PyErr_SetString(PyExc_SystemError, "what is laid has changed");
            return -1;
        }
        unsigned char *to = put_varint(body + run->at, length);
        *to++ = message.attributes;
        to = put_varint(to, message.delta);
        to = put_varint(to, zigzag(run->next));
        to = put_bytes(to, key_part);
        to = put_varint(to, message.value ? zigzag(PyBytes_GET_SIZE(message.value)) : 1);
        if (message.value)
            to = put_bytes(to, message.value);
        to = put_bytes(to, message.headers);
        run->at = to - body;
        if (ends)
            ends[run->first + run->next] = (uint32_t)(run->at - starts[run - runs]);
        run->next++;
    }
    return 0;
}

/* (body, lengths, crcs, ends) out of `runs`, which are measured; `starts` has room for one more than there are. */
static PyObject *lay_out(PyObject *laid, Run *runs, Py_ssize_t run_count, long long now_ms, PyObject *front,
                         int with_ends, uint64_t *starts)
{
    uint64_t at = PyBytes_GET_SIZE(front), records = 0;
    for (Py_ssize_t i = 0; i < run_count; i++) {
        starts[i] = runs[i].at = at;
        at += runs[i].size;
        runs[i].first = records;
        records += runs[i].count;
    }
    starts[run_count] = at;
    if (at > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a body has at most four gigabytes");
        return NULL;
    }
    PyObject *body = PyBytes_FromStringAndSize(NULL, at);
    PyObject *lengths = PyBytes_FromStringAndSize(NULL, 4 * run_count);
    PyObject *crcs = PyBytes_FromStringAndSize(NULL, 4 * run_count);
    PyObject *ends = PyBytes_FromStringAndSize(NULL, with_ends ? 4 * records : 0);
    PyObject *result = NULL;
    if (body && lengths && crcs && ends) {
        unsigned char *data = (unsigned char *)PyBytes_AS_STRING(body);
        put_bytes(data, front);
        if (write_runs(laid, runs, run_count, now_ms, data, starts,
                       with_ends ? (uint32_t *)PyBytes_AS_STRING(ends) : NULL) == 0) {
            for (Py_ssize_t i = 0; i < run_count; i++) {
                uint32_t length = (uint32_t)runs[i].size, crc = crc32c(0, data + starts[i], runs[i].size);
                memcpy(PyBytes_AS_STRING(lengths) + 4 * i, &length, 4);
                memcpy(PyBytes_AS_STRING(crcs) + 4 * i, &crc, 4);
            }
            result = PyTuple_Pack(4, body, lengths, crcs, ends);
        }
    }
    Py_XDECREF(body);
    Py_XDECREF(lengths);
    Py_XDECREF(crcs);
    Py_XDECREF(ends);
    return result;
}

static PyObject *module_encode_body(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *laid, *front, *result = NULL;
    Py_ssize_t run_count;
    long long now_ms;
    int with_ends;
    if (!PyArg_ParseTuple(args, "O!nLSp", &PyList_Type, &laid, &run_count, &now_ms, &front, &with_ends))
        return NULL;
    if (run_count < 0) {
        PyErr_SetString(PyExc_ValueError, "runs are counted from 0");
        return NULL;
    }
    Run *runs = PyMem_Calloc(run_count + 1, sizeof(Run));
    uint64_t *starts = PyMem_Calloc(run_count + 1, sizeof(uint64_t));
    if (!runs || !starts)
        PyErr_NoMemory();
    else if (measure_runs(laid, runs, run_count, now_ms) == 0)
        result = lay_out(laid, runs, run_count, now_ms, front, with_ends, starts);
    PyMem_Free(starts);
    PyMem_Free(runs);
    return result;
}

/* ---- who published the messages of a frame */

#define NOBODY_NUMBER 0xFFFF

typedef struct {
    PyObject *author;
    uint16_t number;
} Numbered;

/* Authors get numbers in the order in which they are met. */
typedef struct {
    PyObject *authors;               /* a list */
    Numbered *slots;                 /* by their addresses; never full */
    size_t mask;
    Py_ssize_t most;
} Numbering;

/* -1 with an exception. */
static int number_of(Numbering *self, PyObject *author)
{
    if (author == Py_None)
        return NOBODY_NUMBER;
    size_t at = ((size_t)author >> 4) & self->mask;
    for (; self->slots[at].author; at = (at + 1) & self->mask)
        if (self->slots[at].author == author)
            return self->slots[at].number;
    Py_ssize_t number = PyList_GET_SIZE(self->authors);
    if (number >= self->most)
        return NOBODY_NUMBER;
    if (PyList_Append(self->authors, author) < 0)
        return -1;
    self->slots[at].author = author;
    self->slots[at].number = (uint16_t)number;
    return (int)number;
}

/* Messages from one on, as they were laid, are an author's. */
typedef struct {
    long long from;
    uint16_t number;
} Part;

/* How many parts the turns have; -1 with an exception where they are none. */
static Py_ssize_t count_parts(PyObject *turns)
{
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(turns); i++) {
        PyObject *turn = PyList_GET_ITEM(turns, i);
        if (!PyTuple_CheckExact(turn) || PyTuple_GET_SIZE(turn) != 3 || !PyLong_Check(PyTuple_GET_ITEM(turn, 0))) {
            PyErr_SetString(PyExc_TypeError, "a turn is a number, stops or None, and whose it is");
            return -1;
        }
        PyObject *stops = PyTuple_GET_ITEM(turn, 1), *authors = PyTuple_GET_ITEM(turn, 2);
        if (stops == Py_None) {
            count++;
        } else if (PyList_CheckExact(stops) && PyList_CheckExact(authors)
                   && PyList_GET_SIZE(stops) == PyList_GET_SIZE(authors)) {
            count += PyList_GET_SIZE(stops);
        } else {
            PyErr_SetString(PyExc_TypeError, "each stop has an author");
            return -1;
        }
    }
    return count;
}

/* `parts` has room for what `count_parts` said, and one more, which ends them. */
static int read_parts(PyObject *turns, Part *parts, Numbering *numbering)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(turns); i++) {
        PyObject *turn = PyList_GET_ITEM(turns, i), *stops = PyTuple_GET_ITEM(turn, 1), *of = PyTuple_GET_ITEM(turn, 2);
        long long first = PyLong_AsLongLong(PyTuple_GET_ITEM(turn, 0)), from = first;
        Py_ssize_t count = stops == Py_None ? 1 : PyList_GET_SIZE(stops);
        for (Py_ssize_t part = 0; part < count; part++) {
            int number = number_of(numbering, stops == Py_None ? of : PyList_GET_ITEM(of, part));
            if (number < 0)
                return -1;
            parts->from = from;
            parts++->number = (uint16_t)number;
            if (stops != Py_None)
                from = first + PyLong_AsLongLong(PyList_GET_ITEM(stops, part));
        }
        if (PyErr_Occurred())
            return -1;
    }
    parts->from = LLONG_MAX;
    return 0;
}

typedef struct {
    uint32_t run, first;             /* its message, counted from the run's first */
    uint16_t number;
} Stretch;

typedef struct {
    int64_t begin;                   /* of its ids, from the frame's first; below 0: they have ids of their own */
    uint32_t count;                  /* of its messages, as they are met */
    uint32_t stretches, at;          /* of one author each; where they go */
    int number;                      /* of its newest author; -1: it has no message yet */
} Authored;

/* How many stretches there are, in the order of arrival: `stretches` has room for all that is laid. */
static Py_ssize_t find_stretches(PyObject *laid, Part *part, Authored *runs, Py_ssize_t run_count, Stretch *stretches)
{
    Authored *run = NULL;
    Py_ssize_t found = 0;
    long long message = 0;
    uint16_t number = NOBODY_NUMBER;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(laid); at++) {
        PyObject *item = PyList_GET_ITEM(laid, at);
        if (PyLong_CheckExact(item)) {
            Py_ssize_t of = PyLong_AsSsize_t(item);
            if (of < 0 || of >= run_count || at + 1 >= PyList_GET_SIZE(laid)) {
                if (!PyErr_Occurred())
                    PyErr_SetString(PyExc_ValueError, "there is no such run");
                return -1;
            }
            run = runs + of;
            if (PyList_GET_ITEM(laid, ++at) != Py_None)
                continue;
            at += 2;                 /* a producer's batch */
        }
        if (!run) {
            PyErr_SetString(PyExc_ValueError, "a message stands behind the number of its run");
            return -1;
        }
        for (; message >= part->from; part++)
            number = part->number;
        message++;
        if (run->number != number) {
            stretches[found++] = (Stretch){(uint32_t)(run - runs), run->count, number};
            run->number = number;
            run->stretches++;
        }
        run->count++;
    }
    return found;
}

/* Nearly every frame is one author's: nothing that is laid is looked at. */
static Py_ssize_t one_stretch(const Part *part, Authored *runs, Py_ssize_t run_count, Stretch *stretches)
{
    for (Py_ssize_t i = 0; i < run_count; i++)
        if (runs[i].begin >= 0) {
            runs[i].stretches = 1;
            stretches[0] = (Stretch){(uint32_t)i, 0, part->number};
            return 1;
        }
    return 0;
}

/* (authors, firsts, numbers): stretches run by run, in the order of their ids. */
static PyObject *lay_out_stretches(const Stretch *stretches, Py_ssize_t found, Authored *runs, Py_ssize_t run_count,
                                   PyObject *authors)
{
    uint32_t room = 0;
    for (Py_ssize_t i = 0; i < run_count; i++) {
        runs[i].at = room;
        room += runs[i].begin < 0 ? 0 : runs[i].stretches;
    }
    uint32_t *firsts = PyMem_Malloc(room * sizeof(uint32_t) + 1);
    uint16_t *numbers = PyMem_Malloc(room * sizeof(uint16_t) + 1);
    PyObject *result = NULL;
    if (firsts && numbers) {
        for (Py_ssize_t i = 0; i < found; i++) {
            Authored *run = runs + stretches[i].run;
            if (run->begin < 0)
                continue;
            firsts[run->at] = (uint32_t)(run->begin + stretches[i].first);
            numbers[run->at++] = stretches[i].number;
        }
        uint32_t kept = 0;
        for (uint32_t i = 0; i < room; i++)
            if (!kept || numbers[kept - 1] != numbers[i]) {
                firsts[kept] = firsts[i];
                numbers[kept++] = numbers[i];
            }
        result = Py_BuildValue("Oy#y#", authors, (char *)firsts, (Py_ssize_t)(kept * sizeof(uint32_t)),
                               (char *)numbers, (Py_ssize_t)(kept * sizeof(uint16_t)));
    } else {
        PyErr_NoMemory();
    }
    PyMem_Free(firsts);
    PyMem_Free(numbers);
    return result;
}

static PyObject *module_authors_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *laid, *turns, *result = NULL;
    Py_buffer begins;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "O!O!y*n", &PyList_Type, &laid, &PyList_Type, &turns, &begins, &most))
        return NULL;
    Py_ssize_t run_count = begins.len / (Py_ssize_t)sizeof(int64_t), part_count = count_parts(turns);
    if (part_count < 0) {
        PyBuffer_Release(&begins);
        return NULL;
    }
    size_t slots = 16;
    while (slots < 2 * (size_t)part_count)
        slots *= 2;
    Numbering numbering = {PyList_New(0), PyMem_Calloc(slots, sizeof(Numbered)), slots - 1,
                           most < NOBODY_NUMBER ? most : NOBODY_NUMBER};
    Part *parts = PyMem_Calloc(part_count + 1, sizeof(Part));
    Authored *runs = PyMem_Calloc(run_count + 1, sizeof(Authored));
    Stretch *stretches = PyMem_Malloc((PyList_GET_SIZE(laid) + 1) * sizeof(Stretch));
    if (numbering.authors && numbering.slots && parts && runs && stretches) {
        for (Py_ssize_t i = 0; i < run_count; i++) {
            memcpy(&runs[i].begin, (char *)begins.buf + i * sizeof(int64_t), sizeof(int64_t));
            runs[i].number = -1;
        }
        if (read_parts(turns, parts, &numbering) == 0) {
            Py_ssize_t found;
            if (part_count == 1 && parts->from == 0)
                found = one_stretch(parts, runs, run_count, stretches);
            else
                found = find_stretches(laid, parts, runs, run_count, stretches);
            if (found >= 0)
                result = lay_out_stretches(stretches, found, runs, run_count, numbering.authors);
        }
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    PyMem_Free(stretches);
    PyMem_Free(runs);
    PyMem_Free(parts);
    PyMem_Free(numbering.slots);
    Py_XDECREF(numbering.authors);
    PyBuffer_Release(&begins);
    return result;
}

static PyMethodDef module_methods[] = {
    {"encode_body", module_encode_body, METH_VARARGS,
     "encode_body(laid, run_count, now_ms, front, with_ends): (body, lengths, crcs, ends), see kernel/write/body.py."},
    {"authors_of", module_authors_of, METH_VARARGS,
     "authors_of(laid, turns, begins, most): (authors, firsts, numbers), see kernel/write/body.py."},
    {"crc32c", module_crc32c, METH_VARARGS, "crc32c(data, crc=0, by_table=False), as it is counted here; for tests."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "gatehouse.kernel.log.native_writer",
    .m_doc = "The jobs of the log's thread, with frames among them.",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit_native_writer(void)
{
    fill_crc_table();
    if (HAS_CRC_INSTRUCTION)
        crc_on = crc_by_instruction;
    if (PyType_Ready(&jobs_type) < 0)
        return NULL;
    PyObject *self = PyModule_Create(&module);
    if (!self || PyModule_AddObjectRef(self, "Jobs", (PyObject *)&jobs_type) < 0) {
        Py_XDECREF(self);
        return NULL;
    }
    return self;
}
