// The part of step.h that depends on the processor: registers of WIDTH floats. Included once for each kind, behind
// attention_lanes.h and gate_lanes.h.

// Scales each line, so that the mean of its squares is 1: "RMSNorm" (Zhang and Sennrich, arXiv:1910.07467).
TARGET static void NAME(norm)(const struct step *s, long count, long width, const float *lines, const float *weights,
                              float *made) {
  for (long line = 0; line < count; line++, lines += width, made += width) {
    NAME(vec) sum = {0};
    for (long at = 0; at < width; at += WIDTH) {
      NAME(vec) x = *(const NAME(loose) *)(lines + at);
      sum += x * x;
    }
    float factor = 1 / __builtin_sqrtf(NAME(sum_up)(sum) / (float)width + s->epsilon);
    for (long at = 0; at < width; at += WIDTH)
      *(NAME(loose) *)(made + at) =
          *(const NAME(loose) *)(lines + at) * factor * *(const NAME(loose) *)(weights + at);
  }
}

// Multiplies `count` lines by a layer's weights: into `made`, or in addition to what is there.
static void NAME(apply)(const struct step *s, long count, const float *lines, long depth, const float *weights,
                        long columns, int adds, float *made) {
  s->multiply(ROW_MAJOR, PLAIN, TRANSPOSED, (int)count, (int)columns, (int)depth, 1, lines, (int)depth, weights,
              (int)depth, adds ? 1 : 0, made, (int)columns);
}

TARGET static void NAME(apply_biased)(const struct step *s, long count, const float *lines, const float *weights,
                                      const float *bias, long columns, float *made) {
  for (long line = 0; bias && line < count; line++)
    for (long at = 0; at < columns; at += WIDTH)
      *(NAME(loose) *)(made + line * columns + at) = *(const NAME(loose) *)(bias + at);
  NAME(apply)(s, count, lines, s->hidden, weights, columns, bias != 0, made);
}

TARGET static void NAME(copy)(const float *from, long count, float *to) {
  for (long at = 0; at < count; at += WIDTH)
    *(NAME(loose) *)(to + at) = *(const NAME(loose) *)(from + at);
}

// Turns a query or key by its place ("RoPE", Su et al., arXiv:2104.09864; the halves of it are the pairs).
TARGET INLINE void NAME(rotate)(const struct step *s, long place, const float *from, float *to) {
  long half = s->size / 2;
  const float *cosines = s->cosines + place * half, *sines = s->sines + place * half;
  for (long at = 0; at < half; at += WIDTH) {
    NAME(vec) a = *(const NAME(loose) *)(from + at), b = *(const NAME(loose) *)(from + half + at);
    NAME(vec) c = *(const NAME(loose) *)(cosines + at), d = *(const NAME(loose) *)(sines + at);
    *(NAME(loose) *)(to + at) = a * c - b * d;
    *(NAME(loose) *)(to + half + at) = a * d + b * c;
  }
}

// Turns the queries where they are, and puts keys and values behind those that are held.
TARGET static void NAME(put)(const struct step *s, const struct layer *layer, float *queries, const float *keys,
                             const float *values) {
  for (long line = 0; line < s->sequences * s->count; line++) {
    long sequence = line / s->count, place = s->held[sequence] + line % s->count;
    for (long head = 0; head < s->heads; head++) {
      float *query = queries + (line * s->heads + head) * s->size;
      NAME(rotate)(s, place, query, query);
    }
    for (long group = 0; group < s->groups; group++) {
      long from = (line * s->groups + group) * s->size;
      long to = ((sequence * s->groups + group) * s->places + place) * s->size;
      NAME(rotate)(s, place, keys + from, layer->keys + to);
      NAME(copy)(values + from, s->size, layer->values + to);
    }
  }
}

