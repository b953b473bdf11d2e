package fault

import (
	"regexp"
	"strings"
)

// yamlLine is the line number in the error of a YAML parser.
var yamlLine = regexp.MustCompile(`line (\d+): `)

// YAMLMessage describes an error of a YAML parser for users, with its line. The parser's own messages
// are about its states and the types of Go.
func YAMLMessage(err error) string {
	text := err.Error()
	place := ""
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		place = "line " + found[1] + ": "
	}
	for _, known := range []struct{ part, message string }{
		{"mapping values are not allowed", "a value with ': ' in it needs quotes"},
		{"tab character", "is indented with a tab; use spaces"},
		{"cannot start any token", "a value that begins with a special character or a tab needs quotes or spaces"},
		{"could not find expected ':'", "a ':' is missing"},
		{"block sequence entries are not allowed", "a list begins where a value was expected"},
		{"expected '-' indicator", "a list ends without its indentation; begin each item with '- '"},
		{"expected ',' or ']'", "a list in brackets is not closed with ]"},
		{"expected ',' or '}'", "an object in braces is not closed with }"},
		{"expected key", "the indentation does not match the lines above"},
		{"unexpected end of stream", "a quote is not closed"},
		{"unknown anchor", "an alias names an anchor that does not exist"},
		{"excessive aliasing", "its aliases expand to too many values"},
		{"control characters", "has control characters"},
		{"UTF-", "is not text in UTF-8"},
		{"octet", "is not text in UTF-8"},
		{"already defined", "a name is set more than once"},
		{"cannot unmarshal", "a value has another type than expected"},
	} {
		if strings.Contains(text, known.part) {
			return place + known.message
		}
	}
	return place + "cannot be read as YAML"
}
