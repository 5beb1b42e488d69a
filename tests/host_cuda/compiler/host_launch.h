// How the kernels of a program are run on the host: what comes behind the text of a program, with
// HOST_KERNEL(name) or HOST_KERNEL_WITH_BARRIERS(name) for each of its kernels.

namespace host_cuda {

extern "C" void *malloc(size_t) noexcept;
extern "C" void free(void *) noexcept;
extern "C" void *memcpy(void *, const void *, size_t) noexcept;
extern "C" void *memset(void *, int, size_t) noexcept;

// Arguments.

template <class... A>
struct Arguments {
    template <class F, class... Before>
    void call(F kernel, const Before &...before) const
    {
        kernel(before...);
    }
    void take(void **, const char *, size_t) {}
    unsigned words(unsigned long long *, unsigned count) const { return count; }
    static constexpr size_t end(size_t at) { return at; }
};

template <class T, class... A>
struct Arguments<T, A...> {
    T first;
    Arguments<A...> rest;

    static constexpr size_t begin(size_t at) { return (at + alignof(T) - 1) / alignof(T) * alignof(T); }
    static constexpr size_t end(size_t at) { return Arguments<A...>::end(begin(at) + sizeof(T)); }

    template <class F, class... Before>
    void call(F kernel, const Before &...before) const
    {
        rest.call(kernel, before..., first);
    }

    void take(void **pointers, const char *block, size_t at)
    {
        const void *from = block != nullptr ? block + begin(at) : *pointers;
        memcpy((void *)&first, from, sizeof(T));
        rest.take(pointers + 1, block, begin(at) + sizeof(T));
    }

