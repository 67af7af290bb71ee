// The order of events: a heap of answers with a due time, a ring of those sent as fast as possible.
#include <stdlib.h>

#include "stub.h"

static Conn **heap;
static int size, room;
static Conn ring = {.next = &ring, .previous = &ring};
static int ring_size;

static void place(int i, Conn *c) {
    heap[i] = c;
    c->heap_index = i;
}

static void sift_up(int i) {
    Conn *c = heap[i];
    for (; i > 0 && heap[(i - 1) / 2]->due > c->due; i = (i - 1) / 2) place(i, heap[(i - 1) / 2]);
    place(i, c);
}

static void sift_down(int i) {
    Conn *c = heap[i];
    for (int child; (child = 2 * i + 1) < size; i = child) {
        if (child + 1 < size && heap[child + 1]->due < heap[child]->due) child++;
        if (heap[child]->due >= c->due) break;
        place(i, heap[child]);
    }
    place(i, c);
}

void schedule_at(Conn *c, uint64_t due_ns) {
    schedule_remove(c);
    c->due = due_ns;
    if (size == room) heap = grow(heap, sizeof *heap * (room = room ? room * 2 : 1024));
    place(size, c);
    sift_up(size++);
}

void schedule_soon(Conn *c) {
    if (c->in_ring) return;
    schedule_remove(c);
    c->due = 0;
    c->in_ring = true;
    ring_size++;
    c->previous = ring.previous;
    c->next = &ring;
    ring.previous->next = c;
    ring.previous = c;
}

static void leave_heap(Conn *c) {
    int i = c->heap_index;
    if (i < 0) return;
    c->heap_index = -1;
    Conn *last = heap[--size];
    if (last == c) return;
    place(i, last);
    sift_up(i);
    sift_down(last->heap_index);
}

static void leave_ring(Conn *c) {
    if (!c->in_ring) return;
    c->in_ring = false;
    ring_size--;
    c->previous->next = c->next;
    c->next->previous = c->previous;
}

void schedule_remove(Conn *c) {
    leave_heap(c);
    leave_ring(c);
}

Conn *schedule_next_due(uint64_t now) { return size && heap[0]->due <= now ? heap[0] : NULL; }

uint64_t schedule_wait_ns(uint64_t now) {
    if (ring_size) return 0;
    if (!size) return UINT64_MAX;
    return heap[0]->due > now ? heap[0]->due - now : 0;
}

// One turn for each answer in the ring now; later ones wait for the next round, after new input.
void schedule_run_ring(void (*act)(Conn *)) {
    Conn *c = ring.next;
    for (int left = ring_size; left > 0 && c != &ring; left--) {
        Conn *next = c->next;
        act(c);
        c = next;
    }
}
