// Threads that help with a piece of work: each takes the next piece, as the caller does, until none is left.
//
// The caller depends on no helper. So a thread that can't be started, that is busy elsewhere, or that a fork has left
// behind costs time and nothing else. Helpers look for work for a short time after each piece, since the next one of a
// step follows soon, and then sleep.
//
//   caller    write the job ─▶ open = 1 ─▶ wake ─▶ take pieces ─▶ open = 0 ─▶ wait until no helper is inside
//   helper    inside += 1 ─▶ open? take pieces : – ─▶ inside -= 1
//
// A helper counts itself before it looks whether the job is open, and the job stays as it is until all who were counted
// have left: so no helper reads a job that is being written. One caller at a time has helpers; a second one works alone.

enum { HELPERS_MAX = 31, LOOK_MAX = 4000 };

// Does the part of a job between `first` and `last`.
typedef void worker(const void *what, long first, long last);

static struct {
  worker *work;
  const void *what;
  long count; // how long the job is
  long step;  // how much of it a piece has
  long next;  // the first piece that no thread has taken
  int helpers_max, open, inside, round, asleep, taken, started, failed;
  pid_t process; // whose helpers they are
} pool;

#define GET(what) __atomic_load_n(&pool.what, __ATOMIC_SEQ_CST)
#define PUT(what, value) __atomic_store_n(&pool.what, value, __ATOMIC_SEQ_CST)
#define ADD(what, value) __atomic_add_fetch(&pool.what, value, __ATOMIC_SEQ_CST)

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
  for (;;) {
    for (int look = 0; GET(round) == seen && look < LOOK_MAX; look++)
      _mm_pause();
    if (GET(round) == seen) {
      ADD(asleep, 1);
      syscall(SYS_futex, &pool.round, FUTEX_WAIT_PRIVATE, seen, NULL);
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
  if (pool.process != getpid()) { // a fork has none of them, and may have left one counted
    pool.process = getpid();
    pool.started = pool.failed = pool.inside = pool.asleep = 0;
  }
  sigset_t all, before;
  sigfillset(&all); // signals are for the threads of the program
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (pthread_t thread; pool.started < count && !pool.failed;)
    if (pthread_create(&thread, 0, help, (void *)(long)pool.started))
      pool.failed = 1;
    else
      pool.started++;
  pthread_sigmask(SIG_SETMASK, &before, 0);
}

// Does a job of `count` in pieces of `step`, with so many threads, the caller's among them.
static void share_out(worker *work, const void *what, long count, long step, int threads) {
  if (threads < 2 || count <= step || __atomic_exchange_n(&pool.taken, 1, __ATOMIC_ACQUIRE)) {
    work(what, 0, count);
    return;
  }
  if (pool.started < threads - 1 || pool.process != getpid())
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
    syscall(SYS_futex, &pool.round, FUTEX_WAKE_PRIVATE, HELPERS_MAX);
  take_pieces();
  PUT(open, 0);
  for (int look = 1; GET(inside); look++)
    if (look % 64)
      _mm_pause();
    else
      sched_yield(); // one that is inside may not be running: other programs use the machine too
  __atomic_store_n(&pool.taken, 0, __ATOMIC_RELEASE);
}
