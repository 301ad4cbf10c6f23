"""Makes an archive of each kind that programs write: block by block, since none writes all of them.

Each is named for its kind. archives.py DIR
"""
import base64
import sys
from pathlib import Path


def octal(number, length):
    return b"%0*o\0" % (length - 1, number)


def member(name, data=b"", kind=b"0", magic=b"ustar\x0000", link=b"", signed=False, size=None, **fields):
    block = bytearray(512)

    def put(at, value):
        block[at : at + len(value)] = value

    put(0, name)
    put(100, fields.get("mode", octal(0o640, 8)))
    put(108, fields.get("uid", octal(11, 8)))
    put(116, fields.get("gid", octal(12, 8)))
    put(124, fields.get("length", octal(len(data) if size is None else size, 12)))
    put(136, fields.get("mtime", octal(1_000_000_000, 12)))
    put(148, b" " * 8)
    put(156, kind)
    put(157, link)
    put(257, magic)
    put(329, fields.get("device", b""))
    put(345, fields.get("prefix", b""))
    put(386, fields.get("sparse", b""))
    total = sum(byte - 256 * (signed and byte > 127) for byte in block)
    put(148, b"%06o\0 " % total)
    return bytes(block) + data + bytes(-len(data) % 512)


def record(key, value):
    rest = len(key) + len(value) + 3
    length = rest
    while length != rest + len(str(length)):
        length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def pax(kind=b"x", **records):
    named = ((key.replace("__", ".").encode(), value) for key, value in records.items())
    return member(b"PaxHeaders/x", b"".join(record(key, value) for key, value in named), kind)


def sparse(*numbers):
    return b"".join(octal(number, 12) for number in numbers)


GNU = b"ustar  \0"
END = bytes(1024)
LONG = b"directory/" + b"n" * 120
LAST = member(b"last", b"last")
# GNU tar begins each piece at a block, and ends a file with the last one.
PIECES = b"a" * 512 + b"vwxyz"
MAP_1_0 = b"2\n1000\n512\n4995\n5\n".ljust(512, b"\0") + PIECES
NAMED_1_0 = {"GNU__sparse__major": b"1", "GNU__sparse__minor": b"0", "GNU__sparse__name": b"holes"}
EXTENSION = sparse(*(number for piece in range(21) for number in (10_000 + 1000 * piece, 512)))

