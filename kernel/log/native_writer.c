/* The jobs of the log's thread, with frames among them, which are written without the interpreter's lock.

   Jobs                 one line of jobs, in the order in which they were handed in
   write(...)           hand in a frame: CRCs, pwritev, fdatasync
   submit(job, done)    hand in a job of Python
   take()               on the log's thread: write frames until a job of Python comes, and return that; None at the end
   finish(done, result, error)   on the log's thread: a job of Python has ended
   ended()              on the loop's thread: what has ended since, in order, as (done, result, error)
   busy()               whether a job of Python waits, runs, or has not been asked for
   fileno()             readable while something has ended that nobody has asked for; one write for a burst of it

   A frame's result is 0, or the errno of what failed: above zero for the write, below zero for the sync. What follows
   from it is Python's to say (kernel/log/segments.py), and so is where a frame goes. The layout of an envelope is
   that of kernel/log/segments.py. Linux only: eventfd. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "native_writer.h"

#define ENVELOPE_BYTES 32
#define CRC_AT 28

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

static PyMethodDef module_methods[] = {
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
    begin_crc();
    if (PyType_Ready(&jobs_type) < 0)
        return NULL;
    PyObject *self = PyModule_Create(&module);
    if (!self || PyModule_AddObjectRef(self, "Jobs", (PyObject *)&jobs_type) < 0) {
        Py_XDECREF(self);
        return NULL;
    }
    return self;
}