    unsigned words(unsigned long long *found, unsigned count) const
    {
        if constexpr (sizeof(T) == 8) memcpy(found + count++, &first, 8);
        return rest.words(found, count);
    }
};

// Fibers. A switch saves the registers that a call has to keep, and the stack.

#ifndef __x86_64__
#error "fibers are written for x86-64 only"
#endif

extern "C" void host_cuda_switch(void **save, void *to);
asm(R"(
.text
.local host_cuda_switch
.type host_cuda_switch, @function
host_cuda_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

static const size_t STACK = 64 << 10;
static const unsigned MOST_THREADS = 1024;
enum State : char { READY, WAITING, OVER };

static struct {
    void *where[MOST_THREADS];
    State states[MOST_THREADS];
    void *scheduler;
    unsigned current;
    void (*body)(void *);
    void *argument;
    char *stacks;
} fibers;

static void set_thread(unsigned number)
{
    threadIdx = {
        number % blockDim.x, number / blockDim.x % blockDim.y, number / blockDim.x / blockDim.y};
}

static void leave(State state)
{
    fibers.states[fibers.current] = state;
    host_cuda_switch(&fibers.where[fibers.current], fibers.scheduler);
}

static void enter()
{
    fibers.body(fibers.argument);
    leave(OVER);
    __builtin_unreachable();
}

static void prepare(unsigned number)
{
    void **top = (void **)(fibers.stacks + (number + 1) * STACK);
    *--top = nullptr;
    *--top = (void *)enter;
    // The six registers.
    fibers.where[number] = top - 6;
    fibers.states[number] = READY;
}

// Which of `count` comes at place `n`: forward, backward, or by a random permutation.
struct Order {
    int kind;
    unsigned long long count, factor, shift;

    Order(int kind, unsigned long long count, unsigned long long seed) : kind(kind), count(count)
    {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        shift = (seed >> 33) % count;
        factor = (seed >> 13) % count | 1;
        // A multiplier without a divisor in common with the count makes a permutation.
        while (divisor(factor, count) != 1) factor++;
    }

    static unsigned long long divisor(unsigned long long a, unsigned long long b)
    {
        return b == 0 ? a : divisor(b, a % b);
    }

    unsigned long long at(unsigned long long n) const
    {
        if (kind == 0) return n;
        if (kind == 1) return count - 1 - n;
        return (unsigned long long)(((unsigned __int128)n * factor + shift) % count);
    }
};

// Returns false where some threads wait at a barrier that others will never reach.
static bool run_block(unsigned count, const Order &order)
{
    for (unsigned n = 0; n < count; n++) prepare(n);
    for (;;) {
        unsigned over = 0;
        for (unsigned n = 0; n < count; n++) {
            fibers.current = order.at(n);
            if (fibers.states[fibers.current] == READY) {
                set_thread(fibers.current);
                host_cuda_switch(&fibers.scheduler, fibers.where[fibers.current]);
            }
            over += fibers.states[fibers.current] == OVER;
        }
        if (over == count) return true;
        // Threads at a barrier that others have passed by to leave the kernel: undefined on a device.
        if (over != 0) return false;
        for (unsigned n = 0; n < count; n++)
            if (fibers.states[n] == WAITING) fibers.states[n] = READY;
    }
}

extern "C" __attribute__((weak, visibility("hidden"))) char __start_host_shared[];
extern "C" __attribute__((weak, visibility("hidden"))) char __stop_host_shared[];

template <bool has_barriers, class... A>
struct Kernel {
    static void *take(void **pointers, const void *block)
    {
        auto *taken = static_cast<Arguments<A...> *>(malloc(sizeof(Arguments<A...>) + 1));
        taken->take(pointers, static_cast<const char *>(block), 0);
        return taken;
    }

    static unsigned words(const void *taken, unsigned long long *found)
    {
        return static_cast<const Arguments<A...> *>(taken)->words(found, 0);
    }

    template <void kernel(A...)>
    static int run(void *taken, const HostLaunch *launch)
    {
        blockDim = {launch->block[0], launch->block[1], launch->block[2]};
        gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]};
        const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
        const unsigned long long blocks = (unsigned long long)gridDim.x * gridDim.y * gridDim.z;
        const Order order(launch->order, blocks, launch->seed);
        const Order inner(launch->order, threads, launch->seed);
        auto call = [](void *arguments) {
            static_cast<const Arguments<A...> *>(arguments)->call(kernel);
        };
        if (has_barriers && fibers.stacks == nullptr)
            fibers.stacks = static_cast<char *>(malloc(MOST_THREADS * STACK));
        fibers.body = call;
        fibers.argument = taken;
        bool is_over = true;
        for (unsigned long long n = 0; n < blocks && is_over; n++) {
            const unsigned long long b = order.at(n);
            blockIdx = {
                (unsigned)(b % gridDim.x), (unsigned)(b / gridDim.x % gridDim.y),
                (unsigned)(b / gridDim.x / gridDim.y)};
            if (__start_host_shared != nullptr)
                memset(__start_host_shared, 0xFF, __stop_host_shared - __start_host_shared);
            if (has_barriers) {
                is_over = run_block(threads, inner);
                continue;
            }
            for (unsigned k = 0; k < threads; k++) {
                set_thread(inner.at(k));
                call(taken);
            }
        }
        return is_over ? 0 : 1;
    }
};

template <bool has_barriers, class... A>
Kernel<has_barriers, A...> kernel_of(void (*)(A...));

template <class... A>
constexpr unsigned count_of(void (*)(A...))
{
    return sizeof...(A);
}

template <class... A>
constexpr unsigned bytes_of(void (*)(A...))
{
    return Arguments<A...>::end(0);
}

}  // namespace host_cuda

extern "C" void host_cuda_wait() { host_cuda::leave(host_cuda::WAITING); }

#define HOST_KERNEL_(name, has_barriers) \
    extern "C" { \
    using host_cuda_of_##name = decltype(host_cuda::kernel_of<has_barriers>(name)); \
    extern const HostKernel host_kernel_##name = { \
        host_cuda_of_##name::take, host_cuda_of_##name::run<name>, host_cuda::free, \
        host_cuda_of_##name::words, host_cuda::bytes_of(name), host_cuda::count_of(name)}; \
    }
#define HOST_KERNEL(name) HOST_KERNEL_(name, false)
#define HOST_KERNEL_WITH_BARRIERS(name) HOST_KERNEL_(name, true)
