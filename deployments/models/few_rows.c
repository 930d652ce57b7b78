// Products of few rows without the copy: `cblas_sgemm` in front of OpenBLAS on x86_64.
//
// OpenBLAS's gemm first copies the second matrix into its own order. That pays when many rows are multiplied by it; a
// step of a sequence that decodes has one row, or a few with guesses, and the copy is most of their time. So products
// of few rows by a transposed matrix (a layer's weights) are computed right here in the processor's wide registers
// (few_rows_lanes.h): both matrices have their numbers in the order in which they are summed up. What bounds them is
// how fast the weights come from memory, and that is a matter of the order in which they are asked for. With threads
// they are shared out by columns (few_rows_threads.h). One row by a plain matrix (the values that attention weighs), or
// on a processor without such registers, is OpenBLAS's gemv, which doesn't copy either. Everything else goes to its
// gemm as it came.
// `share_few_rows` lends the same threads to the other work of a step (step.h).
//
// Needs nothing but OpenBLAS as `blas.py` prepares it, loaded before, and the threads of whatever libc the process has:
// no constructor, no memory of its own. Built by `python -m tools.native`; where the thresholds come from stands in
// blas.py.
//
// What must never happen: a product that gemm would refuse, or do nothing for, does something here. What isn't plainly
// a product of few rows is gemm's.

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

// Up to so many rows gemm's copy doesn't pay, by what the processor has.
enum { ROWS_MAX_AVX2 = 12, ROWS_MAX_AVX512 = 32 };
// So much of a row at a time, that what is read again and again stays in the nearest cache.
enum { DEPTH = 1024 };
// So many numbers of up to three rows stay in the nearest cache while the matrix streams past, fetched so many ahead.
enum { STREAMED_ROWS_MAX = 3, STREAMED_MAX = 3072, FETCH_AHEAD = 512 };
// A thread takes so many bytes of the matrix at a time. A product is worth sharing out from so much work on: to read a
// number of the matrix counts as SHARED_READ multiplications. It is about 30 microseconds: what a helper that looks for
// work needs to come.
enum { PIECE = 96 << 10, SHARED_MIN = 1500000, SHARED_READ = 8 };
// For AVX-512 OpenBLAS has kernels for a plain matrix that don't copy either, for so many multiplications at most.
enum { SMALL_MULTIPLICATIONS = 1000000 };

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("clang loop unroll(full)") for
#define ROLLED _Pragma("clang loop vectorize(disable) unroll(disable)") for

typedef const float *matrix;

// A product by a transposed matrix, in CBLAS's names.
struct product {
  int m, n, k;
  float alpha, beta;
  matrix a, b;
  float *c;
  long lda, ldb, ldc;
};

static int is_streamed(const struct product *p) {
  return p->m == 1 || (p->m <= STREAMED_ROWS_MAX && (long)p->m * p->k <= STREAMED_MAX);
}

#define WIDTH 16
#define TILE 5
#define TARGET __attribute__((target("avx512f,fma")))
#define NAME(x) x##_avx512
#include "sums_lanes.h"
#include "few_rows_lanes.h"
#undef WIDTH
#undef TILE
#undef TARGET
#undef NAME

#define WIDTH 8
#define TILE 3
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) x##_avx2
#include "sums_lanes.h"
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

// The columns from `first` to `last` of a product, in the registers that there are.
static void multiply_wide(const void *what, long first, long last) {
  const struct product *product = what;
  if (find_width() == 16)
    multiply_avx512(product, first, last);
  else
    multiply_avx2(product, first, last);
}

#include "few_rows_threads.h"

static int find_rows_max(int transb) {
  if (transb == PLAIN || find_width() == 1)
    return 1;
  return find_width() == 16 ? ROWS_MAX_AVX512 : ROWS_MAX_AVX2;
}

// Whether it is a product of few rows that gemm would compute, by a kernel that copies.
static int has_few_rows(int m, int n, int k, float alpha, int lda, int ldb, int ldc, int transb) {
  if (m < 1 || n < 1 || k < 1 || lda < k || ldb < (transb == PLAIN ? n : k) || ldc < n || alpha == 0)
    return 0;
  int small = transb == PLAIN && find_width() == 16 && (long)n * k <= SMALL_MULTIPLICATIONS;
  return m <= find_rows_max(transb) && !small;
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

// One row by a plain matrix, or on a processor without wide registers.
static void multiply_by_gemv(int transb, int n, int k, float alpha, matrix a, matrix b, int ldb, float beta, float *c) {
  if (transb == PLAIN)
    scipy_cblas_sgemv(ROW_MAJOR, TRANSPOSED, k, n, alpha, b, ldb, a, 1, beta, c, 1);
  else
    scipy_cblas_sgemv(ROW_MAJOR, PLAIN, n, k, alpha, b, ldb, a, 1, beta, c, 1);
}

__attribute__((visibility("default"))) void cblas_sgemm(int order, int transa, int transb, int m, int n, int k,
                                                        float alpha, matrix a, int lda, matrix b, int ldb, float beta,
                                                        float *c, int ldc) {
  int few = order == ROW_MAJOR && transa == PLAIN && (transb == PLAIN || transb == TRANSPOSED) &&
            has_few_rows(m, n, k, alpha, lda, ldb, ldc, transb);
  if (!few) {
    multiply_by_gemm(order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  } else if (transb == PLAIN || find_width() == 1) {
    multiply_by_gemv(transb, n, k, alpha, a, b, ldb, beta, c);
  } else {
    struct product product = {m, n, k, alpha, beta, a, b, c, lda, ldb, ldc};
    long columns = PIECE / ((long)sizeof(float) * k) & ~3L;
    int is_shared = (long)n * k * (m + SHARED_READ) >= SHARED_MIN;
    share_out(multiply_wide, &product, n, columns ? columns : 4, is_shared ? scipy_openblas_get_num_threads() : 1);
  }
}

// Other work of a step by the same threads: `work` is called with `what` and a piece of 0 to `count`, until all is done.
__attribute__((visibility("default"))) void share_few_rows(worker *work, const void *what, long count, long step) {
  share_out(work, what, count, step, scipy_openblas_get_num_threads());
}
