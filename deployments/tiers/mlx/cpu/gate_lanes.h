// The gate of a layer, x / (1 + exp(-x)) times another number: "SwiGLU" (Shazeer, arXiv:2002.05202). MLX's CPU build
// takes 16 ns for one. Included once for each kind of registers, behind lanes.h.

TARGET INLINE NAME(vec) NAME(gate_one)(NAME(vec) x, NAME(vec) other) {
  const NAME(vec) zero = {0};
  NAME(bits) is_negative = x < zero;
  NAME(vec) small = NAME(exponential)(NAME(choose)(is_negative, x, -x)); // of what is at most 0: it can't overflow
  return x * NAME(choose)(is_negative, small, zero + 1.0f) / (small + 1.0f) * other;
}

TARGET static void NAME(gate)(const float *gate, const float *other, float *made, long first, long last) {
  for (; first + WIDTH <= last; first += WIDTH)
    *(NAME(loose) *)(made + first) =
        NAME(gate_one)(*(const NAME(loose) *)(gate + first), *(const NAME(loose) *)(other + first));
  if (first == last)
    return;
  float rest[2][WIDTH] = {{0}};
  for (long i = 0; i < last - first; i++)
    rest[0][i] = gate[first + i], rest[1][i] = other[first + i];
  *(NAME(loose) *)rest[0] = NAME(gate_one)(*(NAME(loose) *)rest[0], *(NAME(loose) *)rest[1]);
  for (long i = 0; i < last - first; i++)
    made[first + i] = rest[0][i];
}
