package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var staticFiles embed.FS

// files are the static files of pages. Their names contain their digest, so that browsers may cache
// them without limit.
type files struct {
	byName map[string]string // hashed name by plain name
	bodies map[string]file   // by hashed name
}

type file struct {
	kind string
	body []byte
	gzip []byte // the compressed body; nil if it is not shorter
}

func readFiles() (files, error) {
	f := files{byName: map[string]string{}, bodies: map[string]file{}}
	for _, parts := range [][]string{
		{"servo.css"},
		{"servo.js"},
		{"logs.js"},
		{"graph.js"},
		{"icon.svg"},
		// One file: htmx processes the page right after it is loaded and ignores extensions that
		// load later, as they would on a slow connection. The page would not be live.
		{"vendor/htmx.min.js", "vendor/hx-sse.min.js"},
	} {
		var body []byte
		for _, name := range parts {
			part, err := staticFiles.ReadFile("static/" + name)
			if err != nil {
				return f, fmt.Errorf("read static files: %w", err)
			}
			if body != nil {
				body = append(body, ";\n"...)
			}
			body = append(body, part...)
		}
		name := parts[0]
		sum := sha256.Sum256(body)
		ext := path.Ext(name)
		hashed := strings.TrimSuffix(path.Base(name), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		kind := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}[ext]
		f.byName[path.Base(name)] = "/ui/static/" + hashed
		f.bodies[hashed] = file{kind: kind, body: body, gzip: compressed(body)}
	}
	return f, nil
}

func (f files) serve(w http.ResponseWriter, r *http.Request) {
	found, ok := f.bodies[r.PathValue("file")]
	if !ok {
		http.NotFound(w, r) // a page of an older version is open: a reload helps
		return
	}
	w.Header().Set("Content-Type", found.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	if found.gzip != nil && compress(w, r) {
		_, _ = w.Write(found.gzip)
		return
	}
	_, _ = w.Write(found.body)
}
