// Products of lines by a layer's weights, (columns, depth): `made` is (rows, columns).
//
// A few rows take as long as the weights come from memory. So they are multiplied where they lie, the columns one after
// the other for up to STREAM_ROWS rows, four side by side for up to FEW_ROWS. For more rows PANEL columns at a time are
// copied into the order in which they are used (as in Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication", 2008).
//
// Invariants: no bit of a result depends on the threads, or on the other rows where the same one of the three ways is
// taken. Depths are multiples of WIDTH.

enum { STREAM_ROWS = 3, STREAM_FLOATS = 3072, FEW_ROWS = WIDTH == 16 ? 32 : 12, TILE = WIDTH == 16 ? 5 : 3 };
// So much of a row at a time, that it stays in the nearest cache; a line ahead is fetched meanwhile.
enum { DEPTH = 1024, FETCH_AHEAD = 512 };
enum { PANEL = 2 * WIDTH, PANEL_DEPTH = 256, PANEL_ROWS = WIDTH == 16 ? 12 : 6 };
// A thread takes so many bytes of the weights at a time; a product is shared out from so much work on (to read a number
// counts as READ multiplications). It takes about 30 microseconds, as long as a helper needs to come.
enum { PIECE = 96 << 10, SHARED_MIN = 1500000, READ = 8 };

struct product {
  long rows, columns, depth;
  const float *lines, *weights;
  float *made;
  int adds; // to `made`, or takes its place
};

INLINE int is_streamed(const struct product *p) {
  return p->rows == 1 || (p->rows <= STREAM_ROWS && p->rows * p->depth <= STREAM_FLOATS);
}

INLINE void put_sums(const int columns, const vec *sums, float *made, int adds) {
  four sum = sum_up_four(sums);
  UNROLLED(int j = 0; j < columns; j++) made[j] = adds ? made[j] + sum[j] : sum[j];
}

// A few rows by four columns, or by one, each read to its end before the next.
INLINE void stream(const int rows, const int columns, const struct product *p, long column) {
  const int parts = rows == 1 ? 4 : rows == 2 ? 2 : 1; // of a sum, so that none waits for the one before it
  vec sums[STREAM_ROWS][4] = {{{0}}};
  UNROLLED(int j = 0; j < columns; j++) {
    const float *w = p->weights + (column + j) * p->depth;
    vec part[STREAM_ROWS][4] = {{{0}}};
    long at = 0;
    for (; at + parts * WIDTH <= p->depth; at += parts * WIDTH)
      UNROLLED(int n = 0; n < parts; n++) {
        vec one = load(w + at + n * WIDTH);
        __builtin_prefetch(w + at + n * WIDTH + FETCH_AHEAD);
        UNROLLED(int i = 0; i < rows; i++) part[i][n] += load(p->lines + i * p->depth + at + n * WIDTH) * one;
      }
    for (; at < p->depth; at += WIDTH)
      UNROLLED(int i = 0; i < rows; i++) part[i][0] += load(p->lines + i * p->depth + at) * load(w + at);
    UNROLLED(int i = 0; i < rows; i++)
      UNROLLED(int n = 0; n < parts; n++) sums[i][j] += part[i][n];
  }
  UNROLLED(int i = 0; i < rows; i++) put_sums(columns, sums[i], p->made + i * p->columns + column, p->adds);
}

// A few rows from `row` on by four columns, or by one: `depth` of each sum, from `from` on. Each tile of rows fetches
// its share of the next columns.
INLINE void multiply_tile(const int rows, const int columns, const struct product *p, long row, long column, long from,
                          long depth, const long *ahead) {
  const float *x = p->lines + row * p->depth + from, *w = p->weights + column * p->depth + from;
  vec sums[TILE][4] = {{{0}}};
  for (long at = 0; at < depth; at += WIDTH) {
    vec one[4];
    UNROLLED(int j = 0; j < columns; j++) one[j] = load(w + j * p->depth + at);
    if (columns == 4)
      UNROLLED(int j = 0; j < 4; j++) __builtin_prefetch(w + ahead[j] + at);
    UNROLLED(int i = 0; i < rows; i++) {
      vec line = load(x + i * p->depth + at);
      UNROLLED(int j = 0; j < columns; j++) sums[i][j] += line * one[j];
    }
  }
  UNROLLED(int i = 0; i < rows; i++)
    put_sums(columns, sums[i], p->made + (row + i) * p->columns + column, p->adds || from);
}

INLINE void multiply_few(const int columns, const struct product *p, long column, long from, long depth) {
  long tiles = (p->rows + TILE - 1) / TILE, rows_min = p->rows / tiles, more = p->rows % tiles;
  for (long tile = 0, row = 0; tile < tiles; tile++) {
    long rows = rows_min + (tile < more), ahead[4];
    UNROLLED(int j = 0; j < 4; j++) ahead[j] = (j % tiles == tile ? 4 + j : 0) * p->depth;
    switch (rows) {
#define CASE(count)                                                                                                    \
  case count:                                                                                                          \
    multiply_tile(count, columns, p, row, column, from, depth, ahead);                                                 \
    break;
      CASE(1) CASE(2) CASE(3) ONLY_WIDE(CASE(4) CASE(5))
#undef CASE
    }
    row += rows;
  }
}

