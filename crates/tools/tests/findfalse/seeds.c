/* What two historic systems had, and what they changed it to. Compiled by the test, with and without -DPADDED. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#ifdef PADDED
#define LINE_PAD(n, used) char pad##n[64 - (used)];
#else
#define LINE_PAD(n, used)
#endif

/* illumos 916: a chain and its lock, 16 bytes, 512 of them. The lock is 8 bytes there, as it is here. */
typedef struct kmutex { void *m_owner; } kmutex_t;
typedef struct tf {
    void *tf_tcp;
    kmutex_t tf_lock;
    LINE_PAD(0, 16)
} tf_t;
tf_t tcps_bind_fanout[512];

/* Linux before 6.4: 64 bytes that every packet reads, then the count that every packet writes, with a pointer that every
   packet reads behind it. */
typedef struct { int counter; } atomic_t;
struct dst_entry {
    void *dev, *ops;
    unsigned long _metrics, expires;
    void *xfrm, *input, *output;
    uint16_t flags;
    short obsolete;
    uint16_t header_len, trailer_len;
    atomic_t __refcnt;
    int __use;
    unsigned long lastuse;
#ifdef PADDED
    char __pad_refcnt[48];
#endif
    void *lwtstate;
};
struct dst_entry route;

/* A lock of our own name, and C11's atomics. */
struct house_lock { int word; };
struct house_lock house[32];
struct counter { _Atomic uint64_t hits; LINE_PAD(1, 8) } counters[4][8];

/* As memcached has it: nobody says how many there are. */
pthread_mutex_t *item_locks;

/* A thread's own things are its own. */
static __thread struct counter mine[16];

int main(void) {
    printf("%p %p %p %p %p %p\n", (void *)tcps_bind_fanout, (void *)&route, (void *)house, (void *)counters, (void *)item_locks, (void *)mine);
    return 0;
}
