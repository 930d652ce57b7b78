// The part of attention.h that depends on the processor: TILE queries at a time in registers of WIDTH floats.
// Included once for each kind, behind lanes.h.

enum { NAME(PARTS) = 4 }; // of a value, in registers at a time: 4 * 8 floats are the smallest step of a size that fits

TARGET INLINE float NAME(sum_up)(NAME(vec) v) {
  float part[WIDTH];
  *(NAME(loose) *)part = v;
  for (int half = WIDTH / 2; half; half /= 2)
    for (int i = 0; i < half; i++)
      part[i] += part[i + half];
  return part[0];
}

TARGET INLINE float NAME(find_most)(NAME(vec) v) {
  float part[WIDTH];
  *(NAME(loose) *)part = v;
  for (int half = WIDTH / 2; half; half /= 2)
    for (int i = 0; i < half; i++)
      part[i] = part[i] > part[i + half] ? part[i] : part[i + half];
  return part[0];
}

// The scores of a tile's queries and the first `keys` of a turned block.
TARGET INLINE void NAME(score)(const int rows, const struct task *task, const float *const *queries,
                               const float *turned, long keys, float *scores) {
  for (long at = 0; at < keys; at += 2 * WIDTH) {
    NAME(vec) sums[TILE][2];
    UNROLLED(int i = 0; i < rows; i++) sums[i][0] = sums[i][1] = (NAME(vec)){0};
    for (long d = 0; d < task->size; d++) {
      const float *line = turned + d * KEYS + at;
      NAME(vec) first = *(const NAME(loose) *)line, second = *(const NAME(loose) *)(line + WIDTH);
      UNROLLED(int i = 0; i < rows; i++) {
        sums[i][0] += queries[i][d] * first;
        sums[i][1] += queries[i][d] * second;
      }
    }
    UNROLLED(int i = 0; i < rows; i++) {
      *(NAME(loose) *)(scores + i * KEYS + at) = sums[i][0] * task->scale;
      *(NAME(loose) *)(scores + i * KEYS + at + WIDTH) = sums[i][1] * task->scale;
    }
  }
}

// The same of keys as they are, four at a time.
TARGET INLINE void NAME(score_directly)(const int rows, const struct task *task, const float *const *queries,
                                        const float *keys, long count, float *scores) {
  for (long at = 0; at < count; at += 4) {
    const float *key[4];
    UNROLLED(int j = 0; j < 4; j++) key[j] = keys + (at + j < count ? at + j : at) * task->key_stride;
    NAME(vec) sums[TILE][4];
    UNROLLED(int i = 0; i < rows; i++)
      UNROLLED(int j = 0; j < 4; j++) sums[i][j] = (NAME(vec)){0};
    for (long d = 0; d < task->size; d += WIDTH)
      UNROLLED(int i = 0; i < rows; i++) {
        NAME(vec) part = *(const NAME(loose) *)(queries[i] + d);
        UNROLLED(int j = 0; j < 4; j++) sums[i][j] += part * *(const NAME(loose) *)(key[j] + d);
      }
    UNROLLED(int i = 0; i < rows; i++)
      *(four_loose *)(scores + i * KEYS + at) = NAME(sum_up_four)(sums[i]) * task->scale;
  }
}

// Turns a query's scores into weights; returns by how much what was summed before shrinks.
TARGET INLINE float NAME(weigh)(float *scores, long keys, struct state *state) {
  const NAME(vec) zero = {0};
  NAME(vec) high = zero + LEAST;
  for (long at = 0; at < keys; at += WIDTH) {
    NAME(vec) x = *(NAME(loose) *)(scores + at);
    high = NAME(choose)(x > high, x, high);
  }
  float most = NAME(find_most)(high);
  most = most > state->most ? most : state->most;
  NAME(vec) total = zero;
  for (long at = 0; at < keys; at += WIDTH) {
    NAME(vec) weight = NAME(exponential)(*(NAME(loose) *)(scores + at) - most);
    *(NAME(loose) *)(scores + at) = weight;
    total += weight;
  }
  float shrink = NAME(exponential)(zero + (state->most - most))[0];
  state->total = state->total * shrink + NAME(sum_up)(total);
  state->most = most;
  return shrink;
}

