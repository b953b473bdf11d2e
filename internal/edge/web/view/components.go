package view

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Link is a label with an address.
type Link struct{ Label, At string }

// Tab is a part of a page.
type Tab struct {
	Label, At string
	Current   bool
}

// Option is an entry of a select.
type Option struct{ Value, Label string }

// Paging is the place of a page in a list.
type Paging struct {
	First           bool
	FirstAt, NextAt string
}

// htmxConfig disables the styles of htmx, which the content policy would have to allow, and
// keeps open elements open while the page around them is refreshed.
const htmxConfig = `{"includeIndicatorCSS": false, "morphIgnore": ["data-htmx-powered", "open"], "morphSkip": "[hx-morph-skip], dialog[open]"}`

// Question is a confirmation before an action.
type Question struct {
	ID     string // of the dialog, unique on the page
	Button string // a verb
	Title  string
	Text   string // the effect
	Action string // address of the form
	Danger bool   // the action cannot be undone
	Reason bool   // the form has a field for a reason
}

// stateOptions are the options of a filter by state; the first matches any state.
func stateOptions(anyState string, states ...string) []Option {
	options := []Option{{"", anyState}}
	for _, s := range states {
		options = append(options, Option{s, LookOf(s).Label})
	}
	return options
}

// plainOptions are options whose label is their value.
func plainOptions(values ...string) (options []Option) {
	for _, v := range values {
		options = append(options, Option{v, v})
	}
	return options
}

// sinceOptions are the options of a filter by age.
func sinceOptions() []Option {
	return []Option{{"", "any time"}, {"1h", "last hour"}, {"24h", "last 24 hours"}, {"7d", "last 7 days"}, {"30d", "last 30 days"}}
}

// columnIf is a heading of a column that only some lists have.
func columnIf(shown bool, heading string) string {
	if shown {
		return heading
	}
	return ""
}

func current(is bool) string {
	if is {
		return "page"
	}
	return "false"
}

// sentence joins a field and its problem, with a capital letter and a full stop.
func sentence(field, message string) string {
	text := message
	if name, absent := strings.CutPrefix(message, "no "+field+" "); absent && field != "" {
		text = field + " " + strconv.Quote(strings.Trim(name, `"`)) + " does not exist"
	} else if field != "" {
		text = field + " " + message
	}
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text) // names of providers may begin with any letter
	text = string(unicode.ToUpper(first)) + text[size:]
	if strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}
