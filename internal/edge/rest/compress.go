package rest

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
)

// The supported compression, in both directions.
const (
	gzipCoding     = "gzip"
	identityCoding = "identity"

	// minCompressed is the shortest answer that is compressed: below it, the head of gzip
	// and the work of two programs cost more than the bytes that are saved.
	minCompressed = 1 << 10
)

// isCompressed reports whether a body must be decompressed. It accepts one coding, once: a body that is
// compressed twice is an attack.
func isCompressed(w http.ResponseWriter, h http.Header) (bool, error) {
	given := h.Values("Content-Encoding")
	coding := ""
	if len(given) == 1 {
		coding = strings.ToLower(strings.TrimSpace(given[0]))
	}
	switch {
	case len(given) == 0, coding == "" && len(given) == 1, coding == identityCoding:
		return false, nil
	case coding == gzipCoding, coding == "x-gzip": // its former name
		return true, nil
	}
	w.Header().Set("Accept-Encoding", gzipCoding)
	return false, fault.New(problem.UnsupportedMediaType, "the body is compressed with "+shorten(strings.Join(given, ", ")),
		fault.Field("Content-Encoding"), fault.Remedy("send it as it is, or compressed once with "+gzipCoding))
}

// decompress reads a compressed body, and no more of it than a body may have: what a few
// bytes would become is not found out.
func decompress(compressed io.Reader) ([]byte, error) {
	plain, err := gzip.NewReader(compressed)
	if errors.Is(err, io.EOF) {
		return nil, nil // nothing came, and nothing is nothing in every coding
	}
	if err != nil {
		return nil, undone(err)
	}
	data, err := io.ReadAll(io.LimitReader(plain, MaxBody+1))
	switch {
	case err != nil:
		return nil, undone(err)
	case len(data) > MaxBody:
		return nil, tooLarge()
	}
	return data, nil
}

// undone is why a body could not be decompressed: because of what it is, or because it did
// not come.
func undone(err error) error {
	_, isDamaged := errors.AsType[flate.CorruptInputError](err)
	var message string
	switch {
	case errors.Is(err, gzip.ErrHeader):
		message = "the body is not gzip, or something follows it that is not"
	case errors.Is(err, io.ErrUnexpectedEOF):
		message = "the body breaks off"
	case errors.Is(err, gzip.ErrChecksum), isDamaged:
		message = "the body is damaged"
	default:
		return unread(err)
	}
	return fault.New(fault.InvalidArgument, message, fault.Field("Content-Encoding"), fault.Remedy("compress the whole body with gzip, or send it as it is"), fault.Cause(err))
}

// newGzip is a compressor for answers. Speed is worth more than the last percent: most of a
// JSON list is gone at every level.
func newGzip() any {
	w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is one
	return w
}

// AcceptsGzip reports whether a caller prefers a compressed answer.
func AcceptsGzip(h http.Header) bool {
	compressed, plain, others := -1.0, -1.0, -1.0 // not set
	for _, header := range h.Values("Accept-Encoding") {
		for one := range strings.SplitSeq(header, ",") {
			coding, params, _ := strings.Cut(one, ";")
			q := weight(params)
			switch strings.ToLower(strings.TrimSpace(coding)) {
			case gzipCoding, "x-gzip":
				compressed = max(compressed, q)
			case identityCoding:
				plain = max(plain, q)
			case "*":
				others = max(others, q)
			}
		}
	}
	if compressed < 0 {
		compressed = others
	}
	return compressed > 0 && compressed >= plain
}

// weight returns the q of an entry: 1 if there is none, and 0 if it cannot be parsed, so that the
// answer is not compressed.
func weight(params string) float64 {
	params = strings.TrimSpace(params)
	if params == "" {
		return 1
	}
	name, value, _ := strings.Cut(params, "=")
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if !strings.EqualFold(strings.TrimSpace(name), "q") || err != nil || q < 0 || q > 1 {
		return 0
	}
	return q
}

// compressible reports whether to compress an answer. A stream has no length and is never compressed:
// its events must arrive one by one.
func compressible(status int, h http.Header) bool {
	if status < http.StatusOK || status == http.StatusNoContent || status == http.StatusPartialContent || status == http.StatusNotModified || h.Get("Content-Encoding") != "" {
		return false
	}
	length, err := strconv.Atoi(h.Get("Content-Length"))
	if err != nil || length < minCompressed {
		return false
	}
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return false
	}
	return strings.HasSuffix(media, "json") || strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "javascript") || media == "image/svg+xml"
}

// writer is where an answer goes: it remembers whether it has begun, keeps bodies from those
// who asked for the head alone, and compresses for those who like it.
type writer struct {
	http.ResponseWriter

	edge     *Edge
	head     bool
	compress bool // if it is worth it
	started  bool
	gzip     *gzip.Writer
}

func (w *writer) WriteHeader(status int) {
	if !w.started {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// begin decides whether to compress the answer. Its headers are complete, including the length.
func (w *writer) begin(status int) {
	w.started = status >= http.StatusOK
	h := w.Header()
	if h.Get("Content-Type") == streamType {
		return
	}
	h.Add("Vary", "Accept-Encoding")
	if !w.compress || !compressible(status, h) {
		return
	}
	h.Set("Content-Encoding", gzipCoding)
	h.Del("Content-Length")
	if tag := h.Get("ETag"); strings.HasPrefix(tag, `"`) {
		h.Set("ETag", "W/"+tag) // the same document in other bytes
	}
	if !w.head {
		w.gzip, _ = w.edge.gzips.Get().(*gzip.Writer)
		w.gzip.Reset(w.ResponseWriter)
	}
}

func (w *writer) Write(p []byte) (int, error) {
	if !w.started {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.head:
		return len(p), nil
	case w.gzip != nil:
		return w.gzip.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

// end writes what compressing has held back.
func (w *writer) end() {
	if w.gzip == nil {
		return
	}
	_ = w.gzip.Close() // who has gone reads nothing
	w.gzip.Reset(io.Discard)
	w.edge.gzips.Put(w.gzip)
	w.gzip = nil
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
