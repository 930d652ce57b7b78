// The part of few_rows.c that depends on the processor: registers of WIDTH floats, TILE rows at a time in them.
// Included once for each kind; NAME(x) is x with the kind behind it.

typedef float NAME(vec) __attribute__((vector_size(WIDTH * 4)));
typedef float NAME(loose) __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));

TARGET INLINE four NAME(fold)(NAME(vec) v) {
#if WIDTH == 16
  eight half = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
               __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  eight half = v;
#endif
  return __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
}

// The sums of four registers, in one.
TARGET INLINE four NAME(sum_up)(const NAME(vec) * v) {
  four a = NAME(fold)(v[0]), b = NAME(fold)(v[1]), c = NAME(fold)(v[2]), d = NAME(fold)(v[3]);
  four first = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  four second = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return __builtin_shufflevector(first, second, 0, 1, 4, 5) + __builtin_shufflevector(first, second, 2, 3, 6, 7);
}

// A few rows by four columns, or by one: `depth` of each sum, from `from` on.
TARGET INLINE void NAME(multiply_tile)(const int rows, const int columns, const struct product *p, long row,
                                       long column, long from, long depth) {
  const float *a = p->a + row * p->lda + from, *b = p->b + column * p->ldb + from;
  NAME(vec) sums[TILE][4];
  UNROLLED(int i = 0; i < rows; i++)
    UNROLLED(int j = 0; j < 4; j++) sums[i][j] = (NAME(vec)){0};
  long at = 0;
  for (; at + WIDTH <= depth; at += WIDTH) {
    NAME(vec) w[4];
    UNROLLED(int j = 0; j < columns; j++) w[j] = *(const NAME(loose) *)(b + j * p->ldb + at);
    UNROLLED(int i = 0; i < rows; i++) {
      NAME(vec) x = *(const NAME(loose) *)(a + i * p->lda + at);
      UNROLLED(int j = 0; j < columns; j++) sums[i][j] += x * w[j];
    }
  }
  UNROLLED(int i = 0; i < rows; i++) {
    four made = NAME(sum_up)(sums[i]);
    float *c = p->c + (row + i) * p->ldc + column;
    UNROLLED(int j = 0; j < columns; j++) {
      float sum = made[j];
      ROLLED(long k = at; k < depth; k++)
        sum += a[i * p->lda + k] * b[j * p->ldb + k];
      c[j] = p->alpha * sum + (from ? c[j] : p->beta != 0 ? p->beta * c[j] : 0);
    }
  }
}

TARGET static void NAME(multiply)(const struct product *p) {
  int tiles = (p->m + TILE - 1) / TILE, rows_min = p->m / tiles, more = p->m % tiles;
  for (long from = 0; from < p->k; from += DEPTH) {
    long depth = p->k - from < DEPTH ? p->k - from : DEPTH;
    for (long column = 0; column < p->n;) {
      int columns = p->n - column >= 4 ? 4 : 1;
      for (long tile = 0, row = 0; tile < tiles; tile++) {
        int rows = rows_min + (tile < more);
        switch (rows + (columns == 4 ? TILE : 0)) {
#define CASE(count)                                                                                                    \
  case count:                                                                                                          \
    NAME(multiply_tile)(count, 1, p, row, column, from, depth);                                                        \
    break;                                                                                                             \
  case count + TILE:                                                                                                   \
    NAME(multiply_tile)(count, 4, p, row, column, from, depth);                                                        \
    break;
          CASE(1)
          CASE(2)
          CASE(3)
#if TILE > 3
          CASE(4)
          CASE(5)
          CASE(6)
#endif
#undef CASE
        }
        row += rows;
      }
      column += columns;
    }
  }
}
