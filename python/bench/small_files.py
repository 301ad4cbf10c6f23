"""Random small files of a SquashFS image: forerun against the packages that people use.

    python small_files.py [--files 100000] [--read 10000] [--rounds 5] [--only NAME]...

`--only memory`, `spinner` and `spinner_zlib` measure a walk's memory in MiB, and what a loop in Python keeps of its
speed beside threads that read.

Makes the image once, in --dir. Each round runs every program, in turns, each in a process of its own; the times are
those of reading, without the start of the interpreter. Packages that are not installed are left out. Prints medians,
and how many times longer than forerun each takes.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

import forerun


def make(directory: pathlib.Path, files: int) -> pathlib.Path:
    image = directory / f"{files}.sqsh"
    if image.exists():
        return image
    tree = directory / "tree"
    choose = random.Random(1)
    words = [bytes(choose.choices(b"abcdefghijklmnopqrstuvwxyz \n", k=9)) for _ in range(3000)]
    for n in range(files):
        at = tree / f"{n // 1000:03}"
        at.mkdir(parents=True, exist_ok=True)
        (at / f"{n:06}.txt").write_bytes(b"".join(choose.choices(words, k=choose.randrange(20, 600))))
    forerun.pack(tree, image, compressor="gzip")
    subprocess.run(["rm", "-rf", str(tree)], check=True)
    return image


def chosen(files: int, count: int) -> list:
    return [f"/{n // 1000:03}/{n:06}.txt" for n in random.Random(2).sample(range(files), count)]


def with_forerun(image, paths):
    opened = forerun.open(image)
    return sum(len(opened.read(path)) for path in paths)


def with_read_many(image, paths):
    return sum(len(contents) for _, contents in forerun.open(image).read_many(paths))


def with_read_many_1(image, paths):
    os.sched_setaffinity(0, {0})
    return with_read_many(image, paths)


def with_fsspec(image, paths):
    from forerun.fsspec import ForerunFileSystem

    return sum(map(len, ForerunFileSystem(image).cat([path[1:] for path in paths]).values()))


def with_pysquashfsimage(image, paths):
    from PySquashfsImage import SquashFsImage

    with SquashFsImage.from_file(image) as opened:
        return sum(len(opened.select(path).read_bytes()) for path in paths)


def with_squashfsspec(image, paths):
    from squashfsspec import SquashFSFileSystem

    fs = SquashFSFileSystem(image)
    return sum(len(fs.cat_file(path)) for path in paths)


def with_ratarmount(image, paths):
    from ratarmountcore.mountsource.factory import open_mount_source

    source = open_mount_source(image)
    total = 0
    for path in paths:
        with source.open(source.lookup(path)) as file:
            total += len(file.read())
    return total


PROGRAMS = {
    name.removeprefix("with_"): value for name, value in list(globals().items()) if name.startswith("with_")
}


def memory(image, _paths):
    opened = forerun.open(image)
    count = sum(1 for _ in opened.entries())
    resident = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return count, int(resident[0].split()[1]) / 1024


def spinner(image, _paths):
    """Returns the share of its speed that a loop in Python keeps beside 8 threads that read files of 1 MB."""
    directory = pathlib.Path(image).parent
    large = directory / "large.sqsh"
    if not large.exists():
        tree = directory / "large"
        tree.mkdir(exist_ok=True)
        for n in range(64):
            (tree / str(n)).write_bytes(text(n))
        forerun.pack(tree, large, compressor="zstd", level=3)
    os.sched_setaffinity(0, {1})
    opened = forerun.open(large, cache=8 << 20)
    return share_beside(lambda: opened.read(str(random.randrange(64))))


def spinner_zlib(_image, _paths):
    """Returns the same for threads that decompress 1 MB with the interpreter's own zlib: what can be had here."""
    import zlib

    packed = zlib.compress(text(1))
    os.sched_setaffinity(0, {1})
    return share_beside(lambda: zlib.decompress(packed))


def text(seed):
    words = [f"{random.Random(n).random()} ".encode() for n in range(5000)]
    return b"".join(random.Random(seed).choices(words, k=50_000))


def share_beside(work):
    """The loop has a CPU, and all that `work` does has the other one. Slices alone and beside take turns."""
    reads, stop = threading.Event(), threading.Event()
    count = [0]

    def read():
        while not stop.is_set():
            reads.wait()
            count[0] += len(work())

    threads = [threading.Thread(target=read, daemon=True) for _ in range(8)]
    [thread.start() for thread in threads]
    os.sched_setaffinity(0, {0})

    def spin():
        turns, end = 0, time.perf_counter() + 0.2
        while time.perf_counter() < end:
            turns += 1
        return turns

    alone, beside = [], []
    for _ in range(15):
        alone.append(spin())
        reads.set()
        beside.append(spin())
        reads.clear()
        time.sleep(0.1)
    stop.set()
    reads.set()
    [thread.join() for thread in threads]
    return statistics.median(beside) / statistics.median(alone), count[0]


OTHERS = {"memory": memory, "spinner": spinner, "spinner_zlib": spinner_zlib}


def child(name: str, image: str, files: int, count: int) -> None:
    paths = chosen(files, count)
    start = time.perf_counter()
    answer = {**PROGRAMS, **OTHERS}[name](image, paths)
    print(json.dumps([time.perf_counter() - start, answer]))


def run(name: str, image, options):
    command = [sys.executable, __file__, "--child", name, str(image), str(options.files), str(options.read)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["?"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--read", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("/var/tmp/forerun-bench"))
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    image = make(options.dir, options.files)
    names = options.only or list(PROGRAMS)
    seconds = {name: [] for name in names}
    answers = {}
    for _ in range(options.rounds):
        for name in list(names):
            took, answer = run(name, image, options)
            if took is None:
                print(f"{name} is left out: {answer}")
                names.remove(name)
                continue
            seconds[name].append(took)
            answers.setdefault(name, answer)
    medians = {name: statistics.median(times) for name, times in seconds.items() if times}
    base = medians.get("forerun")
    for name, median in medians.items():
        ratio = f"{median / base:8.2f} of forerun" if base and name not in OTHERS else ""
        low, high = min(seconds[name]), max(seconds[name])
        print(f"{name:18} {median:8.3f} s ({low:.3f}-{high:.3f}) {ratio}  {answers[name]}")
    totals = {json.dumps(answers[name]) for name in medians if name in PROGRAMS}
    if len(totals) > 1:
        sys.exit(f"the programs have read different numbers of bytes: {totals}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
