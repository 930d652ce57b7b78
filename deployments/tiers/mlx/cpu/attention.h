// Attention: for each query the softmax of its products with the keys, and the values weighed by it.
//
// It is one pass: the scores of a few queries and KEYS keys stay in the nearest cache, become weights there, and are
// gone when the next keys come; what was summed before shrinks where a larger score comes up (the "online softmax" of
// Milakov and Gimelshein, arXiv:1805.02867, as FlashAttention has it).
//
// Any number of threads may compute at the same time, each with queries of its own. The size of a query is a multiple of
// PARTS * WIDTH and at most SIZE_MAX (step.py sees to both).

// Keys of a block, queries of a chunk, and the size of a query, at most. A block of keys is turned once for a chunk, but
// not for up to DIRECT queries.
enum { KEYS = 256, QUERIES = 96, SIZE_MAX = 256, DIRECT = 12 };
enum { ROWS = WIDTH == 16 ? 6 : 3, PARTS = 4 }; // queries of a tile, and registers of a value in use at a time
// Below every score; its weight is 0 next to any real one.
#define LEAST -3.0e38f

// The queries of the heads that share keys, of one sequence: `heads` times `count`. The last query sees all keys, the
// one before it all but the last.
struct group {
  const float *queries, *keys, *values;
  float *made;
  long count, keys_count, size, line; // `line`: from a token's query to the next one's
  float scale;
};

// Of one query: the largest score so far, and the sum of the weights.
struct state {
  float most, total;
};

INLINE long find_place(const struct group *g, long query) {
  return query / g->count * g->size + query % g->count * g->line;
}

// The scores of a tile's queries and the first `keys` of a turned block.
INLINE void score(const int rows, const struct group *g, const float *const *queries, const float *turned, long keys,
                  float *scores) {
  for (long at = 0; at < keys; at += 2 * WIDTH) {
    vec sums[ROWS][2] = {{{0}}};
    for (long d = 0; d < g->size; d++) {
      vec first = load(turned + d * KEYS + at), second = load(turned + d * KEYS + at + WIDTH);
      UNROLLED(int i = 0; i < rows; i++) {
        sums[i][0] += queries[i][d] * first;
        sums[i][1] += queries[i][d] * second;
      }
    }
    UNROLLED(int i = 0; i < rows; i++) {
      store(scores + i * KEYS + at, sums[i][0] * g->scale);
      store(scores + i * KEYS + at + WIDTH, sums[i][1] * g->scale);
    }
  }
}

// The same of keys as they are, four at a time.
INLINE void score_directly(const int rows, const struct group *g, const float *const *queries, const float *keys,
                           long count, float *scores) {
  for (long at = 0; at < count; at += 4) {
    const float *key[4];
    UNROLLED(int j = 0; j < 4; j++) key[j] = keys + (at + j < count ? at + j : at) * g->size;
    vec sums[ROWS][4] = {{{0}}};
    for (long d = 0; d < g->size; d += WIDTH)
      UNROLLED(int i = 0; i < rows; i++) {
        vec part = load(queries[i] + d);
        UNROLLED(int j = 0; j < 4; j++) sums[i][j] += part * load(key[j] + d);
      }
    UNROLLED(int i = 0; i < rows; i++) *(four *)(scores + i * KEYS + at) = sum_up_four(sums[i]) * g->scale;
  }
}

// Turns a query's scores into weights; returns by how much what was summed before shrinks.
INLINE float weigh(float *scores, long keys, struct state *state) {
  const vec zero = {0};
  vec high = zero + LEAST;
  for (long at = 0; at < keys; at += WIDTH) {
    vec x = load(scores + at);
    high = choose(x > high, x, high);
  }
  float most = find_most(high);
  most = most > state->most ? most : state->most;
  vec total = zero;
  for (long at = 0; at < keys; at += WIDTH) {
    vec weight = exponential(load(scores + at) - most);
    store(scores + at, weight);
    total += weight;
  }
  float shrink = exponential(zero + (state->most - most))[0];
  state->total = state->total * shrink + sum_up(total);
  state->most = most;
  return shrink;
}