// Some rows from `row` on by a panel of `columns`.
INLINE void multiply_panel(const int rows, const struct product *p, const float *panel, long row, long column,
                           long columns, long from, long depth) {
  const float *x = p->lines + row * p->depth + from;
  vec sums[PANEL_ROWS][2] = {{{0}}};
  for (long at = 0; at < depth; at++) {
    vec first = load(panel + at * PANEL), second = load(panel + at * PANEL + WIDTH);
    UNROLLED(int i = 0; i < rows; i++) {
      sums[i][0] += x[i * p->depth + at] * first;
      sums[i][1] += x[i * p->depth + at] * second;
    }
  }
  UNROLLED(int i = 0; i < rows; i++) {
    float *made = p->made + (row + i) * p->columns + column, line[PANEL];
    if (columns == PANEL) {
      store(made, p->adds || from ? load(made) + sums[i][0] : sums[i][0]);
      store(made + WIDTH, p->adds || from ? load(made + WIDTH) + sums[i][1] : sums[i][1]);
    } else {
      store(line, sums[i][0]);
      store(line + WIDTH, sums[i][1]);
      for (long j = 0; j < columns; j++)
        made[j] = p->adds || from ? made[j] + line[j] : line[j];
    }
  }
}

// Writes four lines as columns of a panel. What the next panel needs of them is fetched meanwhile.
INLINE void turn(const float *const *w, long depth, float *panel) {
  for (long at = 0; at < depth; at += 4) {
    __m128 line[4];
    UNROLLED(int i = 0; i < 4; i++) {
      line[i] = _mm_loadu_ps(w[i] + at);
      __builtin_prefetch(w[i] + at + PANEL_DEPTH, 0, 2);
    }
    _MM_TRANSPOSE4_PS(line[0], line[1], line[2], line[3]);
    UNROLLED(int i = 0; i < 4; i++) _mm_storeu_ps(panel + (at + i) * PANEL, line[i]);
  }
}

static void multiply_panels(const struct product *p, long first, long last) {
  float panel[PANEL_DEPTH * PANEL] __attribute__((aligned(64)));
  for (long column = first; column < last; column += PANEL)
    for (long from = 0; from < p->depth; from += PANEL_DEPTH) {
      long columns = min(PANEL, last - column), depth = min(PANEL_DEPTH, p->depth - from);
      for (long j = 0; j < PANEL; j += 4) {
        const float *w[4];
        UNROLLED(int i = 0; i < 4; i++) w[i] = p->weights + (column + min(j + i, columns - 1)) * p->depth + from;
        turn(w, depth, panel + j);
      }
      long tiles = (p->rows + PANEL_ROWS - 1) / PANEL_ROWS, rows_min = p->rows / tiles, more = p->rows % tiles;
      for (long tile = 0, row = 0; tile < tiles; tile++) {
        long rows = rows_min + (tile < more);
        switch (rows) {
#define CASE(count)                                                                                                    \
  case count:                                                                                                          \
    multiply_panel(count, p, panel, row, column, columns, from, depth);                                                \
    break;
          CASE(PANEL_ROWS) CASE(PANEL_ROWS - 1) CASE(PANEL_ROWS - 2) ONLY_WIDE(CASE(PANEL_ROWS - 3))
#undef CASE
        }
        row += rows;
      }
    }
}

// Multiplies by the columns from `first` to before `last`.
static void multiply_columns(const void *what, long first, long last) {
  const struct product *p = what;
  if (p->rows > FEW_ROWS) {
    multiply_panels(p, first, last);
  } else if (is_streamed(p)) {
#define STREAM(rows)                                                                                                   \
  for (; first + 4 <= last; first += 4)                                                                                \
    stream(rows, 4, p, first);                                                                                         \
  for (; first < last; first++)                                                                                        \
    stream(rows, 1, p, first);
    if (p->rows == 1) {
      STREAM(1)
    } else if (p->rows == 2) {
      STREAM(2)
    } else {
      STREAM(3)
    }
#undef STREAM
  } else {
    for (long from = 0; from < p->depth; from += DEPTH) {
      long depth = min(DEPTH, p->depth - from), column = first;
      for (; column + 4 <= last; column += 4)
        multiply_few(4, p, column, from, depth);
      for (; column < last; column++)
        multiply_few(1, p, column, from, depth);
    }
  }
}

static void multiply(const struct product *p, int threads) {
  long piece = PIECE / ((long)sizeof(float) * p->depth) & ~3L;
  if (p->rows > FEW_ROWS)
    piece = PANEL;
  int is_shared = p->columns * p->depth * (p->rows + READ) >= SHARED_MIN;
  share_out(multiply_columns, p, p->columns, piece ? piece : 4, is_shared ? threads : 1);
}
