// Registers of WIDTH floats: sums, maxima, the exponential. With AVX-512 one holds 16, with AVX2 8.

#ifdef WIDE
enum { WIDTH = 16 };
#define ONLY_WIDE(...) __VA_ARGS__
#else
enum { WIDTH = 8 };
#define ONLY_WIDE(...)
#endif

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)") for
#else
#define UNROLLED _Pragma("GCC unroll 16") for
#endif

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
typedef float vec __attribute__((vector_size(WIDTH * 4)));
typedef float loose __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias)); // as it lies in memory
typedef int bits __attribute__((vector_size(WIDTH * 4)));

INLINE long min(long a, long b) { return a < b ? a : b; }

INLINE vec load(const float *from) { return *(const loose *)from; }

INLINE void store(float *to, vec v) { *(loose *)to = v; }

INLINE float sum_up(vec v) {
  UNROLLED(int half = WIDTH / 2; half; half /= 2)
    UNROLLED(int i = 0; i < half; i++) v[i] += v[i + half];
  return v[0];
}

INLINE float find_most(vec v) {
  UNROLLED(int half = WIDTH / 2; half; half /= 2)
    UNROLLED(int i = 0; i < half; i++) v[i] = v[i] > v[i + half] ? v[i] : v[i + half];
  return v[0];
}

// Returns the sums of four registers.
INLINE four sum_up_four(const vec *v) {
  __m256 part[4];
  for (int i = 0; i < 4; i++) {
    __m256 half[WIDTH / 8];
    __builtin_memcpy(half, &v[i], sizeof half);
    part[i] = half[0];
    if (WIDTH == 16)
      part[i] += half[WIDTH / 8 - 1];
  }
  __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(part[0], part[1]), _mm256_hadd_ps(part[2], part[3]));
  return (four)(_mm256_castps256_ps128(all) + _mm256_extractf128_ps(all, 1));
}

INLINE vec choose(bits which, vec yes, vec no) { return (vec)(((bits)yes & which) | ((bits)no & ~which)); }

// Returns the exponential of numbers of at most 0: two to a whole power, and a polynomial for the rest (Cephes' expf).
// NaN stays NaN.
INLINE vec exponential(vec x) {
  const vec zero = {0}, least = zero - 87.0f;
  bits is_seen = ~(x <= least);
  x = choose(is_seen, x, least);
  vec shifted = x * 1.44269504f + 12582912.0f; // 1.5 * 2^23: the digits behind the point are cut off
  vec whole = shifted - 12582912.0f;
  vec rest = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  vec sum = rest * 1.9875691500e-4f + 1.3981999507e-3f;
  sum = sum * rest + 8.3334519073e-3f;
  sum = sum * rest + 4.1665795894e-2f;
  sum = sum * rest + 1.6666665459e-1f;
  sum = sum * rest + 5.0000001201e-1f;
  sum = sum * (rest * rest) + rest + 1.0f;
  bits exponent = ((bits)shifted << 23) + (127 << 23);
  return choose(is_seen, sum * (vec)exponent, zero);
}
