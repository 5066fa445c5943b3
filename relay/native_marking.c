/* Records of another hub, with the headers that say where they come from: see relay/marking.py, whose `mark_plain` says
   the same.

   mark(opened, count, first_offset, first_id, places, tracks, partition_ids, limit_bytes, for_link, for_kernel, ending,
        messages, met)

   First each record is looked at where it lies, and what of it goes where is noted; then those of each track are written
   into bytes of just their size. Every length is held against what it lies in before it is followed. No code of others
   runs meanwhile: keys are bytes or None, and so nothing changes under it. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#include <endian.h>
#include <stdint.h>
#include <string.h>

#include "../kernel/write/native_body.h"

#define AT_ONCE 4096
#define SMALLEST_RECORD 6            /* bytes behind a record's length */
#define MAX_HEADERS 10000
#define MAX_TIME_MS (1LL << 61)
#define RETAIN 0x20
#define DIGITS 20                    /* of a 64-bit number, with its sign */
#define PLACE_BYTES 16               /* an offset and an id */

/* A part of the bytes. */
typedef struct {
    const unsigned char *at;
    size_t size;
} Part;

/* One record where it lies. `middle`: key and value with their lengths. */
typedef struct {
    const unsigned char *end, *first_header;
    Part key, value, middle, headers;
    int has_key, has_value;
    unsigned char attributes;
    long long delta_ms, time_ms;
    uint64_t header_count;
} Record;

/* What of a record is written once the size of its track is known. */
typedef struct {
    Part middle, headers;            /* headers: without their count */
    uint64_t size;                   /* of what the record's length counts */
    long long delta_ms;
    uint32_t header_count, number, track;
    unsigned char attributes;
} Taken;

typedef struct {
    uint64_t size;
    Py_ssize_t count;
    long long max_ms;
    unsigned char *to;
    PyObject *bytes;
} Track;

static unsigned char *put(unsigned char *at, const void *from, size_t size)
{
    memcpy(at, from, size);
    return at + size;
}

/* Bytes behind their length; a length below zero: there are none. */
static int read_part(const unsigned char **at, const unsigned char *end, Part *part, int *there)
{
    int64_t length;
    if (!read_varint(at, end, &length) || length > end - *at)
        return 0;
    *there = length >= 0;
    *part = (Part){*at, length > 0 ? (size_t)length : 0};
    *at += part->size;
    return 1;
}

static int read_headers(Record *record, const unsigned char *at)
{
    int64_t count;
    Part part;
    int there;
    if (!read_varint(&at, record->end, &count) || count < 0 || count > MAX_HEADERS)
        return 0;
    record->header_count = (uint64_t)count;
    record->first_header = at;
    for (int64_t i = 0; i < count; i++)
        if (!read_part(&at, record->end, &part, &there) || !there || !read_part(&at, record->end, &part, &there))
            return 0;
    return at == record->end;
}

/* 0 where it makes no sense. */
static int read_record(const unsigned char *at, const unsigned char *end, long long base_ms, long long fixed_ms,
                       Record *record)
{
    int64_t length, delta_ms, offset;
    if (!read_varint(&at, end, &length) || length < SMALLEST_RECORD || length > end - at)
        return 0;
    record->end = at + length;
    record->attributes = *at++;
    if (!read_varint(&at, record->end, &delta_ms) || !read_varint(&at, record->end, &offset))
        return 0;
    if (fixed_ms >= 0)
        record->time_ms = fixed_ms;
    else if (__builtin_add_overflow(base_ms, delta_ms, &record->time_ms))
        return 0;
    if (record->time_ms >= MAX_TIME_MS || __builtin_sub_overflow(record->time_ms, base_ms, &record->delta_ms))
        return 0;
    record->middle.at = at;
    if (!read_part(&at, record->end, &record->key, &record->has_key)
        || !read_part(&at, record->end, &record->value, &record->has_value))
        return 0;
    record->middle.size = at - record->middle.at;
    record->headers = (Part){at, record->end - at};
    return read_headers(record, at);
}

static int holds(Part headers, PyObject *names)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        if (memmem(headers.at, headers.size, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)))
            return 1;
    }
    return 0;
}

/* ---- what a call is about */

typedef struct {
    PyObject *places, *tracks, *partition_ids, *for_link, *for_kernel, *messages, *met;
    const unsigned char *at, *end;
    long long base_ms, fixed_ms, first_offset, first_id, limit_bytes;
    Part ending[4];
    uint64_t ending_size;            /* of these four */
    Taken *taken;
    Py_ssize_t taken_count;
    Track *of;
    Py_ssize_t track_count;
} Call;

static long long id_of(const Call *call, uint32_t number)
{
    return (long long)((uint64_t)call->first_id + number);
}

