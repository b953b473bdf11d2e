package view

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Crumb is a step on the way to a page.
type Crumb struct{ Label, Path string }

// htmxConfig: no styles of its own, which the content policy would have to allow; and what a
// person has opened stays as it is while the page around it is refreshed.
const htmxConfig = `{"includeIndicatorCSS": false, "morphIgnore": ["data-htmx-powered", "open"], "morphSkip": "[hx-morph-skip], dialog[open]"}`

// Question is asked before something is done.
type Question struct {
	ID     string // of the dialog, unique on the page
	Button string // what it does, as a word of command
	Title  string
	Text   string // what will happen
	Action string // where the form goes
	Danger bool   // it cannot be taken back
	Reason bool   // a reason can be given
}

func current(is bool) string {
	if is {
		return "page"
	}
	return "false"
}

func has(all []string, one string) bool { return slices.Contains(all, one) }

// sentence joins a field and what is wrong with it.
func sentence(field, message string) string {
	text := message
	if field != "" {
		text = field + " " + message
	}
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text) // names of others may begin with any letter
	text = string(unicode.ToUpper(first)) + text[size:]
	if strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}

func prefixed(text, prefix string) bool { return strings.HasPrefix(text, prefix) }
