/* CRC-32C, for the native modules that make frames and write them. Whoever includes it calls `begin_crc` first. */

#include <endian.h>
#include <stdint.h>
#include <string.h>

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

static void begin_crc(void)
{
    fill_crc_table();
    if (HAS_CRC_INSTRUCTION)
        crc_on = crc_by_instruction;
}
