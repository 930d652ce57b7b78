// Products of few rows without the copy: `cblas_sgemm` in front of OpenBLAS on x86_64.
//
// OpenBLAS's gemm first copies the second matrix into its own order. That pays when many rows are multiplied by it; the
// products of a sequence that decodes alone have one row, and the copy is most of their time. Its gemv doesn't copy. So
// a product of one row is a gemv here, and one of two to four rows by a transposed matrix (a layer's weights) is as
// many gemvs, panel by panel, so that only the first of them waits for memory and the others find the panel in the
// cache. With one thread some more rows, by a transposed matrix again, are multiplied right here in the processor's wide
// registers (few_rows_lanes.h): both matrices have their numbers in the order in which they are summed up. Everything
// else goes to OpenBLAS's gemm as it came.
//
// Needs nothing but OpenBLAS as `blas.py` prepares it, loaded before: no libc, no constructor, no memory of its own.
// Built by `python -m tools.native`; where the thresholds come from stands in blas.py.
//
// What must never happen: a product that gemm would refuse, or do nothing for, does something here. What isn't plainly
// a product of few rows is gemm's.

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

// Up to so many rows gemm's copy doesn't pay; with threads, which share it, it pays earlier.
enum { ROWS_MAX_ALONE = 4, ROWS_MAX_THREADED = 3 };
// With one thread, by what the processor has: from so many rows on the registers are faster than gemv, up to so many
// than gemm.
enum { ROWS_MIN_WIDE = 3, ROWS_MAX_AVX2 = 10, ROWS_MAX_AVX512 = 16 };
// So much of a row at a time, that all rows stay in the nearest cache beside it.
enum { DEPTH = 1024 };
// A panel must stay in the second-level cache of the cores that share it, and be large enough to be shared out at all.
enum { PANEL_ALONE = 512 << 10, PANEL_A_THREAD = 1 << 20 };
// For AVX-512 OpenBLAS has kernels that don't copy either, for so many multiplications at most; by a transposed matrix
// it takes them for a short result and a long sum only.
enum { SMALL_MULTIPLICATIONS = 1000000, SMALL_RESULT = 1200, SMALL_SUM_MIN = 32 };

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("clang loop unroll(full)") for
#define ROLLED _Pragma("clang loop vectorize(disable) unroll(disable)") for

typedef const float *matrix;
typedef float four __attribute__((vector_size(16)));
typedef float eight __attribute__((vector_size(32)));

// A product by a transposed matrix, in CBLAS's names.
struct product {
  int m, n, k;
  float alpha, beta;
  matrix a, b;
  float *c;
  long lda, ldb, ldc;
};

#define WIDTH 16
#define TILE 6
#define TARGET __attribute__((target("avx512f,fma")))
#define NAME(x) x##_avx512
#include "few_rows_lanes.h"
#undef WIDTH
#undef TILE
#undef TARGET
#undef NAME

#define WIDTH 8
#define TILE 3
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) x##_avx2
#include "few_rows_lanes.h"

extern void scipy_cblas_sgemv(int order, int trans, int m, int n, float alpha, matrix a, int lda, matrix x, int incx,
                              float beta, float *y, int incy);
extern void scipy_sgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
                         const float *alpha, matrix a, const int *lda, matrix b, const int *ldb, const float *beta,
                         float *c, const int *ldc);
extern int scipy_openblas_get_num_threads(void);
extern const char *scipy_openblas_get_corename(void);

// How many floats a register has, by the kernels that OpenBLAS computes with here: SkylakeX, Cooperlake, SapphireRapids
// have AVX-512; Haswell, Zen AVX2; Sandybridge and older ones neither.
static int find_width(void) {
  static int known; // 0: not asked yet; whichever thread asks gets the same answer
  if (!known) {
    const char *core = scipy_openblas_get_corename();
    if ((core[0] == 'S' && (core[1] == 'k' || (core[1] == 'a' && core[2] == 'p'))) ||
        (core[0] == 'C' && core[1] == 'o' && core[2] == 'o' && core[3] == 'p'))
      known = 16;
    else
      known = core[0] == 'H' || core[0] == 'Z' ? 8 : 1;
  }
  return known;
}

