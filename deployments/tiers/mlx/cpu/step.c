// A step of a model whose layers are those of Llama: a few tokens of each of some sequences, from their numbers to the
// logits behind each of them, in one call (MLX's CPU build makes twenty operations of a layer).
//
// Weights, keys and values are where MLX has them; the caller sees to it that they are computed, and stay (step.py).
// Built twice from this source, for the registers of AVX2 and of AVX-512 (WIDE); docs/decisions/040-cpu-extension.md has
// the figures.

#define _GNU_SOURCE
#include <immintrin.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lanes.h"
#include "threads.h"
#include "products.h"
#include "attention.h"

// One layer. Biases may be missing, and the norms of queries and keys. `keys` and `values`: of all sequences,
// (sequences, groups, places, size).
struct layer {
  const float *first_norm, *query, *query_bias, *key, *key_bias, *value, *value_bias, *output;
  const float *query_norm, *key_norm;
  const float *second_norm, *gate, *up, *down;
  float *keys, *values;
};

// `tokens`: of each sequence `count`, behind the `held` that it has. `cosines` and `sines`: a line of size / 2 for each
// place. `work`: room for eight arrays, see `make_step`. `made`: a line of logits for each of the `wanted` tokens, whose
// numbers rise; where `wanted_count` is 0, only keys and values are computed.
struct step {
  const struct layer *layers;
  const float *embedding, *norm, *head, *cosines, *sines;
  const long *tokens, *held, *wanted;
  float *work, *made;
  long layers_count, sequences, count, places, hidden, heads, groups, size, inner, vocabulary, wanted_count, threads;
  float epsilon, scale;
};

// From so many multiplications on it pays to share out attention, and from so many numbers on to share out the gate.
enum { SHARED_ATTENTION = 400000, SHARED_GATE = 16384 };

// Scales each line, so that the mean of its squares is 1: "RMSNorm" (Zhang and Sennrich, arXiv:1910.07467).
static void norm(const struct step *s, long count, long width, const float *lines, const float *weights, float *made) {
  for (long line = 0; line < count; line++, lines += width, made += width) {
    vec sum = {0};
    for (long at = 0; at < width; at += WIDTH)
      sum += load(lines + at) * load(lines + at);
    float factor = 1 / sqrtf(sum_up(sum) / (float)width + s->epsilon);
    for (long at = 0; at < width; at += WIDTH)
      store(made + at, load(lines + at) * factor * load(weights + at));
  }
}

static void copy(const float *from, long count, float *to) {
  for (long at = 0; at < count; at += WIDTH)
    store(to + at, load(from + at));
}

// Multiplies `count` lines by a layer's weights: into `made`, or in addition to it.
static void apply(const struct step *s, long count, const float *lines, long depth, const float *weights, long columns,
                  int adds, float *made) {
  struct product product = {count, columns, depth, lines, weights, made, adds};
  multiply(&product, (int)s->threads);
}

static void apply_biased(const struct step *s, long count, const float *lines, const float *weights, const float *bias,
                         long columns, float *made) {
  for (long line = 0; bias && line < count; line++)
    copy(bias, columns, made + line * columns);
  apply(s, count, lines, s->hidden, weights, columns, bias != 0, made);
}

// Turns a query or key by its place ("RoPE", Su et al., arXiv:2104.09864; the halves of it are the pairs).
INLINE void rotate(const struct step *s, long place, const float *from, float *to) {
  long half = s->size / 2;
  for (long at = 0; at < half; at += WIDTH) {
    vec a = load(from + at), b = load(from + half + at);
    vec cosine = load(s->cosines + place * half + at), sine = load(s->sines + place * half + at);
    store(to + at, a * cosine - b * sine);
    store(to + half + at, a * sine + b * cosine);
  }
}

// Turns the queries where they are, and puts keys and values behind those that are held.
static void put(const struct step *s, const struct layer *layer, float *queries, const float *keys,
                const float *values) {
  for (long line = 0; line < s->sequences * s->count; line++) {
    long sequence = line / s->count, place = s->held[sequence] + line % s->count;
    for (long head = 0; head < s->heads; head++) {
      float *query = queries + (line * s->heads + head) * s->size;
      rotate(s, place, query, query);
    }
    for (long group = 0; group < s->groups; group++) {
      long from = (line * s->groups + group) * s->size;
      long to = ((sequence * s->groups + group) * s->places + place) * s->size;
      rotate(s, place, keys + from, layer->keys + to);
      copy(values + from, s->size, layer->values + to);
    }
  }
}

