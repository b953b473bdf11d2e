package web

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"hash"
	"hash/crc32"
	"io"
	"net/http"
	"sync"

	"go.arco.dev/servo/internal/edge/rest"
)

// minCompressed is the length of the shortest page that is compressed, in bytes.
const minCompressed = 1 << 10

// compressors are reused: each needs some hundred kilobytes.
type compressors struct{ pool sync.Pool }

func newCompressors() *compressors {
	return &compressors{pool: sync.Pool{New: func() any {
		w, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // the level is valid
		return w
	}}}
}

// block compresses bytes into blocks that can be decoded at once and without earlier blocks. A
// sequence of them is one stream.
func (c *compressors) block(to io.Writer, plain []byte) error {
	w, _ := c.pool.Get().(*flate.Writer)
	w.Reset(to)
	_, err := w.Write(plain)
	if err == nil {
		err = w.Flush()
	}
	w.Reset(io.Discard)
	c.pool.Put(w)
	return err
}

// gzipped is a gzip body that consists of independent blocks. Between two writes it needs no
// compressor, so that an idle live page costs little memory.
type gzipped struct {
	to    io.Writer
	with  *compressors
	begun bool
	sum   hash.Hash32
	size  uint32
}

func newGzipped(to io.Writer, with *compressors) *gzipped {
	return &gzipped{to: to, with: with, sum: crc32.NewIEEE()}
}

// Write compresses a block.
func (g *gzipped) Write(plain []byte) (int, error) {
	var out bytes.Buffer
	if !g.begun {
		// The header of RFC 1952 without name, time and operating system.
		out.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff})
	}
	g.begun = true
	if err := g.with.block(&out, plain); err != nil {
		return 0, err
	}
	_, _ = g.sum.Write(plain)    // a hash never fails
	g.size += uint32(len(plain)) //nolint:gosec // gzip stores the length modulo 2^32
	if _, err := g.to.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(plain), nil
}

// Close ends the body with an empty block, the checksum and the length.
func (g *gzipped) Close() error {
	if !g.begun {
		return nil
	}
	end := []byte{1, 0, 0, 0xff, 0xff}
	end = binary.LittleEndian.AppendUint32(end, g.sum.Sum32())
	end = binary.LittleEndian.AppendUint32(end, g.size)
	_, err := g.to.Write(end)
	return err
}

// compress sets the headers of a compressed response if the browser accepts it.
func compress(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Add("Vary", "Accept-Encoding")
	if !rest.AcceptsGzip(r.Header) {
		return false
	}
	w.Header().Set("Content-Encoding", "gzip")
	return true
}

// uncompressed is a body without compression.
type uncompressed struct{ io.Writer }

func (uncompressed) Close() error { return nil }

// compressed is a file in gzip; nil if it is not shorter.
func compressed(body []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil
	}
	if _, err := w.Write(body); err != nil || w.Close() != nil || out.Len() >= len(body) {
		return nil
	}
	return out.Bytes()
}
