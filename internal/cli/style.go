package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/term"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// palette paints for terminals; elsewhere it leaves text as it is.
type palette struct {
	terminal bool // symbols, redrawing
	colour   bool
}

// paletteOf returns the palette for an output. Any value of NO_COLOR disables colours.
func paletteOf(w io.Writer, getenv func(string) string) palette {
	out, ok := w.(*os.File)
	if !ok || !term.IsTerminal(out.Fd()) {
		return palette{}
	}
	if getenv("TERM") == "dumb" {
		return palette{}
	}
	return palette{terminal: true, colour: getenv("NO_COLOR") == ""}
}

// look is the symbol and colour of a state.
type look struct{ symbol, colour string }

// lookOf returns the look of a state, with one of the sixteen colours of every terminal.
func lookOf(state string) look {
	switch state {
	case "SUCCEEDED":
		return look{"✓", "2"}
	case "FAILED", "TIMED_OUT":
		return look{"✗", "1"}
	case "RUNNING":
		return look{"●", "4"}
	case "DISPATCHED":
		return look{"◐", "4"}
	case "RETRY_WAIT":
		return look{"↻", "3"}
	case "CANCELLING":
		return look{"◌", "3"}
	case "CANCELLED", "SKIPPED":
		return look{"⊘", "8"}
	default:
		return look{"○", ""}
	}
}

// state shows a state: with a symbol and in its colour on a terminal.
func (p palette) state(name string) string {
	if !p.terminal {
		return name
	}
	l := lookOf(name)
	return p.colourful(l.symbol+" "+name, l.colour)
}

// mark shows an added, changed or removed line.
func (p palette) mark(text, sign string) string {
	return p.colourful(text, map[string]string{"+": "2", "~": "3", "-": "1"}[sign])
}

// faint is for less important text.
func (p palette) faint(text string) string { return p.colourful(text, "8") }

func (p palette) colourful(text, colour string) string {
	if !p.colour || colour == "" {
		return text
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(colour)).Render(text)
}

// table is rows of cells that are aligned by their width on a terminal.
type table struct{ rows [][]string }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print leaves two spaces between columns, and none at the end of a line.
func (t *table) print(w io.Writer) {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], lipgloss.Width(cell))
		}
	}
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-lipgloss.Width(cell)+2))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// clean removes control characters, which could move a terminal's cursor or change its colours:
// names and messages are untrusted.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
}

// clip is clean text of at most n characters.
func clip(text string, n int) string {
	letters := []rune(clean(text))
	if len(letters) <= n {
		return string(letters)
	}
	return string(letters[:n-1]) + "…"
}

// orDash stands for nothing.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return clean(text)
}

// short is a duration in a short form: 640ms, 1.4s, 2m05s, 3h02m, 2d3h.
func short(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// clockSkew is how far the clocks of two machines may differ before a time counts as future.
const clockSkew = 2 * time.Second

// age is how long ago something was or how soon it will be, in one unit: "5m ago", "in 5m".
func age(now time.Time, at *timestamppb.Timestamp) string {
	if at == nil {
		return "-"
	}
	d := now.Sub(at.AsTime())
	if d < -clockSkew {
		return "in " + oneUnit(-d)
	}
	return oneUnit(max(d, 0)) + " ago"
}

func oneUnit(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	}
}

// elapsed is how long something took, or takes until now.
func elapsed(now time.Time, from, to *timestamppb.Timestamp) string {
	if from == nil {
		return "-"
	}
	if to != nil {
		now = to.AsTime()
	}
	return short(now.Sub(from.AsTime()))
}

// when is a time with its age.
func when(now time.Time, at *timestamppb.Timestamp) string {
	if at == nil {
		return "-"
	}
	return at.AsTime().UTC().Format(time.RFC3339) + " (" + age(now, at) + ")"
}
