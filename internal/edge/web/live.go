package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/web/view"
)

const (
	refreshInterval = 2 * time.Second  // of a live page
	keepAlive       = 15 * time.Second // of a stream without changes
	streamLife      = 30 * time.Minute // then the browser reconnects and is authenticated again
	writeTimeout    = 10 * time.Second
)

// live streams the body of a page: at once if it differs from the one in the browser, and then
// whenever it changes. The id of a message is the digest of the body, so that a browser that
// reconnects reports which body it has and receives only a different one.
//
// A refusal is an HTTP status: authentication, the first rendering and the limit of live pages
// come before the stream. A stream ends with its session.
func (s *Web) live(w http.ResponseWriter, r *http.Request, p page) {
	v, err := s.visit(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	first, err := p(v) // before it is counted: pages that the visitor may not see do not count
	if err != nil {
		s.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(v.ctx, v.streamLife())
	defer cancel()
	remove, err := s.livePages.add(v.session.ID, v.limitTenant(), cancel)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer remove()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	defer context.AfterFunc(s.closing, cancel)()
	stream := &stream{w: uncompressed{w}, control: http.NewResponseController(w), shown: r.Header.Get("Last-Event-ID")}
	if compress(w, r) {
		stream.w = newGzipped(w, s.gzip)
	}
	defer func() { _ = stream.w.Close() }() // completes the body for a browser that still reads
	if stream.write(": \n\n") != nil {
		return
	}
	tick := time.NewTicker(s.options.Refresh)
	defer tick.Stop()
	rest, ok := stream.show(ctx, first, v.now)
	for ; ok; rest, ok = s.refresh(ctx, v, p, stream) {
		for range rest {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// rarely is the number of intervals between refreshes of an expensive page. Refreshes count
// against the tenant's rate limit of lists, which its programs need too.
const rarely = 5

// refresh renders the page again and sends it if it changed. It returns the number of intervals
// until the next refresh, and whether the stream continues.
func (s *Web) refresh(ctx context.Context, v *visit, p page, to *stream) (rest int, ok bool) {
	again := *v
	again.ctx, again.now = ctx, time.Now()
	shown, err := p(&again)
	if err != nil {
		// The old body is better than an error, and the database may return soon. The next
		// request refuses a visitor who has lost the permission.
		return rarely, !hasCode(err, fault.Unauthenticated) && to.keepAlive(again.now) == nil
	}
	return to.show(ctx, shown, again.now)
}

// stream is the connection of a browser with a live page.
type stream struct {
	w       io.WriteCloser
	control *http.ResponseController
	shown   string // digest of the body in the browser
	last    time.Time
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}

// show sends a page if it differs from the one in the browser. It returns the number of intervals
// until the next refresh, and whether the stream continues.
func (s *stream) show(ctx context.Context, shown view.Page, now time.Time) (rest int, ok bool) {
	var body bytes.Buffer
	if err := shown.Body.Render(ctx, &body); err != nil {
		return rarely, ctx.Err() == nil
	}
	if rest = 1; shown.Rarely {
		rest = rarely
	}
	return rest, s.send(body.Bytes(), now) == nil
}

func (s *stream) send(body []byte, now time.Time) error {
	id := digest(body)
	if id == s.shown {
		return s.keepAlive(now)
	}
	var message bytes.Buffer
	message.WriteString("id: " + id + "\n")
	for line := range bytes.Lines(body) {
		message.WriteString("data: ")
		message.Write(bytes.TrimRight(line, "\r\n"))
		message.WriteByte('\n')
	}
	message.WriteByte('\n')
	s.shown, s.last = id, now
	return s.write(message.String())
}

// keepAlive writes to a silent connection, and fails if it is closed.
func (s *stream) keepAlive(now time.Time) error {
	if now.Sub(s.last) < keepAlive {
		return nil
	}
	s.last = now
	return s.write(": \n\n")
}

func (s *stream) write(text string) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a suspended browser would block the stream
	if _, err := io.WriteString(s.w, text); err != nil {
		return err
	}
	return s.control.Flush()
}
