// Registers of WIDTH floats, and what several of them add up to. Included once for each kind by whatever computes with
// them: products of few rows here, the kernels of deployments/tiers/mlx/cpu. NAME(x) is x with the kind behind it.

typedef float four __attribute__((vector_size(16)));
typedef float eight __attribute__((vector_size(32)));
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
TARGET INLINE four NAME(sum_up_four)(const NAME(vec) * v) {
  four a = NAME(fold)(v[0]), b = NAME(fold)(v[1]), c = NAME(fold)(v[2]), d = NAME(fold)(v[3]);
  four first = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  four second = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return __builtin_shufflevector(first, second, 0, 1, 4, 5) + __builtin_shufflevector(first, second, 2, 3, 6, 7);
}