// Adds the weighed values of a block to what was summed before.
INLINE void mix(const int rows, const struct group *g, const float *values, long keys, const float *weights,
                const float *shrinks, float *sums) {
  for (long d = 0; d < g->size; d += PARTS * WIDTH) {
    vec made[ROWS][PARTS];
    UNROLLED(int i = 0; i < rows; i++)
      UNROLLED(int j = 0; j < PARTS; j++) made[i][j] = load(sums + i * SIZE_MAX + d + j * WIDTH) * shrinks[i];
    for (long key = 0; key < keys; key++) {
      vec value[PARTS];
      UNROLLED(int j = 0; j < PARTS; j++) value[j] = load(values + key * g->size + d + j * WIDTH);
      UNROLLED(int i = 0; i < rows; i++)
        UNROLLED(int j = 0; j < PARTS; j++) made[i][j] += weights[i * KEYS + key] * value[j];
    }
    UNROLLED(int i = 0; i < rows; i++)
      UNROLLED(int j = 0; j < PARTS; j++) store(sums + i * SIZE_MAX + d + j * WIDTH, made[i][j]);
  }
}

// Takes one block of keys for a tile of queries, of which `query` is the first. `turned`: the block, or null.
INLINE void take_block(const int rows, const struct group *g, long query, long from, long keys, const float *turned,
                       float *sums, struct state *states) {
  float scores[ROWS * KEYS], shrinks[ROWS];
  const float *queries[ROWS];
  long limits[ROWS], seen = 0;
  for (int i = 0; i < rows; i++) {
    queries[i] = g->queries + find_place(g, query + i);
    long limit = g->keys_count - g->count + (query + i) % g->count + 1 - from;
    limits[i] = limit < 0 ? 0 : min(limit, keys);
    seen = limits[i] > seen ? limits[i] : seen;
  }
  if (!seen)
    return;
  long wide = (seen + 2 * WIDTH - 1) / (2 * WIDTH) * (2 * WIDTH);
  if (turned)
    score(rows, g, queries, turned, wide, scores);
  else
    score_directly(rows, g, queries, g->keys + from * g->size, seen, scores);
  for (int i = 0; i < rows; i++) {
    for (long key = limits[i]; key < wide; key++)
      scores[i * KEYS + key] = LEAST;
    shrinks[i] = weigh(scores + i * KEYS, wide, &states[i]);
  }
  mix(rows, g, g->values + from * g->size, seen, scores, shrinks, sums);
}

// Turns a block of keys, so that one number of all of them is a line; zeros follow the last one.
INLINE void turn_keys(const struct group *g, long from, long keys, float *turned) {
  for (long d = 0; d < g->size; d++) {
    for (long i = 0; i < keys; i++)
      turned[d * KEYS + i] = g->keys[(from + i) * g->size + d];
    for (long i = keys; i < KEYS; i++)
      turned[d * KEYS + i] = 0;
  }
}

// Answers the queries from `first` to before `last`.
static void attend(const struct group *g, long first, long last) {
  float turned[SIZE_MAX * KEYS], sums[QUERIES * SIZE_MAX];
  struct state states[QUERIES];
  for (; first < last; first += QUERIES) {
    long queries = min(QUERIES, last - first), tiles = (queries + ROWS - 1) / ROWS;
    long step = (queries + tiles - 1) / tiles;
    const float *block = queries > DIRECT ? turned : 0;
    for (long i = 0; i < queries * SIZE_MAX; i++)
      sums[i] = 0;
    for (long i = 0; i < queries; i++)
      states[i] = (struct state){LEAST, 0};
    for (long from = 0; from < g->keys_count; from += KEYS) {
      long keys = min(KEYS, g->keys_count - from);
      if (block)
        turn_keys(g, from, keys, turned);
      for (long i = 0; i < queries; i += step) {
        switch (min(step, queries - i)) {
#define CASE(rows)                                                                                                     \
  case rows:                                                                                                           \
    take_block(rows, g, first + i, from, keys, block, sums + i * SIZE_MAX, states + i);                                \
    break;
          CASE(1) CASE(2) CASE(3) ONLY_WIDE(CASE(4) CASE(5) CASE(6))
#undef CASE
        }
      }
    }
    for (long i = 0; i < queries; i++)
      for (long d = 0; d < g->size; d++)
        g->made[find_place(g, first + i) + d] = sums[i * SIZE_MAX + d] / states[i].total;
  }
}
