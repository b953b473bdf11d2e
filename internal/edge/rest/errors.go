package rest

import (
	"bytes"
	"fmt"
	"html/template"
	"regexp"
	"slices"
	"strings"

	"go.arco.dev/servo/docs"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
)

const errorsPath = "/errors"

// errorPage is what people read about one code, or the list of all.
type errorPage struct {
	Type, Title, Code string
	HTTP, GRPC        string
	Meaning, Remedy   []errorPart
	Rows              []errorPage // of the list
}

// errorPart is a piece of a text: words, or code.
type errorPart struct {
	Text string
	Code bool
}

// errorPages writes a page for the type of each code, and the list of all, from docs/errors.md:
// the type of a problem is an address that answers.
func errorPages() (map[string]servedFile, error) {
	text, err := docsFiles.ReadFile("docs/error.html")
	if err != nil {
		return nil, err
	}
	layout, err := template.New("error").Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("read the layout of %s: %w", errorsPath, err)
	}
	all := errorsIn(docs.Errors)
	pages := append(slices.Clone(all), errorPage{Type: errorsPath, Title: "Errors", Rows: all})
	files := make(map[string]servedFile, len(pages))
	for _, p := range pages {
		var html bytes.Buffer
		if err := layout.Execute(&html, p); err != nil {
			return nil, fmt.Errorf("write %s: %w", p.Type, err)
		}
		files[p.Type] = serve("text/html; charset=utf-8", html.Bytes())
	}
	return files, nil
}

// errorRow is a row of the table of codes.
var errorRow = regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| `(" + errorsPath + "/[a-z-]+)` \\| ([^|]*) \\| ([^|]*) \\| ([^|]*) \\| ([^|]*) \\|$")

// errorsIn reads the table of codes.
func errorsIn(page string) (found []errorPage) {
	for _, row := range errorRow.FindAllStringSubmatch(page, -1) {
		found = append(found, errorPage{
			Code: row[1], Type: row[2], HTTP: row[3], GRPC: row[4], Meaning: errorParts(row[5]), Remedy: errorParts(row[6]),
			Title: problem.TitleOf(fault.Code(row[1])),
		})
	}
	return found
}

// markdownLink is a link, of which the text is kept: it leads to a file of the repository.
var markdownLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// errorParts splits a cell at its backticks.
func errorParts(cell string) (parts []errorPart) {
	for i, text := range strings.Split(markdownLink.ReplaceAllString(cell, "$1"), "`") {
		if text != "" {
			parts = append(parts, errorPart{Text: text, Code: i%2 == 1})
		}
	}
	return parts
}
