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

// minCompressed is the shortest page that is compressed.
const minCompressed = 1 << 10

// compressors are used again and again: each holds some hundred kilobytes.
type compressors struct{ pool sync.Pool }

func newCompressors() *compressors {
	return &compressors{pool: sync.Pool{New: func() any {
		w, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // the level is one
		return w
	}}}
}

// piece compresses some bytes so that they can be read at once: nothing of them is held back, and
// nothing before them is needed. Pieces one after the other are one stream.
func (c *compressors) piece(to io.Writer, plain []byte) error {
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

// gzipped is a body of gzip that is made of pieces. Between two pieces it holds no compressor: a
// page that is open costs next to nothing while nothing happens on it.
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

// Write compresses a piece.
func (g *gzipped) Write(plain []byte) (int, error) {
	var out bytes.Buffer
	if !g.begun {
		// No name, no time, and nobody's system: RFC 1952.
		out.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff})
	}
	g.begun = true
	if err := g.with.piece(&out, plain); err != nil {
		return 0, err
	}
	_, _ = g.sum.Write(plain)    // a sum never fails
	g.size += uint32(len(plain)) //nolint:gosec // of the length the last 32 bits are sent
	if _, err := g.to.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(plain), nil
}

// Close ends the body: a last piece with nothing in it, what all of it adds up to, and its length.
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

// compress says that an answer is going to be compressed, if the browser likes that.
func compress(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Add("Vary", "Accept-Encoding")
	if !rest.AcceptsGzip(r.Header) {
		return false
	}
	w.Header().Set("Content-Encoding", "gzip")
	return true
}

// asItIs is a body that is sent as it is.
type asItIs struct{ io.Writer }

func (asItIs) Close() error { return nil }

// compressed is a file as it is sent, made once; nil if it does not become shorter.
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
