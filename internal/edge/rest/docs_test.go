package rest

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shownTargets are the addresses in examples of bodies: text, not something to load.
var shownTargets = regexp.MustCompile(`https://[a-z]+\.example\.com|://…`)

func TestDocs(t *testing.T) {
	t.Parallel()
	e := edgeOver(t, &services{}, nil)
	get := func(t *testing.T, method, path string, headers ...string) *httptest.ResponseRecorder {
		t.Helper()
		req := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		e.ServeHTTP(w, req)
		return w
	}
	var root object
	require.NoError(t, json.Unmarshal(get(t, http.MethodGet, openAPIPath).Body.Bytes(), &root))
	shown := get(t, http.MethodGet, docsPath).Body.String()
	text := html.UnescapeString(shown)

	t.Run("page and files come from this server, and may load and run nothing else", func(t *testing.T) {
		t.Parallel()
		for path, kind := range map[string]string{docsPath: "text/html", docsPath + "/": "text/html", docsPath + "/docs.js": "text/javascript", docsPath + "/docs.css": "text/css"} {
			w := get(t, http.MethodGet, path)
			require.Equal(t, http.StatusOK, w.Code, path)
			require.Equal(t, kind+"; charset=utf-8", w.Header().Get("Content-Type"))
			policy := w.Header().Get("Content-Security-Policy")
			require.Contains(t, policy, "default-src 'none'")
			require.Contains(t, policy, "script-src 'self'")
			require.NotContains(t, policy, "unsafe")
			require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
			require.NotRegexp(t, `(?i)(https?:)?//[a-z0-9-]+\.[a-z]|@import|url\(`, shownTargets.ReplaceAllString(w.Body.String(), ""), path)
			require.Equal(t, http.StatusNotModified, get(t, http.MethodGet, path, "If-None-Match", w.Header().Get("ETag")).Code)
		}
		require.Equal(t, http.StatusMethodNotAllowed, get(t, http.MethodPost, docsPath).Code)
		require.Equal(t, http.StatusNotFound, get(t, http.MethodGet, docsPath+"/page.html").Code)
	})

	t.Run("nothing is run or styled in line", func(t *testing.T) {
		t.Parallel()
		require.NotRegexp(t, `(?i)<[^>]*\s(on[a-z]+|style)\s*=`, shown)
		require.NotRegexp(t, `(?i)<script[^>]*>[^<]`, shown)
		script := get(t, http.MethodGet, docsPath+"/docs.js").Body.String()
		for _, dangerous := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "fetch("} {
			require.NotContains(t, script, dangerous)
		}
		// What the script looks for is on the page.
		for _, id := range regexp.MustCompile(`getElementById\("([a-z]+)"\)`).FindAllStringSubmatch(script, -1) {
			require.Contains(t, shown, `id="`+id[1]+`"`)
		}
	})

	t.Run("what is written by hand is small", func(t *testing.T) {
		t.Parallel()
		total := 0
		entries, err := docsFiles.ReadDir("docs")
		require.NoError(t, err)
		for _, entry := range entries {
			info, err := entry.Info()
			require.NoError(t, err)
			total += int(info.Size())
		}
		require.Less(t, total, 40<<10)
	})

	t.Run("every operation is shown with its parameters, its types and a curl example", func(t *testing.T) {
		t.Parallel()
		operations := 0
		for path, item := range at(root, "paths") {
			for method, operation := range item.(object) {
				operations++
				id := words(operation.(object), "operationId")
				_, entry, found := strings.Cut(text, `<details class="operation" id="`+id+`">`)
				require.True(t, found, "%s is not shown", id)
				entry, _, _ = strings.Cut(entry, "</details>")
				require.Contains(t, entry, `>`+strings.ToUpper(method)+`</span> <code>`+path+`</code>`)
				require.Contains(t, entry, `curl -sS `)
				require.Contains(t, entry, `"$SERVO_URL/v1/`)
				require.Contains(t, entry, words(operation.(object), "description"))
				parameters, _ := operation.(object)["parameters"].([]any)
				for _, p := range parameters {
					parameter, _ := (docsReader{root}).follow(p.(object))
					require.Contains(t, entry, "<code>"+words(parameter, "name")+"</code>", id)
				}
				if _, has := operation.(object)["requestBody"]; has {
					require.Contains(t, entry, "-d '{", id)
				}
			}
		}
		require.Greater(t, operations, 50)
		require.Equal(t, operations, strings.Count(shown, `<details class="operation"`))
	})

	t.Run("every schema is shown, and every link leads somewhere", func(t *testing.T) {
		t.Parallel()
		for name := range at(root, "components", "schemas") {
			require.Contains(t, text, `id="schema-`+name+`"`)
		}
		for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(text, -1) {
			require.Contains(t, text, `id="`+link[1]+`"`)
		}
		require.NotContains(t, text, "duration.gte")
	})
}
