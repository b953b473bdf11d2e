package rest

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
)

const docsPath = "/docs"

// docsPolicy permits the page to load its own two files, and no other requests.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed docs
var docsFiles embed.FS

// page is the document for people: one page and the two files that it needs, all from this
// binary. It is made once, of the very document that programs get.
type page struct{ files map[string]servedFile }

type servedFile struct {
	kind string
	body []byte
	etag string
}

// newPage writes the page of a document.
func newPage(root object) (page, error) {
	text, err := docsFiles.ReadFile("docs/page.html")
	if err != nil {
		return page{}, err
	}
	layout, err := template.New("page").Parse(string(text))
	if err != nil {
		return page{}, fmt.Errorf("read the layout of %s: %w", docsPath, err)
	}
	var html bytes.Buffer
	if err := layout.Execute(&html, newDocsView(root)); err != nil {
		return page{}, fmt.Errorf("write %s: %w", docsPath, err)
	}
	p := page{}
	if p.files, err = errorPages(); err != nil {
		return page{}, err
	}
	p.files[docsPath] = serve("text/html; charset=utf-8", html.Bytes())
	for name, kind := range map[string]string{"docs.js": "text/javascript; charset=utf-8", "docs.css": "text/css; charset=utf-8"} {
		body, err := docsFiles.ReadFile("docs/" + name)
		if err != nil {
			return page{}, err
		}
		p.files[docsPath+"/"+name] = serve(kind, body)
	}
	return p, nil
}

func serve(kind string, body []byte) servedFile {
	sum := sha256.Sum256(body)
	return servedFile{kind: kind, body: body, etag: `"` + hex.EncodeToString(sum[:16]) + `"`}
}

// has reports whether a path is of the page.
func (p page) has(path string) bool {
	_, ok := p.files[strings.TrimSuffix(path, "/")]
	return ok
}

// ServeHTTP answers with the page or one of its files.
func (p page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const allow = "GET, HEAD, OPTIONS"
	file := p.files[strings.TrimSuffix(r.URL.Path, "/")]
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions:
		w.Header().Set("Allow", allow)
		w.WriteHeader(http.StatusNoContent)
		return
	default:
		w.Header().Set("Allow", allow)
		problem.Write(w, r, fault.New(problem.MethodNotAllowed, r.Method+" is not supported at "+strings.TrimSuffix(r.URL.Path, "/"), fault.Remedy("use "+allow)))
		return
	}
	r.Header = r.Header.Clone()
	r.Header.Del("Range")
	header := w.Header()
	header.Set("Content-Type", file.kind)
	header.Set("Content-Security-Policy", docsPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-cache") // ask each time: the ETag makes it cheap
	header.Set("ETag", file.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.body))
}

// docsView is what the layout shows.
type docsView struct {
	Summary, Description string
	Tags                 []docsTag
	Schemas              []docsSchema
}

type docsTag struct {
	Name, Description string
	Operations        []docsOperation
}

type docsOperation struct {
	ID, Method, Path, Description, Curl string
	Parameters                          []docsField
	Body                                *docsType
	Answer                              docsType
}

// docsField is a parameter, or a property of a schema.
type docsField struct {
	Name, In, Description, Rules string
	Required                     bool
	Type                         docsType
}

// docsType is a type in a word; Schema is the one that it leads to.
type docsType struct{ Text, Schema string }

type docsSchema struct {
	Name, Description string
	Values            []string
	Fields            []docsField
}

// newDocsView reads the document.
func newDocsView(root object) docsView {
	reader := docsReader{root}
	info := at(root, "info")
	view := docsView{Summary: words(info, "summary"), Description: words(info, "description")}
	byTag := map[string][]docsOperation{}
	paths := at(root, "paths")
	for _, path := range sortedKeys(paths) {
		item, _ := paths[path].(object)
		for _, method := range sortedKeys(item) {
			operation, _ := item[method].(object)
			tags, _ := operation["tags"].([]any)
			for _, tag := range tags {
				byTag[fmt.Sprint(tag)] = append(byTag[fmt.Sprint(tag)], reader.operation(strings.ToUpper(method), path, operation))
			}
		}
	}
	described := map[string]string{}
	tags, _ := root["tags"].([]any)
	for _, t := range tags {
		if tag, ok := t.(object); ok {
			described[words(tag, "name")] = words(tag, "description")
		}
	}
	for _, name := range sortedKeys(byTag) {
		view.Tags = append(view.Tags, docsTag{Name: name, Description: described[name], Operations: byTag[name]})
	}
	schemas := at(root, "components", "schemas")
	for _, name := range sortedKeys(schemas) {
		schema, _ := schemas[name].(object)
		view.Schemas = append(view.Schemas, reader.schema(name, schema))
	}
	return view
}

func sortedKeys[V any](of map[string]V) []string {
	keys := make([]string, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// words is a text of an object; "" if there is none.
func words(of object, name string) string {
	text, _ := of[name].(string)
	return strings.Join(strings.Fields(text), " ")
}
