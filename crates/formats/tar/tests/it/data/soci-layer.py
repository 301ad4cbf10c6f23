"""Makes the layer of the fixture: every kind of node that a zTOC can hold, and text of several spans."""
import gzip, io, random, sys, tarfile
rng = random.Random(20)
words = ["span", "layer", "index", "archive", "header", "window", "block", "stream", "offset", "digest", "table", "member"]
def text(length):
    out = []
    size = 0
    while size < length:
        word = rng.choice(words) + str(rng.randrange(1000)) + " "
        out.append(word); size += len(word)
    return "".join(out).encode()[:length]
raw = io.BytesIO()
tar = tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT)
def add(name, kind=tarfile.REGTYPE, data=b"", mode=0o644, uid=0, gid=0, mtime=1700000000, link="", pax=None, dev=(0, 0)):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.uid, info.gid, info.mtime, info.linkname = kind, mode, uid, gid, mtime, link
    info.size, info.devmajor, info.devminor = len(data), dev[0], dev[1]
    info.pax_headers = pax or {}
    tar.addfile(info, io.BytesIO(data))
add("./", tarfile.DIRTYPE, mode=0o755)
add("bin/", tarfile.DIRTYPE, mode=0o755)
add("bin/tool", data=text(150000), mode=0o4755)
add("etc/", tarfile.DIRTYPE, mode=0o1777, uid=7, gid=8)
add("etc/passwd", data=b"root:x:0:0::/root:/bin/sh\n", mode=0o600, mtime=1700000000.25)
add("etc/hard", tarfile.LNKTYPE, link="etc/passwd")
add("etc/soft", tarfile.SYMTYPE, link="../bin/tool", mode=0o777)
add("etc/below", tarfile.LNKTYPE, link="lib/of-a-lower-layer")
add("etc/.wh.gone")
add("etc/char", tarfile.CHRTYPE, mode=0o666, dev=(1, 3))
add("etc/block", tarfile.BLKTYPE, mode=0o660, dev=(259, 70000))
add("etc/fifo", tarfile.FIFOTYPE)
add("var/" + "n" * 180 + "/long", data=b"long\n", uid=3000000)
add("var/attributes", data=b"a", pax={"SCHILY.xattr.user.a": "value", "SCHILY.acl.access": "user::rw-,user:7:r--,group::r--,mask::r--,other::r--"})
add("var/b\udcff", data=b"not UTF-8\n")
add("var/twice", data=b"first")
add("var/log", data=text(200000), mtime=-5)
add("var/twice", data=b"second")
add("var/empty")
tar.close()
bytes_ = raw.getvalue()
with open(sys.argv[1], "wb") as out:
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0, compresslevel=9) as zipped:
        zipped.write(bytes_)
if len(sys.argv) > 2:
    # Members that end within a span.
    half = len(bytes_) * 3 // 5
    with open(sys.argv[2], "wb") as out:
        for number, part in enumerate((bytes_[:1000], bytes_[1000:half], bytes_[half:])):
            with gzip.GzipFile(filename="part%d" % number, mode="wb", fileobj=out, mtime=0, compresslevel=9) as zipped:
                zipped.write(part)
