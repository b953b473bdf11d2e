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
	refreshEach = 2 * time.Second  // a page that is open is looked at again
	signOfLife  = 15 * time.Second // of a stream on which nothing happens
	streamLife  = 30 * time.Minute // then the browser comes again, and is known anew
	writeWithin = 10 * time.Second // how long a browser may take to read
)

// live streams the body of a page: at once if it looks different from what the browser has, and
// then whenever it changes. The id of a message is the digest of what was sent, so that a
// browser that comes back says what it shows and gets nothing that it has.
//
// A refusal is an HTTP status: the visitor is known, the page was read once, and
// there is a seat before the stream opens. A stream ends with its session.
func (s *Web) live(w http.ResponseWriter, r *http.Request, p page) {
	v, err := s.visit(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	first, err := p(v) // before a seat is taken: pages that a visitor may not see are not counted
	if err != nil {
		s.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(v.ctx, v.streamLife())
	defer cancel()
	leave, err := s.seats.take(v.session.ID, v.seatTenant(), cancel)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	defer context.AfterFunc(s.closing, cancel)()
	stream := &stream{w: asItIs{w}, control: http.NewResponseController(w), shown: r.Header.Get("Last-Event-ID")}
	if compress(w, r) {
		stream.w = newGzipped(w, s.gzip)
	}
	defer func() { _ = stream.w.Close() }() // so that it has an end, for who still reads
	if stream.write(": \n\n") != nil {
		return
	}
	tick := time.NewTicker(s.config.Refresh)
	defer tick.Stop()
	rest, goOn := stream.show(ctx, first, v.now)
	for ; goOn; rest, goOn = s.refresh(ctx, v, p, stream) {
		for range rest {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// rarely is how many times longer a page rests whose looks are dear. Looks count against the
// rate of lists of the tenant, whose programs want some of it too.
const rarely = 5

// refresh renders the page once more and sends it if it is different. It says how long to rest
// then, and whether to go on at all.
func (s *Web) refresh(ctx context.Context, v *visit, p page, to *stream) (rest int, goOn bool) {
	again := *v
	again.ctx, again.now = ctx, time.Now()
	shown, err := p(&again)
	if err != nil {
		// What is there is better than an error in its place, and the database may be back
		// soon. Whoever may not look any more is sent away by the next request.
		return rarely, !hasCode(err, fault.Unauthenticated) && to.alive(again.now) == nil
	}
	return to.show(ctx, shown, again.now)
}

// stream is a browser that looks at a page.
type stream struct {
	w       io.WriteCloser
	control *http.ResponseController
	shown   string // digest of what it shows
	last    time.Time
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}

// show sends a page if it is different from what the browser shows. It says how long to rest then,
// and whether to go on.
func (s *stream) show(ctx context.Context, shown view.Page, now time.Time) (rest int, goOn bool) {
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
		return s.alive(now)
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

// alive keeps the connection open, and finds out whether it still is.
func (s *stream) alive(now time.Time) error {
	if now.Sub(s.last) < signOfLife {
		return nil
	}
	s.last = now
	return s.write(": \n\n")
}

func (s *stream) write(text string) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeWithin)) // without one a browser that sleeps holds a seat
	if _, err := io.WriteString(s.w, text); err != nil {
		return err
	}
	return s.control.Flush()
}