// Adds the weighed values of a block to what was summed before.
TARGET INLINE void NAME(mix)(const int rows, const struct task *task, const float *values, long keys,
                             const float *weights, const float *shrinks, float *sums) {
  for (long d = 0; d < task->size; d += NAME(PARTS) * WIDTH) {
    NAME(vec) made[TILE][NAME(PARTS)];
    UNROLLED(int i = 0; i < rows; i++)
      UNROLLED(int j = 0; j < NAME(PARTS); j++)
        made[i][j] = *(NAME(loose) *)(sums + i * SIZE_MAX + d + j * WIDTH) * shrinks[i];
    for (long key = 0; key < keys; key++) {
      NAME(vec) value[NAME(PARTS)];
      UNROLLED(int j = 0; j < NAME(PARTS); j++)
        value[j] = *(const NAME(loose) *)(values + key * task->value_stride + d + j * WIDTH);
      UNROLLED(int i = 0; i < rows; i++)
        UNROLLED(int j = 0; j < NAME(PARTS); j++) made[i][j] += weights[i * KEYS + key] * value[j];
    }
    UNROLLED(int i = 0; i < rows; i++)
      UNROLLED(int j = 0; j < NAME(PARTS); j++)
        *(NAME(loose) *)(sums + i * SIZE_MAX + d + j * WIDTH) = made[i][j];
  }
}

// Takes one block of keys for a tile of queries, of which `row` is the first. `turned`: the block, where it pays.
TARGET INLINE void NAME(take_block)(const int rows, const struct task *task, long row, long from, long keys,
                                    const float *turned, float *sums, struct state *states) {
  float scores[TILE * KEYS], shrinks[TILE];
  const float *queries[TILE];
  long limits[TILE], seen = 0;
  for (int i = 0; i < rows; i++) {
    long head = (row + i) / task->rows, place = (row + i) % task->rows;
    queries[i] = task->queries + head * task->query_head_stride + place * task->query_stride;
    long limit = (task->causal ? task->keys_count - task->rows + place + 1 : task->keys_count) - from;
    limits[i] = limit < 0 ? 0 : limit > keys ? keys : limit;
    seen = limits[i] > seen ? limits[i] : seen;
  }
  if (!seen)
    return;
  long wide = (seen + 2 * WIDTH - 1) / (2 * WIDTH) * (2 * WIDTH);
  if (turned)
    NAME(score)(rows, task, queries, turned, wide, scores);
  else
    NAME(score_directly)(rows, task, queries, task->keys + from * task->key_stride, seen, scores);
  for (int i = 0; i < rows; i++) {
    float *line = scores + i * KEYS;
    for (long key = limits[i]; key < wide; key++)
      line[key] = LEAST;
    if (task->mask) {
      const unsigned char *mask = task->mask + (row + i) % task->rows * task->mask_stride + from;
      for (long key = 0; key < limits[i]; key++)
        line[key] = mask[key] ? line[key] : LEAST;
    }
    shrinks[i] = NAME(weigh)(line, wide, &states[i]);
  }
  NAME(mix)(rows, task, task->values + from * task->value_stride, seen, scores, shrinks, sums);
}

// Turns a block of keys, so that one number of all of them stands in a line; behind the last one zeros.
TARGET INLINE void NAME(turn)(const struct task *task, long from, long keys, float *turned) {
  const float *key = task->keys + from * task->key_stride;
  for (long d = 0; d < task->size; d++) {
    for (long i = 0; i < keys; i++)
      turned[d * KEYS + i] = key[i * task->key_stride + d];
    for (long i = keys; i < KEYS; i++)
      turned[d * KEYS + i] = 0;
  }
}

TARGET INLINE void NAME(answer)(const struct task *task, long row, const float *sums, const struct state *state) {
  float *made = task->made + row / task->rows * task->made_head_stride + row % task->rows * task->made_stride;
  for (long d = 0; d < task->size; d++)
    made[d] = sums[d] / state->total;
}

TARGET static void NAME(attend)(const struct task *task, long first, long last) {
  float turned[SIZE_MAX * KEYS], sums[QUERIES * SIZE_MAX];
  struct state states[QUERIES];
  for (; first < last; first += QUERIES) {
    long rows = last - first < QUERIES ? last - first : QUERIES, tiles = (rows + TILE - 1) / TILE;
    long step = (rows + tiles - 1) / tiles;
    const float *block = rows > DIRECT ? turned : 0;
    for (long i = 0; i < rows * SIZE_MAX; i++)
      sums[i] = 0;
    for (long i = 0; i < rows; i++)
      states[i] = (struct state){LEAST, 0};
    for (long from = 0; from < task->keys_count; from += KEYS) {
      long keys = task->keys_count - from < KEYS ? task->keys_count - from : KEYS;
      if (block)
        NAME(turn)(task, from, keys, turned);
      for (long i = 0; i < rows; i += step) {
        switch (rows - i < step ? rows - i : step) {
#define CASE(count)                                                                                                    \
  case count:                                                                                                          \
    NAME(take_block)(count, task, first + i, from, keys, block, sums + i * SIZE_MAX, states + i);                       \
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
      }
    }
    for (long i = 0; i < rows; i++)
      NAME(answer)(task, first + i, sums + i * SIZE_MAX, states + i);
  }
}