static int is_small(long m, long n, long k, int transb) {
  return m * n * k <= SMALL_MULTIPLICATIONS && (transb == PLAIN || (m * n <= SMALL_RESULT && k >= SMALL_SUM_MIN)) &&
         find_width() == 16;
}

// Whether it is a product of few rows that gemm would compute, by a kernel that copies.
static int has_few_rows(int m, int n, int k, float alpha, int lda, int ldb, int ldc, int transb) {
  int rows_max = transb == PLAIN ? 1 : ROWS_MAX_AVX512;
  if (m < 1 || m > rows_max || n < 1 || k < 1 || lda < k || ldb < (transb == PLAIN ? n : k) || ldc < n || alpha == 0)
    return 0;
  return !is_small(m, n, k, transb);
}

static int is_for_gemv(int m) {
  return m <= ROWS_MAX_THREADED || (m <= ROWS_MAX_ALONE && scipy_openblas_get_num_threads() == 1);
}

static int is_for_wide(int m, int transb) {
  if (m < ROWS_MIN_WIDE || transb == PLAIN || scipy_openblas_get_num_threads() != 1)
    return 0;
  return m <= (find_width() == 16 ? ROWS_MAX_AVX512 : find_width() == 8 ? ROWS_MAX_AVX2 : 0);
}

static void multiply_wide(int m, int n, int k, float alpha, matrix a, int lda, matrix b, int ldb, float beta, float *c,
                          int ldc) {
  struct product product = {m, n, k, alpha, beta, a, b, c, lda, ldb, ldc};
  if (find_width() == 16)
    multiply_avx512(&product);
  else
    multiply_avx2(&product);
}

static void multiply_by_panels(int m, int n, int k, float alpha, matrix a, int lda, matrix b, int ldb, float beta,
                               float *c, int ldc) {
  int threads = scipy_openblas_get_num_threads();
  long panel = threads == 1 ? PANEL_ALONE : (long)threads * PANEL_A_THREAD;
  long step = m == 1 ? n : panel / ((long)sizeof(float) * k);
  if (step < 1)
    step = 1;
  for (long from = 0; from < n; from += step) {
    int columns = n - from < step ? n - from : step;
    for (long row = 0; row < m; row++)
      scipy_cblas_sgemv(ROW_MAJOR, PLAIN, columns, k, alpha, b + from * ldb, ldb, a + row * lda, 1, beta,
                        c + row * ldc + from, 1);
  }
}

// CBLAS's 111 to 114: plain, transposed, and both conjugated. Fortran refuses the question mark, as CBLAS the number.
static const char *name(int trans) { return trans < 111 || trans > 114 ? "?" : &"NTCR"[trans - 111]; }

// OpenBLAS's own is named `cblas_sgemm` too and so is out of reach; its Fortran name isn't, and counts by columns.
static void multiply_by_gemm(int order, int transa, int transb, int m, int n, int k, float alpha, matrix a, int lda,
                             matrix b, int ldb, float beta, float *c, int ldc) {
  const char *first = name(transa), *second = name(transb);
  if (order == ROW_MAJOR)
    scipy_sgemm_(second, first, &n, &m, &k, &alpha, b, &ldb, a, &lda, &beta, c, &ldc);
  else
    scipy_sgemm_(first, second, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc);
}

__attribute__((visibility("default"))) void cblas_sgemm(int order, int transa, int transb, int m, int n, int k,
                                                        float alpha, matrix a, int lda, matrix b, int ldb, float beta,
                                                        float *c, int ldc) {
  int few = order == ROW_MAJOR && transa == PLAIN && (transb == PLAIN || transb == TRANSPOSED) &&
            has_few_rows(m, n, k, alpha, lda, ldb, ldc, transb);
  if (few && is_for_wide(m, transb))
    multiply_wide(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  else if (!few || !is_for_gemv(m))
    multiply_by_gemm(order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  else if (transb == PLAIN)
    scipy_cblas_sgemv(ROW_MAJOR, TRANSPOSED, k, n, alpha, b, ldb, a, 1, beta, c, 1);
  else
    multiply_by_panels(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
