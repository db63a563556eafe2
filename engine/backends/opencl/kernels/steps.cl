// Many launches as one, for CPU devices: the items of all of them, in order, are dealt out to the
// groups that happen to run. A launch costs a driver more than most operations of a token take.
//
// A step stands for one launch. Its items are cut into parts; parts are numbered through all steps
// and taken in that order, each when every part of the steps before its own is done. Whoever has a
// part can compute it, and nobody who waits has one: groups need not run at the same time, and one
// alone gets everything done.
//
// Parts taken one after the other lie apart: a unit that takes every n_units-th part, as units do
// that are equally fast, goes through memory in one run. It asks for what comes next ahead of time
// (whole_rows.cl), and whatever another unit would read is asked for in vain.
//
// Table, in words of 8 bytes: the counters, each in a cache line of its own, then the steps. A step
// is its head, then the arguments of its kernel: the number of a buffer, or a count, stride or
// float. The last step is a head without items. `run_item` is generated (step_sources.py).

#define TAKEN 0
#define DONE 8
#define LEFT 16
#define UNITS 17  // how many units the device has; not a counter
#define STEPS 24

#define STEP_LENGTH 0  // words
#define STEP_KERNEL 1
#define STEP_FIRST 2  // its first part
#define STEP_ITEMS_PER_PART 3
#define STEP_ITEMS 4  // along three dimensions
#define STEP_N_ITEMS 7
#define STEP_ARGS 8

#define RESTS 50  // looks at the counters before the processor is offered to somebody else

// What a group does that finds no part to take for the `i`-th time: those that have one may have
// lost their processor to another program, and would wait for this one.
static void rest(int i)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#if defined(__linux__)
    long sched_yield = 24;
    if (i >= RESTS) __asm__ volatile("syscall" : "+a"(sched_yield) : : "rcx", "r11", "memory");
#endif
#endif
}

// Which part of a step is the `turn`-th to be taken.
static ulong part_of_turn(ulong turn, ulong n_parts, ulong n_units)
{
    const ulong run = turn % n_units;
    return run * (n_parts / n_units) + min(run, n_parts % n_units) + turn / n_units;
}

static void run_part(global const ulong *step, ulong part, global char *const *buffers)
{
    const ulong n0 = step[STEP_ITEMS], n1 = step[STEP_ITEMS + 1];
    const ulong begin = part * step[STEP_ITEMS_PER_PART];
    const ulong end = min(begin + step[STEP_ITEMS_PER_PART], step[STEP_N_ITEMS]);
    for (ulong i = begin; i < end; i++) {
        const ulong item[3] = {i % n0, i / n0 % n1, i / (n0 * n1)};
        run_item(step[STEP_KERNEL], item, step + STEP_ARGS, buffers);
    }
}

// Whether this group got the part; if not, somebody else was faster.
static int take(global ulong *taken, ulong part)
{
    return __atomic_compare_exchange_n(
        taken, &part, part + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

__kernel void run_steps(
    global ulong *table, ulong n_parts, ulong n_groups,
    global char *buffer0, global char *buffer1, global char *buffer2, global char *buffer3,
    global char *buffer4, global char *buffer5, global char *buffer6, global char *buffer7)
{
    global char *const buffers[8] = {
        buffer0, buffer1, buffer2, buffer3, buffer4, buffer5, buffer6, buffer7};
    global const ulong *step = table + STEPS;
    const ulong n_units = table[UNITS];
    int n_rests = 0;
    ulong part = __atomic_load_n(table + TAKEN, __ATOMIC_RELAXED);
    while (part < n_parts) {
        while (part >= (step + step[STEP_LENGTH])[STEP_FIRST]) step += step[STEP_LENGTH];
        const int is_ready = __atomic_load_n(table + DONE, __ATOMIC_ACQUIRE) >= step[STEP_FIRST];
        if (is_ready && take(table + TAKEN, part)) {
            const ulong first = step[STEP_FIRST];
            const ulong n_own = (step + step[STEP_LENGTH])[STEP_FIRST] - first;
            run_part(step, part_of_turn(part - first, n_own, n_units), buffers);
            __atomic_fetch_add(table + DONE, 1, __ATOMIC_RELEASE);
            n_rests = 0;
        }
        if (!is_ready) rest(n_rests++);
        part = __atomic_load_n(table + TAKEN, __ATOMIC_RELAXED);
    }
    // The last group leaves the counters as the next launch needs them.
    if (__atomic_add_fetch(table + LEFT, 1, __ATOMIC_ACQ_REL) == n_groups) {
        table[TAKEN] = 0;
        table[DONE] = 0;
        table[LEFT] = 0;
    }
}
