"""Makes random container images, as OCI layouts `img0` and so on in the current directory: whiteouts, opaque
directories, hard links, sparse data, attributes, long names, up to 127 layers. Its argument is their number."""
import gzip
import hashlib
import io
import json
import os
import random
import sys
import tarfile


class Image:
    """An image in the making: the tree that its layers so far unpack to, and the blobs."""

    def __init__(self, seed, layers):
        self.random = random.Random(seed)
        self.live = {}
        self.blobs = {}
        self.layers = [self.layer(layers) for _ in range(layers)]

    def blob(self, data):
        digest = 'sha256:' + hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return {'digest': digest, 'size': len(data)}

    def remove(self, path):
        for below in [below for below in self.live if below == path or below.startswith(path + '/')]:
            del self.live[below]

    def layer(self, layers):
        return Layer(self).fill(2 if layers > 60 else self.random.randrange(3, 25))

    def write(self, base):
        config = {'architecture': 'amd64', 'os': 'linux', 'config': {}}
        config['rootfs'] = {'type': 'layers', 'diff_ids': [plain for plain, _ in self.layers]}
        kind = 'application/vnd.oci.image.'
        manifest = {'schemaVersion': 2, 'mediaType': kind + 'manifest.v1+json'}
        manifest['config'] = {'mediaType': kind + 'config.v1+json', **self.blob(json.dumps(config).encode())}
        manifest['layers'] = [layer for _, layer in self.layers]
        entry = {'mediaType': kind + 'manifest.v1+json', **self.blob(json.dumps(manifest).encode())}
        entry['annotations'] = {'org.opencontainers.image.ref.name': 'v'}
        os.makedirs(base + '/blobs/sha256')
        files = {'blobs/sha256/' + digest[7:]: data for digest, data in self.blobs.items()}
        files['index.json'] = json.dumps({'schemaVersion': 2, 'manifests': [entry]}).encode()
        files['oci-layout'] = json.dumps({'imageLayoutVersion': '1.0.0'}).encode()
        for name, data in files.items():
            with open(base + '/' + name, 'wb') as file:
                file.write(data)


class Layer:
    """A layer in the making. `done` has the kinds of its own entries."""

    def __init__(self, image):
        self.image, self.random, self.live = image, image.random, image.live
        self.stream = io.BytesIO()
        self.archive = tarfile.open(fileobj=self.stream, mode='w', format=tarfile.PAX_FORMAT)
        self.done, self.files = {}, []

    def fill(self, entries):
        for _ in range(self.random.randrange(4)):
            self.hide()
        for _ in range(entries):
            self.add()
        self.archive.close()
        plain = self.stream.getvalue()
        is_packed = self.random.random() < 0.7
        stored = gzip.compress(plain, 6) if is_packed else plain
        media_type = 'application/vnd.oci.image.layer.v1.tar' + ('+gzip' if is_packed else '')
        digest = 'sha256:' + hashlib.sha256(plain).hexdigest()
        return digest, {'mediaType': media_type, **self.image.blob(stored)}

    def put(self, path, kind, data=b'', link=''):
        member = tarfile.TarInfo(path)
        member.mtime = 1000000 + self.random.randrange(10**6)
        member.uid, member.gid = self.random.randrange(3) * 1000, self.random.randrange(3)
        file_mode = self.random.choice((0o644, 0o600, 0o4755))
        member.mode = {'d': 0o755, 'f': file_mode, 'l': 0o777}.get(kind, 0o644)
        if kind in 'fd' and self.random.random() < 0.15:
            key = 'SCHILY.xattr.user.k%d' % self.random.randrange(3)
            member.pax_headers = {key: 'v%d' % self.random.randrange(9)}
        types = {'d': tarfile.DIRTYPE, 'l': tarfile.SYMTYPE, 'h': tarfile.LNKTYPE, 'p': tarfile.FIFOTYPE}
        member.type = types.get(kind, tarfile.REGTYPE)
        member.linkname, member.size = link, len(data)
        self.archive.addfile(member, io.BytesIO(data))

    def parents(self, path):
        parts = path.split('/')[:-1]
        for count in range(1, len(parts) + 1):
            parent = '/'.join(parts[:count])
            if parent not in self.done:
                if self.live.get(parent) != 'd':
                    self.image.remove(parent)
                self.live[parent] = self.done[parent] = 'd'
                self.put(parent, 'd')

    def is_below_another(self, path):
        above = ['/'.join(path.split('/')[:count]) for count in range(1, path.count('/') + 1)]
        return any(self.done.get(parent, 'd') != 'd' for parent in above)

    def hide(self):
        """Adds a whiteout, or an opaque directory: before all else, so that it is for lower layers."""
        known = [path for path in self.live if path not in self.done]
        path = self.random.choice(known) if known else ''
        directory, _, name = path.rpartition('/')
        if not path or len(name) > 250 or self.is_below_another(path):
            return
        self.parents(path)
        if path not in self.live:
            return
        if self.live[path] == 'd' and self.random.random() < 0.4 and path not in self.done:
            self.done[path] = 'd'
            self.put(path, 'd')
            self.put(path + '/.wh..wh..opq', 'f')
            for below in [below for below in self.live if below.startswith(path + '/')]:
                del self.live[below]
        else:
            self.put((directory + '/' if directory else '') + '.wh.' + name, 'f')
            self.image.remove(path)
            self.done[path] = 'w'

    def name(self):
        if self.random.random() < 0.05:
            return 'n' * self.random.randrange(200, 256)
        return self.random.choice('abcdefgh') + str(self.random.randrange(6))

    def add(self):
        directory = self.random.choice([path for path, kind in self.live.items() if kind == 'd'] + [''])
        path = (directory + '/' if directory else '') + self.name()
        if path.count('/') > 5 or path in self.done or len(path) > 900 or self.is_below_another(path):
            return
        self.parents(path)
        kind = self.random.choice('fffffdlhp')
        lower = [below for below, of in self.live.items() if of == 'f' and below not in self.done]
        lower = [below for below in lower if below != path and not below.startswith(path + '/')]
        if kind == 'h' and not self.files + lower:
            return
        if kind != 'd' or self.live.get(path) != 'd':
            self.image.remove(path)
        data, link = b'', self.random.choice(('a/b', '../x', '/abs', 'self'))
        if kind == 'f':
            data = self.random.randbytes(self.random.choice((0, 1, 100, 5000, 70000)))
            if self.random.random() < 0.2:
                data = bytes(self.random.randrange(300000)) + data
            self.files.append(path)
        if kind == 'h':
            link = self.random.choice(self.files + lower)
        self.put(path, kind, data, link)
        self.live[path] = 'd' if kind == 'd' else 'f'
        self.done[path] = kind


count = int(sys.argv[1])
for seed in range(count):
    Image(seed, 127 if seed == count - 1 else 1 + seed % 9).write('img%d' % seed)