// The pieces from `first` to before `last`.
TARGET static void NAME(attend_pieces)(const void *what, long first, long last) {
  const struct attending *all = what;
  const struct step *s = all->step;
  long share = s->heads / s->groups, line = s->heads * s->size, queries = share * s->count;
  for (; first < last; first++) {
    long part = first % all->parts, group = first / all->parts % s->groups, sequence = first / all->parts / s->groups;
    long from = sequence * s->count * line + group * share * s->size;
    long held = (sequence * s->groups + group) * s->places * s->size;
    struct task task = {
        .queries = all->queries + from,
        .keys = all->layer->keys + held,
        .values = all->layer->values + held,
        .made = all->made + from,
        .rows = s->count,
        .keys_count = s->held[sequence] + s->count,
        .size = s->size,
        .query_head_stride = s->size,
        .query_stride = line,
        .key_stride = s->size,
        .value_stride = s->size,
        .made_head_stride = s->size,
        .made_stride = line,
        .causal = 1,
        .scale = s->scale,
    };
    NAME(attend)(&task, queries * part / all->parts, queries * (part + 1) / all->parts);
  }
}

static void NAME(attend_all)(const struct step *s, const struct layer *layer, const float *queries, float *made) {
  long keys = 0, rows = s->heads / s->groups * s->count;
  for (long sequence = 0; sequence < s->sequences; sequence++)
    keys += s->held[sequence] + s->count;
  struct attending all = {s, layer, queries, made, rows > DIRECT ? (rows + QUERIES - 1) / QUERIES : (rows + TILE - 1) / TILE};
  long pieces = s->sequences * s->groups * all.parts;
  if (keys * s->heads * s->count * s->size * 2 < SHARED_ATTENTION)
    NAME(attend_pieces)(&all, 0, pieces);
  else
    s->share(NAME(attend_pieces), &all, pieces, 1);
}

static void NAME(gate_pieces)(const void *what, long first, long last) {
  const struct gating *all = what;
  NAME(gate)(all->gate, all->up, all->made, first, last);
}

static void NAME(gate_all)(const struct step *s, const float *gate, const float *up, float *made) {
  struct gating all = {gate, up, made};
  s->share(NAME(gate_pieces), &all, s->sequences * s->count * s->inner, SHARED_GATE);
}

TARGET static void NAME(step)(const struct step *s) {
  long lines = s->sequences * s->count, wide = s->heads * s->size, narrow = s->groups * s->size;
  float *x = s->work, *normed = x + lines * s->hidden, *queries = normed + lines * s->hidden;
  float *keys = queries + lines * wide, *values = keys + lines * narrow, *seen = values + lines * narrow;
  float *gate = seen + lines * wide, *up = gate + lines * s->inner;
  for (long line = 0; line < lines; line++)
    NAME(copy)(s->embedding + s->tokens[line] * s->hidden, s->hidden, x + line * s->hidden);
  for (const struct layer *layer = s->layers; layer < s->layers + s->layers_count; layer++) {
    NAME(norm)(s, lines, s->hidden, x, layer->first_norm, normed);
    NAME(apply_biased)(s, lines, normed, layer->query, layer->query_bias, wide, queries);
    NAME(apply_biased)(s, lines, normed, layer->key, layer->key_bias, narrow, keys);
    NAME(apply_biased)(s, lines, normed, layer->value, layer->value_bias, narrow, values);
    if (layer->query_norm) {
      NAME(norm)(s, lines * s->heads, s->size, queries, layer->query_norm, queries);
      NAME(norm)(s, lines * s->groups, s->size, keys, layer->key_norm, keys);
    }
    NAME(put)(s, layer, queries, keys, values);
    if (!s->wanted_count && layer == s->layers + s->layers_count - 1)
      return;
    NAME(attend_all)(s, layer, queries, seen);
    NAME(apply)(s, lines, seen, wide, layer->output, s->hidden, 1, x);
    NAME(norm)(s, lines, s->hidden, x, layer->second_norm, normed);
    NAME(apply)(s, lines, normed, s->hidden, layer->gate, s->inner, 0, gate);
    NAME(apply)(s, lines, normed, s->hidden, layer->up, s->inner, 0, up);
    NAME(gate_all)(s, gate, up, gate);
    NAME(apply)(s, lines, gate, s->inner, layer->down, s->hidden, 1, x);
  }
  for (long line = 0; line < s->wanted_count; line++)  // no line moves onto one that is still wanted
    NAME(copy)(x + s->wanted[line] * s->hidden, s->hidden, x + line * s->hidden);
  NAME(norm)(s, s->wanted_count, s->hidden, x, s->norm, normed);
  NAME(apply)(s, s->wanted_count, normed, s->hidden, s->head, s->vocabulary, 0, s->made);
}
