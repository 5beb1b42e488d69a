// How a kernel that is compiled for the host is found in its shared object and started.
//
// The object has a symbol `host_kernel_NAME` for each kernel, and `host_architecture` with the
// architecture that was asked for.
#pragma once

struct HostLaunch {
    unsigned grid[3];
    unsigned block[3];
    unsigned long long seed;  // of the order of blocks and threads
    int order;                // 0 forward, 1 backward, 2 shuffled by the seed
};

struct HostKernel {
    // Copies the arguments from an array of pointers to them, or from one block of bytes.
    void *(*take)(void **pointers, const void *block);
    // Runs all threads of all blocks. Returns 0, or 1 where some threads wait at a barrier for ever.
    int (*run)(void *taken, const HostLaunch *launch);
    void (*discard)(void *taken);
    // How many of the arguments are pointers or as large as one, and what they are.
    unsigned (*words)(const void *taken, unsigned long long *found);
    unsigned block_bytes;
    unsigned count;
};
