// The part of few_rows.c that depends on the processor: registers of WIDTH floats, TILE rows at a time in them.
// Included once for each kind, behind sums_lanes.h.

TARGET INLINE NAME(vec) NAME(load)(const float *from) { return *(const NAME(loose) *)from; }

// Write what the registers of a row add up to, and the numbers behind the last whole register: from `at` to `depth`.
TARGET INLINE void NAME(write)(const int columns, const struct product *p, const NAME(vec) * sums, const float *a,
                               const float *b, float *c, long at, long depth, int first) {
  four made = NAME(sum_up_four)(sums);
  UNROLLED(int j = 0; j < columns; j++) {
    float sum = made[j];
    ROLLED(long k = at; k < depth; k++)
      sum += a[k] * b[j * p->ldb + k];
    c[j] = p->alpha * sum + (!first ? c[j] : p->beta != 0 ? p->beta * c[j] : 0);
  }
}

// A few rows by four columns, or by one: `depth` of each sum, from `from` on. All columns are read side by side. What
// the next ones need is fetched on the way: tile by tile its share, so that memory is busy all the while.
TARGET INLINE void NAME(multiply_tile)(const int rows, const int columns, const struct product *p, long row,
                                       long column, long from, long depth, const long *ahead) {
  const float *a = p->a + row * p->lda + from, *b = p->b + column * p->ldb + from;
  NAME(vec) sums[TILE][4];
  UNROLLED(int i = 0; i < rows; i++)
    UNROLLED(int j = 0; j < 4; j++) sums[i][j] = (NAME(vec)){0};
  long at = 0;
  for (; at + WIDTH <= depth; at += WIDTH) {
    NAME(vec) w[4];
    UNROLLED(int j = 0; j < columns; j++) w[j] = NAME(load)(b + j * p->ldb + at);
    if (columns == 4)
      UNROLLED(int j = 0; j < 4; j++) __builtin_prefetch(b + ahead[j] + at);
    UNROLLED(int i = 0; i < rows; i++) {
      NAME(vec) x = NAME(load)(a + i * p->lda + at);
      UNROLLED(int j = 0; j < columns; j++) sums[i][j] += x * w[j];
    }
  }
  UNROLLED(int i = 0; i < rows; i++)
    NAME(write)(columns, p, sums[i], a + i * p->lda, b, p->c + (row + i) * p->ldc + column, at, depth, !from);
}

TARGET INLINE void NAME(multiply_columns)(const int columns, const struct product *p, long column, long from,
                                          long depth) {
  int tiles = (p->m + TILE - 1) / TILE, rows_min = p->m / tiles, more = p->m % tiles;
  for (long tile = 0, row = 0; tile < tiles; tile++) {
    int rows = rows_min + (tile < more);
    long ahead[4];
    UNROLLED(int j = 0; j < 4; j++) ahead[j] = (j % tiles == tile ? 4 + j : 0) * p->ldb;
    switch (rows) {
#define CASE(count)                                                                                                    \
  case count:                                                                                                          \
    NAME(multiply_tile)(count, columns, p, row, column, from, depth, ahead);                                           \
    break;
      CASE(1)
      CASE(2)
      CASE(3)
#if TILE > 3
      CASE(4)
      CASE(5)
#endif
#undef CASE
    }
    row += rows;
  }
}

// Up to three rows by four columns, or by one, the columns one after the other: the matrix is read as it lies in
// memory, which is the fastest way to read it.
TARGET INLINE void NAME(stream_columns)(const int rows, const int columns, const struct product *p, long column) {
  const int parts = rows == 1 ? 4 : rows == 2 ? 2 : 1; // of a sum, so that none waits for the one before it
  NAME(vec) sums[3][4];
  UNROLLED(int i = 0; i < rows; i++)
    UNROLLED(int j = 0; j < 4; j++) sums[i][j] = (NAME(vec)){0};
  const float *b = p->b + column * p->ldb;
  long whole = p->k - p->k % WIDTH;
  UNROLLED(int j = 0; j < columns; j++) {
    const float *w = b + j * p->ldb;
    NAME(vec) part[3][4];
    UNROLLED(int i = 0; i < rows; i++)
      UNROLLED(int n = 0; n < parts; n++) part[i][n] = (NAME(vec)){0};
    long at = 0;
    for (; at + parts * WIDTH <= whole; at += parts * WIDTH)
      UNROLLED(int n = 0; n < parts; n++) {
        NAME(vec) one = NAME(load)(w + at + n * WIDTH);
        __builtin_prefetch(w + at + n * WIDTH + FETCH_AHEAD);
        UNROLLED(int i = 0; i < rows; i++) part[i][n] += NAME(load)(p->a + i * p->lda + at + n * WIDTH) * one;
      }
    for (; at < whole; at += WIDTH)
      UNROLLED(int i = 0; i < rows; i++) part[i][0] += NAME(load)(p->a + i * p->lda + at) * NAME(load)(w + at);
    UNROLLED(int i = 0; i < rows; i++)
      UNROLLED(int n = 0; n < parts; n++) sums[i][j] += part[i][n];
  }
  UNROLLED(int i = 0; i < rows; i++)
    NAME(write)(columns, p, sums[i], p->a + i * p->lda, b, p->c + i * p->ldc + column, whole, p->k, 1);
}

TARGET INLINE void NAME(stream_rows)(const int columns, const struct product *p, long column) {
  if (p->m == 1)
    NAME(stream_columns)(1, columns, p, column);
  else if (p->m == 2)
    NAME(stream_columns)(2, columns, p, column);
  else
    NAME(stream_columns)(3, columns, p, column);
}

// The columns from `first` to `last` of a product.
TARGET static void NAME(multiply)(const struct product *p, long first, long last) {
  if (is_streamed(p)) {
    for (; first + 4 <= last; first += 4)
      NAME(stream_rows)(4, p, first);
    for (; first < last; first++)
      NAME(stream_rows)(1, p, first);
    return;
  }
  for (long from = 0; from < p->k; from += DEPTH) {
    long depth = p->k - from < DEPTH ? p->k - from : DEPTH, column = first;
    for (; column + 4 <= last; column += 4)
      NAME(multiply_columns)(4, p, column, from, depth);
    for (; column < last; column++)
      NAME(multiply_columns)(1, p, column, from, depth);
  }
}
