"""A data set for PyTorch whose samples are the files of an image.

Each worker of a DataLoader opens the image itself, takes its share of the shuffled files, and reads ahead of the
batches with `read_many`. Works with ``fork`` and ``spawn``.

    loader = DataLoader(ImageFiles("train.sqsh", "/train/**.png", decode=decode), batch_size=256, num_workers=4)
    for epoch in range(10):
        loader.dataset.epoch = epoch
        for batch in loader: ...
"""

from __future__ import annotations

import random
from typing import Any, Callable, Iterator

import forerun

try:
    from torch.utils.data import Dataset, IterableDataset, get_worker_info
except ImportError:  # The classes work without PyTorch: they are an iterable and a sequence.
    Dataset = IterableDataset = object  # type: ignore[assignment, misc]

    def get_worker_info():  # type: ignore[misc]
        return None


def as_it_is(path: str, contents: bytes) -> Any:
    return path, contents


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
        #: Set it before each epoch: it chooses the order.
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        index, count = (worker.id, worker.num_workers) if worker else (0, 1)
        # The same order in all workers, of which each takes its share.
        paths = list(self.paths)
        random.Random(f"{self.seed} {self.epoch}").shuffle(paths)
        for path, contents in self.image.read_many(paths[index::count], self.threads):
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
