// Threads that help with some work: each takes the next piece of it, as the caller does, until none is left.
//
// It is done by whoever comes; the caller needs nobody. So a thread that can't be started, that is busy
// elsewhere, or that a fork has left behind costs time and nothing else. Helpers look for work for a while after each
// piece, since the next one of a step follows soon, and then sleep.
//
//   caller    write the job ─▶ open = 1 ─▶ wake ─▶ take pieces ─▶ open = 0 ─▶ wait until nobody is inside
//   helper    inside += 1 ─▶ open? take pieces : – ─▶ inside -= 1
//
// Who finds it open is counted before, and the job stays as it is until all who were counted have left: so no helper
// reads a job that is being written. One caller at a time has helpers; a second one works alone.

enum { HELPERS_MAX = 31, LOOK_MAX = 4000 };
enum { SYS_RT_SIGPROCMASK = 14, SYS_SCHED_YIELD = 24, SYS_GETPID = 39, SYS_FUTEX = 202 };
enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129, SIG_BLOCK = 0 };

extern int pthread_create(unsigned long *thread, const void *attributes, void *(*run)(void *), void *argument);

// Does what is between `first` and `last` of it.
typedef void worker(const void *what, long first, long last);

static struct {
  worker *work;
  const void *what;
  long count; // how long it is: a product's columns
  long step;  // how much of it a piece has
  long next;  // the first that nobody has taken
  int helpers_max;
  int open, inside, round, asleep;
  int taken; // by a caller
  int started, failed;
  long process; // whose helpers they are
} pool;

#define GET(what) __atomic_load_n(&pool.what, __ATOMIC_SEQ_CST)
#define PUT(what, value) __atomic_store_n(&pool.what, value, __ATOMIC_SEQ_CST)
#define ADD(what, value) __atomic_add_fetch(&pool.what, value, __ATOMIC_SEQ_CST)

static long call_system(long number, long a, long b, long c, long d) {
  long result;
  register long fourth __asm__("r10") = d;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                   : "rcx", "r11", "memory");
  return result;
}

static void take_pieces(void) {
  for (;;) {
    long first = __atomic_fetch_add(&pool.next, pool.step, __ATOMIC_RELAXED);
    if (first >= pool.count)
      return;
    pool.work(pool.what, first, pool.count - first < pool.step ? pool.count : first + pool.step);
  }
}

static void *help(void *argument) {
  int number = (int)(long)argument, seen = 0;
  unsigned long all = ~0UL; // signals are for the threads of the program
  call_system(SYS_RT_SIGPROCMASK, SIG_BLOCK, (long)&all, 0, sizeof all);
  for (;;) {
    for (int look = 0; GET(round) == seen && look < LOOK_MAX; look++)
      __builtin_ia32_pause();
    if (GET(round) == seen) {
      ADD(asleep, 1);
      call_system(SYS_FUTEX, (long)&pool.round, FUTEX_WAIT_PRIVATE, seen, 0);
      ADD(asleep, -1);
    }
    seen = GET(round);
    ADD(inside, 1);
    if (GET(open) && number < pool.helpers_max)
      take_pieces();
    ADD(inside, -1);
  }
  return 0;
}

static void start_helpers(int count) {
  unsigned long thread;
  long process = call_system(SYS_GETPID, 0, 0, 0, 0);
  if (pool.process != process) { // a fork has none of them, and may have left one counted
    pool.process = process;
    pool.started = pool.failed = pool.inside = pool.asleep = 0;
  }
  while (pool.started < count && !pool.failed) {
    if (pthread_create(&thread, 0, help, (void *)(long)pool.started))
      pool.failed = 1;
    else
      pool.started++;
  }
}

// Do some work with so many threads, the caller's among them, in pieces of so much.
static void share_out(worker *work, const void *what, long count, long step, int threads) {
  if (threads < 2 || count <= step || __atomic_exchange_n(&pool.taken, 1, __ATOMIC_ACQUIRE)) {
    work(what, 0, count);
    return;
  }
  start_helpers(threads - 1 < HELPERS_MAX ? threads - 1 : HELPERS_MAX);
  pool.work = work;
  pool.what = what;
  pool.count = count;
  pool.step = step;
  pool.next = 0;
  pool.helpers_max = threads - 1;
  PUT(open, 1);
  ADD(round, 1);
  if (GET(asleep))
    call_system(SYS_FUTEX, (long)&pool.round, FUTEX_WAKE_PRIVATE, HELPERS_MAX, 0);
  take_pieces();
  PUT(open, 0);
  for (int look = 0; GET(inside); look++)
    if (look % 64 == 63) // one that is inside may not be running: there are more programs here
      call_system(SYS_SCHED_YIELD, 0, 0, 0, 0);
    else
      __builtin_ia32_pause();
  __atomic_store_n(&pool.taken, 0, __ATOMIC_RELEASE);
}
