package guides

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// block is a fenced block of a page.
type block struct {
	line int // of its first fence
	kind string
	word string // "" or the word of the info string after the kind
	text string
	next bool // follows the block before it with nothing between them
}

const (
	byHand         = "by-hand"
	filePrefix     = "file="
	terminalPrefix = "terminal="
	anything       = "…"
	fence          = "```"
)

// blocks takes the fenced blocks out of a page.
func blocks(page string) ([]block, error) {
	var found []block
	var open *block
	between := true
	for i, line := range strings.Split(page, "\n") {
		info, isFence := strings.CutPrefix(line, fence)
		switch {
		case isFence && open == nil:
			kind, word, _ := strings.Cut(strings.TrimSpace(info), " ")
			open = &block{line: i + 1, kind: kind, word: word, next: !between}
			if !known(open) {
				return nil, fmt.Errorf("line %d: unknown block %q", i+1, info)
			}
		case isFence:
			found = append(found, *open)
			open, between = nil, false
		case open != nil:
			open.text += line + "\n"
		case strings.TrimSpace(line) != "":
			between = true
		}
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: the block is not closed", open.line)
	}
	return found, nil
}

// known reports whether a block is one that this package understands: a typing error in an
// info string must not make a command that no test runs.
func known(b *block) bool {
	switch {
	case strings.HasPrefix(b.word, filePrefix):
		return b.file() != ""
	case b.kind == "sh":
		return b.word == "" || b.word == byHand || terminalName.MatchString(b.terminal())
	default:
		return b.kind != "" && b.kind != "bash" && b.kind != "shell" && b.kind != "console" && b.word == ""
	}
}

var terminalName = regexp.MustCompile(`^[a-z]+$`)

// file is the name of the file that the block is to be written to; "" if it is none.
func (b block) file() string { return after(b.word, filePrefix) }

// terminal is the name of the terminal beside the first one in which the block is typed.
func (b block) terminal() string { return after(b.word, terminalPrefix) }

func after(text, prefix string) string {
	rest, found := strings.CutPrefix(text, prefix)
	if !found {
		return ""
	}
	return rest
}

// typed reports whether the block is typed in the first terminal.
func (b block) typed() bool { return b.kind == "sh" && b.word == "" }

// promised reports whether b is the output of the block before it.
func (b block) promised(before block) bool {
	return b.next && b.word == "" && (b.kind == "text" || b.kind == "json") && before.typed()
}

// shapes are what differs from one time to the next.
var shapes = []struct { //nolint:gochecknoglobals // a table
	expression *regexp.Regexp
	shape      string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "<id>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "<time>"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "<time>"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?(ns|µs|ms|s|m|h)\b`), "<duration>"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`, (["{\[])`), ",$1"}, // the spaces in protobuf's JSON differ from build to build
}

// shapely is a line with the shapes of what differs in place of it.
func shapely(line string) string {
	for _, s := range shapes {
		line = s.expression.ReplaceAllString(line, s.shape)
	}
	return strings.TrimSpace(line)
}

// compare returns where output differs from the expected one; "" if it does not.
func compare(promised, output string) string {
	want, got := linesOf(promised), linesOf(output)
	if matches(want, got) {
		return ""
	}
	return fmt.Sprintf("promised:\n  %s\ncame:\n  %s", strings.Join(want, "\n  "), strings.Join(got, "\n  "))
}

func linesOf(text string) []string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = shapely(lines[i])
	}
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" })
}

func matches(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0] == anything {
		for skipped := 0; skipped <= len(got); skipped++ {
			if matches(want[1:], got[skipped:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && matchesLine(want[0], got[0]) && matches(want[1:], got[1:])
}

func matchesLine(want, got string) bool {
	parts := strings.Split(want, anything)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}
