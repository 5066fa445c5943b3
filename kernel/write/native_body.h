/* Numbers of records, for the native modules that make some. */

#include <stdint.h>

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

/* Nine bytes at most: 63 bits. 0 where it does not end before `end`. */
static int read_varint(const unsigned char **at, const unsigned char *end, int64_t *value)
{
    uint64_t raw = 0;
    for (int shift = 0; shift < 63 && *at < end; shift += 7) {
        unsigned char byte = *(*at)++;
        raw |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return 1;
        }
    }
    return 0;
}