/* The decimal digits of a number, which end where `last` does; how many there are. */
static int digits_of(long long number, char last[DIGITS])
{
    uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
    int count = 0;
    do
        last[DIGITS - ++count] = '0' + rest % 10;
    while (rest /= 10);
    if (number < 0)
        last[DIGITS - ++count] = '-';
    return count;
}

/* Bytes of headers that have so many bytes without their count, with both that say where their record comes from. */
static uint64_t with_ending(const Call *call, uint64_t header_count, uint64_t size, uint32_t number)
{
    char digits[DIGITS];
    uint64_t id_bytes = digits_of(id_of(call, number), digits);
    return varint_size((header_count + 2) << 1) + size + call->ending_size
        + varint_size((call->ending[1].size + id_bytes) << 1) + id_bytes + PLACE_BYTES;
}

static unsigned char *put_headers(const Call *call, uint64_t header_count, Part headers, uint32_t number,
                                  unsigned char *to)
{
    char digits[DIGITS];
    long long id = id_of(call, number);
    int id_bytes = digits_of(id, digits);
    uint64_t place[2] = {htobe64((uint64_t)call->first_offset + number), htobe64((uint64_t)id)};
    to = put_varint(to, (header_count + 2) << 1);
    to = put(to, headers.at, headers.size);
    to = put(to, call->ending[0].at, call->ending[0].size);
    to = put_varint(to, (call->ending[1].size + id_bytes) << 1);
    to = put(to, call->ending[1].at, call->ending[1].size);
    to = put(to, digits + DIGITS - id_bytes, id_bytes);
    to = put(to, call->ending[2].at, call->ending[2].size);
    to = put(to, place, PLACE_BYTES);
    return put(to, call->ending[3].at, call->ending[3].size);
}

/* It becomes a message. -1 with an exception. */
static int add_message(Call *call, const Record *record, Part behind, uint32_t number, uint64_t header_bytes,
                       PyObject *placement, PyObject *key)
{
    PyObject *value = record->has_value
        ? PyBytes_FromStringAndSize((const char *)record->value.at, record->value.size) : Py_NewRef(Py_None);
    PyObject *headers = PyBytes_FromStringAndSize(NULL, header_bytes);
    PyObject *attributes = PyLong_FromLong(record->attributes), *time_ms = PyLong_FromLongLong(record->time_ms);
    PyObject *message = NULL;
    if (value && headers && attributes && time_ms) {
        put_headers(call, record->header_count, behind, number, (unsigned char *)PyBytes_AS_STRING(headers));
        message = PyTuple_Pack(5, placement, value, headers, attributes, time_ms);
    }
    int failed = !message || PyList_Append(call->messages, message) < 0 || PyList_Append(call->met, key) < 0;
    Py_XDECREF(message);
    Py_XDECREF(value);
    Py_XDECREF(headers);
    Py_XDECREF(attributes);
    Py_XDECREF(time_ms);
    return failed ? -1 : 0;
}

/* It goes to a track. -1 with an exception. */
static int add_to_track(Call *call, const Record *record, Part behind, uint32_t number, uint64_t header_bytes,
                       PyObject *of)
{
    Py_ssize_t track_number = PyLong_AsSsize_t(of);
    if (track_number < 0 || track_number >= call->track_count) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "there is no such track");
        return -1;
    }
    uint64_t size = 1 + varint_size(zigzag(record->delta_ms)) + 1 + record->middle.size + header_bytes;
    call->taken[call->taken_count++] = (Taken){record->middle, behind, size, record->delta_ms,
                                               (uint32_t)record->header_count, number, (uint32_t)track_number,
                                               record->attributes};
    Track *track = call->of + track_number;
    track->size += varint_size(size << 1) + size;
    if (!track->count++ || record->time_ms > track->max_ms)
        track->max_ms = record->time_ms;
    return 0;
}

/* 1: it is taken, and `at` is behind it; 0: it has to be looked at; -1 with an exception. */
static int take(Call *call, uint32_t number)
{
    Record record;
    if (!read_record(call->at, call->end, call->base_ms, call->fixed_ms, &record) || record.attributes & RETAIN
        || record.time_ms <= 0 || (record.header_count && holds(record.headers, call->for_link)))
        return 0;
    Part behind = {record.first_header, record.end - record.first_header};
    uint64_t header_bytes = with_ending(call, record.header_count, behind.size, number);
    if (header_bytes + record.value.size > (uint64_t)call->limit_bytes)
        return 0;
    PyObject *key = record.has_key ? PyBytes_FromStringAndSize((const char *)record.key.at, record.key.size)
        : Py_NewRef(Py_None);
    PyObject *placement = key ? PyDict_GetItemWithError(call->places, key) : NULL;
    PyObject *track = placement ? PyDict_GetItemWithError(call->tracks, key) : NULL;
    int failed = PyErr_Occurred() != NULL;
    if (track && record.header_count && holds(record.headers, call->for_kernel)) {
        failed = PyDict_DelItem(call->tracks, key) < 0;
        track = NULL;
    }
    if (!failed && track)
        failed = add_to_track(call, &record, behind, number, header_bytes, track) < 0;
    else if (!failed && placement)
        failed = add_message(call, &record, behind, number, header_bytes, placement, key) < 0;
    Py_XDECREF(key);
    if (failed)
        return -1;
    if (!placement)
        return 0;
    call->at = record.end;
    return 1;
}

