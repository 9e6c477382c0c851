// Vectors of as many floats as the machine has lanes, by the compiler's vector extensions: one source for every instruction set.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace burnish {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));

// Rows of a panel: what one vector (or two, or four) holds side by side.
constexpr int PANEL = 16;
constexpr int VECTORS = PANEL / LANES;

template <class V, class T>
inline V load(const T* from) {
    V v;
    std::memcpy(&v, from, sizeof(V));
    return v;
}

inline void store(float* to, Floats v) { std::memcpy(to, &v, sizeof(v)); }

inline Floats all(float x) { return Floats{} + x; }

inline Floats to_floats(Words w) { return __builtin_convertvector((Ints)w, Floats); }

inline float sum(Floats v) {
    float total = 0;
    for (int i = 0; i < LANES; i++) total += v[i];
    return total;
}

inline float half(uint16_t h) {
#if defined(__F16C__)
    return _cvtsh_ss(h);
#else
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    uint32_t bits;
    if (magnitude >= 0x7c00) bits = sign | 0x7f800000 | (magnitude & 0x3ff) << 13;
    else if (magnitude >= 0x400) bits = sign | ((magnitude << 13) + (112u << 23));
    else {  // subnormal: a multiple of 2^-24
        const float f = (float)magnitude * (1.0f / 16777216.0f);
        std::memcpy(&bits, &f, 4);
        bits |= sign;
    }
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
#endif
}

// LANES half-precision numbers.
inline Floats halves(const uint16_t* from) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
#elif defined(__F16C__) && defined(__AVX__)
    return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#else
    Floats v;
    for (int i = 0; i < LANES; i++) v[i] = half(from[i]);
    return v;
#endif
}

}  // namespace burnish
