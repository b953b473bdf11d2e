package tidy

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// word is a word or phrase that Servo does not use, and what to write in its place.
type word struct {
	pattern *regexp.Regexp
	instead string
}

// words keep texts in the vocabulary of the field. Each has cost a reader a second look.
var words = []word{
	newWord(`nobody|no one|somebody|someone|anybody|anyone|everybody|everyone|whoever`, "name the subject: the caller, the operator, a worker, another server"),
	newWord(`say|says|said|saying`, "report, state, set, specify, name, define"),
	newWord(`tell|tells|told|telling`, "report, notify, distinguish"),
	newWord(`hear|hears|heard|hearing`, "receive, be notified"),
	newWord(`mend|mends|mended|mending`, "repair, fix"),
	newWord(`bring|brings|brought|bringing`, "return, carry, include"),
	newWord(`stand|stands|stood`, "be, lie; name the place"),
	newWord(`go on|goes on|going on|went on|gone on`, "continue, proceed"),
	newWord(`take out|takes out|taken out|took out`, "delete, remove"),
	newWord(`in peace|in earnest|of old|anew|for ever`, "state it plainly"),
	newWord(`stranger|strangers|gift|deserted|unmanned|dearest`, "name it after what it is"),
	newWord(`short way`, "handoff"),
	newWord(`is there already|are there already|is there no more|is not there|are not there|that (is|are) there|is there (twice|several times|\w+ times)`, "already exists, does not exist, is set more than once"),
	newWord(`believe|believes|believed|believing`, "accept, trust, refuse"),
	newWord(`in vain|all the same|left alone|is away|so many (bytes|tasks|tenants|places)|so much`, "state it plainly: without effect, nevertheless, does not answer, a number of"),
	newWord(`his|her|he|she|him`, "they, their"),
}

func newWord(alternatives, instead string) word {
	return word{regexp.MustCompile(`(?i)\b(` + alternatives + `)\b`), instead}
}

// allowed are phrases in which such a word is right.
var allowed = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\bstands? for\b`), // of an abbreviation or a sign
	regexp.MustCompile(`(?i)\bstand(by|alone)\b`),
	regexp.MustCompile(`http\.No Body`),
	regexp.MustCompile(`"nobody\\?"`), // the Unix user
}

// wordEnd finds the ends of words within an identifier.
var wordEnd = regexp.MustCompile(`([a-z0-9])([A-Z])|_+`)

// UnusualWords finds words that Servo does not use, in what people read: code, comments, identifiers,
// tests, pages and documents that are written by hand. It leaves out applied migrations, and the
// list of the words itself with its tests.
func (r *Repo) UnusualWords() ([]Finding, error) {
	keep := func(name string) bool {
		if strings.Contains(name, "/migrations/") || strings.HasPrefix(name, "third_party/") || strings.Contains(name, "/vendor/") || strings.HasSuffix(name, "tidy/words.go") || strings.HasSuffix(name, "tidy/tidy_test.go") {
			return false
		}
		if !isProduct(name) && !strings.HasSuffix(name, "_test.go") {
			return false
		}
		return slices.Contains([]string{".go", ".md", ".templ", ".proto", ".sql", ".sh", ".py", ".js", ".css", ".yaml", ".yml"}, path.Ext(name)) || path.Base(name) == "Makefile"
	}
	return r.each(keep, func(name string, data []byte) []Finding {
		if generated.Match(data) {
			return nil
		}
		var found []Finding
		for i, line := range lines(data) {
			line = wordEnd.ReplaceAllString(line, "$1 $2")
			for _, phrase := range allowed {
				line = phrase.ReplaceAllString(line, "")
			}
			for _, w := range words {
				if hit := w.pattern.FindString(line); hit != "" {
					found = append(found, Finding{name, i + 1, fmt.Sprintf("%q: %s", hit, w.instead)})
				}
			}
		}
		return found
	})
}
