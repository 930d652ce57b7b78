// Products of few rows without the copy: `cblas_sgemm` in front of OpenBLAS on x86_64.
//
// OpenBLAS's gemm first copies the second matrix into its own order. That pays when many rows are multiplied by it; the
// products of a sequence that decodes alone have one row, and the copy is most of their time. Its gemv doesn't copy. So
// a product of one row is a gemv here, and one of two to four rows by a transposed matrix (a layer's weights) is as
// many gemvs, panel by panel, so that only the first of them waits for memory and the others find the panel in the
// cache. Everything else goes to OpenBLAS's gemm as it came.
//
// Needs nothing but OpenBLAS as `blas.py` prepares it, loaded before: no libc, no constructor, no memory of its own.
// Built by `python -m tools.native`; where the thresholds come from stands in blas.py.
//
// What must never happen: a product that gemm would refuse, or do nothing for, does something here. What isn't plainly
// a product of few rows is gemm's.

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

// Up to so many rows gemm's copy doesn't pay; with threads, which share it, it pays earlier.
enum { ROWS_MAX_ALONE = 4, ROWS_MAX_THREADED = 3 };
// A panel must stay in the second-level cache of the cores that share it, and be large enough to be shared out at all.
enum { PANEL_ALONE = 512 << 10, PANEL_A_THREAD = 1 << 20 };
// For AVX-512 OpenBLAS has kernels that don't copy either, for so many multiplications at most; by a transposed matrix
// it takes them for a short result and a long sum only.
enum { SMALL_MULTIPLICATIONS = 1000000, SMALL_RESULT = 1200, SMALL_SUM_MIN = 32 };

typedef const float *matrix;

extern void scipy_cblas_sgemv(int order, int trans, int m, int n, float alpha, matrix a, int lda, matrix x, int incx,
                              float beta, float *y, int incy);
extern void scipy_sgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
                         const float *alpha, matrix a, const int *lda, matrix b, const int *ldb, const float *beta,
                         float *c, const int *ldc);
extern int scipy_openblas_get_num_threads(void);
extern const char *scipy_openblas_get_corename(void);

// Whether OpenBLAS computes with AVX-512 here: SkylakeX, Cooperlake, SapphireRapids; not Sandybridge, Haswell, Zen.
static int has_small_kernels(void) {
  static int known; // 0: not asked yet; whichever thread asks gets the same answer
  if (!known) {
    const char *core = scipy_openblas_get_corename();
    known = (core[0] == 'S' && (core[1] == 'k' || (core[1] == 'a' && core[2] == 'p'))) ||
                    (core[0] == 'C' && core[1] == 'o' && core[2] == 'o' && core[3] == 'p')
                ? 2
                : 1;
  }
  return known == 2;
}

static int is_small(long m, long n, long k, int transb) {
  return m * n * k <= SMALL_MULTIPLICATIONS && (transb == PLAIN || (m * n <= SMALL_RESULT && k >= SMALL_SUM_MIN)) &&
         has_small_kernels();
}

static int is_for_gemv(int m, int n, int k, float alpha, int lda, int ldb, int ldc, int transb) {
  int width = transb == PLAIN ? n : k;
  int rows_max = transb == PLAIN ? 1 : ROWS_MAX_ALONE;
  if (m < 1 || m > rows_max || n < 1 || k < 1 || lda < k || ldb < width || ldc < n || alpha == 0)
    return 0;
  if (is_small(m, n, k, transb))
    return 0;
  return m <= ROWS_MAX_THREADED || scipy_openblas_get_num_threads() == 1;
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
  if (order != ROW_MAJOR || transa != PLAIN || (transb != PLAIN && transb != TRANSPOSED) ||
      !is_for_gemv(m, n, k, alpha, lda, ldb, ldc, transb))
    multiply_by_gemm(order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  else if (transb == PLAIN)
    scipy_cblas_sgemv(ROW_MAJOR, TRANSPOSED, k, n, alpha, b, ldb, a, 1, beta, c, 1);
  else
    multiply_by_panels(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
