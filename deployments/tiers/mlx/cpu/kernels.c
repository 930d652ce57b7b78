// What a processor computes in the place of MLX's CPU build: attention (attention.h), and the gate of a layer
// (gate_lanes.h).
//
// Needs nothing: no libc, no memory but its stack, nothing that is kept between calls. Who calls it sees to it that the
// processor has the registers (binary.py). Built by `python -m tools.native`.

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("clang loop unroll(full)") for

typedef float four_loose __attribute__((vector_size(16), aligned(4), may_alias));

#include "attention.h"
#include "step.h"

#define WIDTH 16
#define TILE 6
#define TARGET __attribute__((target("avx512f,fma")))
#define NAME(x) x##_avx512
#include "sums_lanes.h"
#include "lanes.h"
#include "attention_lanes.h"
#include "gate_lanes.h"
#include "step_lanes.h"
#undef WIDTH
#undef TILE
#undef TARGET
#undef NAME

#define WIDTH 8
#define TILE 3
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) x##_avx2
#include "sums_lanes.h"
#include "lanes.h"
#include "attention_lanes.h"
#include "gate_lanes.h"
#include "step_lanes.h"

#define EXPORTED __attribute__((visibility("default"))) void

// Answers the queries from `first` to before `last`, counted over all heads.
EXPORTED attend_with_avx512(const struct task *task, long first, long last) { attend_avx512(task, first, last); }
EXPORTED attend_with_avx2(const struct task *task, long first, long last) { attend_avx2(task, first, last); }

// Gates the numbers from `first` to before `last`.
EXPORTED gate_with_avx512(const float *gate, const float *other, float *made, long first, long last) {
  gate_avx512(gate, other, made, first, last);
}
EXPORTED gate_with_avx2(const float *gate, const float *other, float *made, long first, long last) {
  gate_avx2(gate, other, made, first, last);
}

// Makes a step.
EXPORTED step_with_avx512(const struct step *step) { step_avx512(step); }
EXPORTED step_with_avx2(const struct step *step) { step_avx2(step); }
