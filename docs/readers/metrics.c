/* The newest numbers of a run: cc -O2 metrics.c -o metrics && ./metrics runs/RUN/metrics.mmap (docs/metrics_file.md). */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned char data[1 << 24];
#define AT(type, place) (*(type *)memcpy(&(type){0}, data + (place), sizeof(type)))

static uint32_t crc32(const unsigned char *byte, size_t count) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < 8 * count; i++)
        crc = (crc >> 1) ^ ((crc ^ byte[i / 8] >> i % 8) & 1 ? 0xEDB88320u : 0);
    return ~crc;
}

int main(int count, char **words) {
    FILE *file = count == 2 ? fopen(words[1], "rb") : NULL;
    size_t size = file ? fread(data, 1, sizeof data, file) : 0;
    if (size < 4096 || memcmp(data, "\x89STRIDE\n", 8) || AT(uint32_t, 8) != 1 || AT(uint64_t, 16) > size)
        return fprintf(stderr, "not a metrics.mmap of version 1\n"), 1;
    uint64_t newest = 0, start = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t place = AT(uint64_t, 48) + i * AT(uint32_t, 36), sequence = AT(uint64_t, place);
        uint32_t bytes = 404 + 24 * AT(uint32_t, place + 12);
        if (sequence == AT(uint64_t, place + 16) && place + 12 + bytes <= size && sequence > newest
            && crc32(data + place + 12, bytes) == AT(uint32_t, place + 8))
            newest = sequence, start = place;
    }
    if (!newest) return fprintf(stderr, "no record is whole: read again\n"), 1;
    printf("env_steps %lld\n", (long long)AT(int64_t, start + 32));
    for (uint32_t i = 0; i < AT(uint32_t, start + 12); i++)
        printf("%.96s %.9g at %.15g, %llu values\n", data + 4160 + 104 * i, AT(double, start + 416 + 24 * i),
               AT(double, start + 424 + 24 * i), (unsigned long long)AT(uint64_t, start + 432 + 24 * i));
    return 0;
}