/* Those that go to tracks, as (partition id, how many, records, largest time); NULL with an exception. */
static PyObject *gather(Call *call)
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list && i < call->track_count; i++) {
        Track *track = call->of + i;
        if (!track->count)
            continue;
        track->bytes = PyBytes_FromStringAndSize(NULL, track->size);
        PyObject *row = track->bytes ? Py_BuildValue("(OnOL)", PyList_GET_ITEM(call->partition_ids, i), track->count,
                                                    track->bytes, track->max_ms) : NULL;
        if (!row || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        else
            track->to = (unsigned char *)PyBytes_AS_STRING(track->bytes);
        Py_XDECREF(row);
    }
    for (Py_ssize_t i = 0; list && i < call->taken_count; i++) {
        const Taken *taken = call->taken + i;
        Track *track = call->of + taken->track;
        unsigned char *to = put_varint(track->to, taken->size << 1);
        *to++ = taken->attributes;
        to = put_varint(to, zigzag(taken->delta_ms));
        *to++ = 0;
        to = put(to, taken->middle.at, taken->middle.size);
        track->to = put_headers(call, taken->header_count, taken->headers, taken->number, to);
    }
    for (Py_ssize_t i = 0; i < call->track_count; i++)
        Py_XDECREF(call->of[i].bytes);
    return list;
}

static int all_bytes(PyObject *tuple)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
        if (!PyBytes_Check(PyTuple_GET_ITEM(tuple, i)))
            return 0;
    return 1;
}

static PyObject *module_mark(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *opened, *data, *ending, *result = NULL;
    Py_ssize_t at, count;
    uint32_t number = 0;
    Call call = {0};
    if (!PyArg_ParseTuple(args, "O!nLLO!O!O!LO!O!O!O!O!", &PyTuple_Type, &opened, &count, &call.first_offset,
                          &call.first_id, &PyDict_Type, &call.places, &PyDict_Type, &call.tracks,
                          &PyList_Type, &call.partition_ids, &call.limit_bytes, &PyTuple_Type, &call.for_link,
                          &PyTuple_Type, &call.for_kernel, &PyTuple_Type, &ending, &PyList_Type, &call.messages,
                          &PyList_Type, &call.met)
        || !PyArg_ParseTuple(opened, "SnLL", &data, &at, &call.base_ms, &call.fixed_ms))
        return NULL;
    if (at < 0 || at > PyBytes_GET_SIZE(data) || call.limit_bytes < 0 || PyTuple_GET_SIZE(ending) != 4
        || !all_bytes(ending) || !all_bytes(call.for_link) || !all_bytes(call.for_kernel)) {
        PyErr_SetString(PyExc_ValueError, "what cannot be marked");
        return NULL;
    }
    for (int i = 0; i < 4; i++) {
        PyObject *part = PyTuple_GET_ITEM(ending, i);
        call.ending[i] = (Part){(unsigned char *)PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part)};
        call.ending_size += call.ending[i].size;
    }
    const unsigned char *first = (unsigned char *)PyBytes_AS_STRING(data);
    call.at = first + at;
    call.end = first + PyBytes_GET_SIZE(data);
    count = count < AT_ONCE ? count : AT_ONCE;
    call.track_count = PyList_GET_SIZE(call.partition_ids);
    call.taken = count > 0 ? PyMem_Malloc(count * sizeof(Taken)) : NULL;
    call.of = PyMem_Calloc(call.track_count + 1, sizeof(Track));
    if (!call.of || (count > 0 && !call.taken)) {
        PyErr_NoMemory();
    } else {
        int went = 1;
        while (number < count && (went = take(&call, number)) == 1)
            number++;
        PyObject *gathered = went < 0 ? NULL : gather(&call);
        if (gathered)
            result = Py_BuildValue("(InN)", number, (Py_ssize_t)(call.at - first), gathered);
    }
    PyMem_Free(call.taken);
    PyMem_Free(call.of);
    return result;
}

static PyMethodDef module_methods[] = {
    {"mark", module_mark, METH_VARARGS, "See relay/marking.py."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "gatehouse.relay.native_marking",
    .m_doc = "Records of another hub, with the headers that say where they come from.",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit_native_marking(void)
{
    return PyModule_Create(&module);
}