// The attention of a layer: `parts` pieces for each group of each sequence.
struct attending {
  const struct step *step;
  const struct layer *layer;
  const float *queries;
  float *made;
  long parts;
};

static void attend_pieces(const void *what, long first, long last) {
  const struct attending *all = what;
  const struct step *s = all->step;
  long share = s->heads / s->groups, line = s->heads * s->size, queries = share * s->count;
  for (; first < last; first++) {
    long part = first % all->parts, number = first / all->parts, sequence = number / s->groups;
    long from = sequence * s->count * line + number % s->groups * share * s->size;
    long held = number * s->places * s->size;
    struct group group = {all->queries + from, all->layer->keys + held,         all->layer->values + held,
                          all->made + from,    s->count,                        s->held[sequence] + s->count,
                          s->size,             line,                            s->scale};
    attend(&group, queries * part / all->parts, queries * (part + 1) / all->parts);
  }
}

static void attend_all(const struct step *s, const struct layer *layer, const float *queries, float *made) {
  long keys = 0, rows = s->heads / s->groups * s->count, piece = rows > DIRECT ? QUERIES : ROWS;
  for (long sequence = 0; sequence < s->sequences; sequence++)
    keys += s->held[sequence] + s->count;
  struct attending all = {s, layer, queries, made, (rows + piece - 1) / piece};
  int is_shared = keys * s->heads * s->count * s->size * 2 >= SHARED_ATTENTION;
  share_out(attend_pieces, &all, s->sequences * s->groups * all.parts, 1, is_shared ? (int)s->threads : 1);
}

struct gating {
  float *gate;
  const float *up;
};

// x / (1 + exp(-x)) times another number: "SwiGLU" (Shazeer, arXiv:2002.05202).
static void gate_pieces(const void *what, long first, long last) {
  const struct gating *all = what;
  const vec zero = {0};
  for (; first < last; first += WIDTH) {
    vec x = load(all->gate + first);
    bits is_negative = x < zero;
    vec small = exponential(choose(is_negative, x, -x)); // of at most 0: it can't overflow
    store(all->gate + first, x * choose(is_negative, small, zero + 1.0f) / (small + 1.0f) * load(all->up + first));
  }
}

__attribute__((visibility("default"))) void make_step(const struct step *s) {
  long lines = s->sequences * s->count, wide = s->heads * s->size, narrow = s->groups * s->size;
  float *x = s->work, *normed = x + lines * s->hidden, *queries = normed + lines * s->hidden;
  float *keys = queries + lines * wide, *values = keys + lines * narrow, *seen = values + lines * narrow;
  float *gate = seen + lines * wide, *up = gate + lines * s->inner;
  struct gating gating = {gate, up};
  for (long line = 0; line < lines; line++)
    copy(s->embedding + s->tokens[line] * s->hidden, s->hidden, x + line * s->hidden);
  for (const struct layer *layer = s->layers; layer < s->layers + s->layers_count; layer++) {
    norm(s, lines, s->hidden, x, layer->first_norm, normed);
    apply_biased(s, lines, normed, layer->query, layer->query_bias, wide, queries);
    apply_biased(s, lines, normed, layer->key, layer->key_bias, narrow, keys);
    apply_biased(s, lines, normed, layer->value, layer->value_bias, narrow, values);
    if (layer->query_norm) {
      norm(s, lines * s->heads, s->size, queries, layer->query_norm, queries);
      norm(s, lines * s->groups, s->size, keys, layer->key_norm, keys);
    }
    put(s, layer, queries, keys, values);
    if (!s->wanted_count && layer == s->layers + s->layers_count - 1)
      return;
    attend_all(s, layer, queries, seen);
    apply(s, lines, seen, wide, layer->output, s->hidden, 1, x);
    norm(s, lines, s->hidden, x, layer->second_norm, normed);
    apply(s, lines, normed, s->hidden, layer->gate, s->inner, 0, gate);
    apply(s, lines, normed, s->hidden, layer->up, s->inner, 0, up);
    share_out(gate_pieces, &gating, lines * s->inner, SHARED_GATE, (int)s->threads);
    apply(s, lines, gate, s->inner, layer->down, s->hidden, 1, x);
  }
  for (long line = 0; line < s->wanted_count; line++) // no line moves onto one that is still wanted
    copy(x + s->wanted[line] * s->hidden, s->hidden, x + line * s->hidden);
  norm(s, s->wanted_count, s->hidden, x, s->norm, normed);
  apply(s, s->wanted_count, normed, s->hidden, s->head, s->vocabulary, 0, s->made);
}
