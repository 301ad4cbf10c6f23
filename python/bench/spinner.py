"""A loop in Python beside threads that read: what the interpreter's lock costs it.

    python spinner.py [--threads 8] [--rounds 15] [--dir DIR]

The loop has one CPU. The threads, and all that their work does, share the other one, so that the loop loses nothing
but the time in which it waits for the interpreter's lock. The rows:

- `read` reads files of 1 MB of a SquashFS image that is compressed with Zstandard;
- `zlib` decompresses 1 MB with the interpreter's own module: what CPython lets a library have;
- `hash` computes a digest of 1 MB, which returns 32 bytes: the same with no result to copy.

A thread that wants the lock back asks the loop for it after 5 ms (`sys.getswitchinterval`). CPython then keeps the
loop from taking the lock again until that thread has had it, so each call costs the loop the time in which the kernel
wakes the thread, on a CPU that others use too. The loss grows with the number of calls: beside a library that is
twice as fast, the loop loses twice as much. So the last column says what a call costs.

`speed` is the loop's, as a part of what it has alone. `waited` is the part of the time in which it neither ran nor
waited for its CPU, by the kernel's count: that is the lock, also on a machine that does other work.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib
import random
import statistics
import threading
import time
import zlib

import forerun


def text(seed):
    words = [f"{random.Random(n).random()} ".encode() for n in range(5000)]
    return b"".join(random.Random(seed).choices(words, k=50_000))


def large_files(directory: pathlib.Path) -> pathlib.Path:
    image = directory / "large.sqsh"
    if not image.exists():
        tree = directory / "large"
        tree.mkdir(parents=True, exist_ok=True)
        for n in range(64):
            (tree / str(n)).write_bytes(text(n))
        forerun.pack(tree, image, compressor="zstd", level=3)
    return image


def works(directory: pathlib.Path) -> dict:
    opened = forerun.open(large_files(directory), cache=8 << 20)
    contents = text(1)
    packed = zlib.compress(contents)
    names = [str(n) for n in range(64)]
    return {
        "read": lambda: len(opened.read(random.choice(names))),
        "zlib": lambda: len(zlib.decompress(packed)),
        "hash": lambda: len(hashlib.sha256(contents).digest()),
    }


def spin(seconds=0.2):
    """Returns the turns of a loop, and how long it waited for neither CPU nor anything that it asked for."""
    with open("/proc/thread-self/schedstat") as counts:
        before = counts.read().split()
        turns, start = 0, time.perf_counter()
        while time.perf_counter() < start + seconds:
            turns += 1
        took = time.perf_counter() - start
        counts.seek(0)
        ran, queued = (int(now) - int(then) for now, then in zip(counts.read().split()[:2], before))
    return turns / took, max(0.0, took - (ran + queued) / 1e9), took


def beside(work, threads: int, rounds: int):
    reads, stop = threading.Event(), threading.Event()
    calls = [0] * threads

    def read(n):
        while not stop.is_set():
            reads.wait()
            work()
            calls[n] += 1

    reading = [threading.Thread(target=read, args=(n,), daemon=True) for n in range(threads)]
    [thread.start() for thread in reading]
    os.sched_setaffinity(0, {0})
    alone, slowed, waited, took = [], [], 0.0, 0.0
    for _ in range(rounds):
        alone.append(spin()[0])
        reads.set()
        speed, lost, time_of_round = spin()
        reads.clear()
        slowed.append(speed)
        waited, took = waited + lost, took + time_of_round
        time.sleep(0.1)
    stop.set()
    reads.set()
    [thread.join() for thread in reading]
    os.sched_setaffinity(0, {1})
    return statistics.median(slowed) / statistics.median(alone), waited, took, sum(calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("/var/tmp/forerun-bench"))
    options = parser.parse_args()
    os.sched_setaffinity(0, {1})
    print(f"{'':9} {'speed':>6} {'waited':>7} {'calls/s':>8} {'lost by a call':>15}")
    for name, work in works(options.dir).items():
        speed, waited, took, calls = beside(work, options.threads, options.rounds)
        print(f"{name:9} {speed:6.2f} {waited / took:7.2f} {calls / took:8.0f} {waited / calls * 1000:12.2f} ms")


if __name__ == "__main__":
    main()
