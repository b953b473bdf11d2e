package worker

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// The limits of a task's log.
const (
	maxLine     = 16 << 10  // a longer line is cut
	eagerChunk  = 16 << 10  // this much is sent without waiting for more
	maxChunk    = 60 << 10  // the server accepts 64 KiB
	maxUnsent   = 256 << 10 // beyond that the oldest lines are dropped
	keepUnsent  = 192 << 10 // this much is kept then, so that not each new line drops another
	logBurst    = 512 << 10 // this much of an attempt is sent immediately
	logRate     = 8 << 10   // bytes per second afterwards; the last lines are sent at its end
	logTime     = "2006-01-02T15:04:05.000Z"
	cutMark     = " … (line cut)"
	droppedLine = "WARN servo dropped %d log lines of %d bytes: an attempt may log 512 KiB at once, 8 KiB a second afterwards, and its last 192 KiB\n"
)

// logBuffer collects the lines of an attempt and sends them in chunks, one at a time: while a chunk
// is being sent the next one grows, within bounds.
type logBuffer struct {
	mu      sync.Mutex
	text    []byte
	since   time.Time // of the first line in text
	seq     int64
	sending bool
	due     bool // send the text as soon as possible
	ended   bool

	droppedLines, droppedBytes int

	budget   float64 // bytes that may be sent now
	budgeted time.Time
}

// mayUse reports whether the attempt may send a number of bytes now. One chunk may overdraw the
// budget; that is less than the server allows beyond it.
func (b *logBuffer) mayUse(now time.Time, bytes int) bool {
	if b.budgeted.IsZero() {
		b.budget = logBurst
	} else {
		b.budget = min(logBurst, b.budget+now.Sub(b.budgeted).Seconds()*logRate)
	}
	b.budgeted = now
	if b.budget <= 0 {
		return false
	}
	b.budget -= float64(bytes)
	return true
}

// line adds a line without its newline. It is converted to valid text and shortened.
func (b *logBuffer) line(w *Worker, a *attempt, at time.Time, level, text string) {
	text = a.secrets.text(text)
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine-len(cutMark)], "") + cutMark
	}
	text = storable(text)
	b.mu.Lock()
	if b.ended {
		b.mu.Unlock()
		return
	}
	if len(b.text) == 0 {
		b.since = at
	}
	b.text = at.UTC().AppendFormat(b.text, logTime)
	b.text = append(b.text, ' ')
	b.text = append(b.text, level...)
	b.text = append(b.text, ' ')
	b.text = append(b.text, text...)
	b.text = append(b.text, '\n')
	b.shrink()
	eager := len(b.text) >= eagerChunk && !b.sending
	b.mu.Unlock()
	if eager {
		b.send(w, a)
	} else {
		w.flusher.mark(a)
	}
}

// shrink drops the oldest lines beyond the limit.
func (b *logBuffer) shrink() {
	if len(b.text) <= maxUnsent {
		return
	}
	gone := len(b.text) - keepUnsent
	if newline := bytes.IndexByte(b.text[gone:], '\n'); newline >= 0 {
		gone += newline + 1
	}
	b.droppedLines += bytes.Count(b.text[:gone], []byte{'\n'})
	b.droppedBytes += gone
	b.text = append(b.text[:0], b.text[gone:]...)
}

// send sends the next chunk, unless one is being sent.
func (b *logBuffer) send(w *Worker, a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sending {
		b.due = true
		return
	}
	if len(b.text) == 0 || b.ended {
		return
	}
	if !b.mayUse(time.Now(), min(len(b.text), maxChunk)) {
		w.flusher.mark(a) // later, or at the end of the attempt
		return
	}
	b.sending, b.due = true, false
	if !w.reporter.report(a, b.chunk(a)) {
		b.sending, b.ended, b.text = false, true, nil
	}
}

// sent records that a chunk was answered or dropped.
func (b *logBuffer) sent(w *Worker, a *attempt) {
	b.mu.Lock()
	b.sending = false
	again := len(b.text) >= eagerChunk || b.due
	b.mu.Unlock()
	if again {
		b.send(w, a)
	}
}

// rest returns all unsent lines, for the end of the attempt. No line may follow.
func (b *logBuffer) rest(a *attempt) []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	var items []item
	for len(b.text) > 0 {
		items = append(items, b.chunk(a))
	}
	return items
}

// chunk removes as many whole lines as fit into one chunk.
func (b *logBuffer) chunk(a *attempt) item {
	notice := ""
	if b.droppedLines > 0 {
		notice = b.since.UTC().Format(logTime) + " " + fmt.Sprintf(droppedLine, b.droppedLines, b.droppedBytes)
		b.droppedLines, b.droppedBytes = 0, 0
	}
	n := len(b.text)
	if most := maxChunk - len(notice); n > most {
		n = bytes.LastIndexByte(b.text[:most], '\n') + 1 // lines are shorter than chunks
	}
	b.seq++
	chunk := &servov1.LogChunk{Seq: b.seq, At: timestamppb.New(b.since), Text: notice + string(b.text[:n])}
	if b.text = b.text[n:]; len(b.text) == 0 {
		b.text = nil
	}
	return a.item(&servov1.ReportItem{Action: &servov1.ReportItem_Log{Log: chunk}}, len(chunk.GetText()))
}

// flusher sends collected log lines and progress of marked attempts after a while. One timer serves
// all attempts.
type flusher struct {
	every time.Duration
	flush func(*attempt)

	mu      sync.Mutex
	marked  map[*attempt]struct{}
	timer   *time.Timer
	stopped bool
}

// mark schedules the flush of an attempt.
func (f *flusher) mark(a *attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return
	}
	if f.marked == nil {
		f.marked = map[*attempt]struct{}{}
		f.timer = time.AfterFunc(f.every, f.fire)
	}
	f.marked[a] = struct{}{}
}

func (f *flusher) fire() {
	f.mu.Lock()
	marked := f.marked
	f.marked = nil
	f.mu.Unlock()
	for a := range marked {
		f.flush(a)
	}
}

func (f *flusher) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	if f.timer != nil {
		f.timer.Stop()
	}
}

// flush sends what an attempt has collected.
func (w *Worker) flush(a *attempt) {
	a.logs.send(w, a)
	a.progress.send(w, a)
}
