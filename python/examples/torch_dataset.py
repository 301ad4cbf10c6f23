"""A data set for PyTorch whose samples are the files of an image.

Each worker of a DataLoader opens the image itself, takes its share of the shuffled files, and reads ahead of the
batches with `read_many`. Works with ``fork`` and ``spawn``.

    data = ImageFiles("train.sqsh", "/train/**.png", decode=decode)
    loader = DataLoader(data, batch_size=256, num_workers=4, persistent_workers=True)
    for epoch in range(10):
        data.epoch = epoch
        for batch in loader: ...

In a distributed job each process takes its share of the files, all of the same length. Its rank is that of
``torch.distributed``, or of the variables ``RANK`` and ``WORLD_SIZE``, when the data set is made.
"""

from __future__ import annotations

import multiprocessing
import os
import random
from typing import Any, Callable, Iterator, Tuple

import forerun

try:
    from torch.utils.data import Dataset, IterableDataset, get_worker_info
except ImportError:  # The classes work without PyTorch: they are an iterable and a sequence.
    Dataset = IterableDataset = object  # type: ignore[assignment, misc]

    def get_worker_info():  # type: ignore[misc]
        return None


def as_it_is(path: str, contents: bytes) -> Any:
    return path, contents


def place_in_job() -> Tuple[int, int]:
    """Returns the rank of this process in a distributed job, and the number of processes."""
    try:
        from torch import distributed
    except ImportError:
        distributed = None  # type: ignore[assignment]
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class ImageFiles(IterableDataset):
    """Files in a shuffled order, each once in an epoch, read ahead."""

    def __init__(
        self,
        image: str,
        pattern: str,
        decode: Callable[[str, bytes], Any] = as_it_is,
        *,
        seed: int = 0,
        threads: int = 2,
    ) -> None:
        self.image = forerun.open(image)
        self.paths = self.image.glob(pattern)
        self.decode, self.seed, self.threads = decode, seed, threads
        # Asked here: workers are processes of their own, which belong to no job.
        self.rank, self.world = place_in_job()
        # In shared memory: workers that persist see each new value.
        self._epoch = multiprocessing.Value("q", 0)

    @property
    def epoch(self) -> int:
        """Chooses the order. Set it before each epoch."""
        return self._epoch.value

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch.value = epoch

    def __len__(self) -> int:
        # All processes of a job get the same number; which files are left over changes with the epoch.
        return len(self.paths) // self.world

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        index, count = (worker.id, worker.num_workers) if worker else (0, 1)
        # The same order everywhere. Each process of the job takes its share, and each worker a share of that.
        paths = list(self.paths)
        random.Random(f"{self.seed} {self.epoch}").shuffle(paths)
        share = paths[self.rank :: self.world][: len(self)]
        for path, contents in self.image.read_many(share[index::count], self.threads):
            yield self.decode(path, contents)


class ImageSamples(Dataset):
    """The same files by number, for a sampler of PyTorch's. A batch is read at once, on several threads."""

    def __init__(self, image: str, pattern: str, decode: Callable[[str, bytes], Any] = as_it_is) -> None:
        self.image = forerun.open(image)
        self.paths = self.image.glob(pattern)
        self.decode = decode

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        path = self.paths[index]
        return self.decode(path, self.image.read(path))

    def __getitems__(self, indices: list) -> list:
        paths = [self.paths[index] for index in indices]
        return [self.decode(path, contents) for path, contents in self.image.read_many(paths)]
