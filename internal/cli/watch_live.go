package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/term"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

const (
	// frameEvery is the shortest interval between two pictures.
	frameEvery = 100 * time.Millisecond
	// progressEvery is the interval at which the progress of running tasks is read: no event has it.
	progressEvery = time.Second
	// barWidth is the length of a progress bar.
	barWidth = 20
	// The default size of a terminal.
	usualWidth, usualHeight = 80, 24
)

const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearBelow = "\x1b[J"
)

// live keeps a picture of a run up to date on a terminal. Events come from the watch,
// progress from a reader of its own; one painter draws.
type live struct {
	s      *session
	out    io.Writer
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	board *board
	note  string // a remark of the client
	drawn []string
}

// newLive starts to draw.
func newLive(ctx context.Context, s *session, run string) *live {
	ctx, cancel := context.WithCancel(ctx)
	l := &live{s: s, out: s.cmd.OutOrStdout(), cancel: cancel, board: newBoard()}
	s.reportTo(func(text string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.note = text
	})
	fmt.Fprint(l.out, hideCursor)
	l.done.Go(func() { every(ctx, frameEvery, l.draw) })
	l.done.Go(func() { every(ctx, progressEvery, func() { l.readProgress(ctx, run) }) })
	return l
}

// every calls a function at an interval until the context ends.
func every(ctx context.Context, pace time.Duration, do func()) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			do()
		}
	}
}

func (l *live) event(e *servov1.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.board.apply(e)
	l.note = ""
	return nil
}

// end draws the last picture and gives the terminal back, however the watch ended.
func (l *live) end(*servov1.Run) error {
	l.cancel()
	l.done.Wait()
	l.draw()
	_, err := fmt.Fprint(l.out, showCursor)
	return wrote(err)
}

// readProgress reads the progress of the running tasks. The watch reports failures.
func (l *live) readProgress(ctx context.Context, run string) {
	req := &servov1.ListTasksRequest{Tenant: l.s.Tenant, Run: run, State: []servov1.Task_State{servov1.Task_RUNNING}}
	running, err := first(client.AllTasks(ctx, l.s.client, req), offeredNames)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range running {
		if known := l.board.byID[t.GetId()]; known != nil {
			known.progress = t.GetProgress()
		}
	}
}

// draw writes the lines over those that were drawn before. A picture that is as it was is
// not drawn again.
func (l *live) draw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	width, height := terminalSize(l.out)
	picture := l.board.picture(l.s.paint, time.Now(), width, height-1, l.note)
	if slices.Equal(picture, l.drawn) {
		return
	}
	var text strings.Builder
	if len(l.drawn) > 0 {
		fmt.Fprintf(&text, "\x1b[%dA", len(l.drawn))
	}
	text.WriteString("\r" + clearBelow)
	for _, line := range picture {
		text.WriteString(line + "\n")
	}
	l.drawn = picture
	_, _ = io.WriteString(l.out, text.String()) // the last write of end reports errors
}

func terminalSize(w io.Writer) (width, height int) {
	if f, ok := w.(*os.File); ok {
		if width, height, err := term.GetSize(f.Fd()); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return usualWidth, usualHeight
}

// picture is the board as lines for a terminal of some size. What does not fit is counted:
// tasks that run or have failed are shown before those that wait, and these before those
// that are done.
func (b *board) picture(p palette, now time.Time, width, height int, note string) []string {
	if b.createdAt.IsZero() {
		return nil
	}
	until := now
	if !b.endedAt.IsZero() {
		until = b.endedAt
	}
	head := fmt.Sprintf("%s  %s  %s", p.state(b.state.String()), orDash(b.pipeline), short(until.Sub(b.createdAt)))
	room := max(height-3, 1)
	shown := slices.Clone(b.tasks)
	if len(shown) > room {
		slices.SortStableFunc(shown, func(x, y *boardTask) int { return urgency(x.state) - urgency(y.state) })
		shown = shown[:room]
	}
	names := 0
	for _, t := range shown {
		names = max(names, lipgloss.Width(t.name))
	}
	names = min(names, max(width/2, 1))
	picture := []string{fit(head, width)}
	for _, t := range shown {
		name := clip(t.name, names)
		line := fmt.Sprintf("  %s  %s  %s", name+strings.Repeat(" ", max(names-lipgloss.Width(name), 0)), pad(p.state(t.state.String()), 12), t.details(p, now))
		picture = append(picture, fit(strings.TrimRight(line, " "), width))
	}
	picture = append(picture, fit("  "+p.faint(b.summary(len(b.tasks)-len(shown))), width))
	if note != "" {
		picture = append(picture, fit("  "+note, width))
	}
	return picture
}

// urgency orders tasks: active and failed ones first.
func urgency(state servov1.Task_State) int {
	switch state {
	case servov1.Task_RUNNING, servov1.Task_DISPATCHED, servov1.Task_FAILED, servov1.Task_RETRY_WAIT:
		return 0
	case servov1.Task_SUCCEEDED, servov1.Task_SKIPPED, servov1.Task_CANCELLED:
		return 2
	default:
		return 1
	}
}

// details is the progress, duration or note of a task.
func (t *boardTask) details(p palette, now time.Time) string {
	switch t.state {
	case servov1.Task_RUNNING:
		attempt := ""
		if t.attempt > 1 {
			attempt = fmt.Sprintf("attempt %d", t.attempt)
		}
		return joined("  ", share(t.progress), short(now.Sub(t.startedAt)), clip(activity(t.progress), 40), counters(t.progress),
			left(t.progress, now), attempt, p.faint("on "+clean(t.worker)))
	case servov1.Task_SUCCEEDED:
		if t.startedAt.IsZero() {
			return ""
		}
		return short(t.endedAt.Sub(t.startedAt))
	default:
		return t.note
	}
}

// summary counts the tasks by state.
func (b *board) summary(hidden int) string {
	var parts []string
	for _, name := range stateNames(servov1.Task_State_value) {
		if n := b.counts[servov1.Task_State(servov1.Task_State_value[name])]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(strings.ReplaceAll(name, "_", " "))))
		}
	}
	text := count(len(b.tasks), "task") + ": " + strings.Join(parts, ", ")
	if hidden > 0 {
		text += fmt.Sprintf(" (%d not shown)", hidden)
	}
	return text
}

// bar is a share that is done.
func bar(fraction float32) string {
	full := int(min(max(fraction, 0), 1)*barWidth + 0.5)
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + fmt.Sprintf(" %3.0f%%", min(max(fraction, 0), 1)*100)
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(width-lipgloss.Width(text), 0))
}

// fit cuts a line at the terminal's edge: one that wraps would spoil the next picture.
func fit(line string, width int) string { return lipgloss.NewStyle().MaxWidth(width).Render(line) }
