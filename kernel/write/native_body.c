/* The body of a frame out of messages as they came, and who published them: see kernel/write/pending_frame.py, whose
   `encode_plain` and `authors_plain` say the same.

   encode_body(...)     each message becomes a record where it stays: measured first, then written
   authors_of(...)      stretches of ids that have one author */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "../log/native_writer.h"
#include "native_body.h"

/* ---- the body of a frame */

#define RECORD_FIELDS 5              /* of a message: where, value, headers, attributes, timestamp */
#define ENCODED_FIELDS 3             /* of messages that are records already: these, what their times count from, and how
                                        many they are */

typedef struct {
    uint64_t size, at;
    uint32_t count;                  /* records */
    uint32_t next;                   /* the number of the record that is written next */
    uint64_t first;                  /* of all records, its first one */
} Run;

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

static int is_encoded(PyObject *item)
{
    return PyTuple_CheckExact(item) && PyTuple_GET_SIZE(item) == ENCODED_FIELDS;
}

/* How many records such an item says that it has; -1 with an exception. */
static long long encoded_count(PyObject *item)
{
    long long count = PyLong_AsLongLong(PyTuple_GET_ITEM(item, 2));
    if (PyErr_Occurred())
        return -1;
    if (count < 0 || count > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "encoded records are counted");
        return -1;
    }
    return count;
}

/* Records that are encoded, as those of a run that has `number` before them. `to`: where they are written, with room up
   to `end`, and `ends`, if any, as for messages; NULL: they are measured. How many bytes they are there, and their
   count is added to `count`; UINT64_MAX with an exception. */
static uint64_t place_records(PyObject *item, uint32_t number, long long now_ms, uint32_t *count, unsigned char *to,
                              const unsigned char *end, uint32_t *ends, uint64_t before)
{
    PyObject *data = PyTuple_GET_ITEM(item, 0), *base = PyTuple_GET_ITEM(item, 1);
    if (!PyBytes_Check(data) || !PyLong_Check(base)) {
        PyErr_SetString(PyExc_TypeError, "encoded records are bytes, and what their times count from is a number");
        return UINT64_MAX;
    }
    long long base_ms = PyLong_AsLongLong(base), claimed = encoded_count(item);
    if (claimed < 0 || (base_ms == -1 && PyErr_Occurred()))
        return UINT64_MAX;
    const unsigned char *at = (unsigned char *)PyBytes_AS_STRING(data), *stop = at + PyBytes_GET_SIZE(data);
    uint64_t size = 0;
    while (at < stop) {
        int64_t length, delta;
        if (!read_varint(&at, stop, &length) || length < 2 || length > stop - at)
            goto broken;
        const unsigned char *behind = at + length;
        unsigned char attributes = *at++;
        if (!read_varint(&at, behind, &delta) || at == behind || *at++ != 0)
            goto broken;
        uint64_t time = zigzag((int64_t)((uint64_t)base_ms + (uint64_t)delta - (uint64_t)now_ms));
        uint64_t place = zigzag(number++), rest = behind - at;
        uint64_t of_record = 1 + varint_size(time) + varint_size(place) + rest;
        uint64_t whole = varint_size(zigzag((int64_t)of_record)) + of_record;
        size += whole;
        ++*count;
        if (to) {
            if (whole > (uint64_t)(end - to))
                goto broken;
            to = put_varint(to, zigzag((int64_t)of_record));
            *to++ = attributes;
            to = put_varint(put_varint(to, time), place);
            memcpy(to, at, rest);
            to += rest;
            if (ends)
                *ends++ = (uint32_t)(before + size);
        }
        at = behind;
        claimed--;
    }
    if (!claimed)
        return size;
broken:
    PyErr_SetString(PyExc_ValueError, "encoded records are not what they should be");
    return UINT64_MAX;
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
        } else if (run && is_encoded(item)) {
            uint64_t size = place_records(item, run->count, now_ms, &run->count, NULL, NULL, NULL, 0);
            if (size == UINT64_MAX)
                return -1;
            run->size += size;
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
        if (is_encoded(item)) {
            uint64_t size = place_records(item, run->next, now_ms, &run->next, body + run->at,
                                          body + starts[run - runs + 1], ends ? ends + run->first + run->next : NULL,
                                          run->at - starts[run - runs]);
            if (size == UINT64_MAX)
                return -1;
            run->at += size;
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
        long long count = is_encoded(PyList_GET_ITEM(laid, at)) ? encoded_count(PyList_GET_ITEM(laid, at)) : 1;
        if (count < 0)
            return -1;
        if (count && run->number != number) {
            stretches[found++] = (Stretch){(uint32_t)(run - runs), run->count, number};
            run->number = number;
            run->stretches++;
        }
        run->count += (uint32_t)count;
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
     "encode_body(laid, run_count, now_ms, front, with_ends): (body, lengths, crcs, ends), see pending_frame.py."},
    {"authors_of", module_authors_of, METH_VARARGS,
     "authors_of(laid, turns, begins, most): (authors, firsts, numbers), see pending_frame.py."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "gatehouse.kernel.write.native_body",
    .m_doc = "The body of a frame.",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit_native_body(void)
{
    begin_crc();
    return PyModule_Create(&module);
}
