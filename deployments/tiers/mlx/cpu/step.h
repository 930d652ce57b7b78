// A step of a model whose layers are those of Llama: a few tokens of each of some sequences, from their numbers to the
// logits behind each of them.
//
// MLX's CPU build makes some twenty operations of a layer, and to hand one over costs as much as many of them compute:
// a third of a step of SmolLM2-135M. Here a step is one call. The weights and the keys and values are where MLX has
// them; who calls it sees to it that they are computed, and stay (step.py).

// CBLAS's: rows one after the other, plain, transposed.
enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

// One layer. Biases may be missing, and the norms of queries and keys. `keys` and `values`: of all sequences, (sequences, groups, places, size).
struct layer {
  const float *first_norm, *query, *query_bias, *key, *key_bias, *value, *value_bias, *output;
  const float *query_norm, *key_norm;
  const float *second_norm, *gate, *up, *down;
  float *keys, *values;
};

// `tokens`: of each sequence `count`, behind the `held` that it has. `cosines` and `sines`: a line of size / 2 for each
// place. `work`: room for eight arrays, see `step`. `made`: a line of logits for each of the `wanted` tokens, whose
// numbers rise; of none where `wanted_count` is 0, and then only keys and values are computed.
struct step {
  void (*multiply)(int order, int transa, int transb, int m, int n, int k, float alpha, const float *a, int lda,
                   const float *b, int ldb, float beta, float *c, int ldc);
  void (*share)(void (*work)(const void *what, long first, long last), const void *what, long count, long step);
  const struct layer *layers;
  const float *embedding, *norm, *head, *cosines, *sines;
  const long *tokens, *held, *wanted;
  float *work, *made;
  long layers_count, sequences, count, places, hidden, heads, groups, size, inner, vocabulary, wanted_count;
  float epsilon, scale;
};

// From so many multiplications on it pays to share out attention, and from so many numbers on to share out the gate.
enum { SHARED_ATTENTION = 400000, SHARED_GATE = 16384 };

// The attention of a layer, for whom it is shared out among: `parts` pieces for each group of each sequence.
struct attending {
  const struct step *step;
  const struct layer *layer;
  const float *queries;
  float *made;
  long parts;
};

struct gating {
  const float *gate, *up;
  float *made;
};
