// Makes crates/formats/tar/tests/it/data/indexed.tar.zst: one layer, and archives of it with a table of
// contents, by the libraries of stargz-snapshotter and of containers/storage.
//
//	CGO_ENABLED=0 go run . | zstd -19 -o ../../crates/formats/tar/tests/it/data/indexed.tar.zst
package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/stargz-snapshotter/estargz"
	"github.com/containerd/stargz-snapshotter/estargz/zstdchunked"
	"github.com/containers/storage/pkg/chunked/compressor"
	"github.com/klauspost/compress/zstd"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// text returns lines that differ from each other.
func text(length int) []byte {
	var out bytes.Buffer
	for number := uint32(1); out.Len() < length; number++ {
		fmt.Fprintf(&out, "line %x of %d\n", number*2654435761, length)
	}
	return out.Bytes()[:length]
}

// layer returns an archive of every kind of node, with files of several chunks and holes.
func layer() []byte {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	add := func(header tar.Header, data []byte) {
		header.Size, header.Format = int64(len(data)), tar.FormatPAX
		header.ModTime = time.Unix(1700000000, 0)
		if header.Mode == 0 {
			header.Mode = 0o644
		}
		check(archive.WriteHeader(&header))
		_, err := archive.Write(data)
		check(err)
	}
	holes := append(append(text(1000), make([]byte, 150_000)...), text(10)...)
	attributes := map[string]string{"SCHILY.xattr.user.x": "y"}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}, nil)
	add(tar.Header{Typeflag: tar.TypeDir, Name: "./bin/", Mode: 0o1777, Uid: 7, Gid: 8}, nil)
	add(tar.Header{Typeflag: tar.TypeReg, Name: "./bin/large", Mode: 0o4755}, text(60_000))
	add(tar.Header{Typeflag: tar.TypeReg, Name: "./bin/holes"}, holes)
	add(tar.Header{Typeflag: tar.TypeDir, Name: "./etc/", Mode: 0o755}, nil)
	add(tar.Header{Typeflag: tar.TypeReg, Name: "./etc/.wh.gone"}, nil)
	add(tar.Header{Typeflag: tar.TypeReg, Name: "./etc/passwd", PAXRecords: attributes}, []byte("root\n"))
	add(tar.Header{Typeflag: tar.TypeLink, Name: "./etc/hard", Linkname: "./etc/passwd"}, nil)
	add(tar.Header{Typeflag: tar.TypeSymlink, Name: "./etc/link", Linkname: "passwd", Mode: 0o777}, nil)
	add(tar.Header{Typeflag: tar.TypeFifo, Name: "./etc/fifo"}, nil)
	add(tar.Header{Typeflag: tar.TypeChar, Name: "./etc/null", Devmajor: 1, Devminor: 3}, nil)
	add(tar.Header{Typeflag: tar.TypeReg, Name: "./etc/other"}, []byte("second"))
	check(archive.Close())
	return out.Bytes()
}

// zstdCompression has eStargz written as frames of Zstandard, as ctr-remote does.
type zstdCompression struct {
	*zstdchunked.Compressor
	*zstdchunked.Decompressor
}

func main() {
	plain := layer()
	out := tar.NewWriter(os.Stdout)
	put := func(name string, data []byte) {
		header := tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Format: tar.FormatUSTAR}
		check(out.WriteHeader(&header))
		_, err := out.Write(data)
		check(err)
	}
	made := func(name string, blob []byte, annotations map[string]string) {
		put(name, blob)
		text, err := json.Marshal(annotations)
		check(err)
		put(name+".json", text)
	}
	stargz := func(name string, annotations map[string]string, options ...estargz.Option) {
		source := io.NewSectionReader(bytes.NewReader(plain), 0, int64(len(plain)))
		blob, err := estargz.Build(source, options...)
		check(err)
		data, err := io.ReadAll(blob)
		check(err)
		annotations[estargz.TOCJSONDigestAnnotation] = blob.TOCDigest().String()
		made(name, data, annotations)
	}
	first := estargz.WithPrioritizedFiles([]string{"./bin/large"})
	put("layer.tar", plain)
	stargz("estargz", map[string]string{}, estargz.WithChunkSize(16384))
	stargz("merged", map[string]string{}, estargz.WithChunkSize(4096), estargz.WithMinChunkSize(100_000), first)
	stargz("landmark", map[string]string{}, estargz.WithChunkSize(777), first)
	annotations := map[string]string{}
	compression := zstdCompression{
		&zstdchunked.Compressor{CompressionLevel: zstd.SpeedDefault, Metadata: annotations},
		new(zstdchunked.Decompressor),
	}
	stargz("stargz-zstd", annotations, estargz.WithChunkSize(16384), estargz.WithCompression(compression))
	annotations = map[string]string{}
	var blob bytes.Buffer
	writer, err := compressor.ZstdCompressor(&blob, annotations, nil)
	check(err)
	_, err = writer.Write(plain)
	check(err)
	check(writer.Close())
	made("chunked", blob.Bytes(), annotations)
	check(out.Close())
}
