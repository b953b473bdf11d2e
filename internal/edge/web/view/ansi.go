package view

import (
	"context"
	"html"
	"io"
	"strconv"
	"strings"

	"github.com/a-h/templ"
)

// Styled is a piece of a text with the classes of its colour and weight.
type Styled struct{ Class, Text string }

// ansiColours are the names of the eight colours of terminals.
func ansiColours() [8]string {
	return [8]string{"black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"}
}

// Ansi splits the output of a terminal into styled pieces. It applies colours and weights, and drops
// all other control sequences: they move a cursor that a page does not have.
func Ansi(text string) (out []Styled) {
	var style ansiStyle
	add := func(piece string) {
		if piece == "" {
			return
		}
		class := style.class()
		if n := len(out); n > 0 && out[n-1].Class == class {
			out[n-1].Text += piece
			return
		}
		out = append(out, Styled{class, piece})
	}
	for {
		at := strings.IndexAny(text, "\x1b\r\x07\x08")
		if at < 0 {
			add(text)
			return out
		}
		add(text[:at])
		if text[at] != '\x1b' {
			text = text[at+1:]
			continue
		}
		sequence, rest := cutSequence(text[at+1:])
		if strings.HasPrefix(sequence, "[") && strings.HasSuffix(sequence, "m") {
			style.apply(sequence[1 : len(sequence)-1])
		}
		text = rest
	}
}

// cutSequence cuts the control sequence after an escape character.
func cutSequence(text string) (sequence, rest string) {
	if text == "" {
		return "", ""
	}
	switch text[0] {
	case '[':
		for i := 1; i < len(text); i++ {
			if text[i] >= 0x40 && text[i] <= 0x7e {
				return text[:i+1], text[i+1:]
			}
		}
		return text, ""
	case ']': // a title or a link, up to a bell or an escape
		if end := strings.IndexAny(text, "\x07\x1b"); end >= 0 {
			if text[end] == '\x1b' && end+1 < len(text) {
				end++
			}
			return text[:end+1], text[end+1:]
		}
		return text, ""
	}
	return text[:1], text[1:]
}

// ansiStyle is the current style of a terminal.
type ansiStyle struct {
	colour    string
	bold, dim bool
}

func (s *ansiStyle) apply(codes string) {
	parts := strings.Split(codes, ";")
	for i := 0; i < len(parts); i++ {
		n, err := strconv.Atoi("0" + parts[i])
		if err != nil {
			continue
		}
		switch {
		case n == 0:
			*s = ansiStyle{}
		case n == 1:
			s.bold = true
		case n == 2:
			s.dim = true
		case n == 22:
			s.bold, s.dim = false, false
		case n >= 30 && n <= 37:
			s.colour = ansiColours()[n-30]
		case n >= 90 && n <= 97:
			s.colour = ansiColours()[n-90]
		case n == 39:
			s.colour = ""
		case n == 38 || n == 48: // a colour of 256 or of RGB is not applied
			if i+1 < len(parts) && parts[i+1] == "5" {
				i += 2
			} else {
				i += 4
			}
		}
	}
}

func (s *ansiStyle) class() string {
	var classes []string
	if s.colour != "" {
		classes = append(classes, "ansi-"+s.colour)
	}
	if s.bold {
		classes = append(classes, "ansi-bold")
	}
	if s.dim {
		classes = append(classes, "ansi-dim")
	}
	return strings.Join(classes, " ")
}

// PlainText is a text without control sequences.
func PlainText(text string) string {
	var b strings.Builder
	for _, piece := range Ansi(text) {
		b.WriteString(piece.Text)
	}
	return b.String()
}

// lastLines are the last n lines of a text, without trailing blanks.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, " \r\n\t"), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}

// AnsiText shows the output of a terminal with its colours. It adds no blanks between the pieces.
func AnsiText(text string) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		var b strings.Builder
		for _, piece := range Ansi(text) {
			if piece.Class == "" {
				b.WriteString(html.EscapeString(piece.Text))
				continue
			}
			b.WriteString(`<span class="` + html.EscapeString(piece.Class) + `">` + html.EscapeString(piece.Text) + "</span>")
		}
		_, err := io.WriteString(w, b.String())
		return err
	})
}