KINDS = {
    "v7": member(b"v7/", magic=b"", mode=octal(0o40750, 8), kind=b"\0") + member(b"v7/file", b"old", magic=b"", kind=b"\0"),
    "spaces": member(b"file", b"12", mode=b"100640 \0", uid=b"    11 \0", gid=b"    12 \0", length=b"          2 "),
    "empty-numbers": member(b"file", b"12", uid=bytes(8), gid=b"        ", mtime=bytes(12)),
    "base-256": member(b"file", b"12", magic=GNU, uid=b"\x80\0\0\0\0\x2d\xc6\xc0", length=b"\x80" + bytes(10) + b"\2", mtime=b"\xff" * 11 + b"\xfe"),
    "signed-sum": member(b"file-\xe4", b"12", signed=True),
    "prefix": member(b"n" * 100, b"12", prefix=b"directory"),
    "contiguous": member(b"file", b"12", b"7"),
    "unknown-type": member(b"file", b"12", b"Q"),
    "long-names": member(b"././@LongLink", LONG + b"\0", b"L", GNU)
    + member(LONG[:100], b"12", magic=GNU)
    + member(b"././@LongLink", b"target/" * 30 + b"\0", b"K", GNU)
    + member(b"link", kind=b"2", magic=GNU, link=b"target/" * 14),
    "long-names-and-records": member(b"././@LongLink", LONG + b"\0", b"L", GNU) + pax(path=b"record") + member(b"short", b"12"),
    "label": member(b"label", kind=b"V", magic=GNU) + LAST,
    "dumpdir": member(b"dir/", b"Yfile\0Nother\0\0", b"D", GNU, mode=octal(0o750, 8)) + member(b"dir/file", b"12", magic=GNU),
    "records": pax(path=LONG, uid=b"3000000", gid=b"3000001", mtime=b"1000000000.25", size=b"2")
    + member(b"short", b"12", length=octal(0, 12))
    + pax(linkpath=b"target/" * 30)
    + member(b"link", kind=b"2", link=b"short"),
    "negative-time": pax(mtime=b"-1.75") + member(b"file", b"12"),
    "repeated-records": pax(path=b"first", mtime=b"5") + pax(path=b"second") + member(b"file", b"12"),
    "name-with-nul": pax(path=b"name\0rest") + member(b"file", b"12"),
    "binary-names": pax(hdrcharset=b"BINARY", path=b"name-\xe4") + member(b"file", b"12"),
    "global-comment": pax(b"g", comment=b"made by git") + member(b"file", b"12"),
    "sun-records": member(b"x", record(b"path", b"record"), b"X") + member(b"file", b"12"),
    "sparse-old": member(b"holes", PIECES, b"S", GNU, sparse=sparse(1000, 512, 4995, 5) + bytes(49) + octal(5000, 12)),
    "sparse-old-extended": member(b"holes", b"", b"S", GNU, size=25 * 512, sparse=sparse(0, 512, 1000, 512, 2000, 512, 3000, 512) + b"\1" + octal(30_512, 12))
    + EXTENSION.ljust(504, b"\0") + bytes(8)
    + b"".join(bytes([65 + piece]) * 512 for piece in range(25)),
    "sparse-0.0": member(
        b"x",
        b"".join(
            record(key, value)
            for key, value in [(b"GNU.sparse.size", b"5000"), (b"GNU.sparse.numblocks", b"2")]
            + [(b"GNU.sparse.offset", b"1000"), (b"GNU.sparse.numbytes", b"512")]
            + [(b"GNU.sparse.offset", b"4995"), (b"GNU.sparse.numbytes", b"5")]
        ),
        b"x",
    )
    + member(b"holes", PIECES),
    "sparse-0.1": pax(GNU__sparse__size=b"5000", GNU__sparse__numblocks=b"2", GNU__sparse__map=b"1000,512,4995,5", GNU__sparse__name=b"holes")
    + member(b"GNUSparseFile.1/holes", PIECES),
    "sparse-1.0": pax(GNU__sparse__realsize=b"5000", **NAMED_1_0) + member(b"GNUSparseFile.1/holes", MAP_1_0),
    "links": member(b"file", b"12") + member(b"hard", kind=b"1", link=b"file", size=2) + member(b"soft", kind=b"2", link=b"file") + member(b"fifo", kind=b"6"),
    "replaced": member(b"file", b"old") + member(b"dir/", kind=b"5", mode=octal(0o750, 8)) + member(b"./file", b"newer") + member(b"dir", b"a file now"),
    "not-replaced": member(b"dir/", kind=b"5", mode=octal(0o750, 8)) + member(b"dir/file", b"12") + member(b"dir", b"no file"),
    "slashes": member(b"/file", b"12") + member(b".//dir//", kind=b"5", mode=octal(0o750, 8)),
    "dots": member(b"dir/../file", b"12"),
    "dangling": member(b"hard", kind=b"1", link=b"missing"),
    "below-a-link": member(b"link", kind=b"2", link=b"/nowhere") + member(b"link/file", b"12"),
    "nothing": b"",
}
for attribute, key, value in [
    ("schily", "SCHILY.xattr.user.name", b"a\nb\0"),
    ("libarchive", "LIBARCHIVE.xattr.user.name", base64.b64encode(b"a\nb\0").rstrip(b"=")),
]:
    KINDS[attribute] = pax(**{key.replace(".", "__"): value}) + member(b"file", b"12")
ENDS = {
    "no-end": b"",
    "one-block": bytes(512),
    "one-block-and-garbage": bytes(512) + b"\7" * 512,
    "garbage": END + b"\7" * 700,
    "records-of-no-file": pax(path=b"first") + END,
}

target = Path(sys.argv[1])
target.mkdir()
for name, members in KINDS.items():
    (target / name).write_bytes(members + LAST + END if members else END * 10)
for name, end in ENDS.items():
    (target / name).write_bytes(member(b"file", b"12") + end)
