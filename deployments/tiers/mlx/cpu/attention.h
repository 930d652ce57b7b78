// Attention on the CPU: for each query the softmax of its products with the keys, and the values weighed by it.
//
// MLX's CPU build computes this in three passes over all scores, on one core, with an exponential that takes 12 ns. Here
// it is one pass in the processor's wide registers: the scores of a few queries and KEYS keys stay in the nearest cache,
// are turned into weights there, and are gone when the next keys come; what was summed before shrinks where a larger
// score comes up (the "online softmax" of Milakov and Gimelshein, arXiv:1805.02867, as FlashAttention has it).
//
// Any number of threads may call it at once, each with queries of its own. Who calls it sees to the bounds
// (attention.py): sizes are multiples of SIZE_STEP and at most SIZE_MAX, strides count floats (those of the mask bytes).

// Keys of a block, queries of a chunk, and the size of a query, at most. A block of keys is turned once for a chunk.
enum { KEYS = 256, QUERIES = 96, SIZE_MAX = 256 };
// Up to so many queries the keys aren't turned.
enum { DIRECT = 12 };
// Below every score; a weight of it is 0 beside any real one.
#define LEAST -3.0e38f

// The queries of some heads that share their keys: `heads` times `rows`. `causal`: the last query sees all keys, the
// one before it all but the last. `mask`: a line of bytes for each row, 0 where a key isn't seen.
struct task {
  const float *queries, *keys, *values;
  const unsigned char *mask;
  float *made;
  long rows, keys_count, size, query_head_stride, query_stride, key_stride, value_stride, mask_stride, made_head_stride,
      made_stride, causal;
  float scale;
};

// Of one query: the largest score so far, and the sum of the weights.
struct state {
  float most, total;
};
