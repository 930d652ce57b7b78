// What depends on the processor: registers of WIDTH floats. Included once for each kind; NAME(x) is x with the kind
// behind it.

typedef int NAME(bits) __attribute__((vector_size(WIDTH * 4)));

TARGET INLINE NAME(vec) NAME(choose)(NAME(bits) which, NAME(vec) yes, NAME(vec) no) {
  return (NAME(vec))(((NAME(bits))yes & which) | ((NAME(bits))no & ~which));
}

// The exponential of what is at most 0: two to a whole power, and a polynomial for the rest (Cephes' expf). What is no
// number stays none.
TARGET INLINE NAME(vec) NAME(exponential)(NAME(vec) x) {
  const NAME(vec) zero = {0}, least = zero - 87.0f;
  NAME(bits) is_seen = ~(x <= least);
  x = NAME(choose)(is_seen, x, least);
  NAME(vec) shifted = x * 1.44269504f + 12582912.0f; // 1.5 * 2^23: what is behind the point falls off
  NAME(vec) whole = shifted - 12582912.0f;
  NAME(vec) rest = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  NAME(vec) sum = rest * 1.9875691500e-4f + 1.3981999507e-3f;
  sum = sum * rest + 8.3334519073e-3f;
  sum = sum * rest + 4.1665795894e-2f;
  sum = sum * rest + 1.6666665459e-1f;
  sum = sum * rest + 5.0000001201e-1f;
  sum = sum * (rest * rest) + rest + 1.0f;
  NAME(bits) exponent = ((NAME(bits))shifted << 23) + (127 << 23);
  return NAME(choose)(is_seen, sum * (NAME(vec))exponent, zero);
}
